"""Rollbacks beyond their windows, beside the flow of a partition: the conversation waits, others do
not, and the windows are the replay's, whatever comes when.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable, Sequence

import pytest

from projections.events import types as events
from projections.fold.outcomes import History, Outcome
from projections.names import Position, parse_key
from projections.storage import window_copies
from projections.storage.records import Checkpoint
from projections.storage.window_copies import decode_copies
from projections.window.window import Window
from streams.log import rollback_history
from streams.log.log import Log, Raw
from streams.log.rollback_history import Copies, fetch_needed, takes_long
from streams.partition import load_parts, restores
from streams.partition.owned import Fenced
from streams.partition.partition import Partition
from streams.partition.step import belongs, read_row
from streams.runtime.time_slices import Slice, TimeSlices
from tests.support.histories import RULES
from tests.support.partitions import NUMBER, Parts, RecordingSink, rounds, split, what_is_restored
from tests.support.talks import Talks, random_talks


class RestoreSink(RecordingSink):
    """A sink for records of earlier batches. Nobody waits while it reads what is in force again."""

    async def publish(self, partition, effects, batch) -> None:  # type: ignore[no-untyped-def]
        offsets = {raw.position.offset for raw in batch}
        assert {offset for _, offset, _ in [*effects.accepted, *effects.voided]} <= offsets
        assert {at for _, _, at in effects.again} <= offsets
        self.accepted += effects.accepted
        self.voided += effects.voided


class Owner:
    """A partition whose histories are read when the test lets them."""

    def __init__(
        self,
        parts: Parts,
        checkpoint: Checkpoint,
        sink: RecordingSink | None = None,
        slices: TimeSlices | None = None,
    ) -> None:
        self.parts, self.copies = parts, 0
        self.gates: list[asyncio.Event] = []
        self.ready = asyncio.Event()
        self.sink = sink or RestoreSink()
        self.partition = Partition(
            NUMBER,
            parts.generation,
            parts.store,
            parts.log,
            RULES,
            learn=_learn,
            sink=self.sink,
            cached_windows=2,
            fetch=self._fetch,
            restored=self._restored,
            slices=slices,
        )
        self.partition.adopt(checkpoint)

    async def _fetch(self, log: Log, window: Window, needs: Outcome, copies: Copies) -> History:
        if takes_long(window, needs):
            gate = asyncio.Event()
            self.gates.append(gate)
            await gate.wait()
        self.copies = max(self.copies, len(await copies.read()))
        if needs.target is not None:
            await self._check(log, window, needs, copies)
        return await fetch_needed(log, window, needs, copies)

    async def _check(self, log: Log, window: Window, needs: Outcome, copies: Copies) -> None:
        """The copies change nothing of what comes out."""
        mine = await fetch_needed(log, window, needs, copies)
        plain = await fetch_needed(log, window, needs)
        assert what_is_restored(mine.window) == what_is_restored(plain.window)

    def _restored(self) -> None:
        self.ready.set()

    async def release(self) -> None:
        """Let the oldest history that waits be read, and have the partition go on."""
        if self.gates:
            self.ready.clear()
            self.gates.pop(0).set()
            await self.ready.wait()
        await self.partition.process([])

    async def drain(self) -> None:
        while self.partition.restoring:
            await asyncio.sleep(0)  # what was begun comes to its gate
            await self.release()


async def _learn(tenant: str) -> None:
    assert tenant.startswith("acme")


async def test_others_are_folded_while_a_conversation_goes_back_to_an_old_event(
    parts: Parts,
) -> None:
    talks = Talks(random.Random(1), NUMBER, parts.keys, await parts.begin())
    one, other, _ = parts.keys
    for i in range(60):
        talks.say(one, events.Message("user", f"text {i} " * 20), tokens=60)
        if talks.requests[one]:
            talks.summarise(one)
            talks.requests[one].clear()
    before = talks.next_offset
    talks.say(other, events.Message("user", "before"))
    talks.say(one, events.Rollback(f"{NUMBER}-{talks.logs[one][3][0]}"))
    assert talks.seen["history"] == 1
    talks.say(one, events.Message("user", "after the rollback"))
    talks.say(other, events.Message("user", "beside"))
    raws = await parts.put(talks.rows)
    owner = Owner(parts, Checkpoint(offset=parts.first - 1))
    await owner.partition.process(raws)
    assert owner.partition.restoring
    stored = await parts.stored()
    assert stored.restoring
    last = raws[-1].position.offset
    assert (stored.offset, stored.ahead) == (before, last)
    assert stored.rollbacks == ((str(one), before + 1),)
    assert stored.includes(last, other) and not stored.includes(last, one)
    assert (stored.applied_to(other), stored.applied_to(one)) == (last, before)
    assert owner.partition.checkpoint.latest_ms == raws[-1].timestamp
    assert stored.includes(last, "other-tenant") and not stored.includes(last, one.tenant)
    # The next owner, which has read the first of these records again, knows what is there.
    successor = Owner(parts, stored)
    await successor.partition.process(raws[: before + 2 - parts.first])
    found = await parts.stored()
    assert (found.offset, found.ahead, found.rollbacks) == (before, last, stored.rollbacks)
    successor.partition.close()
    owner = Owner(parts, found)
    await owner.partition.process(raws)
    windows = {window.key: window for window in await parts.windows()}
    assert windows[other].meta.position == raws[-1].position.offset
    assert windows[one].meta.position < before
    await owner.drain()
    assert await parts.images() == parts.expected(talks)
    stored = await parts.stored()
    assert not stored.restoring
    assert stored.offset == raws[-1].position.offset


async def test_while_a_partition_heals_too_only_the_conversation_that_goes_back_waits(
    parts: Parts,
) -> None:
    talks = await long_talk(parts)
    one, other, _ = parts.keys
    talks.say(one, events.Rollback(f"{NUMBER}-{talks.logs[one][3][0]}"))
    talks.say(other, events.Message("user", "beside"))
    raws = await parts.put(talks.rows)
    owner = Owner(parts, Checkpoint(offset=parts.first - 1))
    await owner.partition.set_target(raws[-1].position.offset)
    async with asyncio.timeout(20):
        await owner.partition.process(raws[:-1])
        stored = await parts.stored()
        assert stored.healing and stored.heals(other)
        await owner.partition.process(raws[-1:])
    stored = await parts.stored()
    assert not stored.healing
    assert [stored.heals(whose) for whose in (one, other, one.tenant)] == [True, False, True]
    await owner.drain()
    stored = await parts.stored()
    assert not stored.behind and not stored.heals(one)
    assert await parts.images() == parts.expected(talks)


async def test_others_are_folded_while_many_large_texts_are_read_for_a_summary(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    talks = Talks(random.Random(1), NUMBER, parts.keys, await parts.begin())
    one, other, _ = parts.keys
    while not talks.seen["texts"]:
        talks.say(one, events.Message("user", "long " * 600), tokens=60)
        if len(talks.requests[one]) > 12:
            talks.summarise(one, talks.requests[one][0])
    summary = talks.next_offset - 1
    talks.say(other, events.Message("user", "beside"))
    raws = await parts.put(talks.rows)
    monkeypatch.setattr(rollback_history, "LONG_TEXTS", 100)
    owner = Owner(parts, Checkpoint(offset=parts.first - 1))
    await owner.partition.process(raws)
    assert owner.partition.restoring
    windows = {window.key: window for window in await parts.windows()}
    assert windows[other].meta.position == raws[-1].position.offset
    assert windows[one].meta.position < summary
    await owner.drain()
    assert await parts.images() == parts.expected(talks)


@pytest.mark.parametrize(
    "long_texts", [-1, pytest.param(rollback_history.LONG_TEXTS, marks=pytest.mark.long)]
)
@pytest.mark.parametrize("in_memory", [3, pytest.param(restores.MOST_ROWS, marks=pytest.mark.long)])
@pytest.mark.parametrize("cold", [False, True])
async def test_whatever_comes_when_the_windows_and_the_effects_are_the_replays(
    parts: Parts, monkeypatch: pytest.MonkeyPatch, in_memory: int, long_texts: int, cold: bool
) -> None:
    if cold:
        load_as_few_as_possible(monkeypatch)
    monkeypatch.setattr(restores, "MOST_ROWS", in_memory)
    monkeypatch.setattr(rollback_history, "LONG_TEXTS", long_texts)
    monkeypatch.setattr(window_copies, "EVERY", 5)
    monkeypatch.setattr(window_copies, "MOST", 4)
    monkeypatch.setattr(window_copies, "BACK", 2)
    monkeypatch.setattr(window_copies, "RECENT", 2)
    restored = copies = 0
    for seed in range(300, 300 + rounds(parts, 24)):
        rng = random.Random(seed)
        parts.generation += 1_000_000
        talks = random_talks(seed, 250, NUMBER, parts.keys, await parts.begin())
        raws = await parts.put(talks.rows)
        plain = RecordingSink()
        alone = parts.partition(sink=plain)
        await alone.process(raws)
        parts.generation += 1_000_000
        owner = Owner(parts, Checkpoint(offset=parts.first - 1))
        done = await _drive(parts, owner, raws, rng, crashes=seed % 2 == 1)
        restored, copies = restored + done[0], copies + done[1]
        assert await parts.images() == parts.expected(talks), f"seed {seed}"
        assert set(owner.sink.voided) == set(plain.voided), f"seed {seed}"
        assert set(owner.sink.accepted) == set(plain.accepted), f"seed {seed}"
    assert restored > 0
    assert copies > 0


async def test_others_do_not_wait_for_windows_that_take_long_to_load(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    load_as_few_as_possible(monkeypatch)
    talks = Talks(random.Random(1), NUMBER, parts.keys, await parts.begin())
    one, other, third = parts.keys
    for key in parts.keys:
        talks.say(key, events.Message("user", "before"))
    late = talks.next_offset
    for key in (one, other, third, one):
        talks.say(key, events.Message("user", "later"))
    raws = await parts.put(talks.rows)
    last = raws[-1].position.offset
    first = Owner(parts, Checkpoint(offset=parts.first - 1))
    await first.partition.process(raws[:3])
    await first.drain()
    owner = Owner(parts, await parts.stored())
    await owner.partition.process(raws[3:])
    stored = await parts.stored()
    assert (stored.offset, stored.ahead) == (late, last) and owner.ready.is_set()
    assert stored.rollbacks == ((str(other), late + 1), (str(third), late + 2))
    windows = {window.key: window for window in await parts.windows()}
    assert windows[one].meta.position == last
    await _check_claims(parts, raws)
    # Each batch goes on with one of them at least.
    await owner.partition.process([])
    assert (await parts.stored()).rollbacks == ((str(third), late + 2),)
    await owner.partition.process([])
    assert await parts.images() == parts.expected(talks)
    assert (await parts.stored()).offset == last and not owner.partition.restoring


async def test_what_waits_for_its_window_waits_for_a_bounded_number_of_batches(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many conversations come: no more are named in the checkpoint than may be."""
    load_as_few_as_possible(monkeypatch)
    monkeypatch.setattr(restores, "MOST_PUT_OFF", 1)
    talks = Talks(random.Random(1), NUMBER, parts.keys, await parts.begin())
    for key in parts.keys * 3:
        talks.say(key, events.Message("user", "hello"))
    raws = await parts.put(talks.rows)
    owner = Owner(parts, Checkpoint(offset=parts.first - 1))
    await owner.partition.process(raws)
    assert [name for name, _ in (await parts.stored()).rollbacks] == [str(parts.keys[-1])]
    await owner.partition.process([])
    assert await parts.images() == parts.expected(talks)


