"""What a partition has to say beside its windows: loops, with their batch and before the checkpoint
moves; and cuts, as spans.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from projections.events import types as events
from projections.events.validation import make_record
from projections.names import Key
from projections.policy.policy import Rules
from projections.storage.records import Checkpoint
from projections.window.tool_calls import call_hash
from projections.window.trace_steps import Cut
from streams.log.log import Raw
from streams.partition.effects import Effects, EffectSink
from streams.partition.partition import Partition
from streams.projector.effect_sink import NullSink
from streams.projector.tracing import compaction_span
from tests.support.spans import recorded_spans
from threadfold.testing import MemoryLog, MemoryStore

KEY = Key("acme", "c1")
LOOP = events.LoopDetected("look", call_hash("look", '{"a": 1}').hex(), 3)
SAYING = {"type": "message", "role": "user", "content": "again and again " * 10}


class Ear:
    """A sink that keeps what was published, and how far the store was then."""

    def __init__(self, store: MemoryStore) -> None:
        self.store = store
        self.heard: list[tuple[Key, int, events.LoopDetected]] = []
        self.checkpoints: list[Checkpoint | None] = []
        self.cuts: list[Cut] = []

    def report(self, partition: int, key: Key, cut: Cut) -> None:
        assert (partition, key) == (0, KEY)
        self.cuts.append(cut)

    async def publish(self, partition: int, effects: Effects, batch: Sequence[Raw]) -> None:
        assert {offset for _, offset, _ in effects.loops} <= {raw.offset for raw in batch}
        self.heard += effects.loops
        self.checkpoints.append(await self.store.checkpoint(1, partition))


async def folded(
    store: MemoryStore,
    sink: EffectSink,
    flats: Sequence[dict[str, Any]],
    rules: Rules | None = None,
) -> Partition:
    log = MemoryLog(1)

    async def learn(tenant: str) -> None:
        assert tenant == KEY.tenant

    now = "2026-01-01T00:00:00Z"
    await log.append(
        [make_record(KEY, flat, where="e", now=now, new_id=f"e{i}") for i, flat in enumerate(flats)]
    )
    made = Partition(0, 1, store, log, rules or Rules(), learn=learn, sink=sink)
    await made.process([raw async for raw in log.scan(0, 0, len(flats) - 1)])
    return made


def calling(arguments: str) -> dict[str, Any]:
    call = {"id": "c", "name": "look", "arguments": arguments}
    return {"type": "message", "role": "assistant", "content": None, "tool_calls": [call]}


CALLS = [calling('{"a":1}'), calling('{ "a": 1 }'), calling('{"a":1}'), calling('{"a":2}')]


async def test_a_loop_is_published_with_the_offset_of_its_message_before_the_checkpoint_moves() -> (
    None
):
    store = MemoryStore()
    ear = Ear(store)
    made = await folded(store, ear, CALLS)
    assert ear.heard == [(KEY, 2, LOOP)]
    assert ear.checkpoints == [None] and made.checkpoint.offset == 3


async def test_a_candidate_folds_the_same_and_says_nothing() -> None:
    made = await folded(MemoryStore(), NullSink(), CALLS)
    assert made.checkpoint.offset == 3 and made.counts.applied == 4


async def test_without_a_loop_nothing_is_published() -> None:
    store = MemoryStore()
    ear = Ear(store)
    await folded(store, ear, [CALLS[0], CALLS[3]] * 3)
    assert ear.checkpoints == []


async def test_each_cut_of_the_fold_is_reported_with_what_it_did() -> None:
    store = MemoryStore()
    ear = Ear(store)
    rules = Rules({"profile": "composed", "reducers": [{"name": "keep_last_n_messages", "n": 4}]})
    await folded(store, ear, [SAYING] * 9, rules)
    assert [cut.at for cut in ear.cuts] == [4, 7], (
        "five are too many: two stay, and three more may come"
    )
    (step,) = ear.cuts[0].steps
    assert (step.reducer, step.messages_before, step.messages_after) == (
        "keep_last_n_messages",
        5,
        2,
    )
    assert 0 < step.tokens_after < step.tokens_before and 0 < ear.cuts[0].utilization < 1


def test_a_cut_is_a_span_with_utilization_and_steps() -> None:
    made = Cut(7, 0.5, ())
    with recorded_spans() as exporter:
        compaction_span(KEY, made.utilization, made.steps, where="fold")
        (span,) = exporter.get_finished_spans()
    assert span.name == "compaction" and span.attributes is not None
    assert span.attributes["utilization"] == 0.5 and json.loads(str(span.attributes["steps"])) == []
    assert (
        span.attributes["threadfold.tenant"] == "acme"
        and span.attributes["threadfold.conversation"] == "c1"
    )
