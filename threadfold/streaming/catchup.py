"""From a position in a conversation's past up to its channel: what was missed, read from the log,
in ascending order.

The latest part of the partition is scanned, as far as the conversation's last 1,024 ids reach,
which tell repeats and rejected events: that is exact. What lies further back is found through the
window's tail and its summaries' spans, as history is, so other conversations' events need not be
read. There only summaries that are in force count.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from itertools import pairwise

from projections.errors import Healing, TooFarBehind
from projections.names import Key, Position
from projections.window.window import Window
from streams.log.history import pieces_backwards
from streams.log.log import Log, Row
from threadfold.service.conversations import ConversationService

SCAN = 10_000
"""Records of a partition that are scanned at its end; those of other conversations among them."""
MOST_BEHIND = 10_000
"""Events of the conversation before that part, at most."""
PAGE = 128
PAGE_BYTES = 4 << 20
"""Events that are read at once, and bytes from which on fewer are."""


class Missed:
    """The conversation's records after one offset and before another."""

    def __init__(
        self, log: Log, key: Key, partition: int, offsets: list[int], first: int, upto: int
    ) -> None:
        self._log = log
        self._key = key
        self._partition = partition
        self._offsets = offsets
        self.first = first
        """From here on the log was scanned; what comes before is of the history."""
        self._upto = upto

    async def rows(self) -> AsyncIterator[Row]:
        """The records in ascending order, in bounded memory; raises ``KafkaUnavailable``."""
        at, size = 0, PAGE
        while at < len(self._offsets):
            page = self._offsets[at : at + size]
            at += size
            found = await self._log.read(Position(self._partition, offset) for offset in page)
            for position in sorted(found):
                yield found[position]
            held = sum(len(raw.value or b"") for raw in found.values())
            size = max(1, size // 4) if held > PAGE_BYTES else min(PAGE, 2 * size)
        name = str(self._key).encode()
        async for raw in self._log.scan(self._partition, self.first, self._upto - 1):
            if raw.key == name:
                yield raw


async def missed(
    backend: ConversationService,
    key: Key,
    partition: int,
    after: int,
    upto: int,
    scan: int = SCAN,
    most: int = MOST_BEHIND,
    known: int = 0,
) -> Missed:
    """Find what came after the offset ``after`` and before ``upto``; both excluded.

    Args:
        known: from this offset on the caller knows which ids were there before. What is further
            back is not scanned, as nobody could tell a repeat, or an event that was rejected, from
            others; unless the windows do not tell of it yet.

    Raises:
        TooFarBehind: it is more than ``most`` events.
        Healing, CorruptWindow, RedisUnavailable, KafkaUnavailable: it is not known now.
    """
    scanned = max(after + 1, upto - scan)
    first = max(scanned, min(known, upto))
    offsets: list[int] = []
    if after + 1 < first:
        checkpoint, stored = await backend.windows.read(key)
        first = max(scanned, min(first, checkpoint.offset + 1))
        if checkpoint.offset + 1 < first:
            raise Healing(
                f"the windows of partition {partition} are behind the log: try again shortly"
            )
        if stored is not None:
            window = stored.load(key, partition, backend.live_rules())
            offsets = await _between(backend.log, window, after, first, most)
    return Missed(backend.log, key, partition, offsets, first, upto)


async def _between(log: Log, window: Window, after: int, before: int, most: int) -> list[int]:
    """The conversation's offsets in between, ascending; its summaries' own ones are among them."""
    found: list[int] = []
    async for summary, piece in pieces_backwards(log, window, below=before):
        found += [offset for offset in piece if offset > after]
        if summary is not None and after < summary < before:
            found.append(summary)
        if len(found) > most:
            raise TooFarBehind(
                f"conversation {window.key.conversation}: more than {most} events came after the"
                " position given: read its history first, and then subscribe from there"
            )
        if piece and piece[-1] <= after:
            break
    found.sort()
    return [offset for offset, following in pairwise([*found, -1]) if offset != following]
