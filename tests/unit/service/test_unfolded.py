"""A tenant that appends faster than the workers fold waits, others do not, and nobody waits for a
partition that nobody folds.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import suppress

import pytest

from projections.errors import QuotaExceeded, RedisUnavailable
from projections.events.codec import full_type
from projections.events.validation import Record, make_record
from projections.names import Key, Position
from projections.storage.records import Checkpoint
from tests.support.worker import until
from threadfold.service import fold_progress
from threadfold.service import unfolded as module
from threadfold.service.fair_turns import FairTurns
from threadfold.service.fold_progress import FORGOTTEN, STILL, UNKNOWN
from threadfold.service.unfolded import (
    ACTIVE,
    ALL,
    ALONE,
    BYTES,
    CALLS,
    FEW,
    MOST,
    PATIENCE,
    ROLLBACK,
    SMALL,
    Unfolded,
    weights_of,
)


class Log:
    """A log of two partitions, how far each is folded, and a clock that runs with the looks."""

    def __init__(self) -> None:
        self.ends, self.reached, self.now, self.looks = [1, 1], [0, 0], 0.0, 0
        self.fails = False
        self.speed = [0, 0]
        """Events that are folded between two looks."""
        self.waits: tuple[str, int] | None = None
        """The conversation that waits behind its rollback in the first partition, and where."""
        self.unfolded = Unfolded(self._reached, lambda: self.now)

    async def _reached(self, partition: int) -> Checkpoint:
        self.looks += 1
        self.now += fold_progress.LOOK
        if self.fails:
            raise RedisUnavailable("Redis is away")
        last = self.ends[partition] - 1
        self.reached[partition] = min(last, self.reached[partition] + self.speed[partition])
        reached = self.reached[partition]
        if self.waits is None or partition:
            return Checkpoint(offset=reached)
        name, at = self.waits
        return Checkpoint(offset=at - 1, ahead=reached, rollbacks=((name, at),))

    async def append(self, tenant: str, events: int, partition: int = 0) -> None:
        async with self.unfolded.room(tenant, events, waits=True) as room:
            room.note(self.put(events, partition))

    def put(self, events: int, partition: int) -> Sequence[Position]:
        first = self.ends[partition]
        self.ends[partition] += events
        return [Position(partition, offset) for offset in range(first, first + events)]


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Looks come at once, and nobody is refused because the machine is busy."""
    monkeypatch.setattr(fold_progress, "LOOK", 0.001)
    monkeypatch.setattr(module, "PATIENCE", 60.0)
    yield


@pytest.fixture
async def log() -> AsyncIterator[Log]:
    log = Log()
    yield log
    await log.unfolded.stop()


async def test_a_tenant_appends_no_faster_than_the_workers_fold_while_others_append(
    log: Log,
) -> None:
    log.speed = [100, 0]
    await log.append("other", 1)
    for _ in range(20):
        await log.append("many", 500)
        assert log.ends[0] - 1 - log.reached[0] <= MOST + 500 + 1
    assert log.ends[0] == 10_002


async def test_lists_that_come_at_once_are_appended_one_after_the_other(log: Log) -> None:
    log.speed = [100, 0]
    await log.append("other", 1)
    await log.append("many", MOST + 1)
    async with asyncio.TaskGroup() as group:
        for _ in range(10):
            group.create_task(log.append("many", 500))
        for _ in range(100):
            await asyncio.sleep(0.001)
            assert log.unfolded.waiting("many") <= MOST + 500


async def test_many_tenants_together_append_no_faster_than_the_workers_fold(log: Log) -> None:
    log.speed = [100, 0]
    async with asyncio.TaskGroup() as group:
        for number in range(40):
            group.create_task(log.append(f"many{number % 20}", 200))
        for _ in range(100):
            await asyncio.sleep(0.001)
            assert log.ends[0] - 1 - log.reached[0] <= ALL + 200 + 100
            async with asyncio.timeout(0.5):
                await log.append("small", 1)
    assert log.ends[0] == 1 + 40 * 200 + 100


