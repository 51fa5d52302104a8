"""A window for people: its render message by message, now or as it was, and the positions that its
conversation's events have.
"""

from __future__ import annotations

from typing import Any

from projections.errors import InvalidPosition
from projections.names import make_key, parse_position, partition_of
from streams.recovery.callable_failures import check_rendered
from threadfold.service.conversation_reader import ConversationReader, unknown
from threadfold.service.documents import beside, size_of
from threadfold.service.past_windows import MOST_BYTES, MOST_EVENTS
from threadfold.service.window_document import past_document, window_document


async def inspected(
    backend: ConversationReader, tenant: str, conversation: str, at: str | None
) -> dict[str, Any]:
    """The window's render, message by message (``projections.render.inspection``): as it is, or
    (``at``) as it was after the last event at or before that position, by today's rules.

    Raises:
        InvalidPosition: ``at`` is not of this conversation's partition, or the log ends before it.
        InvalidRequest: more than ``MOST_EVENTS`` events would be folded, or ``MOST_BYTES``.
        DoesNotFit: the window cannot be rendered.
        CallableUnavailable: a callable of its policy is missing here, or failed in its fold.
        Others: as ``ConversationReader.window`` says.
    """
    if at is None:
        turns = backend.turns_to_render
        async with backend.turns_to_read.together(tenant):
            window = await backend.window(tenant, conversation)
            check_rendered(window)
            return await beside(size_of(window), turns, tenant, lambda: window_document(window))
    key, position = make_key(tenant, conversation), parse_position(at)
    partitions = backend.log.partitions
    if position.partition != partition_of(key, partitions):
        raise InvalidPosition(f"position {at} is not one of conversation {conversation}")
    if (await backend.log.end_offsets())[position.partition] <= position.offset:
        raise InvalidPosition(f"the log ends before position {at}")
    past = backend.past
    shown = await past.read(
        key,
        position,
        backend.live_rules(),
        past_document,
        at,
        most=MOST_EVENTS,
        most_bytes=MOST_BYTES,
    )
    if shown is None:
        raise unknown(key)
    return shown


async def positions(
    backend: ConversationReader, tenant: str, conversation: str, limit: int
) -> dict[str, Any]:
    """The positions of the conversation's newest ``limit`` events, oldest first, and whether these
    are ``all``. Raises like ``ConversationReader.window``, and :class:`KafkaUnavailable`.
    """
    async with backend.turns_to_read.together(tenant):
        window = await backend.window(tenant, conversation)
        found, complete = await backend.past.positions(window, limit)
    return {"positions": found, "all": complete}
