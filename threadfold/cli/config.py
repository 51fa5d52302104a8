"""``config show``: the settings in force, and where each comes from."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import click
import msgspec

from projections.redis.address import shown
from streams.settings.secret_files import SECRETS
from streams.settings.settings import Settings, variable_of
from threadfold.cli.common import configuration_of, data_option, print_json, print_line
from threadfold.cli.whole_help import Group

HIDDEN = "****"
SECRET = frozenset({*SECRETS, "master_keys"} - {"redis"})
"""Settings that are shown as set or not; of ``redis`` the address is shown."""
DEFAULT = "default"


class Shown(NamedTuple):
    """A setting as it may be shown, and where it comes from."""

    name: str
    value: Any
    source: str


@click.group(cls=Group)
def config() -> None:
    """Show the settings."""


@config.command()
@click.option(
    "--set", "only_set", is_flag=True, help="Leave out settings with their default values."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on each line.")
@data_option
def show(only_set: bool, as_json: bool, data: Path | None) -> None:
    """Print each setting in force and its source: the environment, a file or the default. Secrets
    are masked.

    The command connects to nothing. It refuses settings with which no service would start.
    """
    for one in effective(configuration_of(data)):
        if only_set and one.source == DEFAULT:
            continue
        if as_json:
            print_json(one._asdict())
        else:
            print_line(f"{one.name} = {msgspec.json.encode(one.value).decode()}  # {one.source}")


def effective(path: Path | None) -> Iterator[Shown]:
    """All settings of the file and the environment; raises InvalidSettings."""
    settings = Settings.load(config=path)
    sources: dict[str, str] = {}
    for where, layer in Settings.layers(config=path):
        sources |= {name: _source(where, name) for name in layer}
    for name in Settings.__struct_fields__:
        value = masked(name, msgspec.to_builtins(getattr(settings, name)))
        yield Shown(name, value, sources.get(name, DEFAULT))


def _source(where: str, name: str) -> str:
    if where != "environment":
        return where
    variable = variable_of(name)
    return variable if os.environ.get(variable) else f"{variable}_FILE"


def masked(name: str, value: Any) -> Any:
    """A setting's value as it may be shown: secrets are not, at any depth."""
    if name == "redis" and value:
        return shown(value)
    if name in SECRET or name == "key":
        return HIDDEN if value else value
    if isinstance(value, dict):
        return {inner: masked(inner, item) for inner, item in value.items()}
    return value
