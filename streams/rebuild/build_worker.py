"""A process that builds some partitions of a generation: ``python -m
streams.rebuild.build_worker``, started by ``streams.rebuild.build_pool``.

Its standard input is its work (one line), then ``stop`` or the end: with ``stop`` it writes what it
has folded, and exits; when the input ends, its parent has ended, and it exits at once.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator

import msgspec

from projections.errors import ThreadfoldError
from streams.control.generations import known_generation
from streams.rebuild.build import Bounds, Builder, Stopped
from streams.rebuild.build_pool import BuildReport, Job
from streams.runtime.tune_gc import tune_gc
from streams.stack import open_stack

EVERY = 0.2
"""Seconds between two reports of progress."""


def _input() -> Iterator[bytes]:
    """The lines of standard input, read without Python's buffer: a thread that waits in there
    hinders the interpreter's end.
    """
    rest = b""
    while piece := os.read(0, 1 << 16):
        *lines, rest = (rest + piece).split(b"\n")
        yield from lines


def _send(report: BuildReport) -> None:
    os.write(1, msgspec.json.encode(report) + b"\n")


class _Progress:
    """Reports progress to the parent, now and then."""

    def __init__(self) -> None:
        self._folded = 0
        self._at = time.monotonic()

    def __call__(self, n: int) -> None:
        self._folded += n
        if time.monotonic() - self._at >= EVERY:
            self.flush()

    def flush(self) -> None:
        _send(BuildReport(self._folded))
        self._folded, self._at = 0, time.monotonic()


async def _build(job: Job, stop: threading.Event) -> None:
    progress = _Progress()
    async with open_stack(job.settings) as stack:
        generation = known_generation(stack.control.state, job.generation)
        bounds = Bounds(job.events, job.size, job.seconds, job.windows)
        tune_gc()
        builder = Builder(
            job.settings,
            stack.control,
            stack.log,
            stack.store,
            generation,
            job.partitions,
            bounds=bounds,
            progress=progress,
            stopping=stop.is_set,
        )
        await builder.run()
        progress.flush()


def main() -> int:
    """Build what standard input says; returns the exit code."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    lines = _input()
    job = msgspec.json.decode(next(lines), type=Job)
    stop = threading.Event()

    def listen() -> None:
        for line in lines:
            if line == b"stop":
                stop.set()
        os._exit(1)

    threading.Thread(target=listen, name="parent", daemon=True).start()
    try:
        asyncio.run(_build(job, stop))
    except Stopped:
        return 1
    except ThreadfoldError as error:
        _send(BuildReport(error=str(error)))
        return 2
    except Exception as error:  # noqa: BLE001 (whatever it is, the parent reports it in one line)
        _send(BuildReport(error=f"unexpected error: {type(error).__name__}: {error}"))
        return 2
    _send(BuildReport(done=True))
    return 0


if __name__ == "__main__":
    sys.exit(main())
