"""What is read of a memory store in LanceDB."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

import msgspec

from projections.memory.resolution import Record
from projections.names import Key
from streams.memory.kept import Code, Kept, LogState, Place, Size, Taught
from streams.memory.key_reads import kept_from, records_of
from streams.memory.key_vectors import Member
from streams.memory.key_words import code_of
from streams.memory.lance_rows import (
    CHECKPOINTS,
    MODELS,
    NEXT,
    TENANTS,
    TEXTS,
    fusing_part,
    log_key,
    place_key,
    size_key,
    taught_part,
    text_key,
)

PAGE = 200
"""Ids that are looked at together."""
AT_ONCE = 2_000
"""Keys that one query asks for."""
_ALL = 1 << 31
_state = msgspec.msgpack.Decoder(LogState).decode
_taught = msgspec.msgpack.Decoder(Taught).decode
_size = msgspec.msgpack.Decoder(Size).decode
_place = msgspec.msgpack.Decoder(Place).decode
_checkpoints = msgspec.msgpack.Decoder(dict[int, int]).decode


class Models(msgspec.Struct, array_like=True):
    """The models that have vectors, and how long these are; the one whose vectors are searched."""

    sizes: dict[str, int] = {}
    in_use: str | None = None


_models = msgspec.msgpack.Decoder(Models).decode


class LanceReads:
    """One look at a store's table."""

    def __init__(self, table: Any) -> None:
        self._table = table

    def select(self, where: str, *columns: str) -> list[dict[str, Any]]:
        """These columns of the rows that a condition holds for."""
        found = self._table.search().where(where).select(list(columns)).limit(_ALL).to_arrow()
        return list(found.to_pylist())

    def logs(self, logs: Collection[Key]) -> dict[Key, LogState]:
        found = self._values([log_key(log) for log in logs], "value")
        return {log: _state(found[key]) for log in logs if (key := log_key(log)) in found}

    def taught(self, logs: Collection[Key]) -> dict[Key, dict[int, Taught]]:
        parts = {taught_part(log): log for log in logs}
        found: dict[Key, dict[int, Taught]] = {}
        for one in self._each("part", parts, "part", "at", "value"):
            found.setdefault(parts[one["part"]], {})[one["at"]] = _taught(one["value"])
        return found

    def kept(self, places: Collection[Place]) -> dict[Place, Kept]:
        found = self._values([place_key(one) for one in places], "value")
        return {one: kept_from(found[key]) for one in places if (key := place_key(one)) in found}

    def records(self, places: Sequence[Place]) -> list[list[Record]]:
        """What ids come to now, in their order."""
        keys = [place_key(one) for one in places]
        found = self._values(keys, "records")
        return [records_of(found[key]) if key in found else [] for key in keys]

    def sizes(self, codes: Collection[Code]) -> dict[Code, Size]:
        found = self._values([size_key(one) for one in codes], "value")
        return {one: _size(found[key]) for one in codes if (key := size_key(one)) in found}

    def next_text(self) -> int:
        return int(self._values([NEXT], "at").get(NEXT, 1))

    def checkpoints(self) -> dict[int, int]:
        """Of each partition of the topic the offset of the last record that was taken in."""
        found = self._values([CHECKPOINTS], "value")
        return _checkpoints(found[CHECKPOINTS]) if found else {}

    def models(self) -> Models:
        """The models of its vectors."""
        found = self._values([MODELS], "value")
        return _models(found[MODELS]) if found else Models()

    def fusing(self, places: Collection[Place]) -> set[Place]:
        """The composites that some of these ids are sources of."""
        parts = {fusing_part(one): one[0] for one in places}
        return {
            (parts[one["part"]], one["name"]) for one in self._each("part", parts, "part", "name")
        }

    def tenants(self) -> list[str]:
        """The tenants that there are."""
        return sorted(one["name"] for one in self.select(f"part = '{TENANTS}'", "name"))

    def by_time(
        self, tenant: str, user: str | None, after: tuple[int, str] | None, *, older: bool
    ) -> Iterator[list[tuple[int, str]]]:
        """What a tenant has, or a user, by time, as ``(created, id)``, a page at a time, from
        behind such a place on.
        """
        where = f"tenant = '{code_of(tenant)}'"
        if user is not None:
            where += f" AND user = '{code_of(user)}'"
        if after is not None:
            where += f" AND at {'<=' if older else '>='} {after[0]}"
        found = [(one["at"], one["name"]) for one in self.select(where, "at", "name")]
        if after is not None:
            found = [one for one in found if (one < after if older else one > after)]
        found.sort(reverse=older)
        for at in range(0, len(found), PAGE):
            yield found[at : at + PAGE]

    def texts(self, first: int, behind: int) -> list[Member]:
        """The texts whose numbers are from ``first`` on and before ``behind``, in their order."""
        where = f"part = '{TEXTS}' AND at >= {first} AND at < {behind}"
        rows = sorted((one["at"], one["value"]) for one in self.select(where, "at", "value"))
        return [(number, *_place(value)) for number, value in rows]

    def texts_of(self, numbers: Iterable[int]) -> list[Member]:
        """Those of these texts that are there."""
        rows = self._each("key", map(text_key, numbers), "at", "value")
        return [(one["at"], *_place(one["value"])) for one in rows if one["value"] is not None]

    def _values(self, keys: Iterable[str], column: str) -> dict[str, Any]:
        rows = self._each("key", dict.fromkeys(keys), "key", column)
        return {one["key"]: one[column] for one in rows if one[column] is not None}

    def _each(self, by: str, values: Iterable[str], *columns: str) -> Iterator[dict[str, Any]]:
        asked = list(values)
        for at in range(0, len(asked), AT_ONCE):
            named = ", ".join(f"'{one}'" for one in asked[at : at + AT_ONCE])
            yield from self.select(f"{by} IN ({named})", *columns)
