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
from concurrent.futures import (
    BrokenExecutor,
    Executor,
    Future,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
)
from contextlib import suppress
from multiprocessing import current_process, parent_process
from multiprocessing.context import SpawnContext, SpawnProcess
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

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
    """A process of the pool ended while it worked, twice for the same work; or all have ended."""

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
        self._max_bytes = max_bytes
        self._niceness = niceness
        self._prepare = prepare
        self._places = asyncio.Semaphore(size)
        self._processes: set[Executor] = set()
        self._idle: list[Executor] = []
        self._closed = False

    async def run(self, function: Callable[..., T], *args: object) -> T:
        """Call a function of a module with arguments that pickle; returns or raises what it does.

        A call that is cancelled may still run to its end in its process, which takes no other until
        then. The function must have no effect but its result: it may run twice.

        Raises:
            WorkerLost: its process ended twice, or the pool is closed.
            MemoryError: it needs more memory than a process may have.
        """
        for new in (False, True):
            process = await self._free_process(new)
            try:
                called = process.submit(function, *args)
            except BrokenExecutor:  # it ended while it had nothing to do
                self._give_back(process, whole=False)
                continue
            answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
            called.add_done_callback(self._when_done(process, answer))
            try:
                return await answer
            except BrokenExecutor:
                continue
            finally:
                # Their error holds this frame: what it was about would wait for the collector.
                del called, answer
        raise WorkerLost("the process that was to do the work ended twice: try again")

    async def close(self, *, wait: bool = True) -> None:
        """End the processes for good; calls that wait raise :class:`WorkerLost`, and those that run
        are waited for, or ended with their processes (not ``wait``).
        """
        self._closed = True
        self._idle.clear()
        processes, self._processes = self._processes, set()
        for process in processes:
            if not wait and isinstance(process, _OneProcess):
                process.kill()
        for process in processes:
            gone = wait or isinstance(process, _OneProcess)
            await asyncio.to_thread(process.shutdown, wait=gone)

    async def _free_process(self, new: bool) -> Executor:
        """One that has nothing to do; a new one where those that are left may have ended, too."""
        await self._places.acquire()
        if self._closed:
            self._places.release()
            raise WorkerLost("the processes that were to do the work have ended")
        if self._idle:
            idle = self._idle.pop()
            if not new:
                return idle
            self._drop(idle)
        process = start_process(self._max_bytes, self._prepare, self._niceness)
        self._processes.add(process)
        return process

    def _when_done(
        self, process: Executor, answer: asyncio.Future[T]
    ) -> Callable[[Future[T]], None]:
        """What the executor's thread calls once a call is over.

        A call whose caller was cancelled is not cancelled itself: the executor fails where that
        happens while its process dies.
        """
        loop = answer.get_loop()

        def over(call: Future[T]) -> None:
            error = call.exception()
            self._give_back(process, whole=not isinstance(error, BrokenExecutor))
            if answer.cancelled():
                return
            if error is None:
                answer.set_result(call.result())
            else:
                answer.set_exception(error)

        def done(call: Future[T]) -> None:
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(over, call)

        return done

    def _give_back(self, process: Executor, whole: bool) -> None:
        self._places.release()
        if self._closed:
            return
        if whole:
            self._idle.append(process)
        else:
            self._drop(process)

    def _drop(self, process: Executor) -> None:
        self._processes.discard(process)
        process.shutdown(wait=False)


def start_process(
    max_bytes: int | None = None,
    prepare: Callable[[], None] | None = None,
    niceness: int = NICENESS,
) -> Executor:
    """An executor with one process, which ends when the owner is killed; arguments as of
    :class:`ProcessPool`. It has a thread in a daemonic process.
    """
    if current_process().daemon:
        return ThreadPoolExecutor(1, "pool", initializer=prepare)
    return _OneProcess(
        1,
        mp_context=_Context(),
        initializer=_begin,
        initargs=(max_bytes, prepare, niceness),
    )


class _OneProcess(ProcessPoolExecutor):
    """An executor that sees the end of its process whenever it comes.

    Several processes of one executor share their pipes and locks. Python then waits for ever, at
    the latest when the interpreter ends, for a process that starts while another one dies, and for
    the rest of a result whose process was killed while it wrote it.
    """

    def submit(self, *args: Any, **options: Any) -> Future[Any]:
        """Call a function in the process, which starts with the first call."""
        called = super().submit(*args, **options)
        # The process has its own end of the pipe. While the owner's is open, too, the pipe does not
        # end with the process, and what it began to write is waited for.
        results: Any = self._result_queue
        results._writer.close()
        return called

    def kill(self) -> None:
        """End the process at once."""
        # There is no public way to it before Python 3.14.
        for process in list((self._processes or {}).values()):
            process.kill()


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
