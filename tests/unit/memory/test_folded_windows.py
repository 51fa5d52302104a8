"""A window that is read once it includes an event is not one of a generation that lacks it."""

from __future__ import annotations

import asyncio
from itertools import chain, repeat

from projections.fold.replay import replay
from projections.policy.policy import Rules
from projections.storage.records import NOTHING, Checkpoint, write_of
from projections.window.window import Window
from streams.memory.folded_windows import FoldedWindows
from tests.support.compacted_talk import Talk
from tests.support.mirror import KEY
from threadfold.testing import MemoryLog, MemoryStore


async def test_a_generation_that_becomes_live_meanwhile_is_waited_for() -> None:
    talk, store = Talk({}), MemoryStore()
    talk.chat(3)
    last = talk.window.meta.position

    async def fold(generation: int, window: Window) -> None:
        now = await store.checkpoint(generation, 0) or Checkpoint()
        to = Checkpoint(now.revision, window.meta.position, 0, "d")
        await store.apply(generation, 0, to, [write_of(window, NOTHING)])

    async def rules(_generation: int, _tenants: set[str]) -> Rules:
        return talk.rules

    await fold(1, talk.window)
    await fold(2, replay(KEY, 0, talk.rules, talk.log[:2]))
    live = chain([1], repeat(2))
    windows = FoldedWindows(MemoryLog(1), lambda: store.reader, rules, lambda: next(live))
    reading = asyncio.create_task(windows.window(KEY, 0, last))
    await asyncio.sleep(0)
    await fold(2, talk.window)
    found = await reading
    assert found is not None and found.meta.position == last
