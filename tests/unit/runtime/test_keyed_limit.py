"""Work of one key waits for its own key's, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import contextvars
import threading
import time

import pytest

from projections.errors import Overloaded
from streams.runtime.keyed_limit import LARGE, SHARE, KeyedLimit, Turn


async def test_one_key_waits_for_itself_and_for_no_other() -> None:
    limit, running, most = KeyedLimit(2), {"a": 0, "b": 0}, {"a": 0, "b": 0}
    gate = asyncio.Event()

    async def work(key: str) -> None:
        async with limit.of(key):
            running[key] += 1
            most[key] = max(most[key], running[key])
            await gate.wait()
            running[key] -= 1

    tasks = [asyncio.create_task(work(key)) for key in "aaaab"]
    await asyncio.sleep(0)
    assert running == {"a": 2, "b": 1}
    gate.set()
    await asyncio.gather(*tasks)
    assert most == {"a": 2, "b": 1}
    assert len(limit) == 0


async def test_a_wait_that_is_cancelled_gives_its_place_back() -> None:
    limit = KeyedLimit(1)
    async with limit.of("a"):
        waiting = asyncio.create_task(limit.of("a").__aenter__())
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
    async with limit.of("a"):
        assert len(limit) == 1
    assert len(limit) == 0


async def test_no_wait_is_longer_than_the_patience() -> None:
    limit = KeyedLimit(1, patience=0.01)
    async with limit.of("a"):
        with pytest.raises(Overloaded, match="a has 1 such requests under way, and no turn came"):
            await limit.of("a").__aenter__()
    async with limit.of("a"):
        pass
    assert len(limit) == 0


async def test_a_place_may_stay_taken_for_a_while_after_the_work() -> None:
    limit, loop = KeyedLimit(1), asyncio.get_running_loop()
    async with limit.of("a") as turn:
        turn.rest = 0.05
    ended = loop.time()
    async with limit.of("b"):
        assert loop.time() < ended + 0.05
    async with limit.of("a"):
        assert loop.time() >= ended + 0.05
    assert len(limit) == 0


async def test_a_place_rests_for_as_long_as_was_read_within_it() -> None:
    limit, loop = KeyedLimit(1), asyncio.get_running_loop()
    with pytest.raises(OSError, match="away"):
        async with limit.of("a") as turn, turn.resting():
            await asyncio.sleep(0.05)
            raise OSError("away")
    ended = loop.time()
    async with limit.of("a"):
        assert loop.time() >= ended + 0.05


async def test_work_on_many_bytes_leaves_the_event_loop_and_the_place_rests_after_it() -> None:
    here = threading.get_ident()
    for places in (1, 4):
        turn = Turn(places)
        assert await turn.work(LARGE, threading.get_ident) == here and turn.rest == 0
        assert await turn.work(LARGE + 1, lambda: time.sleep(0.02) or threading.get_ident()) != here
        assert turn.rest >= 0.02 * (SHARE * places - 1)


async def test_what_waits_is_not_too_much_together() -> None:
    limit = KeyedLimit(1, patience=0.01, waiting=10)
    async with limit.of("a", 100):  # it does not wait
        small = asyncio.create_task(limit.of("a", 6).__aenter__())
        await asyncio.sleep(0)
        with pytest.raises(Overloaded, match="2 others of a are under way: try again"):
            await limit.of("a", 5).__aenter__()
        with pytest.raises(Overloaded, match="no turn came"):
            await limit.of("a", 4).__aenter__()
        with pytest.raises(Overloaded, match="no turn came"):
            await small
    assert len(limit) == 0


async def test_only_so_many_wait() -> None:
    limit, gate = KeyedLimit(1, waiting=1), asyncio.Event()

    async def work() -> None:
        async with limit.of("a"):
            await gate.wait()

    tasks = [asyncio.create_task(work()) for _ in range(2)]
    await asyncio.sleep(0)
    with pytest.raises(Overloaded, match="2 others of a are under way"):
        await limit.of("a").__aenter__()
    gate.set()
    await asyncio.gather(*tasks)
    async with limit.of("a"):
        assert len(limit) == 1


async def test_a_turn_whose_caller_is_cancelled_stays_taken_until_its_thread_has_ended() -> None:
    limit, begun, end = KeyedLimit(1), threading.Event(), threading.Event()

    def make() -> None:
        begun.set()
        end.wait(60)

    async def work() -> None:
        async with limit.of("a") as turn:
            await turn.work(LARGE + 1, make)

    working = asyncio.create_task(work())
    await asyncio.to_thread(begun.wait, 60)
    working.cancel()
    await asyncio.gather(working, return_exceptions=True)
    assert working.cancelled()
    waiting = asyncio.create_task(limit.of("a").__aenter__())
    for _ in range(10):
        await asyncio.sleep(0)
    assert not waiting.done(), "its thread works still"
    end.set()
    await asyncio.wait_for(waiting, 60)


async def test_turns_together_are_one_that_is_taken_by_the_first_of_them() -> None:
    limit = KeyedLimit(1, patience=0.01)
    async with limit.together("a"):
        assert len(limit) == 0, "none is taken yet"
        async with limit.of("a") as first:
            pass
        async with limit.together("a"), limit.of("a") as second:
            assert second is first
        with pytest.raises(Overloaded):  # others wait up to the end
            await _of_another_task(limit)
        async with limit.of("b"):
            assert len(limit) == 2
    assert len(limit) == 0
    await _of_another_task(limit)


async def test_a_turn_is_given_back_while_something_else_is_waited_for_and_taken_again() -> None:
    limit = KeyedLimit(1, patience=0.01)
    async with limit.together("a"), limit.of("a"), limit.together("a"), limit.of("a"):
        async with limit.apart("a"):
            await _of_another_task(limit)
        with pytest.raises(Overloaded):
            await _of_another_task(limit)
    assert len(limit) == 0
    async with limit.apart("a"):
        assert len(limit) == 0, "none was held"


async def test_of_tasks_within_one_turn_each_has_it_alone() -> None:
    limit, within, most = KeyedLimit(2), 0, 0

    async def read() -> None:
        nonlocal within, most
        async with limit.together("a"):
            async with limit.of("a"):
                pass
            within += 1
            most = max(most, within)
            await asyncio.sleep(0)  # what it read is in memory
            within -= 1

    async with limit.together("a"):
        await asyncio.gather(*[read() for _ in range(5)])
    assert most == 1 and len(limit) == 0


async def _of_another_task(limit: KeyedLimit) -> None:
    async def take() -> None:
        async with limit.of("a"):
            pass

    await asyncio.create_task(take(), context=contextvars.Context())
