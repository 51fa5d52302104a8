"""A tenant with a backlog of due windows has few requests on their topic at once: others' stand not
behind all of them, and none is lost.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Collection, Iterable
from types import SimpleNamespace

import msgspec
import pytest

from projections.events.validation import make_record
from projections.names import Key
from projections.policy.policy import Rules
from streams.compaction.compactor import Compactor
from streams.compaction.requests import CompactionRequest
from streams.log.group_offsets import Extent
from streams.partition.partition import Partition
from streams.projector import compaction_scheduler, request_turns
from streams.projector.compaction_scheduler import COUNTED, LOOK_EVERY, CompactionScheduler
from streams.projector.effect_sink import Publisher
from streams.projector.request_turns import LEAST_SENT, MOST_SENT, RequestTurns, most_of_each
from streams.settings.settings import Settings
from tests.support.compaction import SMALL, Terse
from threadfold.testing import MemoryLog, MemoryStore

SETTINGS = Settings(kafka="127.0.0.1:1", redis="redis://127.0.0.1:1/0", partitions=1)
MANY = 500
PAUSE = 30.0


class Topic(Publisher):
    """A publisher that keeps the requests, as their topic does, and how far compactors are."""

    def __init__(self, log: MemoryLog) -> None:
        super().__init__(SETTINGS, log)
        self.requests: list[CompactionRequest] = []
        self.done = 0
        self.looks = 0

    async def _send(
        self, messages: list[tuple[str, bytes, bytes, list[tuple[str, bytes]]]]
    ) -> list[int]:
        first = len(self.requests)
        self.requests += [
            msgspec.json.decode(value, type=CompactionRequest)
            for topic, _, value, _ in messages
            if topic == "compactions"
        ]
        return list(range(first, len(self.requests)))

    async def answered(self, partitions: Collection[int]) -> dict[int, Extent]:
        self.looks += 1
        return dict.fromkeys(partitions, Extent(self.done, len(self.requests)))

    def asked(self, since: int = 0) -> list[Key]:
        return [Key(one.tenant, one.conversation) for one in self.requests[since:]]


class World:
    """A partition whose log, store and topic are in memory, its scheduler, and a compactor."""

    def __init__(self, patch: pytest.MonkeyPatch, *, looks: bool = True) -> None:
        self.now = 1_000_000.0
        clock = SimpleNamespace(time=lambda: self.now, monotonic=lambda: self.now)
        patch.setattr(compaction_scheduler, "time", clock)
        patch.setattr(request_turns, "time", clock)
        self.log, self.store = MemoryLog(1), MemoryStore()
        self.topic = Topic(self.log)
        self._ids = itertools.count()
        self.folded = self.answered = 0
        self.compactor = Compactor(SETTINGS, self.log, lambda _: Terse())
        self.scheduler = CompactionScheduler(
            self.topic, self.store, PAUSE, self.topic.answered if looks else None
        )
        self.partition = self.owner()

    def owner(self) -> Partition:
        async def learn(tenant: str) -> None: ...

        return Partition(0, 1, self.store, self.log, Rules(SMALL), learn=learn, sink=self.topic)

    async def due(self, *keys: Key) -> None:
        """These conversations become due."""
        flats = [
            {"type": "message", "role": ("user", "assistant")[i % 2], "content": f"what is up {i}"}
            for i in range(5)
        ]
        for key in keys:
            for flat in (*flats, {"type": "compaction.requested"}):
                name = f"e{next(self._ids)}"
                record = make_record(key, flat, where="e", now="2026-01-01T00:00:00Z", new_id=name)
                self.log.put(0, str(key).encode(), record.value)
        await self.fold()

    async def fold(self) -> None:
        """Fold what is new in the log, and ask for what is due by it."""
        end = (await self.log.end_offsets())[0]
        rows = [raw async for raw in self.log.scan(0, self.folded, end - 1)]
        self.folded = end
        windows = await self.partition.process(rows)
        await self.scheduler.ask(self.partition, windows)

    async def again(self, pause: float = 0.0) -> None:
        """Look after the partition, once so many seconds have gone by."""
        self.now += pause
        await self.scheduler.ask_again(self.partition, int(self.now * 1000))

    async def answer(self, requests: Iterable[CompactionRequest]) -> None:
        for request in requests:
            await self.compactor.answer(request)
            self.answered += 1
        await self.fold()


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


def talks(tenant: str, several: int) -> list[Key]:
    return [Key(tenant, f"talk{i}") for i in range(several)]


async def test_a_tenant_with_many_due_windows_has_few_requests_on_the_topic(world: World) -> None:
    await world.due(*talks("big", MANY))
    assert len(world.topic.requests) == MOST_SENT
    for i in range(5):
        await world.again(LOOK_EVERY)
        await world.due(Key("big", f"late{i}"))
    assert len(world.topic.requests) == MOST_SENT
    assert await world.store.due_count(1, 0) == MANY + 5


async def test_another_tenants_request_is_sent_at_once(world: World) -> None:
    await world.due(*talks("big", MANY))
    await world.due(*talks("small", 3))
    assert world.topic.asked(MOST_SENT) == talks("small", 3)


async def test_all_are_asked_for_once_in_their_order_as_answers_come(world: World) -> None:
    keys = talks("big", 300)
    await world.due(*keys)
    while waiting := world.topic.requests[world.answered :]:
        assert len(waiting) <= MOST_SENT
        await world.answer(waiting[:40])
        await world.again(PAUSE / 10)
    assert world.topic.asked() == keys
    assert await world.store.due_count(1, 0) == 0


async def test_what_compactors_pass_without_a_summary_makes_room_too(world: World) -> None:
    keys = talks("big", MOST_SENT + 30)
    await world.due(*keys)
    world.topic.done = 10
    await world.again(LOOK_EVERY)
    assert world.topic.asked(MOST_SENT) == keys[MOST_SENT : MOST_SENT + 10]


async def test_how_far_compactors_are_is_looked_at_now_and_then_while_windows_wait(
    world: World,
) -> None:
    await world.due(*talks("small", MOST_SENT))
    for _ in range(8):
        await world.again(LOOK_EVERY / 4)
    assert world.topic.looks == 0
    await world.due(*talks("big", MOST_SENT + 1))
    for _ in range(8):
        await world.again(LOOK_EVERY / 4)
    assert world.topic.looks == 2


async def test_those_that_wait_hide_no_others_that_are_due_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compaction_scheduler, "LOOKED_AT", 100)
    await world.due(*talks("big", MANY))
    await world.due(*talks("small", 1))
    since = len(world.topic.requests)
    await world.again(PAUSE)
    for _ in range(MANY // 100):
        world.topic.done = len(world.topic.requests)  # and nothing came of it
        await world.again()
    assert world.topic.asked(since).count(Key("small", "talk0")) == 1


async def test_what_is_never_answered_counts_as_lost_and_others_are_asked_for(
    world: World,
) -> None:
    keys = talks("big", MOST_SENT + 10)
    await world.due(*keys)
    for _ in range(20 * COUNTED):
        await world.again(PAUSE)
    assert set(world.topic.asked(MOST_SENT)) == set(keys)
    assert len(world.topic.asked()) < 5 * len(keys)


async def test_a_new_owner_counts_from_zero_and_asks_for_what_waited(world: World) -> None:
    keys = talks("big", MOST_SENT + 10)
    await world.due(*keys)
    before, world.partition = world.partition, world.owner()
    world.partition.adopt(before.checkpoint)
    for _ in range(10):
        world.topic.done = len(world.topic.requests)
        await world.again(PAUSE)
    assert set(world.topic.asked(MOST_SENT)) >= set(keys[MOST_SENT:])


async def test_where_nobody_can_tell_how_far_compactors_are_nothing_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(monkeypatch, looks=False)
    keys = talks("big", MOST_SENT + 10)
    await world.due(*keys)
    assert world.topic.asked() == keys


async def test_windows_beyond_those_that_are_remembered_come_up_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_turns, "MOST_WAITING", 5)
    keys = talks("big", MOST_SENT + 20)
    await world.due(*keys)
    for _ in range(10):
        await world.answer(world.topic.requests[world.topic.done :])
        world.topic.done = world.answered
        await world.again(PAUSE)
    assert Counter(world.topic.asked()) == Counter(keys)
    assert await world.store.due_count(1, 0) == 0


def test_tenants_with_room_take_turns() -> None:
    turns = RequestTurns(PAUSE)
    turns.wait([*talks("a", 3), *talks("b", 1), *talks("c", 2)])
    assert [str(key) for key in turns.next(4)] == ["a/talk0", "b/talk0", "c/talk0", "a/talk1"]
    assert [str(key) for key in turns.next(4)] == ["c/talk1", "a/talk2"]
    assert turns.next(4) == []


def test_what_a_tenant_may_have_on_the_topic_is_shared_by_the_partitions_of_a_process() -> None:
    assert [most_of_each(n) for n in (0, 1, 4, 16, 1_000)] == [128, 128, 32, 8, LEAST_SENT]
    assert most_of_each(4, calls=400) == 200
