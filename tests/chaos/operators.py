"""What an operator does while everything runs and breaks: the commands, as processes of their own."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping

from tests.chaos.platform import Platform

LIMIT = 60.0
"""Seconds that a command is given."""


async def rebuild(platform: Platform, policy: Mapping[str, object] | None = None) -> None:
    """``threadfold rebuild --switch``, repeated once if it was interrupted by another fault."""
    given: list[str] = []
    if policy is not None:
        file = platform.folder / "policy.json"
        file.write_text(json.dumps(policy))
        given = ["--policy", str(file)]
    for _ in range(2):
        code, said = await _command(platform, "rebuild", "--switch", "--sample", "5", *given)
        if code == 0:
            platform.switches += 1
            return
    platform.notes.append(f"a rebuild ended with {code}: {said}")


async def _command(platform: Platform, *args: str) -> tuple[int | None, str]:
    """The exit code of a command and its last line; None for one that did not end."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "threadfold.cli", *args),
        env=platform.environment(),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        async with asyncio.timeout(LIMIT):
            said, _ = await process.communicate()
    except TimeoutError:
        process.kill()
        await process.wait()
        return None, f"it did not end within {LIMIT:g} s"
    lines = said.decode(errors="replace").splitlines()
    return process.returncode, lines[-1][:200] if lines else ""
