"""``keys new-master|rotate``: the master keys, which wrap the conversations' data keys."""

from __future__ import annotations

from pathlib import Path

import click

from streams.encryption.master_keys import new_master as make_master
from streams.settings.settings import Settings
from streams.stack import open_stack
from threadfold.cli.common import data_option, load_settings, run
from threadfold.cli.whole_help import Group


@click.group(cls=Group)
def keys() -> None:
    """Make master keys, and wrap data keys with the current one."""


@keys.command("new-master")
@click.option("--id", "name", metavar="ID", help="The key's id [default: a random one].")
def new_master(name: str | None) -> None:
    """Print a new master key as `id:base64`: a line of the master key file, or an entry of
    THREADFOLD_MASTER_KEYS.

    Put it first to make it the current key. Keep the other keys until `threadfold keys rotate` has
    run. No other copy exists: without the key, what it protects is lost.
    """
    click.echo(make_master(name))


@keys.command()
@data_option
def rotate(data: Path | None) -> None:
    """Wrap all data keys with the current master key, the first configured; print `rotated: n`.

    Run it again after an interruption: it continues. Remove the old key once every service runs
    with the new one.
    """
    click.echo(f"rotated: {run(_rotate(load_settings(data)))}")


async def _rotate(settings: Settings) -> int:
    async with open_stack(settings) as stack:
        return await stack.keys.rotate()
