"""A log and histories that are kept in memory: whatever fits, the windows are the replay's, and
rollbacks read the log once.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Iterable, Sequence

import pytest

from projections.events import types as events
from projections.fold.replay import replay
from projections.names import Position
from projections.storage.records import Checkpoint
from streams.log.history import READ_BYTES
from streams.log.log import Raw
from streams.log.rollback_cache import RollbackCache
from streams.partition.partition import Partition
from streams.projector.effect_sink import NullSink
from streams.recovery.shadow_fold import ShadowFold
from tests.support.histories import RULES
from tests.support.partitions import NUMBER, keys_of
from tests.support.talks import Talks, random_talks
from threadfold.testing import MemoryLog, MemoryStore

KEYS = keys_of("acme")


class CountingLog(MemoryLog):
    """Counts the records that are read back."""

    def __init__(self) -> None:
        super().__init__(4)
        self.reads = 0

    async def read(self, positions: Iterable[Position]) -> dict[Position, Raw]:
        found = await super().read(positions)
        self.reads += len(found)
        return found

    async def scan(self, partition: int, first: int, last: int) -> AsyncIterator[Raw]:
        async for raw in super().scan(partition, first, last):
            self.reads += 1
            yield raw


async def learn(tenant: str) -> None:
    assert tenant == "acme"


async def folded(
    log: MemoryLog, talks: Talks, kept: int, *, streamed: bool = True
) -> tuple[MemoryStore, list[bytes | None]]:
    for key, value in talks.rows:
        log.put(NUMBER, key, value)
    store, recent = MemoryStore(), RollbackCache(log, kept)
    partition = Partition(
        NUMBER,
        1,
        store,
        recent,
        RULES,
        learn=learn,
        sink=NullSink(),
        fetch=recent.fetch,
    )
    partition.adopt(Checkpoint())
    # What is streamed from the log behind does not go by.
    async for _, rows in (recent if streamed else log).stream({NUMBER: (0, len(talks.rows) - 1)}):
        await partition.process(rows)
    stored = (await store.read(1, NUMBER, KEYS))[1]
    return store, [
        None if s is None else s.load(k, NUMBER, RULES).image()
        for k, s in zip(KEYS, stored, strict=True)
    ]


@pytest.mark.parametrize(
    ("kept", "at_once"), [(1 << 24, READ_BYTES), (30_000, READ_BYTES), (1, READ_BYTES), (1, 5_000)]
)
async def test_windows_are_those_of_the_replay_whatever_is_kept(
    kept: int, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streams.log.history.READ_BYTES", at_once)
    rollbacks = 0
    for seed in range(4):
        talks = random_talks(seed, 250, NUMBER, KEYS)
        _, images = await folded(MemoryLog(4), talks, kept)
        assert images == [
            replay(k, NUMBER, RULES, talks.logs[k]).image() if talks.logs[k] else None for k in KEYS
        ], f"seed {seed}"
        rollbacks += talks.seen["history"]
    assert rollbacks > 3, "hardly a rollback reached beyond its window"


def deep_rollbacks(turns: int) -> Talks:
    """A conversation that goes back behind its summaries again and again."""
    talks = Talks(random.Random(1), NUMBER, KEYS)
    for turn in range(turns):
        for i in range(20):
            talks.say(
                KEYS[0],
                events.Message("user", f"turn {turn}, number {i}, of some words more"),
                tokens=20,
            )
            if talks.requests[KEYS[0]]:
                talks.summarise(KEYS[0])
        talks.say(KEYS[0], events.Rollback(f"{NUMBER}-3"))
    return talks


async def test_many_rollbacks_into_summarised_history_ask_the_log_for_nothing_that_went_by() -> (
    None
):
    talks = deep_rollbacks(15)
    assert talks.seen["history"] > 10
    log = CountingLog()
    await folded(log, talks, 1 << 24)
    assert log.reads == 0
    log = CountingLog()
    await folded(log, talks, 1 << 24, streamed=False)
    once = log.reads
    log = CountingLog()
    await folded(log, talks, 1, streamed=False)
    assert 0 < once < log.reads / 3


async def test_a_fold_that_went_back_to_its_checkpoint_does_not_take_later_events_for_earlier_ones() -> (
    None
):
    talks = deep_rollbacks(6)
    log = MemoryLog(4)
    for key, value in talks.rows:
        log.put(NUMBER, key, value)
    store, cache = MemoryStore(), RollbackCache(log)
    rows: Sequence[Raw] = [raw async for raw in log.scan(NUMBER, 0, len(talks.rows) - 1)]
    for _ in range(2):
        # The second time the cache holds events that are still to come.
        partition = Partition(
            NUMBER, 1, store, log, RULES, learn=learn, sink=NullSink(), fetch=cache.fetch
        )
        partition.adopt(Checkpoint())
        await partition.fold(rows)
    await store.drop_partition(1, NUMBER)
    await partition.write()
    _, (stored,) = await store.read(1, NUMBER, KEYS[:1])
    assert stored is not None
    assert (
        stored.load(KEYS[0], NUMBER, RULES).image()
        == replay(KEYS[0], NUMBER, RULES, talks.logs[KEYS[0]]).image()
    )


async def test_a_shadow_fold_reads_the_log_back_once_for_many_rollbacks() -> None:
    """Verify and repair fold all rollbacks there ever were, as a rebuild does."""
    talks = deep_rollbacks(15)
    log = CountingLog()
    for key, value in talks.rows:
        log.put(NUMBER, key, value)
    fold = ShadowFold(log, NUMBER, RULES, None)
    end = len(talks.rows) - 1
    await fold.advance(end)
    expected = replay(KEYS[0], NUMBER, RULES, talks.logs[KEYS[0]])
    assert fold.windows[KEYS[0]].image() == expected.image()
    assert log.reads < 3 * len(talks.rows), "as they go by, and once for all rollbacks"
