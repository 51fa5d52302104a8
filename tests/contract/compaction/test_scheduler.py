"""Asking for summaries: pauses that grow, and no answer to what a window does not ask for any more;
over both stores.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator

import msgspec
import pytest

from projections.errors import Healing
from projections.names import Key, partition_of
from projections.redis.store import RedisStore
from projections.storage.protocol import WindowStore
from projections.storage.records import Checkpoint, Verdict, write_of
from projections.window.window import Window
from streams.compaction.compactor import Compactor
from streams.compaction.requests import CompactionRequest, request_for
from streams.log.group_offsets import Extent
from streams.projector.compaction_scheduler import LONGEST, Patience, StillDue
from streams.settings.settings import Settings
from tests.contract.compaction.test_compactor import RULES, SETTINGS, talk
from tests.support.compaction import KEY, append, fold
from threadfold.testing import MemoryLog, MemoryStore

_generations = itertools.count(7_000)
PARTITION = partition_of(KEY, 3)


@pytest.fixture(params=["memory", "real"])
async def store(request: pytest.FixtureRequest, settings: Settings) -> AsyncIterator[WindowStore]:
    if request.param == "memory":
        yield MemoryStore()
        return
    made = RedisStore(settings.redis, settings.topic_prefix)
    yield made
    await made.close()


class Desk:
    """A window in a store, and a compactor that looks there."""

    def __init__(self, store: WindowStore, log: MemoryLog) -> None:
        self.store, self.log, self.generation, self.live = store, log, next(_generations), 0
        self.live = self.generation
        self.compactor = Compactor(SETTINGS, log, still_due=StillDue(store, lambda: self.live))
        self.at = Checkpoint()

    async def keep(self, *, target: int = -1) -> Window:
        """Fold the log and write the window."""
        window = await fold(self.log, RULES)
        checkpoint = Checkpoint(
            self.at.revision, window.meta.position, 1, f"d{window.meta.position}", target
        )
        applied = await self.store.apply(self.generation, PARTITION, checkpoint, [write_of(window)])
        assert applied.verdict is Verdict.APPLIED
        self.at = Checkpoint(applied.revision)
        return window

    async def asked(self) -> CompactionRequest:
        request = request_for(await self.keep(), self.generation)
        assert request is not None
        return request


@pytest.fixture
async def desk(store: WindowStore) -> Desk:
    log = MemoryLog(3)
    await append(log, talk(40))
    return Desk(store, log)


async def test_of_a_queue_of_repeats_one_is_answered(desk: Desk) -> None:
    request = await desk.asked()
    assert await desk.compactor.answer_if_due(request) is not None
    await desk.keep()
    end = await desk.log.end_offsets()
    assert [await desk.compactor.answer_if_due(request) for _ in range(5)] == [None] * 5
    assert await desk.log.end_offsets() == end


async def test_two_repeats_at_once_are_answered_once(desk: Desk) -> None:
    request = await desk.asked()
    answers = await asyncio.gather(*(desk.compactor.answer_if_due(request) for _ in range(3)))
    assert sum(answer is not None for answer in answers) == 1


async def test_a_request_that_was_answered_is_not_answered_again_before_the_fold_can_have_come_to_it(
    desk: Desk,
) -> None:
    desk.compactor.settings = msgspec.structs.replace(SETTINGS, summary_time_cap=0.2)
    request = await desk.asked()
    assert await desk.compactor.answer_if_due(request) is not None
    # The store still holds the window as it was.
    assert await desk.compactor.answer_if_due(request) is None
    await asyncio.sleep(0.25)
    # Asked for again later, it was not taken: it is answered anew.
    assert await desk.compactor.answer_if_due(request) is not None


async def test_what_a_rollback_changed_is_not_answered(desk: Desk) -> None:
    request = await desk.asked()
    await append(desk.log, [{"type": "rollback", "to": "e10"}], start=100)
    await desk.keep()
    assert await desk.compactor.answer_if_due(request) is None


async def test_what_is_asked_again_after_a_rollback_is_made_once_and_taken(desk: Desk) -> None:
    request = await desk.asked()
    await append(desk.log, [{"type": "rollback", "to": "e39"}], start=100)
    again = await desk.asked()
    assert (again.first, again.last) == (request.first, request.last)
    assert again.request_id != request.request_id
    answers = await asyncio.gather(*map(desk.compactor.answer_if_due, (request, again)))
    assert [answer is not None for answer in answers] == [True, False]
    window = await desk.keep()
    assert window.meta.summary is not None
    assert window.meta.summary.summary_id == request.request_id
    assert await desk.compactor.answer_if_due(again) is None


async def test_a_generation_that_is_not_live_any_more_gets_no_answers(desk: Desk) -> None:
    request = await desk.asked()
    desk.live += 1
    assert await desk.compactor.answer_if_due(request) is None


async def test_a_window_that_is_not_there_asks_for_nothing(desk: Desk) -> None:
    request = await desk.asked()
    request.conversation = "another"
    assert await desk.compactor.answer_if_due(request) is None


async def test_while_a_partition_heals_nothing_is_known_and_it_is_asked_again(desk: Desk) -> None:
    request = await desk.asked()
    await desk.keep(target=10_000)
    with pytest.raises(Healing, match="asks again"):
        await desk.compactor.answer_if_due(request)
    await desk.store.drop_partition(desk.generation, PARTITION)
    with pytest.raises(Healing):
        await desk.compactor.answer_if_due(request)


async def test_only_a_conversation_that_is_restored_waits_for_what_a_former_worker_may_have_answered(
    desk: Desk,
) -> None:
    request = await desk.asked()
    end = (await desk.log.end_offsets())[PARTITION]

    async def ends() -> dict[int, int]:
        return {PARTITION: end}

    due = StillDue(desk.store, lambda: desk.live, ends)
    for waits, says in ((Key(KEY.tenant, "another"), True), (KEY, False)):
        restoring = Checkpoint(
            desk.at.revision, 1, 1, "d1", ahead=end - 1, rollbacks=((str(waits), 2),)
        )
        applied = await desk.store.apply(desk.generation, PARTITION, restoring, [])
        assert applied.verdict is Verdict.APPLIED
        desk.at = Checkpoint(applied.revision)
        if says:
            assert await due(request)
        else:
            with pytest.raises(Healing, match="is not applied up to where"):
                await due(request)


def paused(patience: Patience, *keys: Key, again: bool = True) -> dict[float, list[Key]]:
    """Their next pauses, as the store takes them."""
    pauses = patience.pauses(keys, again=again)
    for pause, those in pauses.items():
        patience.paused(those, pause)
    return pauses


def test_pauses_double_up_to_a_bound_and_begin_anew_with_what_is_new() -> None:
    patience, key, other = Patience(30.0), Key("acme", "one"), Key("acme", "two")
    first = [paused(patience, key) for _ in range(7)]
    assert first == [{30.0 * n: [key]} for n in (1, 2, 4, 8, LONGEST, LONGEST, LONGEST)]
    assert paused(patience, key, other) == {30.0 * LONGEST: [key], 30.0: [other]}
    assert paused(patience, key, other, again=False) == {30.0: [key, other]}
    assert paused(patience, key) == {60.0: [key]}


def test_a_pause_that_was_not_stored_does_not_grow() -> None:
    patience, key = Patience(30.0), Key("acme", "one")
    assert [patience.pauses([key], again=True) for _ in range(7)] == [{30.0: [key]}] * 7
    paused(patience, key)
    assert [patience.pauses([key], again=True) for _ in range(7)] == [{60.0: [key]}] * 7


def test_a_request_that_waits_on_its_topic_is_not_repeated_before_compactors_came_past_it() -> None:
    patience, key = Patience(30.0), Key("acme", "one")
    # 7 requests are on the topic, this one among them; 4 are done.
    assert patience.unanswered([key], Extent(4, 7)) == {key}
    assert patience.unanswered([key], Extent(6, 90)) == {key}
    assert patience.unanswered([key], Extent(7, 90)) == set()
    patience.sent([key])
    assert patience.unanswered([key], Extent(7, 90)) == {key}
    assert patience.unanswered([key], Extent(90, 90)) == set()


def test_a_request_that_seems_to_wait_for_the_longest_pause_counts_as_lost() -> None:
    patience, key = Patience(30.0), Key("acme", "one")
    looks = 0
    while patience.unanswered([key], Extent(0, 1)):
        paused(patience, key)
        looks += 1
    assert looks == 5  # pauses of 1, 2, 4, 8 and 16 times the first
