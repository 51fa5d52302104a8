"""Context documents of large windows."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from projections.events.codec import decode_event
from projections.events.validation import make_record
from projections.fold.replay import Logged, replay
from projections.names import Key
from projections.policy.policy import Rules
from projections.storage.records import Checkpoint, write_of
from projections.window.window import Window
from streams.control.state import Generation
from streams.runtime.keyed_limit import KeyedLimit, Turn
from streams.settings.settings import Settings
from threadfold.service.conversations import ConversationService
from threadfold.service.documents import document_beside, document_of, rendered
from threadfold.service.stored_windows import StoredWindows
from threadfold.service.whole_event import whole_event
from threadfold.streaming.windows import Windows, state_of_window
from threadfold.testing import MemoryLog, MemoryStore

KEY = Key("acme", "large")


def window_of(size: int) -> Window:
    """A window of four messages with an image of so many bytes each."""
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * size}}
    return replay(KEY, 0, Rules({}), _messages(4, [image]))


@pytest.mark.parametrize("fmt", ["openai", "anthropic", "events"])
async def test_others_are_served_while_a_large_document_is_made(fmt: str) -> None:
    turns = KeyedLimit(1)
    for size, more in ((40, False), (400_000, True)):
        window = window_of(size)
        making = asyncio.create_task(document_beside(window, fmt, None, turns))
        assert (await _passes_of(making) > 1) == more
        assert making.result()[1] == document_of(window, rendered(window), fmt)


@pytest.mark.parametrize(("reducers", "more"), [(1, False), (16, True)])
async def test_others_are_served_while_many_reducers_work_on_a_render(
    reducers: int, more: bool
) -> None:
    policy = {
        "profile": "composed",
        "cuts": "exact",
        "reducers": [{"name": "keep_last_n_turns", "n": 9}] * reducers,
    }
    turns, window = KeyedLimit(1), replay(KEY, 0, Rules(policy), _messages(40, "x" * 500))
    making = asyncio.create_task(document_beside(window, "openai", None, turns))
    assert (await _passes_of(making) > 1) == more
    assert making.result()[1] == document_of(window, rendered(window), "openai")
    service = await _reader_of(window, policy)
    showing = asyncio.create_task(Windows(service).state(KEY))
    assert (await _passes_of(showing) > 1) == more, "the state in a stream"
    shown = showing.result()
    assert shown is not None and shown.core == state_of_window(window, service.log).core


@pytest.mark.parametrize(("parts", "more"), [(3, False), (1_000, True)])
async def test_others_are_served_while_messages_of_many_small_parts_are_rendered(
    parts: int, more: bool
) -> None:
    logged = _messages(2, [{"type": "text", "text": "a"}] * parts)
    window, turns = replay(KEY, 0, Rules({}), logged), KeyedLimit(1)
    making = asyncio.create_task(document_beside(window, "anthropic", None, turns))
    assert (await _passes_of(making) > 1) == more
    assert making.result()[1] == document_of(window, rendered(window), "anthropic")


def _messages(count: int, content: Any = "hello") -> list[Logged]:
    """So many messages of a user with the same content."""
    logged = []
    for i in range(count):
        envelope = {"specversion": "1.0", "id": f"e{i}", "type": "threadfold.message.v1"}
        value = {**envelope, "source": KEY.source, "data": {"role": "user", "content": content}}
        logged.append((i, decode_event(json.dumps(value).encode())))
    return logged


async def _reader_of(
    window: Window, policy: Mapping[str, Any] | None = None
) -> ConversationService:
    """A service whose store has the window, under the deployment's policy."""
    settings = Settings.load(env={}, kafka="127.0.0.1:1", redis="redis://127.0.0.1:1/0")
    service, log, store = ConversationService(settings), MemoryLog(1), MemoryStore()
    service.log = log  # type: ignore[assignment]
    service.windows = StoredWindows(store, service.control, lambda: log, 0)
    generation = Generation(1, 1, dict(policy or {}))
    service.control.state.put(b"generation/1", msgspec.json.encode(generation))
    service.control.state.put(b"generation/live", b"1")
    checkpoint = Checkpoint("", window.meta.position)
    await store.apply(1, 0, checkpoint, [write_of(window)])
    return service


async def test_others_are_served_while_thousands_of_small_messages_are_read_and_rendered() -> None:
    for count, more in ((4, False), (800, True), (2_500, True)):
        service = await _reader_of(replay(KEY, 0, Rules({}), _messages(count)))
        reading = asyncio.create_task(service.window(*KEY))
        assert (await _passes_of(reading) > 1) == more
        window, turns = reading.result(), service.turns_to_render
        making = asyncio.create_task(document_beside(window, "events", 8_000, turns))
        assert (await _passes_of(making) > 1) == more
        assert json.loads(making.result()[1])["count"] == count


async def _passes_of(task: asyncio.Task[Any]) -> int:
    """How often others' turn came until it was done."""
    passes = 0
    while not task.done():
        await asyncio.sleep(0)
        passes += 1
    return passes


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
