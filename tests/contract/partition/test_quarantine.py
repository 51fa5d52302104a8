"""Quarantine over the in-memory and the real log and store: a poison event quarantines its
conversation, at the same place however it is folded.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from dataclasses import dataclass, field

import pytest

from projections.events import types as events
from projections.events.codec import decode_event
from projections.events.types import AnyEvent
from projections.fold.apply import History, Outcome, Status, apply
from projections.fold.replay import apply_with_log
from projections.names import Key, Position
from projections.policy.policy import Rules
from projections.storage.records import Checkpoint
from projections.window.window import Window
from streams.log.log import Raw
from streams.maintenance import dead_letters
from streams.maintenance.repair import repair_windows, whole_write
from streams.partition.owned import Fenced
from streams.partition.partition import Partition
from streams.partition.step import FoldFailure, StepResult, go_on, spoiled_by, with_history
from streams.recovery import partition_snapshots
from streams.recovery.healing import heal_from_snapshots
from streams.recovery.shadow_fold import ShadowFold
from streams.recovery.snapshot_writer import SnapshotWriter
from tests.contract.partition.test_partition import NUMBER, Ear, Parts, parts, split
from tests.support.snapshots import MemorySnapshots
from tests.support.talks import encode, event_for
from threadfold.testing import MemoryLog, MemoryStore

__all__ = ["parts"]
GENERATIONS = itertools.count(50_000)


class Panic(BaseException):
    """What a native library raises that a deployment's callable is written with: no ``Exception``,
    so nothing in between catches it.
    """


@dataclass
class Code:
    """A deployment's callable, and the version of it that is installed."""

    broken: bool = True

    def __call__(self, tool: str, call_id: str, text: str) -> str:
        if self.broken and "trap" in text:
            raise Panic("trapped")
        return f"{tool}: {len(text)} characters"


POLICY = {
    "model_window": 2000,
    "reserve_tokens": 200,
    "working_budget": 300,
    "keep_recent_tokens": 100,
    "min_messages": 3,
    "summary_max_tokens": 60,
    "reducers": [{"name": "compact_tool_results", "replacement": "callable:fragile"}],
}


def rules_of(code: Code) -> Rules:
    return Rules(POLICY, callables={"fragile": code})


