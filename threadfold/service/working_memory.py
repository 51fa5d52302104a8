"""The working memory of a conversation: what was summarised, and what was said last, word for word.

Its size is watched: from 70 % of ``wm_max_tokens`` on a summary is asked for and comes in the
background; from 90 % on the view waits for it, so that the next answer finds room.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any, Literal, NamedTuple

import msgspec

from projections.names import Key, make_key
from projections.window.window import Window
from threadfold.service.conversations import ConversationService
from threadfold.service.documents import beside, rendered, size_of

BACKGROUND, BEFORE_ANSWER = 0.7, 0.9
"""Shares of ``wm_max_tokens``."""
RECENT = 4
"""Messages that are there word for word, at least, where there are so many."""
PATIENCE = 5.0
"""Seconds that a view waits for a summary."""
LOOK = 0.1
Threshold = Literal["none", "background", "before_answer"]


async def working_memory(
    backend: ConversationService, tenant: str, conversation: str
) -> dict[str, Any]:
    """The view: ``compressed_history`` (the text of the active summary, which has those before it),
    ``raw_recent_turns`` (messages, oldest first), their ``tokens``, and which ``threshold`` they
    pass.

    Raises: as ``ConversationReader.context`` says; what an append raises, where one is passed.
    """
    key = make_key(tenant, conversation)
    view = await _view(backend, key, waits=True)
    if view.passed != "none" and view.last is not None:
        await _ask_for_summary(backend, key, view.last)
    if view.passed == "before_answer":
        deadline = time.monotonic() + PATIENCE
        while view.passed == "before_answer" and time.monotonic() < deadline:
            await asyncio.sleep(LOOK)
            view = await _view(backend, key, waits=True)
    if view.said is None:
        view = await _view(backend, key)
    said, summary = view.said or [], view.summary
    if len(said) < RECENT and summary is not None:
        said = await _last_said(backend, key)
    return {
        "compressed_history": summary or "",
        "raw_recent_turns": said,
        "tokens": view.tokens,
        "threshold": view.passed,
    }


class _View(NamedTuple):
    """What of a window is shown, and the position of its last message, if it has any event."""

    said: list[dict[str, Any]] | None
    summary: str | None
    tokens: int
    passed: Threshold
    last: str | None


async def _view(backend: ConversationService, key: Key, *, waits: bool = False) -> _View:
    """``waits``: where a summary is waited for, what was said is not made: it may be large."""
    said: list[dict[str, Any]] | None = None
    async with backend.turns_to_read.together(key.tenant):
        window = await backend.window(key.tenant, key.conversation)
        if not (waits and _passed(window) == "before_answer"):
            turns = backend.turns_to_render
            said = await beside(size_of(window), turns, key.tenant, lambda: _said(window))
    summary = window.meta.summary
    begun = window.meta.position >= 0
    return _View(
        said,
        None if summary is None else summary.text,
        _tokens(window),
        _passed(window),
        window.position_of(window.state.last_message) if begun else None,
    )


def _tokens(window: Window) -> int:
    return sum(entry.tokens for entry in window.tail) + (
        window.meta.summary.tokens if window.meta.summary is not None else 0
    )


def _passed(window: Window) -> Threshold:
    share = _tokens(window) / window.policy.wm_max_tokens
    return (
        "before_answer"
        if share >= BEFORE_ANSWER
        else "background"
        if share >= BACKGROUND
        else "none"
    )


async def _ask_for_summary(backend: ConversationService, key: Key, last: str) -> None:
    """Ask for one once for each position: the id of the request follows from it."""
    id_ = f"working-memory-{last}"
    request = {"type": "compaction.requested", "id": id_}
    await backend.append(key.tenant, [(key, request)])


def _said(window: Window) -> list[dict[str, Any]]:
    """The messages that the window has word for word, without the system lane."""
    bodies = (msgspec.json.decode(body) for body in rendered(window).bodies)
    summary = window.meta.summary
    return [
        body
        for body in bodies
        if body["role"] not in ("system", "developer")
        and not (summary is not None and summary.text in str(body.get("content")))
    ]


async def _last_said(backend: ConversationService, key: Key) -> list[dict[str, Any]]:
    page = await backend.history(key.tenant, key.conversation, limit=RECENT, types=["message"])
    return [
        {"role": event["role"], "content": event.get("content")}
        for event in reversed(page["events"])
    ]
