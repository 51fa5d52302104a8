"""A pool of processes replaces what is killed, bounds memory, and ends with its owner."""

from __future__ import annotations

import asyncio
import inspect
import multiprocessing
import os
import signal
import struct
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from streams.runtime.process_pool import NICENESS, ProcessPool, WorkerLost


@pytest.fixture
async def pool() -> AsyncIterator[ProcessPool]:
    made = ProcessPool(1, max_bytes=256 << 20)
    yield made
    await made.close()


def die_once(marker: Path) -> str:
    """Ends its process the first time it is called."""
    if not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return "done"


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def seconds_later(seconds: float) -> int:
    """The process that did it."""
    time.sleep(seconds)
    return os.getpid()


PREPARED: list[int] = []


def prepare() -> None:
    PREPARED.append(os.nice(0))


def prepared() -> list[int]:
    return PREPARED


def fill(n: int) -> int:
    return len(bytearray(n))


async def test_a_call_runs_in_another_process_of_lower_priority(pool: ProcessPool) -> None:
    assert await pool.run(os.getpid) != os.getpid()
    assert await pool.run(os.nice, 0) == os.nice(0) + NICENESS


def kept_of(pieces: int) -> int:
    """MiB that the process holds more than before, once it has freed as many large values after an
    even larger one.
    """
    before = resident()
    first = b"x" * (30 << 20)
    del first
    values = [b"x" * (1 << 20) for _ in range(pieces)]
    last = b"x" * 4_096
    del values
    after = resident()
    return after - before if last else 0


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") >> 20


@pytest.mark.skipif(sys.platform != "linux", reason="it is asked of Linux")
async def test_what_a_call_frees_of_large_values_goes_back_to_the_system(pool: ProcessPool) -> None:
    assert await pool.run(kept_of, 50) < 10


async def test_a_process_prepares_itself_before_its_priority_is_lowered() -> None:
    pool = ProcessPool(1, prepare=prepare)
    assert await pool.run(prepared) == [os.nice(0)]
    await pool.close()


async def test_what_a_function_raises_is_raised(pool: ProcessPool) -> None:
    with pytest.raises(ValueError, match="invalid literal"):
        await pool.run(int, "x")


async def test_a_process_that_is_killed_is_replaced_and_its_call_is_made_again(
    pool: ProcessPool, tmp_path: Path
) -> None:
    assert await pool.run(die_once, tmp_path / "killed") == "done"


async def test_a_call_is_made_though_all_processes_were_killed_while_they_had_nothing_to_do() -> (
    None
):
    pool = ProcessPool(2)
    slow = asyncio.create_task(pool.run(seconds_later, 0.5))
    for pid in {await pool.run(os.getpid), await slow}:
        os.kill(pid, signal.SIGKILL)
    assert await asyncio.gather(pool.run(int, "7"), pool.run(int, "8")) == [7, 8]
    await pool.close()


async def test_work_that_kills_its_process_each_time_is_given_up_and_other_work_goes_on(
    pool: ProcessPool,
) -> None:
    with pytest.raises(WorkerLost, match="ended twice"):
        await pool.run(die)
    assert await pool.run(int, "7") == 7


def die_while_it_answers() -> None:
    """Ends its process in the middle of its result."""
    frame = inspect.currentframe()
    while frame is not None and "result_queue" not in frame.f_locals:
        frame = frame.f_back
    assert frame is not None
    answers = vars(frame.f_locals["result_queue"])["_writer"]
    os.write(answers.fileno(), struct.pack("!i", 100_000) + b"the first bytes")
    os.kill(os.getpid(), signal.SIGKILL)


async def test_a_process_that_is_killed_while_it_writes_its_result_is_not_waited_for(
    pool: ProcessPool,
) -> None:
    async with asyncio.timeout(60):
        with pytest.raises(WorkerLost, match="ended twice"):
            await pool.run(die_while_it_answers)
        assert await pool.run(int, "7") == 7


async def test_a_call_that_was_cancelled_keeps_its_process_and_no_other_until_it_is_over() -> None:
    pool = ProcessPool(2)
    first = await pool.run(os.getpid)
    slow = asyncio.create_task(pool.run(time.sleep, 600))
    await asyncio.sleep(0)
    slow.cancel()
    async with asyncio.timeout(60):
        others = {await pool.run(os.getpid) for _ in range(3)}
        await pool.close(wait=False)
    assert len(others) == 1 and first not in others


