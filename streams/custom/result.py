"""The values a batch changes: read when they are asked for, kept as a buffer, and written all at
once with the checkpoint.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import msgspec

from projections.errors import InvalidName, InvalidProjection
from projections.names import check_name

MAX_KEY = 512
MAX_VALUE = 1 << 20
"""Bytes of one value: what is larger is not a value but a log of its own."""
_encoder = msgspec.json.Encoder(order="deterministic")


class Cell(NamedTuple):
    """Where a value is: a tenant, and a key within it."""

    tenant: str
    key: str


Load = Callable[[list[Cell]], Awaitable[list[bytes | None]]]
"""Reads values as they are stored, None for one that is not there."""


class Result:
    """A batch's view of a projection's values: documents (any JSON) by tenant and key. Values of
    different partitions are apart.
    """

    def __init__(self, projection: str, load: Load) -> None:
        self._projection = projection
        self._load = load
        self._known: dict[Cell, bytes | None] = {}
        self._added: dict[Cell, dict[str, int]] = {}
        self._changed: set[Cell] = set()

    async def get(self, tenant: str, key: str) -> Any | None:
        """The value as it is now, the batch's own changes included; None where there is none. It is
        a copy: changes need :meth:`put`.

        Raises:
            RedisUnavailable: leave it to whoever calls ``apply``: the batch is tried again.
        """
        cell = self._cell(tenant, key)
        await self._settle([cell])
        raw = self._known[cell]
        return None if raw is None else msgspec.json.decode(raw)

    def put(self, tenant: str, key: str, value: Any) -> None:
        """Set a value: anything that is JSON, at most 1 MiB as such.

        Raises:
            InvalidProjection: it is not, or larger, or tenant or key cannot be.
        """
        cell = self._cell(tenant, key)
        self._set(cell, value)
        self._added.pop(cell, None)

    def delete(self, tenant: str, key: str) -> None:
        """Remove a value; nothing happens where there is none."""
        cell = self._cell(tenant, key)
        self._known[cell] = None
        self._changed.add(cell)
        self._added.pop(cell, None)

    def add(self, tenant: str, key: str, **counts: int) -> None:
        """Add to the fields of a counter, a document of whole numbers; one that is not there begins
        at 0. Nothing is read for it yet.

        Raises:
            InvalidProjection: a count is not a whole number (sums of fractions depend on how
                batches are cut).
        """
        cell = self._cell(tenant, key)
        added = self._added.setdefault(cell, {})
        for name, count in counts.items():
            if type(count) is not int:
                raise InvalidProjection(
                    f"projection {self._projection}: {name}={count!r} is added to {key!r}: only"
                    " whole numbers can be"
                )
            added[name] = added.get(name, 0) + count

    async def changes(self) -> dict[Cell, bytes | None]:
        """What the store has to hold afterwards; None: nothing under that key. Raises like
        :meth:`get` and :meth:`add`.
        """
        await self._settle(list(self._added))
        return {cell: self._known[cell] for cell in sorted(self._changed)}

    async def _settle(self, cells: list[Cell]) -> None:
        """Read what is not known yet of these values, and do their additions."""
        missing = [cell for cell in cells if cell not in self._known]
        if missing:
            self._known.update(zip(missing, await self._load(missing), strict=True))
        for cell in cells:
            added = self._added.pop(cell, None)
            if added is not None:
                self._set(cell, self._sum(cell, added))

    def _sum(self, cell: Cell, added: dict[str, int]) -> dict[str, int]:
        raw = self._known[cell]
        total = {} if raw is None else msgspec.json.decode(raw)
        if not isinstance(total, dict) or not all(type(count) is int for count in total.values()):
            raise InvalidProjection(
                f"projection {self._projection}: the value under {cell.key!r} is no counter,"
                " nothing can be added"
            )
        for name, count in added.items():
            total[name] = total.get(name, 0) + count
        return total

    def _set(self, cell: Cell, value: Any) -> None:
        try:
            raw = _encoder.encode(value)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise InvalidProjection(
                f"projection {self._projection}: the value for {cell.key!r} is not JSON: {error}"
            ) from None
        if len(raw) > MAX_VALUE:
            raise InvalidProjection(
                f"projection {self._projection}: the value for {cell.key!r} has {len(raw)} bytes,"
                f" over {MAX_VALUE}"
            )
        self._known[cell] = raw
        self._changed.add(cell)

    def _cell(self, tenant: str, key: str) -> Cell:
        try:
            check_name("tenant", tenant)
        except InvalidName as error:
            raise InvalidProjection(f"projection {self._projection}: {error}") from None
        if not isinstance(key, str) or not 1 <= len(key) <= MAX_KEY or not key.isprintable():
            raise InvalidProjection(
                f"projection {self._projection}: key {str(key)[:60]!r} is not 1 to {MAX_KEY}"
                " printable characters"
            )
        return Cell(tenant, key)
