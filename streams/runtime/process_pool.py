"""Processes for work that takes a processor for long: parsing large bodies, counting long texts,
extracting summaries. The event loop's process stays free for everybody else.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Executor, ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import current_process, parent_process
from multiprocessing.context import SpawnContext, SpawnProcess
from pathlib import Path
from types import ModuleType
from typing import TypeVar

from projections.errors import ThreadfoldError
from streams.runtime.freed_memory import return_memory

T = TypeVar("T")
CPU_MAX = Path("/sys/fs/cgroup/cpu.max")

NICENESS = 5
"""How much lower the processes' priority is, where nobody says otherwise."""


def cores() -> int:
    """The cores that this process may use: those it is bound to, or fewer where its control group
    has less of the processor.
    """
    bound = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    try:
        quota, period = CPU_MAX.read_text().split()
        return max(1, min(bound, round(int(quota) / int(period))))
    except (OSError, ValueError):  # no such file, or "max"
        return bound


class WorkerLost(ThreadfoldError):
    """A process of the pool ended while it worked, twice for the same work."""

    problem = 503


class ProcessPool:
    """Runs functions in other processes.

    A process starts with the first call that needs it. One that is killed, or that is out of
    memory, is replaced; its call is made once more. The processes end with :meth:`close`, and by
    themselves when the owner is killed. For one event loop.

    A daemonic process (of ``multiprocessing.Pool``, of Celery) may have no children: there, threads
    do the work.

    Args:
        size: how many processes run at once; further calls wait in order of arrival.
        max_bytes: address space that a process may have more than at its start; where the system
            can bound it (Linux). None: unbounded.
        prepare: a function of a module that each process calls first, before its priority is
            lowered: on a busy machine its start would take many times as long otherwise.
        niceness: how much lower the processes' priority is than that of this one.
    """

    def __init__(
        self,
        size: int,
        max_bytes: int | None = None,
        prepare: Callable[[], None] | None = None,
        niceness: int = NICENESS,
    ) -> None:
        self._size = size
        self._max_bytes = max_bytes
        self._niceness = niceness
        self._prepare = prepare
        self._executor: Executor | None = None

    async def run(self, function: Callable[..., T], *args: object) -> T:
        """Call a function of a module with arguments that pickle; returns or raises what it does.

        A call that is cancelled may still run to its end in its process. The function must have
        no effect but its result: it may run twice.

        Raises:
            WorkerLost: its process ended twice.
            MemoryError: it needs more memory than a process may have.
        """
        for _ in range(2):
            executor = self._executor = self._executor or self._start()
            try:
                return await asyncio.wrap_future(executor.submit(function, *args))
            except BrokenExecutor:
                # One lost process breaks the whole executor, with every call in it.
                if self._executor is executor:
                    self._executor = None
                    executor.shutdown(wait=False, cancel_futures=True)
        raise WorkerLost("the process that was to do the work ended twice: try again")

    async def close(self, *, wait: bool = True) -> None:
        """End the processes; calls that wait are cancelled, and those that run are waited for, or
        ended with their processes (not ``wait``).
        """
        executor, self._executor = self._executor, None
        if executor is None:
            return
        if isinstance(executor, ProcessPoolExecutor) and not wait:
            # The executor has no public way to them before Python 3.14.
            for process in list((executor._processes or {}).values()):
                process.kill()
            wait = True
        await asyncio.to_thread(executor.shutdown, wait=wait, cancel_futures=True)

    def _start(self) -> Executor:
        return start_processes(self._size, self._max_bytes, self._prepare, self._niceness)


def start_processes(
    size: int,
    max_bytes: int | None = None,
    prepare: Callable[[], None] | None = None,
    niceness: int = NICENESS,
) -> Executor:
    """An executor whose processes end when the owner is killed; arguments as of
    :class:`ProcessPool`. It has threads in a daemonic process.
    """
    if current_process().daemon:
        return ThreadPoolExecutor(size, "pool", initializer=prepare)
    return ProcessPoolExecutor(
        size,
        mp_context=_Context(),
        initializer=_begin,
        initargs=(max_bytes, prepare, niceness),
    )


_starting = threading.Lock()


class _Process(SpawnProcess):
    """A process that does not import the owner's main module, as others do: a script of somebody
    who calls the library would run again in it, from its first line.
    """

    def start(self) -> None:
        """Start it."""
        with _starting:
            main = sys.modules["__main__"]
            sys.modules["__main__"] = ModuleType("__main__")
            try:
                super().start()
            finally:
                sys.modules["__main__"] = main


class _Context(SpawnContext):
    """Processes that are not forked: the owner has threads and connections."""

    Process = _Process


def _begin(max_bytes: int | None, prepare: Callable[[], None] | None, niceness: int) -> None:
    """Begin a process of a pool."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the owner
    threading.Thread(target=_end_with_the_owner, daemon=True).start()
    return_memory()
    if prepare is not None:
        prepare()
    if hasattr(os, "nice"):
        os.nice(niceness)
    if max_bytes is not None and sys.platform == "linux":
        import resource

        pages = int(Path("/proc/self/statm").read_text().split()[0])
        now = pages * os.sysconf("SC_PAGE_SIZE")
        resource.setrlimit(resource.RLIMIT_AS, (now + max_bytes, now + max_bytes))


def _end_with_the_owner() -> None:
    owner = parent_process()
    if owner is not None:
        owner.join()
        os._exit(1)
