"""Many rollbacks beyond the window, each over the ones before it, cost one fold of the log."""

from __future__ import annotations

import asyncio
import random
import time
import tracemalloc
from collections.abc import Sequence

import msgspec
import pytest

from projections.events import types as events
from projections.events.types import AnyEvent
from projections.fold.apply import Status, apply
from projections.fold.replay import Logged, ReplayCheckpoints, replay
from projections.names import Position
from projections.policy.policy import Rules
from projections.storage import window_copies
from projections.storage.window_copies import NamedCopy, WindowCopy, changed_copies, decode_copies
from projections.window.window import Window
from streams.log import parted_fold
from streams.log.log import Raw
from streams.log.parted_fold import PartedFold
from streams.log.rollback_history import fetch_history
from tests.support.counting_log import CountingLog
from tests.support.histories import KEY, PARTITION, make_event
from tests.support.talks import Talks, encode, event_for
from threadfold.testing import MemoryLog


def test_rollbacks_over_rollbacks_do_not_double_the_time_of_a_replay() -> None:
    log: list[Logged] = []
    for k in range(40):
        target = len(log)
        for text in "abc":
            log.append((len(log), make_event(events.Message("user", text), f"e{len(log)}", 5)))
        log.append((len(log), make_event(events.Rollback(f"{PARTITION}-{target}"), f"e{len(log)}")))
        del k
    begun = time.thread_time()
    window = replay(KEY, PARTITION, Rules({"working_budget": 1, "compaction": False}), log)
    assert time.thread_time() - begun < 5
    assert window.meta.count == len(log)


@pytest.mark.long
async def test_the_history_of_a_long_conversation_is_folded_beside_what_goes_on_with_few_copies_of_its_window() -> (
    None
):
    log, logged = MemoryLog(PARTITION + 1), list[Logged]()
    for k in range(1_200):
        back = k > 200 and k % 4 == 0
        event = make_event(
            (
                events.Rollback(f"{PARTITION}-{k - 2}")
                if back
                else events.Message("user", "some words " * 40)
            ),
            f"e{k}",
        )
        logged.append((k, event))
        log.put(PARTITION, str(KEY).encode(), msgspec.json.encode(event))
    window = replay(KEY, PARTITION, Rules({"compaction": False}), logged)
    turns = 0

    async def turn() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0.001)
            turns += 1

    turning = asyncio.create_task(turn())
    tracemalloc.start()
    history = await fetch_history(log, window, 1_197)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    turning.cancel()
    assert history.window is not None and history.window.meta.position == 1_197
    assert turns >= 3, "the loop goes on turning"
    assert peak < 40 << 20, "250 copies of a window would be more"


async def test_large_events_are_read_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    class Log(MemoryLog):
        most = 0

        async def read_within(
            self, positions: Sequence[Position], most_bytes: int
        ) -> tuple[dict[Position, Raw], int]:
            found, read = await super().read_within(positions, most_bytes)
            self.most = max(self.most, sum(len(row.value or b"") for row in found.values()))
            return found, read

    log, logged = Log(PARTITION + 1), list[Logged]()
    for k in range(60):
        event = make_event(events.Message("user", f"{k} " + "x" * 5_000), f"e{k}", 1_000)
        logged.append((k, event))
        log.put(PARTITION, str(KEY).encode(), msgspec.json.encode(event))
    window = replay(KEY, PARTITION, Rules({"compaction": False}), logged)
    whole = await fetch_history(log, window, 20)
    assert log.most > 40 * 5_000
    log.most = 0
    monkeypatch.setattr("streams.log.history.READ_BYTES", 20_000)
    parts = await fetch_history(log, window, 20)
    assert 0 < log.most < 20_000 + 6_000
    assert whole.window is not None and parts.window is not None
    assert parts.window.image() == whole.window.image()
    assert parts.window.meta.position == 20


