"""Pages of lists of memories, and their cursors: the last record of a page, by its time and id."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, NamedTuple

import msgspec

from projections.errors import InvalidPosition
from projections.events.untrusted import Undecodable, refusing
from projections.memory.resolution import Record
from streams.memory.store import Filter
from threadfold.service.cursors import read_cursor, write_cursor

_Time = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
"""What a store can compare with."""
_place = refusing(msgspec.msgpack.Decoder(tuple[_Time, str]).decode)


class Page(NamedTuple):
    """Records, newest first, the cursor of the next page, their bytes as JSON, and the seconds for
    which a thread read them.
    """

    records: list[Record]
    next_before: str | None
    size: int
    seconds: float


def cursor_of(only: Filter, created: int, memory_id: str) -> str:
    """The cursor of a list's page behind a record; the same in every process."""
    return write_cursor(_list_of(only), msgspec.msgpack.encode((created, memory_id)))


def place_of(only: Filter, cursor: str) -> tuple[int, str]:
    """The time and id that a cursor names; raises :class:`InvalidPosition` for one of another
    list.
    """
    packed = read_cursor(_list_of(only), cursor, "this list of memories", "next_before")
    try:
        return _place(packed)
    except Undecodable:
        raise InvalidPosition("the cursor is not one of this list of memories") from None


def _list_of(only: Filter) -> str:
    # Sets of names have another order in each process.
    return f"memories {replace(only, conversations=None)} {sorted(only.conversations or ())}"
