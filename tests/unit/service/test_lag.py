"""How old windows are, by the ends of the log that were seen, and why a wait for one ended."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from projections.errors import KafkaUnavailable, RedisUnavailable, WaitTimedOut
from projections.events.validation import Record
from projections.names import Key, Position
from tests.support.worker import until
from threadfold.service.lag import Lag, explained
from threadfold.testing.memory_log import MemoryLog

LONG = 0.3


def record(name: str) -> Record:
    return Record(Key("acme", name), name, "message", b"{}")


def folded(to: int) -> Callable[[int], Awaitable[int]]:
    """Windows that include this offset."""

    async def applied(partition: int) -> int:
        return to

    return applied


async def test_windows_are_stale_once_an_event_waits_longer_than_is_allowed() -> None:
    log = MemoryLog(1)
    await log.append([record("a")])
    lag = Lag(log, LONG, folded(0))
    lag.start()
    await asyncio.sleep(2 * LONG)
    assert lag.stale(0, applied=0) is None, "all is applied"
    await log.append([record("b")])
    assert lag.stamped(b'{"count":1}', 0, applied=0) == b'{"count":1}', "not for long yet"

    async def stale() -> bool:
        return lag.stale(0, applied=0) is not None

    await until(stale)
    document = msgspec.json.decode(lag.stamped(b'{"count":1}', 0, applied=0))
    assert document["stale"] >= LONG
    assert lag.stale(0, applied=1) is None
    await lag.stop()


async def test_a_window_that_waits_is_stale_though_others_are_not() -> None:
    log = MemoryLog(1)
    await log.append([record("a"), record("b")])
    lag = Lag(log, LONG, folded(1))
    lag.start()

    async def stale() -> bool:
        assert lag.stale(0, applied=1) is None, "others include all"
        return lag.stale(0, applied=0) is not None

    await until(stale)
    await lag.stop()


async def test_the_first_read_of_a_partition_that_is_behind_is_stale() -> None:
    looked = asyncio.Event()

    class Watched(MemoryLog):
        async def last_records(self) -> dict[int, int]:
            looked.set()
            return await super().last_records()

    log = Watched(1)
    await log.append([record("a"), record("b")])
    lag = Lag(log, LONG, folded(0))
    lag.start()
    await asyncio.wait_for(looked.wait(), 30)
    assert lag.stale(0, applied=0) is not None
    await lag.stop()


async def test_it_stops_though_a_client_swallows_a_cancellation() -> None:
    looked = asyncio.Event()

    async def swallowing(partition: int) -> int:
        if looked.is_set():
            return 0
        looked.set()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(3600)
        return 0

    log = MemoryLog(1)
    await log.append([record("a")])
    lag = Lag(log, 0.01, swallowing)
    lag.start()
    await looked.wait()
    await asyncio.wait_for(lag.stop(), 30)


async def test_nothing_is_stale_where_that_is_switched_off() -> None:
    log = MemoryLog(1)
    await log.append([record("a")])
    lag = Lag(log, 0, folded(-1))
    lag.start()
    assert lag.stale(0, applied=-1) is None
    await lag.stop()


class Servers:
    """What Redis reports of itself; None: it cannot be reached."""

    def __init__(self, refuses: str | None = "") -> None:
        self.refuses = refuses

    async def ping(self) -> dict[str, Any]:
        if self.refuses is None:
            raise RedisUnavailable("away")
        return {"refuses": self.refuses}


LATE = WaitTimedOut("not within 1 s", 7)


@pytest.mark.parametrize(
    ("offset", "refuses", "why"),
    [
        (1, "", "position 0-1 is beyond the end of the log: no event has it yet"),
        (1, "its memory is full", "position 0-1 is beyond the end of the log: no event has it yet"),
        (0, "", "not within 1 s"),
        (0, None, "not within 1 s"),
        (0, "its memory is full", "not within 1 s (its memory is full)"),
    ],
)
async def test_a_wait_that_ended_for_nothing_gives_the_reason_if_it_is_known(
    offset: int, refuses: str | None, why: str
) -> None:
    log = MemoryLog(1)
    await log.append([record("a")])
    error = await explained(LATE, Position(0, offset), Servers(refuses), log)  # type: ignore[arg-type]
    assert str(error) == why
    assert offset or error.retry_after == LATE.retry_after


async def test_a_wait_ends_with_its_own_error_while_the_logs_end_is_not_known() -> None:
    class Away(MemoryLog):
        async def end_offsets(self) -> dict[int, int]:
            raise KafkaUnavailable("away")

    error = await explained(LATE, Position(0, 9), Servers(), Away(1))  # type: ignore[arg-type]
    assert error is LATE
