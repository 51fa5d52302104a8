"""Timers over the in-memory and the real log and store: what rings is said once, and again when it
got lost.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from projections.errors import KafkaUnavailable
from projections.events import types as events
from projections.events.codec import decode_event
from projections.events.validation import Record
from projections.names import Key, Position, partition_of
from projections.redis.store import RedisStore
from streams.log.kafka_log import KafkaLog
from streams.log.log import Log, Raw
from streams.partition.owned import Fenced
from streams.partition.partition import Partition
from streams.projector import timers
from streams.projector.timers import AGAIN_MS, fire_timers
from streams.settings.settings import Settings
from tests.support.partitions import NUMBER, Parts
from tests.support.talks import Talks
from threadfold.testing import MemoryLog, MemoryStore

FAR = 10**15


class Away:
    """A log whose brokers are away for appends."""

    def __init__(self, log: Log) -> None:
        self._log = log

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    async def append(self, records: Sequence[Record]) -> list[Position]:
        raise KafkaUnavailable(f"{len(records)} records: the test's brokers are away")


class Place:
    """A partition with conversations whose timers are to ring."""

    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        self.partition: Partition
        self.talks: Talks
        self.raws: list[Raw]

    async def begin(self, *names: str) -> list[Key]:
        """Conversations whose own partition is this one."""
        tenant = f"acme{self.parts.generation}"
        there = (Key(tenant, f"c{i}") for i in range(10_000))
        keys = self.parts.keys = [key for key in there if partition_of(key, 4) == NUMBER][
            : len(names)
        ]
        self.talks = Talks(random.Random(1), NUMBER, keys, await self.parts.begin())
        return keys

    async def fold(self) -> None:
        """Append what was said, and fold it as a new owner."""
        self.raws = await self.parts.put(self.talks.rows)
        self.partition = self.parts.partition()
        await self.partition.process(self.raws)

    async def fold_expired(self, *names: str) -> list[Key]:
        """Begin conversations, each with a suspension that has expired, and fold them."""
        keys = await self.begin(*names)
        for key in keys:
            self.talks.say(
                key, events.Suspension("s1", "approval", expires_at="2020-01-01T00:00:00Z")
            )
        await self.fold()
        return keys

    async def timers(self, now_ms: int = FAR) -> list[Key]:
        return await self.parts.store.timers(self.parts.generation, NUMBER, now_ms, 100)

    async def said(self) -> list[Raw]:
        """What came after the talk's own records."""
        end = (await self.parts.log.end_offsets())[NUMBER]
        return [raw async for raw in self.parts.log.scan(NUMBER, self.talks.next_offset, end - 1)]


@pytest.fixture(params=["memory", "real"])
async def place(request: pytest.FixtureRequest, settings: Settings) -> AsyncIterator[Place]:
    if request.param == "memory":
        yield Place(Parts(MemoryLog(4), MemoryStore(), None))
        return
    log, store = KafkaLog(settings, 4), RedisStore(settings.redis, settings.topic_prefix)
    yield Place(Parts(log, store, settings))
    await log.stop()
    await store.close()


