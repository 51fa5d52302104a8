"""Quarantine over the in-memory and the real log and store: a poison event quarantines its
conversation, at the same place however it is folded.
"""

from __future__ import annotations

import asyncio
import random
from unittest.mock import AsyncMock

import pytest

from projections.events import types as events
from projections.events.codec import decode_event
from projections.fold.apply import History, Outcome, Status, apply
from projections.names import Key
from projections.policy.policy import Rules
from projections.storage.records import Checkpoint
from projections.window.window import Window
from streams.maintenance import dead_letters
from streams.maintenance.repair import repair_windows, whole_write
from streams.partition.failure_share import FailureShare
from streams.partition.owned import Fenced
from streams.partition.partition import Partition
from streams.partition.step import FoldFailure, StepResult, go_on, spoiled_by, with_history
from streams.recovery import partition_snapshots
from streams.recovery.healing import heal_from_snapshots
from streams.recovery.shadow_fold import ShadowFold
from streams.recovery.snapshot_writer import SnapshotWriter
from tests.support.partitions import NUMBER, Parts, keys_of, split
from tests.support.quarantines import (
    Code,
    Panic,
    PartitionlessSink,
    Writer,
    fresh,
    load,
    owner,
    rules_of,
    same,
    trapped,
)
from tests.support.snapshots import MemorySnapshots
from tests.support.talks import encode, event_for
from threadfold.testing import MemoryLog, MemoryStore


async def test_random_poison_parks_the_same_live_replayed_by_another_split_and_folded_by_itself(
    parts: Parts,
) -> None:
    quarantined = 0
    for seed in range(8 if parts.settings is None else 2):
        code = Code()
        rules = rules_of(code)
        await fresh(parts)
        writer = Writer(seed, parts, rules).some(160)
        raws = await parts.put(writer.rows)
        for batch in split(random.Random(seed), raws, 30 if seed % 2 else 5):
            live = owner(parts, rules, PartitionlessSink(), 2)
            live.adopt(await parts.store.checkpoint(parts.generation, NUMBER) or live.checkpoint)
            await live.process(batch)
        quarantined += await same(parts, writer, rules)
        images = await load(parts, rules)
        parts.generation += 1
        await owner(parts, rules, PartitionlessSink()).process(raws)
        assert await load(parts, rules) == images, f"seed {seed}"
        alone = ShadowFold(parts.log, NUMBER, rules, set(parts.keys))
        await alone.advance(raws[-1].offset)
        assert {key: window.image() for key, window in alone.windows.items()} == images, (
            f"seed {seed}"
        )
    assert quarantined > 0


async def test_a_failing_fold_parks_its_conversation_in_order_and_the_others_of_the_batch_flow_on(
    parts: Parts,
) -> None:
    rules = rules_of(Code())
    writer, raws = await trapped(parts, rules)
    sink = PartitionlessSink()
    live = owner(parts, rules, sink)
    await live.process(raws)
    assert await same(parts, writer, rules) == 1
    expected = writer.expected[parts.keys[0]]
    assert sink.dead == [
        (expected.quarantined, "poison"),
        *((offset, "waiting") for offset, _ in expected.waiting),
    ]
    assert (live.counts.dead, live.counts.waiting) == (1, 5)
    window = (await parts.store.read(parts.generation, NUMBER, parts.keys[:1]))[1][0].load(
        parts.keys[0], NUMBER, rules
    )  # type: ignore[union-attr]
    assert "Panic" in window.meta.quarantine.cause and "trapped" not in window.meta.quarantine.cause
    assert await parts.store.due(parts.generation, NUMBER, 1 << 60, 10) == []
    listed = await parts.store.listed(parts.generation, NUMBER, "parked", None, 10)
    assert [found.conversation for found in listed] == [str(parts.keys[0])]


