"""A loop that the fold finds is spoken of with its batch, before the checkpoint moves; a candidate says nothing."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from projections import events
from projections.events import AnyEvent
from projections.fold import History, Outcome, apply
from projections.intake import make_record
from projections.names import Key
from projections.persistence import Checkpoint
from projections.policy import Rules
from projections.window import Window
from streams import partition as partitions
from streams.log import Raw
from streams.partition import Partition, Spoken, Voice
from streams.publisher import Silence
from threadfold.testing import MemoryLog, MemoryStore

LOOP = events.LoopDetected("search", "ab" * 32, 3)
KEY = Key("acme", "c1")


class Ear:
    """A voice that keeps what was spoken, and how far the store was then."""

    def __init__(self, store: MemoryStore) -> None:
        self.store = store
        self.heard: list[tuple[Key, int, events.LoopDetected]] = []
        self.checkpoints: list[Checkpoint | None] = []

    def report(self, *_: object) -> None:
        """Cuts are none of this test's business."""

    async def speak(self, partition: int, spoken: Spoken, batch: Sequence[Raw]) -> None:
        assert {offset for _, offset, _ in spoken.loops} <= {raw.offset for raw in batch}
        self.heard += spoken.loops
        self.checkpoints.append(await self.store.checkpoint(1, partition))


@pytest.fixture
def loop_at_2(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fold that finds a loop at offset 2."""

    def found(window: Window, offset: int, event: AnyEvent, history: History | None = None) -> Outcome:
        outcome = apply(window, offset, event, history)
        return outcome._replace(loop=LOOP) if offset == 2 else outcome

    monkeypatch.setattr(partitions, "apply", found)


async def folded(store: MemoryStore, voice: Voice) -> Partition:
    log = MemoryLog(1)

    async def learn(tenant: str) -> None:
        assert tenant == KEY.tenant

    flat = {"type": "message", "role": "assistant", "content": "again"}
    await log.append([make_record(KEY, flat, where="e", now="2026-01-01T00:00:00Z", new_id=f"e{i}") for i in range(4)])
    made = Partition(0, 1, store, log, Rules(), learn=learn, voice=voice)
    await made.process([raw async for raw in log.scan(0, 0, 3)])
    return made


async def test_a_loop_is_spoken_of_with_the_offset_of_its_message_before_the_checkpoint_moves(loop_at_2: None) -> None:
    store = MemoryStore()
    ear = Ear(store)
    made = await folded(store, ear)
    assert ear.heard == [(KEY, 2, LOOP)]
    assert ear.checkpoints == [None] and made.checkpoint.offset == 3


async def test_a_candidate_folds_the_same_and_says_nothing(loop_at_2: None) -> None:
    store = MemoryStore()
    made = await folded(store, Silence())
    assert made.checkpoint.offset == 3 and made.counts.applied == 4


async def test_without_a_loop_nothing_is_spoken() -> None:
    store = MemoryStore()
    ear = Ear(store)
    await folded(store, ear)
    assert ear.checkpoints == []
