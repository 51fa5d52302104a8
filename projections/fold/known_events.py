"""The events of one conversation that were read from its log, as many as there is room for."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

from projections.events.types import AnyEvent, SummaryEvent
from projections.fold.rehydration import Text
from projections.window.entry import Variant

Place = tuple[int, tuple[Variant, ...], str, str]
"""Of a text that is made of an event: its offset, its variants, its tool, and the id under which
its call is sent.
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
        self.size = 0
        self.kept = 0
        """Bytes of what may be forgotten, and of summaries whose reads were, about."""
        self.made_bytes = 0
        self._made: dict[Place, Text | None] = {}
        self._had: set[int] = set()
        """Where there are events of which a text was made."""
        self._events: dict[int, AnyEvent | None] = dict(events)
        """None: the log has none there."""
        self._whole = whole
        self._reads: deque[tuple[Sequence[int], int]] = deque()

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
        self.size += size

    def get(self, offset: int) -> AnyEvent | None:
        """The event at an offset; None where there is none, or it is not known now."""
        return self._events.get(offset)

    def unread(self, offsets: Iterable[int]) -> list[int]:
        """Those of these offsets at which it is not known what the log has, ascending."""
        return [] if self._whole else sorted({at for at in offsets if at not in self._events})

    def made(self, place: Place) -> Text | None:
        """A text that was made of an event, None where it has none; raises ``KeyError``."""
        return self._made[place]

    def make(self, place: Place, text: Text | None) -> None:
        """Keep a text that was made of an event: whoever needs those of more events than are known
        at a time has them one after the other, and the next one has them again.
        """
        self._made[place] = text
        self._had.add(place[0])
        self.made_bytes += ROW_BYTES + (len(text.body) if text is not None else 0)

    def has(self, offset: int) -> bool:
        """Whether it is known that there is an event."""
        return offset in self._had or self._events.get(offset) is not None

    def only_made(self) -> KnownEvents:
        """The texts alone, as those of a log that has nothing else."""
        other = KnownEvents()
        other._made, other._had = dict(self._made), set(self._had)
        return other

    def trim(self) -> None:
        """Keep no texts if they are too many. Not while somebody collects what he needs."""
        if self.made_bytes > MADE_BYTES:
            self._made, self._had, self.made_bytes = {}, set(), 0

    def forget(self, most: int) -> None:
        """Forget what was read first, until the rest is no more than ``most`` bytes."""
        while self.size > most:
            offsets, size = self._reads.popleft()
            self.size -= size
            for offset in offsets:
                if isinstance(self._events.get(offset), SummaryEvent):
                    self.kept += size // len(offsets)
                else:
                    self._events.pop(offset, None)