async def test_lists_of_a_tenant_that_appends_little_pass_at_once_beside_many_that_flood(
    log: Log,
) -> None:
    async with asyncio.TaskGroup() as group:
        for number in range(40):
            group.create_task(log.append(f"many{number}", 500))
        await until(lambda: asyncio.sleep(0, log.ends[0] - 1 - log.reached[0] > ALL))
        for _ in range(SMALL // 25):
            looks = log.looks
            await log.append("little", 25)
            assert log.looks == looks, "it waited"
            assert log.ends[0] - 1 - log.reached[0] > ALL
        log.speed = [200, 0]


@pytest.mark.parametrize("events", [200, 500])
async def test_who_waits_because_of_other_tenants_waits_for_a_turn_of_each_at_most(
    log: Log, events: int
) -> None:
    log.speed = [200, 0]
    order: list[str] = []
    begins = asyncio.Event()

    async def flood(tenant: str, times: int, events: int) -> None:
        for _ in range(times):
            await log.append(tenant, events)
            order.append(tenant)
            if len(order) == 40:
                begins.set()

    async with asyncio.TaskGroup() as group:
        for number in range(20):
            group.create_task(flood(f"many{number}", 10, SMALL + 1))
        await begins.wait()
        group.create_task(flood("late", 3, events))
    at = [place for place, tenant in enumerate(order) if tenant == "late"]
    assert len(at) == 3
    assert max(b - a for a, b in itertools.pairwise(at)) <= 21
    assert at[0] <= 40 + 2 * 21, "some had their turn before it came"


async def test_a_list_that_is_longer_than_it_seemed_waits_for_room_for_all_of_it(log: Log) -> None:
    log.speed = [2_000, 0]
    behind = []

    async def flood() -> None:
        async with log.unfolded.room("many", 1, waits=True) as room:
            await room.fit(500)
            behind.append(log.ends[0] - 1 - log.reached[0])
            room.note(log.put(500, 0))

    await log.append("other", 1)
    async with asyncio.TaskGroup() as group:
        # More than may wait: were each to keep its place meanwhile, none had room for all.
        for _ in range(MOST + 20):
            group.create_task(flood())
            group.create_task(log.append("other", 1))
    assert max(behind) <= MOST + 2 * ALL
    assert log.unfolded.waiting("many") <= MOST + 500


async def test_a_list_that_is_shorter_than_it_seemed_gives_back_its_room(log: Log) -> None:
    await log.append("other", 1)
    async with log.unfolded.room("many", 500, waits=True) as room:
        assert log.unfolded.waiting("many") == 500
        await room.fit(3)
        assert log.unfolded.waiting("many") == 3
        room.note(log.put(2, 0))
    assert log.unfolded.waiting("many") == 2


async def test_short_lists_of_many_tenants_keep_no_long_one_waiting(log: Log) -> None:
    log.speed = [400, 0]
    ends = False

    async def often(tenant: str, events: int) -> None:
        while not ends:
            await log.append(tenant, events)

    floods = [asyncio.create_task(often(f"many{n}", (100, 25)[n % 2])) for n in range(60)]
    await until(lambda: asyncio.sleep(0, log.ends[0] > ALL))
    try:
        for _ in range(5):
            await log.append("long", 500)
    finally:
        ends = True
        await asyncio.gather(*floods)


async def test_a_turn_that_comes_as_its_caller_leaves_takes_no_room(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    give = FairTurns.give

    def give_and_leave(turns: FairTurns, take: Callable[[str, int], bool]) -> list[str]:
        left = give(turns, take)
        if not left:
            leaving.cancel()
        return left

    monkeypatch.setattr(FairTurns, "give", give_and_leave)
    await log.append("other", 1)
    await log.append("many", MOST + 1)
    leaving = asyncio.create_task(log.append("many", 500))
    await until(lambda: asyncio.sleep(0, log.looks > 1))
    log.speed = [10_000, 0]
    with pytest.raises(asyncio.CancelledError):
        await leaving
    assert log.ends[0] == MOST + 3
    assert log.unfolded.waiting("many") == 0


async def test_other_tenants_and_what_must_not_wait_pass_at_once(log: Log) -> None:
    await log.append("other", 1)
    await log.append("many", MOST + 1)
    waiting = asyncio.create_task(log.append("many", 1))
    async with asyncio.timeout(1):
        await log.append("other", SMALL)
        async with log.unfolded.room("many", 1, waits=False) as room:
            room.note(log.put(1, 0))
    assert not waiting.done()
    log.speed = [10_000, 0]
    await waiting


async def test_a_tenant_that_is_alone_may_have_more_wait(log: Log) -> None:
    await log.append("other", 1)
    log.now += ACTIVE
    for _ in range(ALONE // 500):
        await log.append("alone", 500)
    assert log.reached[0] == 0
    assert log.unfolded.most("alone") == ALONE
    await log.append("other", 1)
    assert log.unfolded.most("alone") == MOST


async def test_who_would_wait_too_long_is_refused_and_nothing_is_appended(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PATIENCE", 0.05)
    log.speed = [1, 0]
    await log.append("other", 1)
    await log.append("many", MOST + 500)
    with pytest.raises(QuotaExceeded, match="tenant many appends faster than its events are fold"):
        await log.append("many", 500)
    assert log.ends[0] == MOST + 502
    assert log.unfolded.waiting("many") <= MOST + 500


async def test_appends_go_on_while_nobody_folds(log: Log) -> None:
    await log.append("other", 1)
    await log.append("many", MOST + 1)
    await log.append("many", 500)
    assert STILL < log.now < PATIENCE
    # Nor do they go through one after the other.
    looks = log.looks
    await asyncio.gather(*(log.append("many", 10) for _ in range(100)))
    assert log.looks - looks < 10
    # As soon as somebody folds again, the tenant waits for that.
    log.speed = [100, 0]
    await log.append("many", 1)
    assert log.unfolded.waiting("many") <= MOST + 1


async def test_what_waits_behind_a_rollback_counts_however_far_others_are(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PATIENCE", 0.05)
    await log.append("other", 1)
    log.speed, log.waits = [1_000, 1_000], ("many/c", log.ends[0])
    await log.append("many", MOST + 1)
    with pytest.raises(QuotaExceeded):
        await log.append("many", 1, 1)
    since = log.now
    while log.now < since + 2 * FORGOTTEN:
        await log.append("other", MOST + 1)  # from the second one on it looks for room
        log.now += STILL
    with pytest.raises(QuotaExceeded):
        await log.append("many", 1, 1)
    log.waits = None
    await log.append("many", 1, 1)


async def test_a_conversation_that_is_restored_by_nobody_keeps_nobody_waiting(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fold_progress, "STILL", 0.1)
    monkeypatch.setattr(fold_progress, "RESTORES", 0.5)
    await log.append("other", 1)
    log.speed, log.waits = [1_000, 0], ("many/c", log.ends[0])
    await log.append("many", MOST + 1)
    await log.append("many", 1)
    assert 0.5 < log.now < PATIENCE


async def test_a_rollback_counts_as_many_events(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PATIENCE", 0.05)
    await log.append("other", 1)
    records = [Record(Key("many", "c"), "r", full_type("rollback"), b"{}")] * 9
    weights = weights_of(records)
    async with log.unfolded.room("many", sum(weights), waits=True) as room:
        room.note(log.put(9, 0), weights)
    assert log.unfolded.waiting("many") == 9 * ROLLBACK > MOST
    with pytest.raises(QuotaExceeded):
        await log.append("many", 1)
    log.speed = [9, 0]
    await log.append("many", 1)


async def test_a_large_event_counts_as_several(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PATIENCE", 0.05)
    await log.append("other", 1)
    value = b"x" * (24 * BYTES)
    records = [Record(Key("many", "c"), "o", full_type("conversation.opened"), value)] * 17
    weights = weights_of(records)
    async with log.unfolded.room("many", sum(weights), waits=True) as room:
        room.note(log.put(17, 0), weights)
    assert log.unfolded.waiting("many") == 17 * 25 > MOST
    with pytest.raises(QuotaExceeded, match="each 4 KiB of an event or 8 tool calls as one more"):
        await log.append("many", 1)


def test_a_message_with_many_tool_calls_counts_as_several() -> None:
    call = {"id": "c", "name": "f", "arguments": '{"arguments":"x"}'}
    said = {"type": "message", "role": "assistant", "content": '"arguments":' * 99}

    def weight(calls: int) -> int:
        flat = said | ({"tool_calls": [call] * calls} if calls else {})
        record = make_record(
            Key("many", "c"), flat, where="event 1", now="2026-01-31T12:00:00Z", new_id="m"
        )
        return weights_of([record])[0] - len(record.value) // BYTES

    assert [weight(calls) for calls in (0, CALLS - 1, CALLS, 64)] == [1, 1, 2, 1 + 64 // CALLS]


async def test_nobody_waits_where_nothing_was_ever_folded(log: Log) -> None:
    log.reached = [-1, -1]
    await log.append("other", 1)
    for _ in range(20):
        await log.append("many", 500)
    assert log.now < 1.0


async def test_a_partition_that_is_halted_does_not_hold_up_appends_to_others(log: Log) -> None:
    log.speed = [0, 1_000]
    await log.append("other", 1)
    await log.append("many", 5_000, partition=0)
    await log.append("many", 1, partition=1)
    since = log.now
    for _ in range(10):
        await log.append("many", 300, partition=1)
    assert log.now - since < 1.0


async def test_what_waits_in_a_halted_partition_keeps_no_short_list_waiting(log: Log) -> None:
    log.speed = [0, 100]
    await log.append("other", 1, 1)
    await log.append("some", SMALL)
    async with asyncio.TaskGroup() as group:
        for number in range(40):
            group.create_task(log.append(f"many{number}", 500, 1))
        await until(lambda: asyncio.sleep(0, log.ends[1] - 1 - log.reached[1] > ALL))
        seen = log.looks + 6  # three looks at both: it is known that the first one stands
        await until(lambda: asyncio.sleep(0, log.looks >= seen))
        log.now += 2 * STILL
        looks = log.looks
        await log.append("some", FEW, 1)
        assert log.looks == looks, "it waited"


async def test_events_of_many_tenants_in_a_halted_partition_do_not_count_among_those_of_all(
    log: Log,
) -> None:
    log.speed = [0, 100]
    await log.append("other", 1, 1)
    for number in range(20):
        await log.append(f"some{number}", 50)
    with suppress(TimeoutError):
        async with asyncio.timeout(0.1):  # looks find that nobody folds it
            await log.append("first", 500)
    log.now += 2 * STILL
    for _ in range(4):
        await asyncio.wait_for(log.append("many", 300, 1), 5)


async def test_appends_go_on_while_redis_is_away(log: Log) -> None:
    log.fails = True
    await log.append("other", 1)
    await log.append("many", MOST + 1)
    for _ in range(20):
        await log.append("many", 500)
    assert log.now < UNKNOWN


async def test_an_append_that_fails_counts_no_more(log: Log) -> None:
    await log.append("other", 1)
    with pytest.raises(OSError, match="away"):
        async with log.unfolded.room("many", 5_000, waits=True):
            raise OSError("away")
    assert log.unfolded.waiting("many") == 0
    await log.append("many", 500)
    assert log.looks == 0