@dataclass
class Expected:
    """What quarantine gives, told in the plainest way: each event is folded into a copy, and
    there is no batch and no store.
    """

    key: Key
    rules: Rules
    window: Window = field(init=False)
    history: list[tuple[int, AnyEvent]] = field(default_factory=list)
    quarantined: int | None = None
    waiting: list[tuple[int, AnyEvent | None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.window = Window(self.key, NUMBER, self.rules)

    def take(self, offset: int, event: AnyEvent | None) -> None:
        if self.quarantined is None:
            if not self.fold(offset, event):
                self.quarantined = offset
            return
        self.waiting.append((offset, event))
        if _drops(event) == self.quarantined:
            todo, self.waiting, self.quarantined = self.waiting, [], None
            dropped = {_drops(e) for _, e in todo}
            for at, one in todo:
                if self.quarantined is not None:
                    self.waiting.append((at, one))
                elif not self.fold(at, one) and at not in dropped:
                    self.quarantined = at

    def fold(self, offset: int, event: AnyEvent | None) -> bool:
        if event is None:
            return False
        before = self.window.copy()
        try:
            apply_with_log(self.window, offset, event, self.history)
        except Panic:
            self.window = before
            return False
        self.history.append((offset, event))
        return True


def _drops(event: AnyEvent | None) -> int | None:
    if isinstance(event, events.EventDroppedEvent):
        partition, _, offset = event.data.position.partition("-")
        return int(offset) if partition == str(NUMBER) else None
    return None


class Writer:
    """Random rows of several conversations with poison in them, and what each window is to be."""

    def __init__(self, seed: int, parts: Parts, rules: Rules) -> None:
        self.rng = random.Random(seed)
        self.rows: list[tuple[bytes | None, bytes | None]] = []
        self.first = parts.first
        self.expected = {key: Expected(key, rules) for key in parts.keys}

    def put(self, key: Key, data: object, text: bytes | None = None) -> int:
        offset = self.first + len(self.rows)
        value = text or encode(
            event_for(key, data, f"{key.conversation}-{offset}", self.rng.choice([None, 30]))
        )
        self.rows.append((str(key).encode(), value))
        self.expected[key].take(offset, None if text else decode_event(value))
        return offset

    def drop(self, key: Key, offset: int) -> int:
        return self.put(key, events.EventDropped(str(Position(NUMBER, offset))))

    def some(self, count: int) -> Writer:
        rng = self.rng
        for _ in range(count):
            key = rng.choice(list(self.expected))
            quarantined, roll = self.expected[key].quarantined, rng.random()
            if roll < 0.04:
                self.put(key, None, rng.choice([b"{not json", b"[]", b'{"specversion":"1.0"}']))
            elif roll < 0.30 and quarantined is not None:
                self.drop(
                    key,
                    rng.choice(
                        [
                            quarantined,
                            quarantined,
                            quarantined,
                            self.first + rng.randrange(len(self.rows)),
                        ]
                    ),
                )
            elif roll < 0.40:
                self.put(
                    key,
                    events.Message(
                        "assistant", None, tool_calls=[events.ToolCall("a", "look", "{}")]
                    ),
                )
                text = rng.choice(["trap ", "fine ", "fine "]) * rng.choice([10, 40])
                self.put(key, events.ToolResult("a", text))
            elif roll < 0.45 and self.rows:
                self.put(
                    key, events.Rollback(f"{NUMBER}-{self.first + rng.randrange(len(self.rows))}")
                )
            else:
                self.put(
                    key,
                    events.Message(
                        rng.choice(["user", "assistant"]), "word " * rng.choice([5, 40])
                    ),
                )
        return self


def bare(window: Window) -> bytes:
    """A window's image but for being quarantined."""
    window = window.copy()
    window.release()
    return window.image()


async def same(parts: Parts, writer: Writer, rules: Rules) -> int:
    """Compare all stored windows with what is expected; returns how many are quarantined."""
    stored = (await parts.store.read(parts.generation, NUMBER, parts.keys))[1]
    quarantined = 0
    for (key, expected), found in zip(writer.expected.items(), stored, strict=True):
        if found is None:
            assert expected.window.meta.position < 0 and expected.quarantined is None
            continue
        window = found.load(key, NUMBER, rules)
        assert bare(window) == expected.window.image()
        at = window.meta.quarantine
        assert (at and at.offset) == expected.quarantined
        if at is not None:
            quarantined += 1
            assert at.count == len(expected.waiting)
            assert at.last == max([at.offset, *(offset for offset, _ in expected.waiting)])
    return quarantined


def owner(parts: Parts, rules: Rules, ear: Ear | None = None, cached: int = 4096) -> Partition:
    made = parts.partition(cached, ear)
    made.rules = rules
    return made


class AnyEar(Ear):
    """An ear for letters of events that waited, whose records are of earlier batches."""

    async def publish(self, partition, effects, batch) -> None:  # type: ignore[no-untyped-def]
        self.dead += [(letter.position.offset, letter.kind) for letter in effects.dead]


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
            live = owner(parts, rules, AnyEar(), 2)
            live.adopt(await parts.store.checkpoint(parts.generation, NUMBER) or live.checkpoint)
            await live.process(batch)
        quarantined += await same(parts, writer, rules)
        images = await load(parts, rules)
        parts.generation += 1
        await owner(parts, rules, AnyEar()).process(raws)
        assert await load(parts, rules) == images, f"seed {seed}"
        alone = ShadowFold(parts.log, NUMBER, rules, set(parts.keys))
        await alone.advance(raws[-1].offset)
        assert {key: window.image() for key, window in alone.windows.items()} == images, (
            f"seed {seed}"
        )
    assert quarantined > 0


async def fresh(parts: Parts) -> None:
    """Conversations, and a generation, that nobody has written of."""
    await parts.begin()
    parts.generation = next(GENERATIONS)
    parts.keys = [Key(f"acme-parking-{parts.generation}", name) for name in ("c1", "c2", "c3")]


async def load(parts: Parts, rules: Rules) -> dict[Key, bytes]:
    stored = (await parts.store.read(parts.generation, NUMBER, parts.keys))[1]
    return {
        key: found.load(key, NUMBER, rules).image()
        for key, found in zip(parts.keys, stored, strict=True)
        if found is not None
    }


async def trapped(parts: Parts, rules: Rules) -> tuple[Writer, list[Raw]]:
    """The first conversation goes until the callable fails on it and a little beyond, the second
    one runs beside.
    """
    await fresh(parts)
    writer = Writer(1, parts, rules)
    one, other, _ = parts.keys
    writer.put(
        one, events.Message("assistant", None, tool_calls=[events.ToolCall("a", "look", "{}")])
    )
    writer.put(one, events.ToolResult("a", "trap " * 100))
    while writer.expected[one].quarantined is None:
        writer.put(one, events.Message("assistant", "word " * 40))
        writer.put(other, events.Message("user", "beside"))
        assert len(writer.rows) < 200
    for i in range(5):
        writer.put(one, events.Message("user", f"later {i}"))
        writer.put(other, events.Message("user", "beside"))
    return writer, await parts.put(writer.rows)


async def test_a_failing_fold_parks_its_conversation_in_order_and_the_others_of_the_batch_flow_on(
    parts: Parts,
) -> None:
    rules = rules_of(Code())
    writer, raws = await trapped(parts, rules)
    ear = AnyEar()
    live = owner(parts, rules, ear)
    await live.process(raws)
    assert await same(parts, writer, rules) == 1
    expected = writer.expected[parts.keys[0]]
    assert ear.dead == [
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
    await owner(parts, rules, AnyEar()).process(raws)
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
    live = owner(parts, rules, AnyEar())
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
    await owner(parts, rules, AnyEar()).process(raws)
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
    await owner(parts, rules, AnyEar()).process(raws)
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
    live = owner(parts, rules, AnyEar())
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
        live = owner(parts, rules, AnyEar())
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
        healed = owner(parts, rules, AnyEar())
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
    live, taken = owner(parts, rules, AnyEar()), SnapshotWriter(parts.log, topic, 1)
    taken.take_over(live)
    await live.process(raws)
    await until_covered(taken, live)
    code.broken = False
    letters = dead_letters.DeadLetters(
        parts.log, parts.log, parts.store, parts.generation, rules, AnyEar(), topic
    )
    assert await letters.retry(parts.keys[0]) == (6, None)
    images = await load(parts, rules)
    for settled in (False, True):
        live = owner(parts, rules, AnyEar())
        if settled:
            live.adopt(await parts.store.checkpoint(parts.generation, NUMBER) or Checkpoint())
            taken.take_over(live)
            await until_covered(taken, live)
            await taken.run(NUMBER)
        await parts.store.drop_partition(parts.generation, NUMBER)
        live = owner(parts, rules, AnyEar())
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
