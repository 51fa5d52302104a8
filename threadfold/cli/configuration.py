"""Writes ``DIR/threadfold.toml``, by which the other commands find the stack of ``up``."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import msgspec

from streams.settings.settings import Settings
from threadfold.embedded.folder import write_private

ALWAYS = frozenset(
    {
        "kafka",
        "redis",
        "gateway_host",
        "gateway_port",
        "gateway_url",
        "partitions",
        "replication",
        "min_isr",
    }
)
HEAD = (
    "# `threadfold up` writes this file at every start. To change a setting, set THREADFOLD_<NAME>"
    " for `up`.\n"
)


def write_config(path: Path, settings: Settings) -> None:
    """Write addresses, topic settings and all that differs from its default.

    Only the owner can read the file: it holds the passwords of Kafka and Redis.
    """
    lines = [HEAD]
    for field in msgspec.structs.fields(Settings):
        value = getattr(settings, field.name)
        default = (
            field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
        )
        if field.name in ALWAYS or value != default:
            lines.append(f"{field.name} = {_toml(value)}\n")
    write_private(path, "".join(lines))


def used_own_master_keys(path: Path, name: str) -> bool:
    """Whether a file that an earlier ``up`` wrote names master keys in a file of its folder's."""
    if not path.exists():
        return False
    try:
        written = tomllib.loads(path.read_text("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError):
        return False
    return Path(str(written.get("master_keys_file", ""))).name == name


def _toml(value: Any) -> str:
    """A value in TOML, tables inline. Scalars look as in JSON, except DEL in a string."""
    if isinstance(value, msgspec.Struct):
        value = msgspec.to_builtins(value)
    if isinstance(value, dict):
        # TOML has no null; wherever one is allowed, it is the default.
        return (
            "{"
            + ", ".join(
                f"{_toml(str(name))} = {_toml(item)}"
                for name, item in value.items()
                if item is not None
            )
            + "}"
        )
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_toml(item) for item in value) + "]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
