"""Sides of a figure in processes of their own: how one is told what to do, and how it answers.

A side runs as ``python -m benchmarks.sides.<name>``, gets one JSON object as its argument and
prints one JSON object as its last line, with ``value`` and what else it has to tell. So nothing of
one side is in another one's event loop or memory.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.harness import Measured
from benchmarks.support.stacks import Bench
from streams.settings.settings import Settings

ROOT = Path(__file__).resolve().parents[2]
BEGIN = '{"value":'


class SideFailed(RuntimeError):
    """A side's process ended without an answer; the message has the end of what it said."""


async def start_side(name: str, job: Mapping[str, Any]) -> asyncio.subprocess.Process:
    """Start a side's process; its stdin stays open, its stderr is ours."""
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]),
    }
    command = [sys.executable, "-m", f"benchmarks.sides.{name}", json.dumps(job)]
    return await asyncio.create_subprocess_exec(
        *command,
        env=env,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=64 << 20,
    )


async def answer_of(
    name: str, process: asyncio.subprocess.Process, limit: float = 900.0
) -> dict[str, Any]:
    """Wait for a side's answer and its end; one that takes longer than ``limit`` seconds is
    ended.
    """
    try:
        async with asyncio.timeout(limit):
            out, _ = await process.communicate(
                b""
            )  # which closes its stdin; without an input it would stay open
    except TimeoutError:
        process.kill()
        await process.wait()
        raise SideFailed(f"side {name} did not end within {limit:g} s") from None
    lines = out.decode().strip().splitlines()
    # Faust puts a terminal's escapes before what is printed.
    answers = [line[line.index(BEGIN) :] for line in lines if BEGIN in line]
    if process.returncode != 0 or not answers:
        raise SideFailed(f"side {name} ended with {process.returncode}: {' / '.join(lines[-3:])}")
    answer: dict[str, Any] = json.loads(answers[-1])
    return answer


async def run_side(name: str, bench: Bench, settings: Settings, **job: Any) -> Measured:
    """Run one side to its end on a stack and return what it measured."""
    process = await start_side(name, job_of(bench, settings, **job))
    answer = await answer_of(name, process)
    return Measured(answer.pop("value"), answer.pop("usage", {}), answer)


def job_of(bench: Bench, settings: Settings, **more: Any) -> dict[str, Any]:
    """What every side is told: the settings, and whom to meter."""
    return {"settings": msgspec.to_builtins(settings), "pids": bench.pids, **more}


def read_job() -> tuple[Settings, dict[str, list[int]], dict[str, Any]]:
    """In a side: its settings, the process groups to meter (its own included), and the rest of the
    job.
    """
    job = json.loads(sys.argv[1])
    groups = {"process": [os.getpid()], **job.pop("pids")}
    return msgspec.convert(job.pop("settings"), Settings), groups, job


def answer(value: float, **more: Any) -> None:
    """In a side: print the answer."""
    print(json.dumps({"value": value, **more}), flush=True)
