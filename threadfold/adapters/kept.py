"""What a framework's message has and an event has no field for: kept beside the text, and found
again in the bounded window.

It travels as a ``reasoning`` part with the framework as its provider and JSON as its signature:
such parts are kept with their message as long as that is in the window, no model's provider is ever
sent another one's, and they cost no tokens. Results of tools have none.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from typing import Any

import msgspec

from projections.window.bodies import to_flat
from threadfold.client import AsyncClient, NotFound

_COMPARED = ("type", "role", "name", "content", "tool_calls", "tool_call_id")


def keep(flat: dict[str, Any], provider: str, what: Any) -> dict[str, Any]:
    """The message with ``what`` (JSON values) kept beside its content."""
    content = flat.get("content")
    parts = (
        [{"type": "text", "text": content}]
        if isinstance(content, str) and content
        else content
        if isinstance(content, list)
        else []
    )
    part = {
        "type": "reasoning",
        "provider": provider,
        "signature": msgspec.json.encode(what).decode(),
    }
    return {**flat, "content": [*parts, part]}


def kept(flat: dict[str, Any], provider: str) -> Any:
    """What was kept with this message of the window for the framework, None where nothing was."""
    for part in flat.get("reasoning") or ():
        if part.get("provider") == provider and part.get("signature"):
            try:
                return msgspec.json.decode(part["signature"])
            except msgspec.DecodeError:
                return None  # another producer's: the text alone has to do
    return None


async def shown_messages(
    client: AsyncClient,
    conversation: str,
    *,
    max_tokens: int | None = None,
    after: str | None = None,
) -> list[dict[str, Any]]:
    """The bounded window as flat messages and results, exactly those a model would be sent, each
    with its ``reasoning`` and ``is_error``.

    What is shown is the render's word: summary, shortenings and limits are in it. The window's own
    events give what belongs to a message beside its text. A conversation that nobody knows yet is
    empty.
    """
    try:
        render, events = await asyncio.gather(
            client.context(conversation, max_tokens=max_tokens, after=after),
            client.context(conversation, format="events", after=after),
        )
    except NotFound:
        return []
    return aligned(
        [to_flat(message, "a message of the context") for message in render.messages],
        events.messages,
    )


def aligned(shown: list[dict[str, Any]], events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each shown message with what the event it is made of has beside it: the next one, in order,
    that says the same.
    """
    places: dict[bytes, deque[int]] = defaultdict(deque)
    for i, event in enumerate(events):
        places[_key(event)].append(i)
    found, last = [], -1
    for flat in shown:
        same = places.get(_key(flat), deque())
        while same and same[0] <= last:
            same.popleft()
        if same:
            last = same.popleft()
            flat = {
                **flat,
                **{
                    name: events[last][name]
                    for name in ("reasoning", "is_error", "position")
                    if name in events[last]
                },
            }
        found.append(flat)
    return found


def _key(flat: dict[str, Any]) -> bytes:
    return msgspec.json.encode([flat.get(name) for name in _COMPARED])
