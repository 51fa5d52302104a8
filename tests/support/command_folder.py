"""A folder for the commands on a real stack, and what its worker made of an append."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from streams.settings.settings import Settings
from tests.support.commands import cli
from tests.support.worker import until
from threadfold.cli.common import CONFIG_FILE
from threadfold.cli.configuration import write_config


def folder(path: Path, settings: Settings) -> Path:
    """A folder as ``up`` leaves one, for ``--data``."""
    path.mkdir(exist_ok=True)
    write_config(path / CONFIG_FILE, settings)
    return path


async def window_of(data: Path, tenant: str, conversation: str, count: int) -> dict[str, Any]:
    """The context document, once the window holds ``count`` events."""

    async def look() -> dict[str, Any] | None:
        ran = await cli("context", tenant, conversation, "--data", data)
        document: dict[str, Any] | None = json.loads(ran.out) if ran.code == 0 else None
        return document if document is not None and document["count"] >= count else None

    found: dict[str, Any] = await until(look, what=f"{count} events in {conversation}")
    return found
