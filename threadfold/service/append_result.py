"""The result of an append: where the events are, and what the fold did with them."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from projections.fold.apply import id_hash_of
from projections.names import Position
from projections.window.meta import Quarantine
from projections.window.recent_ids import RecentIds


class Appended(NamedTuple):
    """An event that is safe in the log, and its token count (of a spilled result: of its
    preview). ``fresh``: its id was made here, so it repeats no other event.
    """

    id: str
    position: Position
    tokens: int = 0
    fresh: bool = False


# Appended(…) without a Python call per event.
make_appended: partial[Appended] = partial(tuple.__new__, Appended)


class Applied(NamedTuple):
    """What the fold did with an appended event.

    ``status`` is applied, duplicate, rejected or parked (it waits in a quarantined conversation).
    A repeat of an event that was rejected is rejected, too. The position of a repeat is the first
    event's.
    """

    id: str
    position: Position
    status: str


def applied_of(
    item: Appended, recent_ids: RecentIds, quarantine: Quarantine | None = None
) -> Applied:
    """What the fold did with an event, by the window's recent ids. In a quarantined window, events
    from the quarantine's offset on wait.
    """
    seen = recent_ids.find(id_hash_of(item.id))
    if seen is None and quarantine is not None and item.position.offset >= quarantine.offset:
        return Applied(item.id, item.position, "parked")
    if seen is None:
        return Applied(item.id, item.position, "applied")
    repeat = seen.offset != item.position.offset
    status = "rejected" if seen.rejected else "duplicate" if repeat else "applied"
    return Applied(item.id, Position(item.position.partition, seen.offset), status)