def rfc(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds")


def idle(seconds: int) -> events.Opened:
    return events.Opened(policy={"idle_close_seconds": seconds})


async def test_an_idle_session_is_closed_once_and_its_timer_goes(place: Place) -> None:
    one, other = await place.begin("one", "other")
    for key, seconds in ((one, 5), (other, 60)):
        place.talks.say(key, idle(seconds))
        place.talks.say(key, events.Message("user", "hello"))
    await place.fold()
    last = place.raws[1]
    await fire_timers(place.partition, last.timestamp + 4_999)
    assert await place.said() == []
    now = place.raws[-1].timestamp + 5_000
    await fire_timers(place.partition, now)
    await fire_timers(place.partition, now)
    said = await place.said()
    (event,) = [decode_event(raw.value or b"") for raw in said]
    assert isinstance(event, events.SessionClosedEvent) and event.source == one.source
    assert event.data == events.SessionClosed("idle", str(last.position))
    await place.partition.process(said)
    assert await place.timers() == [other]
    stored = (await place.parts.store.read(place.parts.generation, NUMBER, [one]))[1][0]
    assert (
        stored is not None
        and stored.load(one, NUMBER, place.partition.rules).state.closed == "idle"
    )


async def test_what_got_lost_is_said_again_with_the_same_id_and_counts_once(place: Place) -> None:
    (key,) = await place.begin("one")
    place.talks.say(key, events.Suspension("s1", "approval", expires_at="2020-01-01T00:00:00Z"))
    await place.fold()
    now = place.raws[-1].timestamp
    log, place.partition.log = place.partition.log, Away(place.partition.log)
    await fire_timers(place.partition, now)
    place.partition.log = log
    await fire_timers(place.partition, now + AGAIN_MS - 1)
    assert await place.said() == [], "it is on its way"
    await fire_timers(place.partition, now + AGAIN_MS)
    await fire_timers(place.partition, now + 2 * AGAIN_MS)
    said = await place.said()
    first, again = (decode_event(raw.value or b"") for raw in said)
    assert isinstance(first, events.ResolutionEvent) and first.data == events.Resolution(
        "s1", "expired"
    )
    assert first.id == again.id
    await place.partition.process(said)
    assert (place.partition.counts.applied, place.partition.counts.duplicate) == (2, 1)
    assert await place.timers() == []


async def test_a_conversation_that_is_restored_rings_later_and_others_do_not_wait(
    place: Place,
) -> None:
    one, other = await place.begin("one", "other")
    for key in (one, other):
        place.talks.say(key, idle(5))
        place.talks.say(key, events.Message("user", "hello"))
    await place.fold()
    partition, last = place.partition, place.raws[-1].position.offset
    checkpoint = replace(
        partition.checkpoint, offset=last - 1, ahead=last, rollbacks=((str(one), last),)
    )
    partition.checkpoint = checkpoint
    now = place.raws[-1].timestamp + 5_000
    await fire_timers(partition, now)
    (event,) = [decode_event(raw.value or b"") for raw in await place.said()]
    assert event.source == other.source
    partition.checkpoint = replace(checkpoint, ahead=-1, rollbacks=())
    await fire_timers(partition, now + AGAIN_MS)
    sources = [decode_event(raw.value or b"").source for raw in await place.said()]
    assert sources == [other.source, one.source] or sources.count(one.source) == 1


async def test_a_session_in_which_somebody_spoke_meanwhile_stays_open(place: Place) -> None:
    (key,) = await place.begin("one")
    place.talks.say(key, idle(5))
    place.talks.say(key, events.Message("user", "hello"))
    place.talks.say(key, events.Message("user", "still there"))
    raws = await place.parts.put(place.talks.rows)
    partition = place.parts.partition()
    await partition.process(raws[:2])
    await fire_timers(partition, raws[1].timestamp + 5_000)
    said = await place.said()
    assert len(said) == 1
    await partition.process([raws[2], *said])
    assert partition.counts.rejected == 1
    place.partition = partition
    assert await place.timers() == [key], "it closes later"
    assert await place.timers(raws[2].timestamp + 4_999) == []


async def test_a_timer_set_too_early_is_put_to_the_last_messages_own_time(place: Place) -> None:
    (key,) = await place.begin("one")
    place.talks.say(key, idle(60))
    place.talks.say(key, events.Message("user", "hello"))
    await place.fold()
    message = place.raws[1].timestamp
    await place.parts.store.put_off(place.parts.generation, NUMBER, {key: 0})
    await fire_timers(place.partition, message + 59_999)
    assert await place.said() == []
    assert await place.timers(message + 59_999) == [] and await place.timers(message + 60_000) == [
        key
    ]


async def test_only_the_owner_speaks(place: Place) -> None:
    (key,) = await place.begin("one")
    place.talks.say(key, events.Suspension("s1", "approval", expires_at="2020-01-01T00:00:00Z"))
    await place.fold()
    other = place.parts.partition()
    await place.parts.readopt(other)
    await other.set_target(-1)
    with pytest.raises(Fenced):
        await fire_timers(place.partition, FAR)
    assert await place.said() == []
    await fire_timers(other, FAR)
    assert len(await place.said()) == 1


async def test_more_timers_than_one_round_takes_ring_in_the_next_ones(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timers, "LIMIT", 2)
    monkeypatch.setattr(timers, "SECONDS", 60.0)
    keys = await place.fold_expired(*"abcde")
    now = place.raws[-1].timestamp
    for n in (2, 4, 5, 5):
        await fire_timers(place.partition, now)
        assert len(await place.said()) == n
    assert {raw.key for raw in await place.said()} == {str(key).encode() for key in keys}


@pytest.mark.parametrize("seen", [1_000, 3])
async def test_a_tenants_many_timers_delay_no_other_tenants(
    place: Place, monkeypatch: pytest.MonkeyPatch, seen: int
) -> None:
    monkeypatch.setattr(timers, "LIMIT", 4)
    monkeypatch.setattr(timers, "SECONDS", 60.0)
    monkeypatch.setattr(timers, "SEEN", seen)
    many = await place.begin(*"abcdefghijkl")
    rare = (Key(f"acme-rare{place.parts.generation}", f"c{i}") for i in range(10_000))
    one = place.parts.keys = [next(key for key in rare if partition_of(key, 4) == NUMBER)]
    place.talks = Talks(random.Random(1), NUMBER, [*many, *one], place.parts.first)
    for second, key in enumerate([*many, *one]):
        at = f"2020-01-01T00:00:{second:02}Z"
        place.talks.say(key, events.Suspension("s1", "approval", expires_at=at))
    await place.fold()
    await fire_timers(place.partition, place.raws[-1].timestamp)
    said = {raw.key for raw in await place.said()}
    assert len(said) == 4 and str(one[0]).encode() in said


async def test_a_round_that_takes_long_ends_early(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timers, "FIRST", 1)
    monkeypatch.setattr(timers, "LONG", 0.0)
    monkeypatch.setattr(timers, "SECONDS", 0.0)
    await place.fold_expired(*"abc")
    for n in (1, 2, 3):
        await fire_timers(place.partition, place.raws[-1].timestamp)
        assert len(await place.said()) == n


async def test_what_is_folded_has_its_turn_between_timers_that_ring_together(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timers, "FIRST", 1)
    monkeypatch.setattr(timers, "LONG", 0.0)
    monkeypatch.setattr(timers, "SECONDS", 60.0)
    await place.fold_expired(*"abcde")
    partition, now = place.partition, place.raws[-1].timestamp
    seen: set[int] = set()
    async with asyncio.timeout(60):
        async with partition.turn:
            ringing = asyncio.create_task(fire_timers(partition, now))
            await asyncio.sleep(0)
        while not ringing.done():
            async with partition.turn:
                await asyncio.sleep(0)
                left = await partition.store.timers(partition.generation, NUMBER, now, 10)
            seen.add(len(left))
        await ringing
    assert seen & {1, 2, 3, 4}
    assert len(await place.said()) == 5


async def test_a_conversation_in_a_partition_that_is_not_its_own_is_left_alone(
    place: Place,
) -> None:
    await place.begin()
    stray = next(
        key
        for i in range(100)
        if partition_of(key := Key(f"acme{place.parts.generation}", f"s{i}"), 4) != NUMBER
    )
    place.talks = Talks(random.Random(1), NUMBER, [stray], place.parts.first)
    place.talks.say(stray, events.Suspension("s1", "approval", expires_at="2020-01-01T00:00:00Z"))
    await place.fold()
    before = await place.parts.log.end_offsets()
    await fire_timers(place.partition, FAR)
    assert await place.parts.log.end_offsets() == before


async def test_windows_that_are_put_back_have_their_timers_again(place: Place) -> None:
    idle_one, waiting, done = await place.begin("idle", "waiting", "done")
    place.talks.say(idle_one, idle(60))
    place.talks.say(idle_one, events.Message("user", "hello"))
    place.talks.say(waiting, events.Suspension("s1", "approval", expires_at=rfc(5_000)))
    place.talks.say(done, events.Message("user", "hello"))
    await place.fold()
    windows = [
        window for window in await place.partition.windows(place.parts.keys) if window is not None
    ]
    checkpoint = place.partition.checkpoint
    await place.parts.store.drop_partition(place.parts.generation, NUMBER)
    assert await place.timers() == []
    healed = place.parts.partition()
    await healed.put_back(checkpoint, windows)
    assert await place.timers() == [waiting, idle_one]
    assert await place.timers(5_000) == [waiting]
    assert await place.timers(place.raws[-1].timestamp + 59_999) == [waiting], (
        "later than it was is allowed, earlier is not"
    )