def load_as_few_as_possible(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each batch puts off all but the first window that it has to load."""
    monkeypatch.setattr(load_parts, "SECONDS", 0.0)
    monkeypatch.setattr(load_parts, "WORTH", 0.0)
    monkeypatch.setattr(load_parts, "FIRST", 1)


async def test_others_go_on_however_much_waits_for_a_conversation(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(restores, "MOST_ROWS", 4)
    talks = await long_talk(parts)
    one, other, _ = parts.keys
    for back in (3, 60):
        talks.say(one, events.Rollback(f"{NUMBER}-{talks.logs[one][back][0]}"))
        for i in range(12):
            talks.say(one, events.Message("user", f"behind {back} {i}"))
    talks.say(other, events.Message("user", "beside"))
    raws = await parts.put(talks.rows)
    owner = Owner(parts, Checkpoint(offset=parts.first - 1))
    for raw in raws:
        async with asyncio.timeout(20):
            await owner.partition.process([raw])
    windows = {window.key: window for window in await parts.windows()}
    assert windows[other].meta.position == raws[-1].position.offset
    await _check_claims(parts, raws)
    await owner.drain()
    assert await parts.images() == parts.expected(talks)
    stored = await parts.stored()
    assert not stored.restoring


async def _drive(
    parts: Parts, owner: Owner, raws: Sequence[Raw], rng: random.Random, *, crashes: bool
) -> tuple[int, int]:
    """Process batches of any size; histories are there sooner or later, and owners die."""
    restored = 0
    rest = list(raws)
    while rest or owner.partition.restoring:
        for batch in split(rng, rest[:30], 10):
            await owner.partition.process(batch)
        rest = rest[30:]
        restored += owner.partition.restoring
        await _check_claims(parts, raws)
        if crashes and rng.random() < 0.3:
            stored = await parts.stored()
            owner.partition.close()
            owner = Owner(parts, stored, owner.sink)
            rest = [raw for raw in raws if raw.position.offset > stored.offset]
        if rng.random() < 0.5 or not rest:
            await owner.drain()
    return restored, owner.copies


async def _check_claims(parts: Parts, raws: Sequence[Raw]) -> None:
    """What a checkpoint says that windows include is in them."""
    checkpoint = await parts.stored()
    at = {
        window.key: max(window.meta.position, max(stuck.offset, stuck.last) if stuck else -1)
        for window in await parts.windows()
        for stuck in (window.meta.quarantine,)
    }
    for raw in raws:
        key = None if raw.key is None else parse_key(raw.key)
        if key in at and belongs(read_row(parts.log.seals, raw)):
            claimed = checkpoint.includes(raw.position.offset, key)
            assert not claimed or at[key] >= raw.position.offset


async def test_an_owner_with_a_restore_under_way_is_fenced_by_another_write(parts: Parts) -> None:
    talks = random_talks(301, 250, NUMBER, parts.keys, await parts.begin())
    raws = await parts.put(talks.rows)
    owner = Owner(parts, Checkpoint(offset=parts.first - 1))
    at = 0
    while not owner.partition.restoring:
        await owner.partition.process(raws[at : at + 1])
        at += 1
    other = parts.partition()
    await parts.readopt(other)
    await other.process(raws[at - 1 : at])
    with pytest.raises(Fenced):
        await owner.partition.process(raws[at:])
    owner.partition.close()
    await parts.readopt(other)
    await other.process(raws)
    assert await parts.images() == parts.expected(talks)
    assert other.checkpoint.offset == Position(NUMBER, raws[-1].position.offset).offset


async def test_a_partition_that_is_given_up_while_a_conversation_waits_announces_nothing_more(
    parts: Parts,
) -> None:
    talks = await long_talk(parts)
    one = parts.keys[0]
    while not talks.requests[one]:
        talks.say(one, events.Message("user", "it becomes due " * 20), tokens=60)
    talks.say(one, events.Rollback(f"{NUMBER}-{talks.logs[one][3][0]}"))
    # Of what the rollback abandons: folded without the rollback, it would be accepted.
    talks.summarise(one)
    *raws, late = await parts.put(talks.rows)
    owner = Owner(parts, Checkpoint(offset=parts.first - 1))
    await owner.partition.process(raws)
    assert owner.partition.restoring
    before = list(owner.sink.accepted)
    owner.partition.close()
    with pytest.raises(Fenced):
        await owner.partition.process([late])
    assert owner.sink.accepted == before


async def test_a_partition_that_is_given_up_while_what_waits_is_read_again_is_fenced(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(restores, "MOST_ROWS", 2)
    talks = await long_talk(parts)
    one = parts.keys[0]
    talks.say(one, events.Rollback(f"{NUMBER}-{talks.logs[one][3][0]}"))
    for i in range(4):
        talks.say(one, events.Message("user", f"behind it {i}"))
    raws = await parts.put(talks.rows)
    owner = Owner(parts, Checkpoint(offset=parts.first - 1))
    await owner.partition.process(raws)
    await asyncio.sleep(0)
    await owner.release()
    assert owner.partition.restoring and not owner.gates
    read = parts.log.read

    async def given_up(positions: Iterable[Position]) -> dict[Position, Raw]:
        owner.partition.close()
        return await read(positions)

    monkeypatch.setattr(parts.log, "read", given_up)
    with pytest.raises(Fenced):
        await owner.partition.process([])
    monkeypatch.undo()
    owner = Owner(parts, await parts.stored())
    await owner.partition.process(raws)
    await owner.drain()
    assert await parts.images() == parts.expected(talks)


class Between(TimeSlices):
    """Slices between whose looks at the clock something happens once."""

    def __init__(self) -> None:
        super().__init__()
        self.happens: Callable[[], None] | None = None

    def begin(self) -> Slice:
        return _Look(self)


class _Look(Slice):
    __slots__ = ("_between",)

    def __init__(self, of: Between) -> None:
        super().__init__(of)
        self._between = of

    @property
    def over(self) -> bool:
        happens, self._between.happens = self._between.happens, None
        if happens is not None:
            happens()
        return False


async def test_a_partition_given_up_between_two_rollbacks_does_not_write_what_stands_behind_both(
    parts: Parts,
) -> None:
    talks = await long_talk(parts)
    one = parts.keys[0]
    for back in (3, 60):
        talks.say(one, events.Rollback(f"{NUMBER}-{talks.logs[one][back][0]}"))
    talks.say(one, events.Message("user", "behind both"))
    raws = await parts.put(talks.rows)
    slices = Between()
    owner = Owner(parts, Checkpoint(offset=parts.first - 1), slices=slices)
    await owner.partition.process(raws)
    assert owner.partition.restoring
    # The first one's history is there, and the second one has not begun.
    slices.happens = owner.partition.close
    await owner.release()
    stored = await parts.stored()
    other = Owner(parts, stored)
    await other.partition.process(raws)
    await other.drain()
    assert await parts.images() == parts.expected(talks)


async def long_talk(parts: Parts) -> Talks:
    """A conversation with copies every 10 events, and summaries on the way."""
    talks = Talks(random.Random(1), NUMBER, parts.keys, await parts.begin())
    one = parts.keys[0]
    for i in range(120):
        talks.say(one, events.Message("user", f"text {i} " * 20), tokens=60)
        if talks.requests[one]:
            talks.summarise(one)
            talks.requests[one].clear()
    return talks


async def test_however_much_is_folded_between_two_writes_the_copies_lie_at_their_intervals(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(window_copies, "EVERY", 10)
    talks = await long_talk(parts)
    one = parts.keys[0]
    before = len(talks.rows)
    target = talks.logs[one][3][0]
    talks.say(one, events.Rollback(f"{NUMBER}-{target}"))
    raws = await parts.put(talks.rows)
    owner = Owner(parts, Checkpoint(offset=parts.first - 1))
    # Nothing is written yet when the rollback asks for them.
    await owner.partition.process(raws)
    await owner.drain()
    assert owner.copies == before // 10
    stored = decode_copies(await parts.store.copies(parts.generation, NUMBER, one))
    assert len(stored) == before // 10 + 1, "and one after the rollback"
    assert await parts.images() == parts.expected(talks)


async def test_what_was_taken_out_just_before_a_rollback_stays_out(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(window_copies, "EVERY", 10)
    talks = await long_talk(parts)
    one = parts.keys[0]
    written = len(talks.rows)
    out, target = talks.logs[one][2][0], talks.logs[one][3][0]
    talks.say(one, events.EventDropped(f"{NUMBER}-{out}"))
    talks.say(one, events.Rollback(f"{NUMBER}-{target}"))
    raws = await parts.put(talks.rows)
    owner = Owner(parts, Checkpoint(offset=parts.first - 1))
    await owner.partition.process(raws[:written])
    assert await parts.store.copies(parts.generation, NUMBER, one)
    # The history is read before this batch is written: the store has the copies yet.
    await owner.partition.fold(raws[written:])
    await asyncio.sleep(0)
    owner.gates.pop().set()
    await owner.ready.wait()
    await owner.partition.write()
    await owner.drain()
    (image, *_), expected = await parts.images(), parts.expected(talks)
    assert image == expected[0]
    assert image is not None and b"text 3 " in image and b"text 2 " not in image
