"""Running the threadfold command as a user does: a process of its own, with nothing of this one's
settings.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

COMMAND = [sys.executable, "-m", "threadfold.cli"]


class Ran(NamedTuple):
    """What a command left: its exit code, and what it wrote."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()

    @property
    def said(self) -> str:
        """The one line on stderr; fails the test if there is more or less."""
        lines = self.err.splitlines()
        assert len(lines) == 1, self.err
        return lines[0]


def clean_env(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment without any setting of threadfold but those given."""
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith("THREADFOLD_")},
        **(extra or {}),
    }


async def start(
    *args: str | Path, env: Mapping[str, str] | None = None, stdin: int | None = None
) -> asyncio.subprocess.Process:
    """Start a command with its output in pipes."""
    return await asyncio.create_subprocess_exec(
        *COMMAND,
        *map(str, args),
        env=clean_env(env),
        stdin=asyncio.subprocess.DEVNULL if stdin is None else stdin,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        limit=1 << 24,
    )


async def cli(
    *args: str | Path,
    env: Mapping[str, str] | None = None,
    text: str | bytes = b"",
    limit: float = 60.0,
) -> Ran:
    """Run a command to its end, at most ``limit`` seconds."""
    process = await start(*args, env=env, stdin=asyncio.subprocess.PIPE)
    try:
        async with asyncio.timeout(limit):
            out, err = await process.communicate(text.encode() if isinstance(text, str) else text)
    except BaseException:
        process.kill()
        await process.wait()
        raise
    assert process.returncode is not None
    return Ran(process.returncode, out.decode(), err.decode())


async def ok(
    *args: str | Path, env: Mapping[str, str] | None = None, text: str | bytes = b""
) -> Ran:
    """Run a command that must succeed."""
    ran = await cli(*args, env=env, text=text)
    assert ran.code == 0, f"{args} exited with {ran.code}: {ran.err or ran.out}"
    return ran
