"""The events of one conversation that were read from its log, as many as there is room for."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

from projections.events.types import AnyEvent, SummaryEvent
from projections.fold.rehydration import Text
from projections.window.entry import Variant

Shape = tuple[tuple[Variant, ...], str, str]
"""Of a text that is made of an event: its variants, its tool, and the id under which its call is
sent.
"""
MADE_BYTES = 8 << 20
"""Bytes of texts that are kept."""
ROW_BYTES = 500
"""What one takes beside its body, about."""


class NotRead(Exception):
    """Events at these offsets are needed, which ascend; not all at once: with the first of them it
    is worth another try.
    """

    def __init__(self, offsets: Sequence[int]) -> None:
        super().__init__(offsets)
        self.offsets = offsets


class KnownEvents:
    """Events by offset. Those that were read first may be forgotten, but for summaries.
    :class:`NotRead` names those that are needed and not here.
    """

    def __init__(self, events: Iterable[tuple[int, AnyEvent]] = (), *, whole: bool = True) -> None:
        """Args: ``whole``: the log has no others than these, and none is forgotten."""
        self.forgettable = 0
        """Bytes of what may be forgotten, about."""
        self._kept = self._made_bytes = 0
        """Bytes of summaries whose reads were forgotten, and of texts, about."""
        self._made: dict[int, dict[Shape, Text | None]] = {}
        """Texts by the offsets of their events."""
        self._events: dict[int, AnyEvent | None] = dict(events)
        """None: the log has none there."""
        self._whole = whole
        self._reads: deque[tuple[Sequence[int], int]] = deque()

    @property
    def size(self) -> int:
        """Bytes of all, about."""
        return self.forgettable + self._kept + self._made_bytes

    def add(self, offset: int, event: AnyEvent) -> None:
        """Know the event at an offset."""
        self._events[offset] = event

    def have_read(
        self, asked: Sequence[int], found: Iterable[tuple[int, AnyEvent]], size: int
    ) -> None:
        """Know what the log has at the offsets that it was asked for, ``size`` bytes."""
        for offset in asked:
            self._events.setdefault(offset, None)
        self._events.update(found)
        self.weigh(asked, size)

    def weigh(self, offsets: Sequence[int], size: int) -> None:
        """Count events at these offsets, which were added, as ``size`` bytes: those that are added
        after they were forgotten would stay.
        """
        self._reads.append((offsets, size))
        self.forgettable += size

    def get(self, offset: int) -> AnyEvent | None:
        """The event at an offset; None where there is none, or it is not known now."""
        return self._events.get(offset)

    def unread(self, offsets: Iterable[int]) -> list[int]:
        """Those of these offsets at which it is not known what the log has, ascending."""
        return [] if self._whole else sorted({at for at in offsets if at not in self._events})

    def made(self, offset: int, shape: Shape) -> Text | None:
        """A text that was made of an event, None where it has none; raises ``KeyError``."""
        return self._made[offset][shape]

    def make(self, offset: int, shape: Shape, text: Text | None) -> None:
        """Keep a text that was made of an event: whoever needs those of more events than are known
        at a time has them one after the other, and the next one has them again.
        """
        self._made.setdefault(offset, {})[shape] = text
        self._made_bytes += ROW_BYTES + (len(text.body) if text is not None else 0)

    def has(self, offset: int) -> bool:
        """Whether it is known that there is an event."""
        return offset in self._made or self._events.get(offset) is not None

    def only_made(self) -> KnownEvents:
        """The texts alone, as those of a log that has nothing else."""
        other = KnownEvents()
        other._made = dict(self._made)
        return other

    def trim(self) -> None:
        """Keep no texts if they are too many. Not while somebody collects what he needs."""
        if self._made_bytes > MADE_BYTES:
            self._made, self._made_bytes = {}, 0

    def forget(self, most: int) -> None:
        """Forget what was read first, until the rest is no more than ``most`` bytes."""
        while self.forgettable > most:
            offsets, size = self._reads.popleft()
            self.forgettable -= size
            for offset in offsets:
                if isinstance(self._events.get(offset), SummaryEvent):
                    self._kept += size // len(offsets)
                else:
                    self._events.pop(offset, None)