async def test_with_the_code_mended_a_quarantined_window_goes_on_as_if_it_had_never_failed(
    parts: Parts,
) -> None:
    code = Code()
    rules = rules_of(code)
    _, raws = await trapped(parts, rules)
    await owner(parts, rules, PartitionlessSink()).process(raws)
    key = parts.keys[0]
    stored = (await parts.store.read(parts.generation, NUMBER, [key]))[1][0]
    assert stored is not None
    still = await go_on(parts.log, stored.load(key, NUMBER, rules), StepResult(), again=True)
    assert (
        still.meta.quarantine is not None
        and still.image() == stored.load(key, NUMBER, rules).image()
    )
    code.broken = False
    told = StepResult()
    gone_on = await go_on(parts.log, stored.load(key, NUMBER, rules), told, again=True)
    assert len(told.outcomes) == 6 and not told.letters
    whole = Window(key, NUMBER, rules)
    for raw in raws:
        if raw.key == str(key).encode():
            apply(whole, raw.offset, decode_event(raw.value or b""))
    assert gone_on.image() == whole.image()


async def test_more_events_than_a_window_carries_offsets_of_go_on_all_the_same(
    parts: Parts,
) -> None:
    rules = rules_of(Code())
    await fresh(parts)
    writer = Writer(1, parts, rules)
    key = parts.keys[0]
    at = writer.put(key, None, b"{")
    for i in range(700):
        writer.put(key, events.Message("user", f"text {i}"))
    raws = await parts.put([*writer.rows])
    live = owner(parts, rules, PartitionlessSink())
    await live.process(raws)
    assert await same(parts, writer, rules) == 1
    writer.rows, writer.first = [], raws[-1].offset + 1
    parts.first = writer.first
    writer.drop(key, at)
    await live.process(await parts.put(writer.rows))
    assert await same(parts, writer, rules) == 0
    assert writer.expected[key].window.meta.count == 701


async def test_an_erasure_is_not_held_up_and_ends_the_parking(parts: Parts) -> None:
    rules = rules_of(Code())
    await fresh(parts)
    writer = Writer(1, parts, rules)
    key = parts.keys[0]
    writer.put(key, events.Message("user", "hello"))
    writer.put(key, None, b"{")
    raws = await parts.put(
        [*writer.rows, (str(key).encode(), encode(event_for(key, events.Erased(), "gone")))]
    )
    await owner(parts, rules, PartitionlessSink()).process(raws)
    stored = (await parts.store.read(parts.generation, NUMBER, [key]))[1][0]
    assert stored is not None
    meta = stored.load(key, NUMBER, rules).meta
    assert meta.erased and meta.quarantine is None
    assert await parts.store.listed(parts.generation, NUMBER, "parked", None, 10) == []


async def test_an_erased_conversation_is_not_quarantined_by_what_comes(parts: Parts) -> None:
    """A generation that nobody folds takes an erasure early: what came before it comes after it
    there, and has to make no difference.
    """
    rules = rules_of(Code())
    await fresh(parts)
    key = parts.keys[0]
    erasure = encode(event_for(key, events.Erased(), "gone"))
    raws = await parts.put([(str(key).encode(), value) for value in (erasure, b"{", erasure)])
    await owner(parts, rules, PartitionlessSink()).process(raws)
    live = await load(parts, rules)
    early = ShadowFold(parts.log, NUMBER, rules, {key})
    await early.advance(raws[-1].offset)
    assert live == {key: early.windows[key].image()}
    assert (
        early.windows[key].meta.quarantine is None
        and early.windows[key].meta.position == raws[-1].offset
    )


