"""What an erasure leaves of a conversation in the log."""

from __future__ import annotations

from typing import Literal

from projections.errors import UnknownConversation, WaitTimedOut
from projections.names import Key, Position, partition_of
from projections.window.window import Window
from streams.encryption.payload_cipher import is_sealed
from streams.log.history import pieces_backwards
from threadfold.service.conversations import ConversationService


async def verdict_of(backend: ConversationService, key: Key) -> Literal["opaque", "kept"]:
    """What remains of the log: ``opaque`` if all events of the conversation are sealed.

    A halted partition does not hold an erasure up: what is not folded may not be sealed.

    Raises:
        UnknownConversation: it has no events.
        WaitTimedOut: the windows did not include all events in time.
    """
    partition = partition_of(key, backend.log.partitions)
    try:
        await backend.caught_up([partition])
    except WaitTimedOut:
        halted = partition in backend.control.state.halted()
        if not halted or await _window(backend, key) is None:
            raise
        return "kept"
    window = await _window(backend, key)
    if window is None:
        raise UnknownConversation(f"conversation {key.conversation} is not known: it has no events")
    name = str(key).encode()
    if not backend.keys.table.has(name):
        return "kept"
    async for _, piece in pieces_backwards(backend.log, window):
        rows = await backend.log.read(Position(partition, offset) for offset in piece)
        if any(
            row.value is not None and not is_sealed(row.value)
            for row in rows.values()
            if row.key == name
        ):
            return "kept"
    return "opaque"


async def _window(backend: ConversationService, key: Key) -> Window | None:
    _, stored = await backend.windows.read(key)
    if stored is None:
        return None
    return stored.load(key, partition_of(key, backend.log.partitions), backend.live_rules())