@pytest.mark.parametrize("wait", [True, False])
async def test_a_pool_that_is_closed_takes_no_calls_and_refuses_those_that_wait(wait: bool) -> None:
    pool = ProcessPool(1)
    await pool.run(os.getpid)
    running = asyncio.create_task(pool.run(time.sleep, 0.3 if wait else 600))
    waiting = asyncio.create_task(pool.run(int, "7"))
    await asyncio.sleep(0)
    async with asyncio.timeout(60):
        await pool.close(wait=wait)
        with pytest.raises(WorkerLost, match="have ended"):
            await waiting
        with pytest.raises(WorkerLost, match="have ended"):
            await pool.run(int, "7")
        assert (await asyncio.gather(running, return_exceptions=True) == [None]) is wait


@pytest.mark.skipif(sys.platform != "linux", reason="the system cannot bound a process' memory")
async def test_a_process_has_no_more_memory_than_it_may(pool: ProcessPool) -> None:
    assert await pool.run(fill, 1 << 20) == 1 << 20
    with pytest.raises(MemoryError):
        await pool.run(fill, 1 << 30)
    assert await pool.run(fill, 1 << 20) == 1 << 20


OWNER = """
import asyncio, os, sys
from streams.runtime.process_pool import ProcessPool

async def main():
    print(await ProcessPool(1).run(os.getpid), flush=True)
    sys.stdin.read()

if __name__ == "__main__":
    asyncio.run(main())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="it looks into /proc")
def test_the_processes_end_when_their_owner_is_killed(tmp_path: Path) -> None:
    script = tmp_path / "owner.py"
    script.write_text(OWNER)
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    owner = subprocess.Popen(
        [sys.executable, script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=env,
    )
    with owner:
        assert owner.stdout is not None
        child = int(owner.stdout.readline())
        assert exists(child)
        owner.kill()
    end = time.monotonic() + 30
    while exists(child) and time.monotonic() < end:
        time.sleep(0.02)
    assert not exists(child)


def exists(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


SCRIPT = """
import asyncio, math, sys
from streams.runtime.process_pool import ProcessPool
print("begun", flush=True)
async def main():
    pool = ProcessPool(2)
    print(await asyncio.gather(pool.run(math.factorial, 3), pool.run(math.factorial, 4)))
    await pool.close()
asyncio.run(main())
print(sys.modules["__main__"].main is main, __name__, main.__module__)
"""


@pytest.mark.parametrize("as_file", [True, False], ids=["a-file", "its-input"])
def test_a_script_that_calls_the_library_does_not_run_again_in_the_processes(
    tmp_path: Path, as_file: bool
) -> None:
    """Also one that does not ask whether its name is ``__main__``."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, script if as_file else "-"],
        input=None if as_file else SCRIPT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout.splitlines() == ["begun", "[6, 24]", "True __main__ __main__"], done.stderr


async def test_a_pool_that_does_not_wait_ends_with_what_it_works_on() -> None:
    pool = ProcessPool(1)
    await pool.run(os.getpid)
    call = asyncio.create_task(pool.run(time.sleep, 600))
    await asyncio.sleep(0.1)
    call.cancel()
    async with asyncio.timeout(60):
        await pool.close(wait=False)


KILLED = """
import asyncio, os, signal, time
from streams.runtime import process_pool

start = process_pool._Process.start

def slow_start(self):
    start(self)
    time.sleep(0.2)

process_pool._Process.start = slow_start

async def main():
    pool = process_pool.ProcessPool(2)
    first = await pool.run(os.getpid)
    calls = [asyncio.create_task(pool.run(time.sleep, 600)) for _ in range(2)]
    os.kill(first, signal.SIGTERM)
    await asyncio.sleep(0.1)
    for call in calls:
        call.cancel()
    await asyncio.gather(*calls, return_exceptions=True)
    await pool.close(wait=False)
    print("closed")

asyncio.run(main())
"""


def test_an_owner_ends_though_a_process_was_killed_while_another_one_started() -> None:
    done = subprocess.run(
        [sys.executable, "-c", KILLED], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout == "closed\n" and done.returncode == 0, done.stderr


def in_a_daemonic_process(_: int) -> tuple[bool, int, str]:
    """Whether the work was done here, its result, and what it raised."""

    async def work() -> tuple[bool, int, str]:
        pool = ProcessPool(1, max_bytes=256 << 20, prepare=prepare)
        here = await pool.run(os.getpid) == os.getpid() and [os.nice(0)] == PREPARED
        raised = await asyncio.gather(pool.run(int, "x"), return_exceptions=True)
        result = await pool.run(fill, 1 << 20)
        await pool.close(wait=False)
        return here, result, type(raised[0]).__name__

    return asyncio.run(work())


def test_in_a_process_that_may_have_no_children_a_thread_does_the_work() -> None:
    with multiprocessing.get_context("spawn").Pool(1) as daemonic:
        found = daemonic.map_async(in_a_daemonic_process, [0]).get(60)
    assert found == [(True, 1 << 20, "ValueError")]
