"""The law of the long-term memory: a store follows from the set of what was accepted, however it
came. And what is accepted is the same, live and on replay.
"""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from projections.memory.identity import Scope
from projections.memory.news import News
from streams.memory.sqlite_store import SqliteMemories
from tests.support.memories import TaughtLog, random_logs
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
