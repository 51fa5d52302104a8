"""Reading many large events back from the log."""

from __future__ import annotations

import asyncio
import json
import random
import tracemalloc
from collections.abc import Awaitable

import pytest

from projections.events import types as events
from projections.events.validation import Record
from projections.fold.apply import Status, apply
from projections.fold.known_events import KnownEvents
from projections.fold.outcomes import History
from projections.names import Key
from projections.policy.policy import Rules
from streams.log import rollback_history
from streams.log.history import read_events
from streams.log.parted_fold import PartedFold
from streams.log.rollback_cache import RollbackCache
from streams.log.rollback_history import NoCopies, fetch_history, fetch_needed
from tests.support.counting_log import CountingLog
from tests.support.talks import Talks, event_for, summary_of
from threadfold.testing.memory_log import MemoryLog

KEY = Key("acme", "large")
LARGE = 300_000
"""Bytes of an event."""


async def test_others_are_served_while_large_events_are_read_back() -> None:
    log = MemoryLog(1)
    text = '"quoted" ' * 100_000
    for i in range(40):
        flat = {"specversion": "1.0", "id": f"e{i}", "type": "threadfold.message.v1"}
        value = {**flat, "source": KEY.source, "data": {"role": "user", "content": text}}
        await log.append([Record(KEY, f"e{i}", flat["type"], json.dumps(value).encode())])
    reading = asyncio.create_task(read_events(log, KEY, 0, range(40)))
    turns = 0
    while not reading.done():
        await asyncio.sleep(0)
        turns += 1
    assert len(reading.result()) == 40
    assert turns > 4  # in one go it is one


def large_talk(count: int) -> tuple[CountingLog, Talks]:
    """A conversation of large messages, of which the window has left the older ones out."""
    rules = Rules({"working_budget": 1_500, "model_window": 8_000, "reserve_tokens": 1_000})
    log, talks = CountingLog(1), Talks(random.Random(1), 0, [KEY], rules=rules)
    for k in range(count):
        talks.say(KEY, events.Message("user", f"{k} " + "x" * LARGE), tokens=LARGE // 5)
        log.put(0, *talks.rows[-1])
    return log, talks


async def peak_of(reading: Awaitable[History]) -> tuple[History, int]:
    tracemalloc.start()
    history = await reading
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return history, peak


@pytest.fixture
def little_room(monkeypatch: pytest.MonkeyPatch) -> int:
    """Bytes that may be kept of events."""
    monkeypatch.setattr("streams.log.history.READ_BYTES", 4 * LARGE)
    monkeypatch.setattr("streams.log.event_reads.KEPT_BYTES", 8 * LARGE)
    return 8 * LARGE


async def test_what_a_rollback_keeps_of_large_events_is_bounded(little_room: int) -> None:
    log, talks = large_talk(100)
    history, peak = await peak_of(fetch_history(log, talks.windows[KEY], 60))
    assert history.window is not None and history.window.meta.position == 60
    assert peak < 3 * little_room < 60 * LARGE


async def test_what_a_late_summary_makes_whole_again_is_read_a_few_events_at_a_time(
    little_room: int,
) -> None:
    log, talks = large_talk(100)
    window, known = talks.windows[KEY], KnownEvents(talks.logs[KEY])
    summary = event_for(KEY, summary_of(talks.requests[KEY][0], talks.logs[KEY], ""), "summary")
    needs = apply(window, 100, summary)
    assert len(needs.texts) > 50
    expected = window.copy()
    apply(expected, 100, summary, History(texts=known))
    history, peak = await peak_of(fetch_needed(log, window, needs))
    assert peak < 3 * little_room < 50 * LARGE
    assert apply(window, 100, summary, history).status is Status.APPLIED
    assert window.image() == expected.image()


def large_results(count: int) -> tuple[CountingLog, Talks]:
    """A conversation of large tool results: they come whole, and are cut to a line later."""
    budget = {"working_budget": 400_000, "keep_recent_tokens": 100_000, "model_window": 1_000_000}
    rules = Rules({**budget, "reserve_tokens": 20_000, "spill_chars": 0})
    log, talks = CountingLog(1), Talks(random.Random(1), 0, [KEY], rules=rules)
    for k in range(count):
        call = events.ToolCall(f"c{k}", "find", "{}")
        for event, tokens in (
            (events.Message("user", f"number {k}"), 5),
            (events.Message("assistant", None, tool_calls=[call]), 8),
            (events.ToolResult(call.id, f"{k} " + "x" * LARGE), LARGE // 4),
        ):
            talks.say(KEY, event, tokens=tokens)
            log.put(0, *talks.rows[-1])
    return log, talks


async def test_what_a_late_summary_makes_whole_and_the_next_cut_shortens_again_is_never_all_there(
    little_room: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("projections.fold.known_events.MADE_BYTES", little_room)
    log, talks = large_results(100)
    window, known = talks.windows[KEY], KnownEvents(talks.logs[KEY])
    summary = event_for(KEY, summary_of(talks.requests[KEY][0], talks.logs[KEY], ""), "summary")
    needs = apply(window, 300, summary)
    assert len(needs.texts) > 80
    window.pop_cut()
    expected = window.copy()
    apply(expected, 300, summary, History(texts=known))
    before = window.image()
    history, peak = await peak_of(fetch_needed(log, window, needs))
    assert peak < 4 * little_room < 50 * LARGE
    assert window.image() == before
    tracemalloc.start()
    assert apply(window, 300, summary, history).status is Status.APPLIED
    assert tracemalloc.get_traced_memory()[1] < 4 * LARGE  # no text is made again in the flow
    tracemalloc.stop()
    assert window.image() == expected.image()
    assert window.cut is not None and expected.cut is not None
    assert window.cut.steps == expected.cut.steps


class Keeps(NoCopies):
    """What the last one read is kept for the next one."""

    fold: PartedFold | None = None

    def take_fold(self) -> PartedFold | None:
        fold, self.fold = self.fold, None
        return fold

    def keep_fold(self, fold: PartedFold) -> None:
        fold.shrink(LARGE)
        self.fold = fold


async def test_what_a_late_summary_made_whole_again_the_next_one_does_not_read_again(
    little_room: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, talks = large_talk(60)
    window, keeps = talks.windows[KEY], Keeps()
    summary = event_for(KEY, summary_of(talks.requests[KEY][0], talks.logs[KEY], ""), "summary")
    needs = apply(window, 60, summary)
    first = await fetch_needed(log, window, needs, keeps)
    monkeypatch.setattr(rollback_history, "LONG_TEXTS", 1 << 30)
    again = await fetch_needed(MemoryLog(1), window, needs, keeps)
    other = window.copy()
    for mine, history in ((window, first), (other, again)):
        assert apply(mine, 60, summary, history).status is Status.APPLIED
    assert window.image() == other.image()
    assert keeps.fold is not None and keeps.fold.size < LARGE < little_room


async def test_nor_does_the_next_one_in_a_rebuild(little_room: int) -> None:
    log, talks = large_talk(60)
    window, cache = talks.windows[KEY], RollbackCache(log)
    summary = event_for(KEY, summary_of(talks.requests[KEY][0], talks.logs[KEY], ""), "summary")
    needs = apply(window, 60, summary)
    for read in (len(needs.texts), 0):
        log.read_rows = 0
        history = await cache.fetch(cache, window, needs)
        assert log.read_rows == read
        other = window.copy()
        assert apply(other, 60, summary, history).status is Status.APPLIED
    assert little_room < 60 * LARGE
