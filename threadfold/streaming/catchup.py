"""From a position in a conversation's past up to its channel: what was missed, read from the log,
in ascending order.

The latest part of the partition is scanned, as far as the conversation's last 1,024 ids reach,
which tell repeats and rejected events: that is exact. What lies further back is found through the
window's tail and its summaries' spans, as history is, so other conversations' events need not be
read. There only summaries that are in force count.
"""

from __future__ import annotations

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
FIRST_PAGE = 2
PAGE = 32
PAGE_BYTES = 1 << 20
"""Events that are read at once, first and at most, and bytes from which on fewer are."""


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
        self._size = FIRST_PAGE
        self._scanned = first

    async def next_page(self) -> list[Row] | None:
        """The next records in ascending order, about ``PAGE_BYTES`` at most; None after the last.
        It holds none of them itself. Raises ``KafkaUnavailable``.
        """
        if self._offsets:
            page = [Position(self._partition, offset) for offset in self._offsets[: self._size]]
            found, read = await self._log.read_within(page, PAGE_BYTES)
            self._offsets = self._offsets[read:]
            held = sum(len(raw.value or b"") for raw in found.values())
            few = held > PAGE_BYTES
            self._size = max(1, self._size // 4) if few else min(PAGE, 2 * self._size)
            return [found[position] for position in sorted(found)]
        return await self._scan() if self._scanned < self._upto else None

    async def _scan(self) -> list[Row]:
        name = str(self._key).encode()
        rows: list[Row] = []
        held = 0
        async for raw in self._log.scan(self._partition, self._scanned, self._upto - 1):
            if raw.key == name:
                rows.append(raw)
                held += len(raw.value or b"")
                if held >= PAGE_BYTES:
                    self._scanned = raw.position.offset + 1
                    return rows
        self._scanned = self._upto
        return rows


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
        Healing, CorruptWindow, Overloaded, RedisUnavailable, KafkaUnavailable: it is not known
            now.
    """
    scanned = max(after + 1, upto - scan)
    first = max(scanned, min(known, upto))
    offsets: list[int] = []
    if after + 1 < first:
        checkpoint, window = await backend.checkpoint_and_window(key)
        first = max(scanned, min(first, checkpoint.offset + 1))
        if checkpoint.offset + 1 < first:
            raise Healing(
                f"the windows of partition {partition} are behind the log: try again shortly"
            )
        if window is not None:
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
