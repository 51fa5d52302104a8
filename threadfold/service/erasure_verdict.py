"""What an erasure leaves of a conversation in the log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from projections.errors import UnknownConversation, WaitTimedOut
from projections.names import Key, Position, partition_of
from projections.window.window import Window
from streams.encryption.payload_cipher import is_sealed
from streams.log.history import FEW_BYTES, Pieces, pieces_backwards
from streams.log.log import Row
from threadfold.service.conversations import ConversationService

Verdict = Literal["opaque", "kept"]
MOST_BEHIND = 200_000
"""Offsets that the windows may be behind, but for a halted partition's: so much is searched within
a few seconds.
"""


async def verdict_of(backend: ConversationService, key: Key) -> Verdict:
    """What remains of the log: ``opaque`` if all events of the conversation are sealed.

    Nothing that holds windows up holds an erasure up, be it a full Redis or a halted partition: the
    log is searched for what is not folded.

    Raises:
        UnknownConversation: it has no events.
        WaitTimedOut: the windows are too far behind for that, and will be less.
    """
    partition = partition_of(key, backend.log.partitions)
    later: list[Verdict] = []
    try:
        await backend.caught_up([partition], whose=key)
    except WaitTimedOut:
        generation = backend.control.state.live_generation
        checkpoint = await backend.store.checkpoint(generation.number, partition)
        offset = -1 if checkpoint is None else checkpoint.offset
        behind = (await backend.log.end_offsets())[partition] - offset
        if behind > MOST_BEHIND and partition not in backend.control.state.halted():
            raise
        later = await _verdicts_after(backend, key, Position(partition, offset))
    window = await _window(backend, key)
    if window is None and not later:
        raise UnknownConversation(f"conversation {key.conversation} is not known: it has no events")
    if not backend.keys.table.has(str(key).encode()) or "kept" in later:
        return "kept"
    if window is not None:
        async for _, offsets in pieces_backwards(backend.log, window):
            if await _any_kept(backend, key, offsets):
                return "kept"
    return "opaque"


async def _any_kept(backend: ConversationService, key: Key, offsets: Sequence[int]) -> bool:
    """Whether one of the conversation's events is not sealed; a span may have a gigabyte."""
    pieces = Pieces(backend.log, partition_of(key, backend.log.partitions), most_bytes=FEW_BYTES)
    async for piece in pieces.all(offsets):
        if any(_of_row(row, key) == "kept" for row in piece.rows.values()):
            return True
    return False


async def _verdicts_after(
    backend: ConversationService, key: Key, position: Position
) -> list[Verdict]:
    """Those of the conversation's records behind a position, each kind once."""
    end = (await backend.log.end_offsets())[position.partition]
    found = set[Verdict]()
    async for row in backend.log.scan(position.partition, position.offset + 1, end - 1):
        verdict = _of_row(row, key)
        if verdict is not None:
            found.add(verdict)
    return sorted(found)


def _of_row(row: Row, key: Key) -> Verdict | None:
    """None of another conversation's record, and of one without a value."""
    if row.key != str(key).encode() or row.value is None:
        return None
    return "opaque" if is_sealed(row.value) else "kept"


async def _window(backend: ConversationService, key: Key) -> Window | None:
    _, stored = await backend.windows.read(key)
    if stored is None:
        return None
    return stored.load(key, partition_of(key, backend.log.partitions), backend.live_rules())
