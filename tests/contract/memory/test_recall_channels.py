"""The channels of a search: what each finds, and that they are asked at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from threading import Barrier
from typing import Any

import pytest

from projections.events import types as events
from projections.events.times import parse_micros
from projections.memory.news import Fact
from projections.names import Key
from streams.memory.sqlite_store import SqliteMemories
from streams.memory.store import Filter, Hit
from streams.memory.turns import SqliteTurns, TurnHit
from streams.runtime import tenant_threads
from streams.runtime.steps import at_once
from tests.support.memories import USER, saved
from threadfold.service.question import Question
from threadfold.service.recall import Recall

C1 = Key("acme", "c1")
ACME = Filter("acme", user=USER)
NOW = parse_micros("2024-06-12T10:00:00Z") or 0
DAY = 86_400_000_000


class Nearest:
    """Vectors by which each query is near to the record that has its name here."""

    def __init__(self, store: SqliteMemories, **near: str) -> None:
        self._store, self._near = store, near

    async def search(self, only: Filter, queries: Sequence[str], limit: int) -> list[Hit]:
        every = at_once(self._store.page(only, None, limit))
        wanted = {self._near.get(query.split()[0]) for query in queries}
        return [Hit(record, 0.9, 0.9) for record in every if record.text in wanted]


def said(offset: int, text: str, at: int = NOW, **more: Any) -> Fact:
    return Fact(C1, offset, at, (), saved(C1, text, **more))


async def test_each_channel_finds_what_it_is_for() -> None:
    store = SqliteMemories()
    tags = events.MemoryTags(tool=["mailer"])
    last_week, before = NOW - 7 * DAY, NOW - 30 * DAY
    store.apply(
        [
            said(1, "The report is long.", before),
            said(2, "It takes PDF alone.", before, tags=tags, memory_type="procedure"),
            said(3, "The cat was ill.", last_week),
            said(4, "Papers go to Ida.", before),
            said(5, "Over quota it waits.", before),
        ],
        {},
    )
    vectors = Nearest(store, Send="Papers go to Ida.", quota="Over quota it waits.")
    recall = Recall(store, None, vectors=vectors)
    question = Question(
        ACME, "Send the report of last week", mode="action", tools=("mailer",), failures=("quota",)
    )
    found, _ = await recall.channels(question, NOW)
    texts = {channel: {one.found.text for one in hits} for channel, hits in found}
    assert texts == {
        "text": {"Over quota it waits.", "The report is long."},
        "tags": {"It takes PDF alone."},
        "time": {"The cat was ill."},
        "vectors": {"Papers go to Ida."},
        "pragmatic_vectors": {"Papers go to Ida.", "Over quota it waits."},
    }
    store.close()


async def test_the_channels_are_asked_at_once() -> None:
    meeting = Barrier(3, timeout=20)

    class Store(SqliteMemories):
        def search(self, only: Filter, words: Collection[str], limit: int) -> list[Hit]:
            meeting.wait()
            return super().search(only, words, limit)

    class Turns(SqliteTurns):
        def search(self, only: Filter, stems: Collection[str], limit: int) -> list[TurnHit]:
            meeting.wait()
            return super().search(only, stems, limit)

    class Vectors(Nearest):
        async def search(self, only: Filter, queries: Sequence[str], limit: int) -> list[Hit]:
            await asyncio.to_thread(meeting.wait)
            return await super().search(only, queries, limit)

    store, turns = Store(), Turns()
    question = Question(ACME, "What about tea?", mode="answer", kinds=("record", "turn"))
    found, _ = await Recall(store, turns, vectors=Vectors(store)).channels(question, NOW)
    assert [channel for channel, _ in found] == ["text", "vectors", "text"]
    store.close()
    turns.close()


async def test_a_search_waits_for_a_thread_four_times(monkeypatch: pytest.MonkeyPatch) -> None:
    store, turns, calls, to_thread = (
        SqliteMemories(),
        SqliteTurns(),
        list[object](),
        asyncio.to_thread,
    )
    store.apply([said(1, "Papers go to Ida."), said(2, "Papers go to Ben now.")], {})

    async def counted(function: Callable[..., Any], *args: Any) -> Any:
        calls.append(function)
        return await to_thread(function, *args)

    monkeypatch.setattr(asyncio, "to_thread", counted)
    monkeypatch.setattr(tenant_threads, "STEP", 60.0)  # also where the machine is busy
    answer = await Recall(store, turns).ask(Question(ACME, "Where do papers go?"))
    assert answer.found
    assert len(calls) == 4, "one for the plan, two side by side for what fits, one for the order"
