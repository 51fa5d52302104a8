"""Events written into another log, at other offsets: what a change of the partition count and the
move of a tenant have in common.

A position is an offset, and events name positions (``projections.events.relocation``). So each
event is written with the positions that it names given new ones. Within a conversation the order
stays; partitions are read side by side, by the time of their records. What is no event stays
behind. Of a conversation that was erased only its erasure is written.

A copy that was interrupted goes on: what a conversation has in the target already is recognised by
its order, which is the same each time.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from hashlib import sha256
from typing import Any

import msgspec

from projections.errors import InvalidBackup, InvalidPosition
from projections.events.codec import full_type
from projections.events.relocation import (
    NOWHERE,
    names_positions,
    relocate_envelope,
    relocate_payload,
)
from projections.events.untrusted import Undecodable, json_decoder
from projections.names import Key, Position, parse_key, parse_position, partition_of
from streams.control.key_ring import KeyRing
from streams.encryption.key_table import ERASED, Erasure, KeyTable
from streams.encryption.payload_cipher import is_sealed, kid_in, open_value, seal_event
from streams.log.topic_copies import FILLER, Copied, Extent, read_partition
from streams.maintenance.position_map import PositionMap
from streams.settings.settings import Settings

AT_ONCE, BYTES_AT_ONCE = 10_000, 32 << 20
"""Records, and bytes, that are on their way to the broker at once."""
_ERASED_TYPE = full_type("conversation.erased")
Batches = AsyncIterator[list[Copied]]


class _Envelope(msgspec.Struct):
    id: str = ""
    type: str = ""


_envelope = json_decoder(_Envelope)
_erasure = json_decoder(Erasure)


def _read_envelope(value: bytes | None) -> _Envelope:
    try:
        return _envelope(value)
    except Undecodable:
        return _Envelope()


def is_of_erased(table: KeyTable, record: Copied) -> bool:
    """Whether a record is an event of a conversation that was erased, but for the erasure."""
    return table.is_done(record.key or b"") and _read_envelope(record.value).type != _ERASED_TYPE


class Sums:
    """A digest for each partition: keys, times and ids of its events, in their order."""

    def __init__(self, partitions: int) -> None:
        self._sums = [sha256() for _ in range(partitions)]
        self.records = 0

    def add(self, partition: int, record: Copied) -> None:
        """Count an event in."""
        named = _read_envelope(record.value).id.encode("utf-8", "surrogatepass")
        name = named or sha256(record.value or b"").digest()
        self._sums[partition].update(b"%b\n%d\n%b\n" % (record.key or b"", record.timestamp, name))
        self.records += 1

    def differing(self, other: Sums) -> list[int]:
        """The partitions that are not the same in both."""
        pairs = zip(self._sums, other._sums, strict=True)
        return [n for n, (mine, its) in enumerate(pairs) if mine.digest() != its.digest()]


class LogCopy:
    """Writes the events of one log into another."""

    def __init__(
        self,
        target: Settings,
        producer: Any,
        keys: KeyRing,
        places: PositionMap,
        starts: Sequence[int],
        *,
        wanted: Callable[[Key], bool] = lambda key: True,
        alone: bool,
    ) -> None:
        """Args:
        keys: open the payloads, with what the original is sealed by.
        starts: the target's end offsets when the copy was begun the first time.
        wanted: whether the copy has a conversation.
        alone: nobody else writes to the target, so that offsets are known before they are answered.
        """
        self._target = target
        self._topic = target.topic("events")
        self._producer = producer
        self._keys = keys
        self._map = places
        self._starts = list(starts)
        self._wanted = wanted
        self._alone = alone
        self._next = list(starts)
        self._there: dict[bytes, deque[int]] = {}
        self._sent: list[tuple[Position, Position, Any]] = []
        self._bytes = 0
        self._written = Sums(len(starts))
        self.strays = 0
        """Records that belong to nobody: they stay behind."""

    async def resume(self, ends: Sequence[Extent]) -> int:
        """Find what an earlier try has written; returns how many events."""
        found = 0
        for number, extent in enumerate(ends):
            async for record in self._own(number, extent.end):
                self._there.setdefault(record.key or b"", deque()).append(record.offset)
                found += 1
            self._next[number] = extent.end
        return found

    async def _own(self, number: int, end: int) -> AsyncIterator[Copied]:
        """What the copy has written of a partition of the target."""
        first = self._starts[number]
        if first >= end:
            return
        batches = read_partition(self._target, self._topic, number, end, first=first)
        async for batch in batches:
            for record in batch:
                key = parse_key(record.key or b"")
                if key is not None and self._wanted(key):
                    yield record

    async def write_all(
        self, partitions: Sequence[Batches], total: int, progress: Callable[[int, int], None]
    ) -> None:
        """Write ``total`` records of several partitions by their times, and flush; raises as
        :meth:`flush`. ``progress`` gets how many are written, and all.
        """
        done = 0
        async for number, record in by_time(partitions):
            await self.write(number, record)
            done += 1
            if done % 1_000 == 0:
                progress(done, total)
        await self.flush()
        progress(total, total)

    async def write(self, partition: int, record: Copied) -> None:
        """Write one record of a partition of the original; it is safe after :meth:`flush`."""
        key = parse_key(record.key or b"")
        old = Position(partition, record.offset)
        if key is None or partition_of(key, self._map.partitions) != partition:
            self.strays += list(record.headers) != FILLER
            return
        name = record.key or b""
        if not self._wanted(key) or is_of_erased(self._keys.table, record):
            return
        number = partition_of(key, len(self._starts))
        self._written.add(number, record)
        there = self._there.get(name)
        if there:
            self._map.put(old, Position(number, there.popleft()))
            return
        value = await self._relocated(key, record)
        sent = await self._producer.send(
            self._topic, value, name, number, record.timestamp, list(record.headers)
        )
        new = Position(number, self._next[number])
        self._next[number] += 1
        if self._alone:
            self._map.put(old, new)
        self._sent.append((old, new, sent))
        self._bytes += len(value or b"")
        if len(self._sent) >= AT_ONCE or self._bytes >= BYTES_AT_ONCE:
            await self.flush()

    async def _relocated(self, key: Key, record: Copied) -> bytes | None:
        value = record.value
        if value is None:
            return None
        type_ = _read_envelope(value).type
        named = names_positions(type_)
        if not named and b'"expect"' not in value and b'"fence"' not in value:
            return value
        if not self._alone:
            await self.flush()
        moves = self._map.of(key, len(self._starts))
        value = relocate_envelope(value, moves)
        if not named:
            return value
        if not is_sealed(value):
            return relocate_payload(value, moves)
        name, kid = record.key or b"", kid_in(value)
        data_key = None if kid is None else self._keys.data_key(name, kid)
        if kid is None or data_key is None:
            # Its key is deleted: it is opaque here and there.
            return value
        opened = open_value(self._keys, name, value)
        return seal_event(relocate_payload(opened or b"", moves), kid, data_key)

    async def flush(self) -> None:
        """Wait until all in-sync replicas have what was written.

        Raises:
            InvalidBackup: somebody else writes to the target.
        """
        for old, new, sent in self._sent:
            offset = (await sent).offset
            if self._alone and offset != new.offset:
                raise InvalidBackup(
                    f"topic {self._topic}, partition {new.partition}: another program writes to"
                    " it: stop that program, and start again"
                )
            self._map.put(old, new._replace(offset=offset))
        self._sent.clear()
        self._bytes = 0

    async def compare(self, ends: Sequence[Extent]) -> int:
        """Read what was written; returns how many events that are.

        Raises:
            InvalidBackup: it is not what was to be written.
        """
        found = Sums(len(self._starts))
        for number, extent in enumerate(ends):
            async for record in self._own(number, extent.end):
                found.add(number, record)
        if wrong := found.differing(self._written):
            raise InvalidBackup(
                f"topic {self._topic}, partitions {', '.join(map(str, wrong))}: what was written is"
                f" not what was read ({found.records} events, {self._written.records} read): stop"
                " the program that writes to it, and start again"
            )
        return found.records


def relocated_erasure(record: Copied, places: PositionMap) -> Copied:
    """A record of the keys topic; an erasure's position is given its new one."""
    if record.value is None or not (record.key or b"").endswith(b"/" + ERASED):
        return record
    try:
        erasure = _erasure(record.value)
        old = None if erasure.position is None else parse_position(erasure.position)
    except (Undecodable, InvalidPosition):
        return record
    if old is None:
        return record
    changed = msgspec.structs.replace(erasure, position=str(places.get(old) or NOWHERE))
    return record._replace(value=msgspec.json.encode(changed))


async def by_time(partitions: Sequence[Batches]) -> AsyncIterator[tuple[int, Copied]]:
    """The records of several partitions by their times; those of one partition in their order."""
    heap: list[tuple[int, int, deque[Copied]]] = []

    async def more(number: int, rows: deque[Copied]) -> None:
        while not rows:
            batch = await anext(partitions[number], None)
            if batch is None:
                return
            rows.extend(batch)
        heapq.heappush(heap, (rows[0].timestamp, number, rows))

    for number in range(len(partitions)):
        await more(number, deque())
    while heap:
        _, number, rows = heapq.heappop(heap)
        yield number, rows.popleft()
        await more(number, rows)
