"""Many rollbacks beyond the window, each over the ones before it, cost one fold of the log."""

from __future__ import annotations

import asyncio
import time
import tracemalloc

import msgspec
import pytest

from projections.events import types as events
from projections.fold.replay import Logged, replay
from projections.policy.policy import Rules
from streams.log.rollback_history import fetch_history
from tests.support.histories import KEY, PARTITION, make_event
from threadfold.testing import MemoryLog


def test_rollbacks_over_rollbacks_do_not_double_the_time_of_a_replay() -> None:
    log: list[Logged] = []
    for k in range(40):
        target = len(log)
        for text in "abc":
            log.append((len(log), make_event(events.Message("user", text), f"e{len(log)}", 5)))
        log.append((len(log), make_event(events.Rollback(f"{PARTITION}-{target}"), f"e{len(log)}")))
        del k
    begun = time.monotonic()
    window = replay(KEY, PARTITION, Rules({"working_budget": 1, "compaction": False}), log)
    assert time.monotonic() - begun < 5
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
