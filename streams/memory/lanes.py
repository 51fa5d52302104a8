"""Which records of a topic are taken in next, where a tenant with many waits behind itself.

Records are read ahead, and taken in by turns of their tenants. Those of a tenant with too many are
put off: they are read again from the first of them on, beside the others'. So records come out in
order within a tenant only, and again after a restart: who takes them in knows repeats.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from streams.log.log import Row

OWN_BYTES = 1 << 20
"""Bytes of a tenant's records that wait in memory; with more it is put off."""
ALL_BYTES = 16 << 20
"""The same of all tenants; with more none are read."""
BESIDE = 200
"""Bytes that a record takes beside its value."""
AT_ONCE = 5
"""Records of a tenant in its turn."""


class Waiting(NamedTuple):
    """A record that was read and is to be taken in."""

    partition: int
    row: Row


@dataclass(slots=True)
class _Tenant:
    records: deque[Waiting] = field(default_factory=deque)
    size: int = 0


class Lanes:
    """What was read of a topic, and what of it was taken in."""

    def __init__(self, positions: Mapping[int, int]) -> None:
        """Args: ``positions``: of each partition the offset before which all was taken in."""
        self.read = dict(positions)
        """Of each partition the offset before which all was read."""
        self.again: dict[int, int] = {}
        """Where to read the records again that were put off; empty while there are none."""
        self.times_put_off = 0
        """How often a tenant was put off."""
        self._waiting: dict[str, _Tenant] = {}
        self._size = 0
        self._taken: list[Waiting] = []
        self._put_off: set[str] = set()
        self._open: dict[int, dict[int, None]] = {p: {} for p in positions}
        """The offsets that wait or are being taken in, in order."""

    @property
    def is_full(self) -> bool:
        """Whether so many records wait that no more are to be read."""
        return self._size >= ALL_BYTES

    @property
    def is_empty(self) -> bool:
        """Whether no record waits that was not put off."""
        return not self._waiting

    def add(self, tenant: str, partition: int, row: Row) -> None:
        """A record was read; those of a partition come in order."""
        if tenant in self._put_off:
            self.again.setdefault(partition, row.offset)
            return
        own = self._waiting.setdefault(tenant, _Tenant())
        own.records.append(Waiting(partition, row))
        own.size += _size_of(row)
        self._size += _size_of(row)
        self._open[partition][row.offset] = None
        if own.size > OWN_BYTES:
            self._put_off.add(tenant)
            self.times_put_off += 1
            self._size -= self._waiting.pop(tenant).size
            for one in own.records:
                del self._open[one.partition][one.row.offset]
                first = self.again.get(one.partition, one.row.offset)
                self.again[one.partition] = min(first, one.row.offset)

    def read_up_to(self, positions: Mapping[int, int]) -> None:
        """All before these offsets was read."""
        self.read.update(positions)
        if self._put_off:
            for partition, offset in self.read.items():
                self.again.setdefault(partition, offset)

    def take(self, most: int) -> list[Waiting]:
        """The records to take in next; :meth:`applied` says that it was done."""
        while self._waiting and len(self._taken) < most:
            tenant = next(iter(self._waiting))
            own = self._waiting.pop(tenant)
            for _ in range(min(len(own.records), AT_ONCE, most - len(self._taken))):
                one = own.records.popleft()
                own.size -= _size_of(one.row)
                self._size -= _size_of(one.row)
                self._taken.append(one)
            if own.records:
                self._waiting[tenant] = own  # behind the others
        return self._taken

    def applied(self) -> None:
        """What :meth:`take` gave was taken in."""
        for partition, row in self._taken:
            del self._open[partition][row.offset]
        self._taken = []

    def applied_again(self, positions: Mapping[int, int], times: int) -> None:
        """What was put off before these offsets was taken in; where that is all, nobody is put off
        any more. What was not read yet counts for nothing: its tenants may be put off later. Nor
        does any of it, unless :attr:`times_put_off` still is what it was before that was read: who
        was put off meanwhile may have records there.
        """
        if self.times_put_off != times:
            return
        self.again.update({p: min(offset, self.read[p]) for p, offset in positions.items()})
        if all(offset >= self.read[p] for p, offset in self.again.items()):
            self.again, self._put_off = {}, set()

    @property
    def positions(self) -> dict[int, int]:
        """Of each partition the offset before which all was taken in."""
        return {partition: self._position(partition) for partition in self.read}

    def positions_after_taken(self) -> dict[int, int]:
        """The same once what :meth:`take` gave is taken in."""
        taken = {(one.partition, one.row.offset) for one in self._taken}
        return {partition: self._position(partition, taken) for partition in self.read}

    def is_put_off(self, tenant: str) -> bool:
        """Whether records of a tenant are read again."""
        return tenant in self._put_off

    def is_due_again(self, tenant: str | None, partition: int, offset: int) -> bool:
        """Whether a record that was read again is to be taken in: it was put off. One that was not
        read before is not: an earlier one of its log may come later.
        """
        return tenant in self._put_off and offset < self.read[partition]

    def has(self, tenant: str, ends: Mapping[int, int]) -> bool:
        """Whether all records of a tenant before these offsets were taken in."""
        if any(self.read[partition] < end for partition, end in ends.items()):
            return False
        if tenant in self._put_off:
            return all(self.again.get(p, self.read[p]) >= end for p, end in ends.items())
        return not any(
            one.partition in ends and one.row.offset < ends[one.partition]
            for one in self._of(tenant)
        )

    def _of(self, tenant: str) -> Iterator[Waiting]:
        # Whose the taken ones are is not kept: there are few.
        yield from self._taken
        if tenant in self._waiting:
            yield from self._waiting[tenant].records

    def _position(self, partition: int, taken: set[tuple[int, int]] | None = None) -> int:
        first = next(
            (o for o in self._open[partition] if not taken or (partition, o) not in taken),
            self.read[partition],
        )
        return min(first, self.again.get(partition, first))


def _size_of(row: Row) -> int:
    return len(row.value or b"") + BESIDE
