"""The law of the long-term memory: a store follows from the set of what was accepted, however it
came. And what is accepted is the same, live and on replay.
"""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from projections.memory.identity import Scope
from projections.memory.news import Fact, News
from projections.names import Key
from streams.memory import often_stated, sqlite_changes
from streams.memory.sqlite_store import SqliteMemories
from streams.memory.sqlite_tables import facts_of
from streams.memory.store import Filter
from tests.support.memories import TaughtLog, random_logs, saved
from tests.support.memory_news import C1
from tests.support.profiles import examples
from threadfold.testing.plain_memories import PlainMemories

seeds = st.integers(min_value=0, max_value=2**32)


def shuffled(rng: random.Random, news: list[News]) -> list[News]:
    """The news in another order, some of it twice."""
    again = news + rng.sample(news, rng.randint(0, len(news)))
    rng.shuffle(again)
    return again


def plainly(news: list[News]) -> dict[Scope, str]:
    plain = PlainMemories()
    plain.take(news)
    return plain.digests()


def fed(rng: random.Random, news: list[News]) -> dict[Scope, str]:
    """What a store comes to that is fed in batches of any size."""
    store = SqliteMemories()
    while news:
        size = rng.randint(1, len(news))
        store.apply(news[:size], {})
        news = news[size:]
    digests = store.digests()
    store.close()
    return digests


def replays(log: TaughtLog) -> bool:
    other = log.replayed()
    return other.news == log.news and other.window.image() == log.window.image()


def told(rng: random.Random, length: int) -> list[News]:
    return [one for log in random_logs(rng, length) for one in log.told()]


@given(seeds, st.integers(2, 40))
@settings(max_examples=examples(300), deadline=None)
def test_a_store_is_the_same_in_whatever_order_its_news_come(seed: int, length: int) -> None:
    rng = random.Random(seed)
    news = told(rng, length)
    assert fed(rng, shuffled(rng, news)) == plainly(news)


def fed_remembering(many: int, batches: list[list[News]]) -> tuple[object, object]:
    """What a store comes to that remembers records of so many facts, and its index of texts."""
    with pytest.MonkeyPatch.context() as patched, TemporaryDirectory() as folder:
        patched.setattr(often_stated, "MANY", many)
        path = Path(folder) / "memories"
        store = SqliteMemories(path)
        for batch in batches:
            store.apply(batch, {})
        digests = store.digests()
        store.close()
        with closing(sqlite3.connect(path)) as db:
            rows = db.execute(
                "SELECT r.scope, r.id, t.text, t.session, t.dates, t.speaker, t.tags"
                " FROM texts t JOIN records r ON r.number = t.owner ORDER BY 1, 2, 3"
            ).fetchall()
    return digests, rows


@given(seeds, st.integers(2, 60))
@settings(max_examples=examples(60), deadline=None)
def test_a_store_that_remembers_what_was_said_often_is_the_same(seed: int, length: int) -> None:
    rng = random.Random(seed)
    news = told(rng, length)
    for _ in range(rng.randint(0, 3) if news else 0):  # a few come late
        news.insert(rng.randint(0, len(news) - 1), news.pop(rng.randint(0, len(news) - 1)))
    if rng.random() < 0.5:
        news.sort(key=lambda one: getattr(one, "at", 0))
    batches, start = [], 0
    while start < len(news):
        size = rng.randint(1, 4)
        batches.append(news[start : start + size])
        start += size
    found = fed_remembering(1, batches)
    assert found == fed_remembering(1_000_000, batches)
    assert found[0] == plainly(news)


@pytest.mark.parametrize("order", ["one log", "many logs"])
def test_a_text_that_is_said_again_and_again_costs_each_time_the_same(
    order: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = []

    def counting(db: sqlite3.Connection, records: Iterable[int]) -> dict[int, list[Fact]]:
        found = facts_of(db, records)
        read.append(sum(map(len, found.values())))
        return found

    monkeypatch.setattr(sqlite_changes, "facts_of", counting)
    store = SqliteMemories()
    for start in range(0, 5_000, 25):
        numbers = range(start, start + 25)
        logs = [C1 if order == "one log" else Key("acme", f"c{n}") for n in numbers]
        said = zip(logs, numbers, strict=True)
        store.apply([Fact(log, n, n, (), saved(log, "The same.")) for log, n in said], {})
    (text,) = store.search(Filter("acme", kinds=("record",)), ["same"], 5)
    store.close()
    assert text.record.duplicates == 4_999
    assert sum(read) < 500, "what was said is not read again each time"


@given(seeds, st.integers(2, 40))
@settings(max_examples=examples(300), deadline=None)
def test_a_replayed_log_announces_what_it_announced_live(seed: int, length: int) -> None:
    assert all(replays(log) for log in random_logs(random.Random(seed), length))


EIGHTH = 2_500
"""Histories of one run of a test: eight runs share the cores, and each has the whole time limit."""


@pytest.mark.long
@pytest.mark.parametrize("first", range(0, 8 * EIGHTH, EIGHTH))
def test_order_makes_no_difference_in_20000_random_histories(first: int) -> None:
    for seed in range(first, first + EIGHTH):
        rng = random.Random(seed)
        news = told(rng, rng.randint(2, 25))
        assert plainly(shuffled(rng, news)) == plainly(news), seed
