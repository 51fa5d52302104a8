"""A window for people: its render message by message, now or as it was, and the positions that its
conversation's events have.
"""

from __future__ import annotations

from typing import Any

from projections.errors import InvalidPosition
from projections.fold.quarantine import quarantine_of
from projections.formats.context_document import summary_of, suspension_of
from projections.names import make_key, parse_position, partition_of
from projections.render.inspection import inspect
from projections.render.read_header import guard_of, state_of
from projections.window.window import Window
from streams.compaction.requests import policy_version
from threadfold.service.conversation_reader import ConversationReader, unknown
from threadfold.service.past_windows import MOST_EVENTS


async def inspected(
    backend: ConversationReader, tenant: str, conversation: str, at: str | None
) -> dict[str, Any]:
    """The window's render, message by message (``projections.render.inspection``): as it is, or
    (``at``) as it was after the last event at or before that position, by today's rules.

    Raises:
        InvalidPosition: ``at`` is not of this conversation's partition, or the log ends before it.
        InvalidRequest: more than ``MOST_EVENTS`` events would be folded.
        DoesNotFit: the window cannot be rendered.
        Others: as ``ConversationReader.window`` says.
    """
    if at is None:
        return _document(await backend.window(tenant, conversation), None)
    key, position = make_key(tenant, conversation), parse_position(at)
    partitions = backend.log.partitions
    if position.partition != partition_of(key, partitions):
        raise InvalidPosition(f"position {at} is not one of conversation {conversation}")
    if (await backend.log.end_offsets())[position.partition] <= position.offset:
        raise InvalidPosition(f"the log ends before position {at}")
    window = await backend.past.fold(key, position, backend.live_rules(), most=MOST_EVENTS)
    if window.meta.position < 0:
        raise unknown(key)
    return _document(window, at)


async def positions(
    backend: ConversationReader, tenant: str, conversation: str, limit: int
) -> dict[str, Any]:
    """The positions of the conversation's newest ``limit`` events, oldest first, and whether these
    are ``all``. Raises like ``ConversationReader.window``, and :class:`KafkaUnavailable`.
    """
    window = await backend.window(tenant, conversation)
    found, complete = await backend.past.positions(window, limit)
    return {"positions": found, "all": complete}


def _document(window: Window, at: str | None) -> dict[str, Any]:
    meta, found = window.meta, inspect(window)
    document = {
        "at": at,
        "position": window.position_of(meta.position) if meta.position >= 0 else None,
        "count": meta.count,
        "digest": meta.digest.hex(),
        "render_digest": found.render.digest,
        "tokens": found.render.tokens,
        "tools_tokens": window.state.tools_tokens,
        "budget": window.limits.budget,
        "ceiling": window.limits.ceiling,
        "state": state_of(window.state),
        "policy": policy_version(window.policy),
        "guard": guard_of(window),
        "summary": None if meta.summary is None else summary_of(window.partition, meta.summary),
        "suspensions": [suspension_of(window.partition, s) for s in window.state.suspensions],
        "trace": [step.to_dict() for step in found.render.trace],
        "messages": found.items,
        "left_out": found.left_out,
    }
    if meta.quarantine is not None:
        document["parked"] = quarantine_of(window.partition, meta.quarantine)
    return document