async def test_mending_writes_what_the_log_says_fences_the_owner_and_lets_it_go_on(
    parts: Parts,
) -> None:
    rules = rules_of(Code())
    writer, raws = await trapped(parts, rules)
    live = owner(parts, rules, PartitionlessSink())
    await live.process(raws)
    before = await parts.store.index(parts.generation, NUMBER)
    spoiled = Window(parts.keys[0], NUMBER, rules)
    apply(spoiled, 0, event_for(parts.keys[0], events.Opened(user="nobody"), "spoiled"))
    strange = Key(parts.keys[0].tenant, "strange")
    writes = [
        whole_write(parts.keys[0], spoiled, 1),
        whole_write(strange, Window(strange, NUMBER, rules), 1),
    ]
    stored = await parts.store.checkpoint(parts.generation, NUMBER)
    assert stored is not None
    await parts.store.apply(
        parts.generation, NUMBER, stored, [*writes, whole_write(parts.keys[1], None, 1)]
    )
    await repair_windows(
        parts.log, parts.store, parts.generation, rules, NUMBER, [*parts.keys, strange]
    )
    assert await same(parts, writer, rules) == 1
    assert await parts.store.conversations(parts.generation, NUMBER) == set(parts.keys[:2])
    after = await parts.store.index(parts.generation, NUMBER)
    assert after[0] is not None and before[0] is not None and after[0].offset == before[0].offset
    assert (after[1].due, after[1].timers) == (before[1].due, before[1].timers)
    for name in ("parked", f"recent:{parts.keys[0].tenant}"):
        assert after[1].lists[name].keys() == before[1].lists[name].keys()
    parts.first = raws[-1].offset + 1
    writer.rows, writer.first = [], parts.first
    writer.put(parts.keys[1], events.Message("user", "on"))
    raws = await parts.put(writer.rows)
    with pytest.raises(Fenced):
        await live.process(raws)
    live.adopt(after[0])
    await live.process(raws)
    assert await same(parts, writer, rules) == 1


async def test_a_lost_store_heals_from_snapshots_to_the_same_quarantined_windows() -> None:
    quarantined = 0
    for seed in range(6):
        parts = Parts(MemoryLog(4), MemoryStore(), None)
        rules, topic, rng = rules_of(Code()), MemorySnapshots(4), random.Random(seed)
        await fresh(parts)
        writer = Writer(seed, parts, rules).some(160)
        raws = await parts.put(writer.rows)
        rounds = SnapshotWriter(parts.log, topic, 1)
        upto = rng.randrange(20, 150)
        live = owner(parts, rules, PartitionlessSink())
        rounds.take_over(live)
        mine = rounds.partitions[NUMBER]
        for batch in split(rng, raws[:upto], 12):
            await live.process(batch)
            rounds.consider(NUMBER)
            if rng.random() < 0.5:
                await asyncio.sleep(0)
        while mine.covered < 0:
            await rounds.run(NUMBER)
        await rounds.stop()
        await parts.store.drop_partition(parts.generation, NUMBER)
        healed = owner(parts, rules, PartitionlessSink())
        healed.adopt(Checkpoint())
        assert await heal_from_snapshots(healed, parts.log, topic, upto - 1) is not None
        await healed.process(raws)
        quarantined += await same(parts, writer, rules)
        folded = ShadowFold(parts.log, NUMBER, rules, None)
        assert await folded.from_snapshots(healed, topic) and folded.offset >= 0
        await folded.advance(raws[-1].offset)
        assert {key: window.image() for key, window in folded.windows.items()} == await load(
            parts, rules
        ), f"seed {seed}"
    assert quarantined > 0


async def test_what_was_tried_again_stays_so_when_the_store_is_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dead_letters, "partition_of", lambda key, partitions: NUMBER)
    monkeypatch.setattr(partition_snapshots, "EVENTS_A_WINDOW", 0)
    parts, topic, code = Parts(MemoryLog(4), MemoryStore(), None), MemorySnapshots(4), Code()
    rules = rules_of(code)
    _, raws = await trapped(parts, rules)
    live, taken = owner(parts, rules, PartitionlessSink()), SnapshotWriter(parts.log, topic, 1)
    taken.take_over(live)
    await live.process(raws)
    await until_covered(taken, live)
    code.broken = False
    letters = dead_letters.DeadLetters(
        parts.log, parts.log, parts.store, parts.generation, rules, PartitionlessSink(), topic
    )
    assert await letters.retry(parts.keys[0]) == (6, None)
    images = await load(parts, rules)
    for settled in (False, True):
        live = owner(parts, rules, PartitionlessSink())
        if settled:
            live.adopt(await parts.store.checkpoint(parts.generation, NUMBER) or Checkpoint())
            taken.take_over(live)
            await until_covered(taken, live)
            await taken.run(NUMBER)
        await parts.store.drop_partition(parts.generation, NUMBER)
        live = owner(parts, rules, PartitionlessSink())
        assert await heal_from_snapshots(live, parts.log, topic, -1) == 2
        await live.process(raws)
        assert await load(parts, rules) == images
    await taken.stop()


