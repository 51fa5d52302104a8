"""Context documents of large windows."""

from __future__ import annotations

import asyncio
import json

import pytest

from projections.events.codec import decode_event
from projections.events.validation import make_record
from projections.fold.replay import replay
from projections.names import Key
from projections.policy.policy import Rules
from projections.window.window import Window
from streams.runtime.keyed_limit import KeyedLimit, Turn
from threadfold.service.documents import document_beside, document_of, rendered
from threadfold.service.whole_event import whole_event
from threadfold.testing.memory_log import MemoryLog

KEY = Key("acme", "large")


def window_of(size: int) -> Window:
    """A window of four messages with an image of so many bytes each."""
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * size}}
    logged = []
    for i in range(4):
        envelope = {"specversion": "1.0", "id": f"e{i}", "type": "threadfold.message.v1"}
        data = {"role": "user", "content": [image]}
        value = {**envelope, "source": KEY.source, "data": data}
        logged.append((i, decode_event(json.dumps(value).encode())))
    return replay(KEY, 0, Rules({}), logged)


@pytest.mark.parametrize("fmt", ["openai", "anthropic", "events"])
async def test_others_are_served_while_a_large_document_is_made(fmt: str) -> None:
    turns = KeyedLimit(1)
    for size, more in ((40, False), (400_000, True)):
        window = window_of(size)
        render = rendered(window)
        making = asyncio.create_task(document_beside(window, render, fmt, turns.of("acme")))
        passes = 0
        while not making.done():
            await asyncio.sleep(0)
            passes += 1
        assert (passes > 1) == more
        assert making.result() == document_of(window, render, fmt)


async def test_others_are_served_while_a_large_event_is_read() -> None:
    log = MemoryLog(1)
    for size, more in ((40, False), (400_000, True)):
        said = {"type": "message", "role": "user", "content": "A" * size}
        now = "2026-01-01T00:00:00Z"
        (at,) = await log.append([make_record(KEY, said, where="event", now=now, new_id=str(size))])
        turn = Turn()
        reading = asyncio.create_task(whole_event(log, KEY, at, None, None, turn))
        passes = 0
        while not reading.done():
            await asyncio.sleep(0)
            passes += 1
        assert (passes > 1) == more == (turn.rest > 0)
        assert (reading.result() or {})["content"] == said["content"]
