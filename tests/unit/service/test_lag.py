"""How old windows are, by the ends of the log that were seen."""

from __future__ import annotations

import asyncio

import msgspec

from projections.events.validation import Record
from projections.names import Key
from tests.support.worker import until
from threadfold.service.lag import Lag
from threadfold.testing.memory_log import MemoryLog

LONG = 0.3


def record(name: str) -> Record:
    return Record(Key("acme", name), name, "message", b"{}")


async def test_windows_are_stale_once_an_event_waits_longer_than_is_allowed() -> None:
    log = MemoryLog(1)
    await log.append([record("a")])
    lag = Lag(log, LONG)
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


async def test_nothing_is_stale_where_that_is_switched_off() -> None:
    log = MemoryLog(1)
    await log.append([record("a")])
    lag = Lag(log, 0)
    lag.start()
    assert lag.stale(0, applied=-1) is None
    await lag.stop()
