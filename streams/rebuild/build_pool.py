"""Building in several processes: each has a share of the partitions, this one starts them, hears of
their progress, and ends them.

A process gets its work and its end through its standard input. However this one goes, SIGKILL
included, the kernel closes that pipe, and the process exits when it reads the end: there are no
orphans, on any system.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Mapping

import msgspec

from projections.errors import ThreadfoldError
from streams.rebuild.build import Bounds
from streams.settings.settings import Settings

GRACE = 10.0
"""Seconds in which a process that is to stop may write what it has folded; then it is killed."""
GOES_ON = "what is built stays, and the same command goes on"


class BuildFailed(ThreadfoldError):
    """One of the processes that build a generation failed or died; what it has written stays."""


class Job(msgspec.Struct):
    """What a process is to build, on its standard input as one line of JSON."""

    settings: Settings
    generation: int
    partitions: list[int]
    events: int
    size: int
    seconds: float
    windows: int


class BuildReport(msgspec.Struct, omit_defaults=True):
    """A line that a process writes to its standard output: records folded since the line before,
    that it is done, or why it is not.
    """

    folded: int = 0
    done: bool = False
    error: str = ""


def shares(left: Mapping[int, int], jobs: int) -> list[list[int]]:
    """Partitions dealt out so that each process has about as many records: the largest first, to
    whoever has least. None is empty.
    """
    parts: list[list[int]] = [[] for _ in range(max(1, min(jobs, len(left))))]
    sums = [0] * len(parts)
    for number in sorted(left, key=lambda n: (-left[n], n)):
        least = min(range(len(parts)), key=lambda i: (sums[i], len(parts[i])))
        parts[least].append(number)
        sums[least] += left[number]
    return parts


async def build_in_processes(
    settings: Settings,
    generation: int,
    parts: list[list[int]],
    bounds: Bounds,
    progress: Callable[[int], None],
) -> None:
    """Build a generation's partitions, a process for each of ``parts``; they share the bounds.
    ``progress`` is called with records folded.

    When one fails, or the caller is cancelled, the others write what they have folded and end,
    within :data:`GRACE` seconds.

    Raises:
        BuildFailed: one of them failed; the message names which partitions, and why.
    """
    mine = bounds.of(len(parts))
    try:
        async with asyncio.TaskGroup() as group:
            for part in parts:
                group.create_task(
                    _one(
                        Job(
                            settings,
                            generation,
                            part,
                            mine.events,
                            mine.size,
                            mine.seconds,
                            mine.windows,
                        ),
                        progress,
                    )
                )
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None


async def _one(job: Job, progress: Callable[[int], None]) -> None:
    # What this process imports is what the other is to import; "-P": nothing is imported from the
    # folder one happens to stand in.
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    debug = os.environ.get("THREADFOLD_DEBUG", "") not in ("", "0")
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-P",
        "-m",
        "streams.rebuild.build_worker",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=None if debug else asyncio.subprocess.DEVNULL,
        env=env,
        start_new_session=True,  # Ctrl-C is for this process, which ends them in order
    )
    assert process.stdin is not None and process.stdout is not None
    where = f"generation {job.generation}, partitions {', '.join(map(str, sorted(job.partitions)))}"
    try:
        process.stdin.write(msgspec.json.encode(job) + b"\n")
        async for line in process.stdout:
            report = msgspec.json.decode(line, type=BuildReport)
            progress(report.folded)
            if report.error:
                raise BuildFailed(f"{where}: {report.error}; {GOES_ON}")
            if report.done:
                return
        raise BuildFailed(
            f"{where}: the process that builds them {_end_of(await process.wait())}; {GOES_ON}"
        )
    finally:
        await _end(process)


async def _end(process: asyncio.subprocess.Process) -> None:
    """Have it stop, and see that it did."""
    assert process.stdin is not None
    waiting = asyncio.ensure_future(process.wait())
    if process.returncode is None:
        process.stdin.write(b"stop\n")
    try:
        await asyncio.wait({waiting}, timeout=GRACE)
    finally:
        if not waiting.done():
            process.kill()
        process.stdin.close()
    await waiting


def _end_of(code: int) -> str:
    return f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
