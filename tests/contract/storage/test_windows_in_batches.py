"""A window written in batches is stored like one that is written at once."""

from __future__ import annotations

import asyncio
import random

from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from projections.fold.replay import apply_with_log
from projections.fold.timers import next_timer, timed
from projections.policy.policy import Rules
from projections.redis.store import RedisStore
from projections.storage.protocol import WindowStore
from projections.storage.records import (
    NOTHING,
    Verdict,
    write_of,
)
from projections.window.window import Window
from streams.settings.settings import Settings
from tests.support.histories import KEY, PARTITION, RULES, random_log
from tests.support.profiles import examples
from tests.support.store import at, generations
from threadfold.testing import MemoryStore


async def written_as_it_grew(
    store: WindowStore, generation: int, seed: int, length: int, biggest: int
) -> None:
    """Fold a random history in batches, write what changed after each, and compare what is
    stored.
    """
    rng = random.Random(seed)
    log = random_log(seed, length).log
    rules = Rules({**RULES.deployment, "idle_close_seconds": 60})
    window, mark, revision = Window(KEY, PARTITION, rules), NOTHING, ""
    i = 0
    while i < len(log):
        for _ in range(rng.randint(1, biggest)):
            if i < len(log):
                apply_with_log(window, *log[i], log[:i])
                i += 1
        change = write_of(window, mark)
        answer = await store.apply(generation, PARTITION, at(revision, i), [change])
        assert answer.verdict is Verdict.APPLIED
        revision = answer.revision
        stored = (await store.read(generation, PARTITION, [KEY]))[1][0]
        assert stored is not None
        loaded, mark = stored.open(KEY, PARTITION, rules)
        assert loaded.image() == window.image(), f"after {i} events"
        due = await store.due(generation, PARTITION, 10**15, 10)
        assert due == ([KEY] if window.meta.due is not None else [])
        rings = await store.timers(generation, PARTITION, 10**15, 10)
        assert rings == ([KEY] if next_timer(timed(window), 0) is not None else [])
        if rng.random() < 0.3:
            window = loaded
        else:
            mark = change.after


@given(st.integers(0, 2**32), st.integers(5, 150), st.integers(1, 40))
@hypothesis_settings(max_examples=examples(60), deadline=None)
def test_a_window_written_in_batches_is_stored_as_it_is_in_memory(
    seed: int, length: int, biggest: int
) -> None:
    asyncio.run(written_as_it_grew(MemoryStore(), 1, seed, length, biggest))


@given(seed=st.integers(0, 2**32), length=st.integers(30, 150), biggest=st.integers(1, 40))
@hypothesis_settings(
    max_examples=examples(6), deadline=None, suppress_health_check=list(HealthCheck)
)
def test_a_window_written_in_batches_is_stored_as_it_is_in_redis(
    settings: Settings, seed: int, length: int, biggest: int
) -> None:
    async def run() -> None:
        store = RedisStore(settings.redis, settings.topic_prefix)
        try:
            await written_as_it_grew(store, next(generations), seed, length, biggest)
        finally:
            await store.close()

    asyncio.run(run())