class Kept:
    """The copies of one window, by name, and what its last rollback read."""

    def __init__(self, *, folds: bool = True) -> None:
        self.copies: dict[bytes, bytes] = {}
        self.fold: PartedFold | None = None
        self.folds, self.before = folds, 0

    async def read(self) -> list[WindowCopy]:
        return decode_copies(self.copies.values())

    def keep(self, made: Sequence[NamedCopy]) -> None:
        self.copies.update(made)

    def take_fold(self) -> PartedFold | None:
        fold, self.fold = self.fold, None
        return fold

    def keep_fold(self, fold: PartedFold) -> None:
        self.fold = fold if self.folds else None

    def follow(self, window: Window, *, back: bool = False) -> None:
        """Take the copies that are due."""
        change = changed_copies(window, self.before, back=back)
        for name in change.gone:
            self.copies.pop(name, None)
        self.keep(change.put)
        self.before = window.meta.count

    def end(self) -> None:
        """Something was taken out."""
        self.copies.clear()
        self.fold = None


def grow(talks: Talks, events_: int) -> None:
    """Let a conversation grow to so many events, with its summaries."""
    while talks.next_offset < events_:
        talks.say(KEY, events.Message("user", f"text {talks.next_offset}"), tokens=30)
        if talks.requests[KEY]:
            request, full = talks.requests[KEY][-1], talks.logs[KEY]
            talks.logs[KEY] = full[-500:]
            talks.summarise(KEY, request)
            talks.logs[KEY] = [*full, talks.logs[KEY][-1]]
            talks.requests[KEY].clear()


@pytest.mark.parametrize(("short", "upto"), [(4_000, 1_000), (0, 800)], ids=["short", "long"])
async def test_a_rollback_without_copies_leaves_them_for_the_next_one(
    short: int, upto: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parted_fold, "SHORT", short)
    monkeypatch.setattr(window_copies, "EVERY", 100)
    talks, log = Talks(random.Random(1), PARTITION, [KEY]), CountingLog(PARTITION + 1)
    kept, window = Kept(folds=False), talks.windows[KEY]
    grow(talks, 1_000)

    async def rows_read(target: int) -> int:
        while (at := (await log.end_offsets())[PARTITION]) < len(talks.rows):
            log.put(PARTITION, *talks.rows[at])
        plain, log.read_rows = await fetch_history(log, window, target), 0
        found = await fetch_history(log, window, target, kept)
        assert found.window is not None and plain.window is not None
        assert found.window.image() == plain.window.image()
        return log.read_rows

    assert await rows_read(850) >= 1_000
    assert sorted(kept.copies) == sorted(b"%d" % at for at in range(100, upto + 1, 100))
    assert await rows_read(650) < 300
    # What is taken out later is in the copies before: none is made.
    talks.say(KEY, events.EventDropped(f"{PARTITION}-{talks.next_offset - 1}"))
    kept.copies.clear()
    assert await rows_read(850) >= 1_000
    assert not kept.copies


