"""Running the threadfold command with nothing of this process' settings.

``cli`` and ``ok`` run a command line in a thread of this process: a process of its own takes a
second to import what is imported here already. ``start`` makes a process: for what signals, pipes
and exit codes do, and for the commands that run processes themselves.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import pytest

from threadfold.cli.main import main

COMMAND = [sys.executable, "-m", "threadfold.cli"]
PROCESSES = {"up", "worker", "gateway", "rebuild", "generations", "projection"}
"""Commands that handle signals, which only a main thread may, or never end by themselves."""

_one_at_a_time = asyncio.Lock()


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


def error_line(capsys: pytest.CaptureFixture[str]) -> str:
    """The one line that ``main`` wrote to stderr in this process."""
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1, lines
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
    limit: float = 120.0,
) -> Ran:
    """Run a command to its end, at most ``limit`` seconds."""
    given = text.encode() if isinstance(text, str) else text
    if args and str(args[0]) in PROCESSES:
        return await _in_a_process(args, env, given, limit)
    async with _one_at_a_time, asyncio.timeout(limit):
        with _streams(given) as (out, err), mock.patch.dict(os.environ, clean_env(env), clear=True):
            code = await asyncio.to_thread(main, [str(arg) for arg in args])
    return Ran(code, out.getvalue().decode(), err.getvalue().decode())


async def _in_a_process(
    args: tuple[str | Path, ...], env: Mapping[str, str] | None, given: bytes, limit: float
) -> Ran:
    process = await start(*args, env=env, stdin=asyncio.subprocess.PIPE)
    try:
        async with asyncio.timeout(limit):
            out, err = await process.communicate(given)
    except BaseException:
        process.kill()
        await process.wait()
        raise
    assert process.returncode is not None
    return Ran(process.returncode, out.decode(), err.decode())


@contextlib.contextmanager
def _streams(given: bytes) -> Iterator[tuple[io.BytesIO, io.BytesIO]]:
    """This process' standard streams, replaced; what was written is complete at the end."""
    out, err = io.BytesIO(), io.BytesIO()
    written = [io.TextIOWrapper(each, encoding="utf-8", write_through=True) for each in (out, err)]
    read = io.TextIOWrapper(io.BytesIO(given), encoding="utf-8")
    with (
        contextlib.redirect_stdout(written[0]),
        contextlib.redirect_stderr(written[1]),
        mock.patch.object(sys, "stdin", read),
    ):
        yield out, err
        for each in written:
            each.flush()
            each.detach()


async def ok(
    *args: str | Path, env: Mapping[str, str] | None = None, text: str | bytes = b""
) -> Ran:
    """Run a command that must succeed."""
    ran = await cli(*args, env=env, text=text)
    assert ran.code == 0, f"{args} exited with {ran.code}: {ran.err or ran.out}"
    return ran
