"""A command in a terminal of its own: what it draws there, and Ctrl-C."""

from __future__ import annotations

import asyncio
import os
import pty
import re
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from tests.support.commands import COMMAND, clean_env
from tests.support.worker import until

ESCAPES = re.compile(r"\x1b(?:\[[0-9;?]*[A-Za-z]|\(B|[=>])")
CTRL_C = b"\x03"


class Terminal:
    """What was drawn so far, without the escape sequences."""

    def __init__(self, process: Process, side: int) -> None:
        self.process = process
        self.drawn = ""
        self._side = side
        os.set_blocking(side, False)

    async def shows(self, pattern: str) -> str:
        """Wait until something drawn from now on matches; returns it."""
        begin = len(self.drawn)

        async def look() -> str:
            self._read()
            found = re.search(pattern, ESCAPES.sub("", self.drawn[begin:]))
            return found[0] if found else ""

        return await until(look, 60, f"{pattern!r} in the terminal")

    async def interrupt(self) -> int:
        """Press Ctrl-C; returns the exit code."""
        os.write(self._side, CTRL_C)

        async def ended() -> bool:
            self._read()  # who draws into a terminal that nobody reads never ends
            return self.process.returncode is not None

        await until(ended, 30, "the end of the command")
        return await self.process.wait()

    def _read(self) -> None:
        with suppress(BlockingIOError, OSError):
            while part := os.read(self._side, 1 << 16):
                self.drawn += part.decode(errors="replace")


@asynccontextmanager
async def terminal(*words: str | Path) -> AsyncIterator[Terminal]:
    """A command that runs in a terminal of 100 columns and 40 lines."""
    own, its = pty.openpty()
    env = clean_env({"TERM": "xterm-256color", "COLUMNS": "100", "LINES": "40"})
    process = await asyncio.create_subprocess_exec(
        *COMMAND,
        *map(str, words),
        env=env,
        stdin=its,
        stdout=its,
        stderr=its,
        start_new_session=True,
        # The first terminal that a session opens is its own: Ctrl-C there reaches the process.
        preexec_fn=lambda: os.close(os.open(os.ttyname(0), os.O_RDWR)),
    )
    os.close(its)
    try:
        yield Terminal(process, own)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        os.close(own)