@pytest.mark.long
async def test_ten_rollbacks_into_old_history_read_what_lies_between_copies_and_not_the_conversation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(window_copies, "EVERY", 100)
    talks = Talks(random.Random(1), PARTITION, [KEY])
    window, kept = talks.windows[KEY], Kept(folds=False)
    while talks.next_offset < 6_000:
        grow(talks, talks.next_offset + 1)
        kept.follow(window)
    log = CountingLog(PARTITION + 1)
    for name, value in talks.rows:
        log.put(PARTITION, name, value)
    distance = max(100, 2 * 6_000 // window_copies.MOST)
    first = talks.next_offset
    # Then to rollbacks themselves, the latest and the first of them.
    targets = [*(400 + 500 * k for k in range(10)), first + 9, first + 5, first + 8]
    for k, target in enumerate(targets):
        offset, log.read_rows = first + k, 0
        history = await fetch_history(log, window, target, kept)
        summaries = sum(offset > target for offset, event in talks.logs[KEY] if is_summary(event))
        assert log.read_rows <= 4 * distance + 2 * summaries, "of 6,000"
        plain = await fetch_history(log, window, target)
        event = event_for(KEY, events.Rollback(f"{PARTITION}-{target}"), f"back{k}")
        other = window.copy()
        outcome = apply(window, offset, event, history)
        assert outcome == apply(other, offset, event, plain)
        assert outcome.status is Status.APPLIED and window.image() == other.image()
        log.put(PARTITION, str(KEY).encode(), encode(event))
        kept.follow(window, back=True)


@pytest.mark.parametrize(
    "room",
    [pytest.param(None, id="all-known"), pytest.param(1, marks=pytest.mark.long, id="forgotten")],
)
@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 6))]
)
async def test_whichever_copies_there_are_a_rollback_over_rollbacks_finds_the_same(
    seed: int, room: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also to a rollback itself, and to what came right after one; and where there is room for few
    events, which are read again.
    """
    for name, value in (("EVERY", 20), ("MOST", 4), ("BACK", 2)):
        monkeypatch.setattr(window_copies, name, value)
    if room is not None:
        monkeypatch.setattr("streams.log.history.READ_BYTES", 3_000)
        monkeypatch.setattr("streams.log.event_reads.KEPT_BYTES", room)
    rng = random.Random(seed)
    talks, log = Talks(rng, PARTITION, [KEY]), CountingLog(PARTITION + 1)
    kept = Kept(folds=seed % 3 > 0)
    window, backs = talks.windows[KEY], [0]
    grow(talks, 60)
    for _ in range(20 if room else 40):
        grow(talks, talks.next_offset + rng.randrange(1, 30))
        while (at := (await log.end_offsets())[PARTITION]) < len(talks.rows):
            log.put(PARTITION, *talks.rows[at])
        last = talks.next_offset - 1
        near = rng.choice(backs) + rng.randrange(3)
        target = rng.choice([rng.randrange(last), min(near, last)])
        plain = await fetch_history(log, window, target)
        found = await fetch_history(log, window, target, kept)
        assert (found.window is None) == (plain.window is None)
        if found.window is not None and plain.window is not None:
            assert found.window.image() == plain.window.image()
        talks.say(KEY, events.Rollback(f"{PARTITION}-{target}"))
        backs.append(last + 1)
        kept.follow(window, back=True)
        if rng.random() < 0.1:
            talks.say(KEY, events.EventDropped(f"{PARTITION}-{rng.randrange(last)}"))
            kept.end()


@pytest.mark.parametrize("near", [0, 1], ids=["to-the-one-before", "to-before-it"])
def test_a_chain_of_rollbacks_to_rollbacks_takes_time_that_grows_with_their_number(
    near: int,
) -> None:
    """Also where there is room for few copies."""
    rules, last = Rules({"working_budget": 1, "compaction": False}), 0
    fold = ReplayCheckpoints(KEY, PARTITION, rules, 200_000)
    begun = time.thread_time()
    for k in range(1_200):
        said: object = events.Message("user", "text")
        if k % 4 == 3:
            said, last = events.Rollback(f"{PARTITION}-{max(0, last - near)}"), k
        fold.extend([(k, make_event(said, f"e{k}", 5))])
    assert time.thread_time() - begun < 10
    assert fold.window.meta.count == 1_200


@pytest.mark.parametrize(
    "folds",
    [
        pytest.param(True, id="one-remembers"),
        pytest.param(False, marks=pytest.mark.long, id="none-remembers"),
    ],
)
async def test_rollbacks_over_rollbacks_in_parts_before_read_each_part_once(
    folds: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In each part of the conversation some go back to the part before, in which others do."""
    monkeypatch.setattr(window_copies, "EVERY", 50)
    monkeypatch.setattr(window_copies, "BACK", 1)
    talks, log = Talks(random.Random(1), PARTITION, [KEY]), CountingLog(PARTITION + 1)
    window, kept, before = talks.windows[KEY], Kept(folds=folds), 20
    for k in range(7):
        for _ in range(70):
            grow(talks, talks.next_offset + 1)
            kept.follow(window)
        first = talks.next_offset
        for i in range(7):
            while (at := (await log.end_offsets())[PARTITION]) < len(talks.rows):
                log.put(PARTITION, *talks.rows[at])
            target = first - 30 if i % 2 else before + i
            log.read_rows = 0
            async with asyncio.timeout(20):
                found = await fetch_history(log, window, target, kept)
            assert log.read_rows <= (300 if folds and k and i else 2 * talks.next_offset)
            plain = await fetch_history(log, window, target)
            assert found.window is not None and plain.window is not None
            assert found.window.image() == plain.window.image()
            talks.say(KEY, events.Rollback(f"{PARTITION}-{target}"))
            kept.follow(window, back=True)
        before = first - 10


def is_summary(event: AnyEvent) -> bool:
    return isinstance(event, events.SummaryEvent)
