"""The working memory of a conversation: what was summarised, and what was said last, word for word.

Its size is watched: from 70 % of ``wm_max_tokens`` on a summary is asked for and comes in the
background; from 90 % on the view waits for it, so that the next answer finds room.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any, Literal, NamedTuple

import msgspec

from projections.errors import ThreadfoldError
from projections.events.types import MessageEvent
from projections.fold.outcomes import id_hash_of
from projections.names import Key, make_key
from projections.window.window import Window
from streams.log.history import FEW_BYTES, Pieces, summaries_backwards
from streams.memory.spans import standing_offsets
from threadfold.service.conversations import ConversationService
from threadfold.service.documents import beside, rendered, size_of

BACKGROUND, BEFORE_ANSWER = 0.7, 0.9
"""Shares of ``wm_max_tokens``."""
RECENT = 4
"""Messages that are there word for word, at least, where there are so many."""
AT_ONCE = 50
"""Events that are read at once to find those before."""
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

    Where no summary can be asked for now, the view is what it is without.

    Raises: as ``ConversationReader.context`` says.
    """
    key = make_key(tenant, conversation)
    view = await _view(backend, key, waits=True)
    comes = view.passed != "none" and await _is_asked_for(backend, key, view.window)
    if view.passed == "before_answer" and comes:
        deadline = time.monotonic() + PATIENCE
        while view.passed == "before_answer" and time.monotonic() < deadline:
            await asyncio.sleep(LOOK)
            view = await _view(backend, key, waits=True)
    if view.said is None:
        view = await _view(backend, key)
    said, summary = view.said or [], view.window.meta.summary
    if len(said) < RECENT:
        said = [*await _said_before(backend, view.window, RECENT - len(said)), *said]
    return {
        "compressed_history": "" if summary is None else summary.text,
        "raw_recent_turns": said,
        "tokens": _tokens(view.window),
        "threshold": view.passed,
    }


class _View(NamedTuple):
    """What of a window is shown, and which threshold it passes."""

    window: Window
    said: list[dict[str, Any]] | None
    passed: Threshold


async def _view(backend: ConversationService, key: Key, *, waits: bool = False) -> _View:
    """``waits``: where a summary is waited for, what was said is not made: it may be large."""
    said: list[dict[str, Any]] | None = None
    async with backend.turns_to_read.together(key.tenant):
        window = await backend.window(key.tenant, key.conversation)
        if not (waits and _passed(window) == "before_answer"):
            turns = backend.turns_to_render
            said = await beside(size_of(window), turns, key.tenant, lambda: _said(window))
    return _View(window, said, _passed(window))


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


async def _is_asked_for(backend: ConversationService, key: Key, window: Window) -> bool:
    """Whether a summary is asked for, once for each position: the id of the request follows from
    it. False where none can come: by the policy, while the conversation is parked, and while
    nothing can be appended.
    """
    last, parked = window.state.last_message, window.meta.quarantine is not None
    if last < 0 or parked or not window.policy.pays:
        return False
    id_ = f"working-memory-{window.position_of(last)}"
    if window.recent_ids.find(id_hash_of(id_)) is None:
        try:
            await backend.append(key.tenant, [(key, {"type": "compaction.requested", "id": id_})])
        except ThreadfoldError:
            return False
    return True


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


async def _said_before(
    backend: ConversationService, window: Window, count: int
) -> list[dict[str, Any]]:
    """The last messages, so many, of those that stand and that summaries in force cover."""
    key, partition, log = window.key, window.partition, backend.log
    found: list[dict[str, Any]] = []
    async for event in summaries_backwards(log, window):
        offsets = (await standing_offsets(log, key, partition, event))[::-1]
        steps = Pieces(log, partition, AT_ONCE, FEW_BYTES).events(key, offsets)
        async for _, step in steps:
            for _, one in reversed(step):
                if isinstance(one, MessageEvent) and one.data.role in ("user", "assistant"):
                    content = msgspec.to_builtins(one.data.content)
                    found.insert(0, {"role": one.data.role, "content": content})
                if len(found) == count:
                    return found
    return found