async def until_covered(taken: SnapshotWriter, live: Partition) -> None:
    mine = taken.partitions[NUMBER]
    async with asyncio.timeout(20):
        while taken.is_running(NUMBER) or not mine.ready or mine.covered < live.checkpoint.offset:
            taken.consider(NUMBER)
            await asyncio.sleep(0)


@pytest.mark.parametrize("where", ["at once", "with history"])
async def test_a_panic_parks_wherever_the_fold_comes_to_it_and_memory_that_runs_out_does_not(
    where: str,
) -> None:
    parts, code = Parts(MemoryLog(4), MemoryStore(), None), Code()
    rules = rules_of(code)
    await fresh(parts)
    event = event_for(parts.keys[0], events.Message("user", "hello"), "e1")

    async def go(error: BaseException) -> None:
        async def fetch(*_: object) -> History:
            raise error

        if where == "at once":
            raise spoiled_by(error, 1) from error
        await with_history(
            parts.log,
            Window(parts.keys[0], NUMBER, rules),
            1,
            event,
            Outcome(Status.NEEDS_HISTORY, 1),
            fetch,
        )

    for error in (Panic("trapped"), ValueError("no")):
        with pytest.raises(FoldFailure):
            await go(error)
    for left in (MemoryError(), SystemExit()):
        with pytest.raises(type(left)):
            await go(left)
    if where == "with history":
        with pytest.raises(asyncio.CancelledError):
            await go(asyncio.CancelledError())


async def test_a_tenant_whose_policy_cannot_be_used_waits_and_goes_on_once_it_can(
    parts: Parts,
) -> None:
    share = FailureShare(0.0)
    share.begin(NUMBER, 0)
    newer = keys_of(f"{parts.keys[0].tenant}-newer")
    old = Rules(tenants={newer[0].tenant: {"min_messages": 5, "tomorrow": 1}})
    await parts.begin()
    said = [
        (str(key).encode(), encode(event_for(key, events.Message("user", f"{key} {n}"), f"{n}")))
        for n in range(30)
        for key in (*parts.keys, *newer)
    ]
    raws = await parts.put(said)
    sink = PartitionlessSink()
    live = Partition(
        NUMBER,
        parts.generation,
        parts.store,
        parts.log,
        old,
        learn=AsyncMock(),
        sink=sink,
        share=share,
    )
    live.adopt(Checkpoint(offset=parts.first - 1))
    for batch in split(random.Random(1), raws, 50):
        await live.process(batch)
    assert live.excess is None
    assert [offset for offset, kind in sink.dead if kind == "poison"] == [
        raw.offset for raw in raws[3:6]
    ]
    upgraded = Rules(tenants={newer[0].tenant: {"min_messages": 5}})
    for key in (*parts.keys, *newer):
        stored = (await parts.store.read(parts.generation, NUMBER, [key]))[1][0]
        assert stored is not None
        window = stored.load(key, NUMBER, old)
        assert (window.meta.quarantine is not None) is (key in newer)
        if window.meta.quarantine is not None:
            assert "'tomorrow' is unknown" in window.meta.quarantine.cause
            window = stored.load(key, NUMBER, upgraded)
            window = await go_on(parts.log, window, StepResult(), again=True)
        whole = Window(key, NUMBER, upgraded)
        for raw in raws:
            if raw.key == str(key).encode():
                apply(whole, raw.offset, decode_event(raw.value or b""))
        assert window.image() == whole.image()
        assert window.policy.min_messages == (5 if key in newer else 20)
