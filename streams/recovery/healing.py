"""Healing from snapshots: what a lost Redis held is put back from the snapshots topic and the log,
up to a marker; the fold does the rest.

Nothing is used that does not fit: the marker's and every later snapshot's record of the log
must still be where they say, by its content, and one record that cannot be read, or that may shadow
a newer one, sets all of the partition's snapshots aside: then the partition is folded from its
first event, as it always could be. Until the last window is back, the checkpoint says that nothing
is folded yet, so a crash in the middle begins anew, and no reader is served from half of a
partition.

A snapshot of a conversation that slept comes back as its stub, with its place in the lists and its
timer; its text is in the record.

The topic is read twice, keys first, so that memory holds a key and an offset a conversation, and
windows a bounded number at a time.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Set
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

import msgspec

from projections.errors import CorruptWindow, KafkaUnavailable
from projections.events.types import AnyEvent
from projections.names import Key, Position, parse_key, parse_position, partition_of
from projections.storage.layout import HEAD, Head, decode_head
from projections.storage.records import Checkpoint, Stored, Write, stub_write, write_of
from projections.storage.snapshots import (
    MARKER_KEY,
    Marker,
    Refilled,
    Snapshot,
    Stamp,
    decode_snapshot,
    stamp_of,
)
from projections.storage.stubs import is_packed, stub_of, unpack
from projections.window.window import Window
from streams.encryption.payload_cipher import NotAuthentic, kid_of_body, open_body
from streams.log.history import Pieces, event_of
from streams.log.log import Log
from streams.partition.log_identity import identity
from streams.partition.partition import Partition
from streams.recovery.snapshot_topic import SnapshotTopic, find_marker

T = TypeVar("T")
logger = logging.getLogger(__name__)

CHUNK_BYTES = 32 << 20
"""Text and snapshots in memory at once; windows of one chunk share one pass over the part of the
log in which their text stands.
"""
WRITE_BYTES = 2 << 20
WRITE_WINDOWS = 500
AT_ONCE = 50
"""Stubs put back at once: each window is read and judged before, which takes a millisecond or two.
"""


class _Distrust(Exception):
    """Why a partition's snapshots are set aside."""


@dataclass(slots=True)
class _Survey:
    """The latest record of each conversation: its offset on the topic; and which records of the log
    must be as they were.
    """

    marker: Marker
    end: int
    latest: dict[bytes, int] = field(default_factory=dict)
    reach: int = -1


async def heal_from_snapshots(
    partition: Partition, log: Log, topic: SnapshotTopic, target: int
) -> int | None:
    """Put a partition's windows back, when its latest marker is ahead of its checkpoint.

    Args:
        partition: with the stored checkpoint adopted (an empty one where the store has none);
            nothing else may fold it meanwhile.
        target: the offset up to which it heals at least; it grows to what is found in windows.

    Returns:
        How many windows were put back; the checkpoint is at the marker then. None when snapshots
        are of no use here, with nothing changed or, when that was found out late, with nothing of
        the partition in the store.

    Raises:
        Fenced, KafkaUnavailable, RedisUnavailable: begin again; a half restored partition counts as
            healing from its first event.
    """
    number, stamp = partition.number, stamp_of(partition.generation, partition.rules)
    found = await find_marker(topic, log, number, stamp)
    if found is None or found[0].offset <= partition.checkpoint.offset:
        return None
    marker, raw = found
    try:
        survey = await _survey(topic, log, number, stamp, marker)
        await _begin(partition, max(target, marker.offset, survey.reach))
        count = await _put_back(partition, log, topic, stamp, survey)
    except _Distrust as why:
        logger.error(
            "partition %d: snapshots are not used, it is folded from its first event: %s",
            number,
            why,
        )
        if partition.checkpoint.offset < 0:
            await _begin(partition, target)
        return None
    await partition.put_back(
        Checkpoint("", marker.offset, raw.timestamp, marker.digest, partition.checkpoint.target), []
    )
    logger.warning(
        "partition %d: %d windows are back from snapshots, as of offset %d",
        number,
        count,
        marker.offset,
    )
    return count


async def restored_at_marker(
    partition: Partition, log: Log, topic: SnapshotTopic, wanted: Set[Key] | None
) -> tuple[int, int, dict[Key, Window]] | None:
    """The windows that snapshots and the log give as of the latest marker, in memory; nothing is
    written.

    Args:
        partition: names number, generation and rules; neither its store nor its checkpoint is
            looked at.
        wanted: the conversations that matter, None for all.

    Returns:
        The marker's offset, the offset up to which windows may be ahead of it, and the windows;
        None when snapshots are of no use here.
    """
    number, stamp = partition.number, stamp_of(partition.generation, partition.rules)
    found = await find_marker(topic, log, number, stamp)
    if found is None:
        return None
    windows: dict[Key, Window] = {}
    try:
        survey = await _survey(topic, log, number, stamp, found[0])
        survey.latest = {
            name: at
            for name, at in survey.latest.items()
            if wanted is None or parse_key(name) in wanted
        }
        async for chunk in _chunks(number, log, topic, stamp, survey):
            await partition.known({key.tenant for key, _, _ in chunk})
            windows.update(
                {
                    key: _unpacked(partition, key, snapshot)[2]
                    for key, snapshot, _ in chunk
                    if is_packed(snapshot.body)
                }
            )
            bare = [(key, snapshot) for key, snapshot, _ in chunk if not is_packed(snapshot.body)]
            restored, _ = await _restored(partition, log, bare)
            windows.update({window.key: window for window in restored})
    except _Distrust as why:
        logger.warning("partition %d: its snapshots are not used: %s", number, why)
        return None
    return found[0].offset, survey.reach, windows


async def _begin(partition: Partition, target: int) -> None:
    """An empty partition that heals from its first event."""
    await partition.store.drop_partition(partition.generation, partition.number)
    partition.adopt(Checkpoint())
    await partition.set_target(target)


async def _survey(
    topic: SnapshotTopic, log: Log, number: int, stamp: Stamp, marker: Marker
) -> _Survey:
    """Read the topic's partition once; raises :class:`_Distrust`."""
    survey = _Survey(marker, (await topic.bounds(number))[1])
    bad: dict[bytes, str] = {}
    sealed: dict[bytes, bytes] = {}
    ahead: dict[int, str] = {}
    async for row in topic.scan(number, marker.begin, survey.end - 1):
        if row.key is None or row.key == MARKER_KEY:
            continue
        named = parse_key(row.key)
        if named is None or partition_of(named, log.partitions) != number:
            continue  # earlier releases folded what stands in another partition than its key's
        survey.latest[row.key] = row.position.offset
        bad.pop(row.key, None)
        sealed.pop(row.key, None)
        snapshot = decode_snapshot(row.value, stamp)
        late = row.position.offset >= marker.clean
        if row.value is None and not late:
            del survey.latest[row.key]
        elif snapshot is None:
            bad[row.key] = "its latest snapshot cannot be read or is of another generation"
        elif late and snapshot.offset < marker.offset:
            bad[row.key] = "an older snapshot came after its latest one"
        elif snapshot.offset > marker.offset:
            ahead[snapshot.offset] = snapshot.digest
        if snapshot is not None and (kid := kid_of_body(snapshot.body)) is not None:
            sealed[row.key] = kid
    if bad:
        key, why = next(iter(bad.items()))
        raise _Distrust(f"{key.decode()}: {why}")
    rows = await log.read(Position(number, offset) for offset in ahead)
    for offset, digest in ahead.items():
        there = rows.get(Position(number, offset))
        if there is None or identity(there) != digest:
            raise _Distrust(f"the log is not the one it was at offset {offset}")
    survey.reach = max(ahead, default=-1)
    await _leave_out_erased(survey, log, sealed)
    return survey


async def _leave_out_erased(survey: _Survey, log: Log, sealed: dict[bytes, bytes]) -> None:
    """Leave out snapshots whose key is gone because their conversation was erased after the marker:
    the fold comes to the erasure yet, and what it makes of it does not depend on what was before.
    Raises :class:`_Distrust` where a key is gone for any other reason.
    """
    await log.seals.find(sealed.items())
    for name, kid in sealed.items():
        if log.seals.data_key(name, kid) is None:
            at = log.seals.erased_at(name)
            if at is None or parse_position(at).offset <= survey.marker.offset:
                raise _Distrust(f"{name.decode()}: the key of its latest snapshot is gone")
            del survey.latest[name]


async def _put_back(
    partition: Partition, log: Log, topic: SnapshotTopic, stamp: Stamp, survey: _Survey
) -> int:
    """Read the topic's partition again and write the windows of its latest records; returns how
    many.
    """
    count = 0
    async for chunk in _chunks(partition.number, log, topic, stamp, survey):
        await partition.known({key.tenant for key, _, _ in chunk})
        slept = [one for one in chunk if is_packed(one[1].body)]
        for i in range(0, len(slept), AT_ONCE):
            await partition.rest([_asleep(partition, one) for one in slept[i : i + AT_ONCE]])
        waiting: list[Window] = []
        size = 0
        restored, times = await _restored(
            partition,
            log,
            [(key, snapshot) for key, snapshot, _ in chunk if not is_packed(snapshot.body)],
        )
        for window in restored:
            waiting.append(window)
            size += sum(len(entry.body) for entry in window.tail)
            if size >= WRITE_BYTES or len(waiting) >= WRITE_WINDOWS:
                await partition.put_back(partition.checkpoint, waiting, times)
                waiting, size = [], 0
        await partition.put_back(partition.checkpoint, waiting, times)
        count += len(chunk)
    return count


def _asleep(partition: Partition, one: tuple[Key, Snapshot, int]) -> Write:
    """The write that puts a window back which slept."""
    key, snapshot, at = one
    fields, head, window = _unpacked(partition, key, snapshot)
    return stub_write(
        key, stub_of(fields, at, snapshot.body), after=write_of(window, at_ms=head.at_ms)
    )


def _unpacked(
    partition: Partition, key: Key, snapshot: Snapshot
) -> tuple[dict[bytes, bytes], Head, Window]:
    """The window that slept, whose snapshot has all of it, with its fields and its head."""
    try:
        fields, id_blocks = unpack(snapshot.body)
        window = Stored(fields, id_blocks).load(key, partition.number, partition.rules)
        return fields, decode_head(fields[HEAD]), window
    except (ValueError, KeyError, CorruptWindow) as error:
        raise _Distrust(f"{key}: its snapshot cannot be read ({error})") from None


async def _chunks(
    number: int, log: Log, topic: SnapshotTopic, stamp: Stamp, survey: _Survey
) -> AsyncIterator[list[tuple[Key, Snapshot, int]]]:
    """The latest snapshots with their offsets on the topic, as many at a time as memory may hold
    with their text.
    """
    chunk: list[tuple[Key, Snapshot, int]] = []
    size = 0
    wanted = set(survey.latest.values())
    if wanted:
        async for row in topic.scan(number, min(wanted), max(wanted)):
            if row.position.offset not in wanted or row.key is None:
                continue
            key, snapshot = parse_key(row.key), decode_snapshot(row.value, stamp)
            if key is None or snapshot is None:
                raise _Distrust(f"the snapshot at {row.position} is not what it was a moment ago")
            wanted.discard(row.position.offset)
            body = _opened(log, row.key, snapshot.body)
            if body is None:
                # Erased in this moment: a new survey leaves it out.
                raise KafkaUnavailable(
                    f"a snapshot of partition {number} lost its key while it was read: it begins"
                    " again"
                )
            snapshot = msgspec.structs.replace(snapshot, body=body)
            chunk.append((key, snapshot, row.position.offset))
            size += snapshot.text + len(snapshot.body)
            if size >= CHUNK_BYTES:
                yield chunk
                chunk, size = [], 0
    if wanted:
        # Compaction ran between the two readings: there are newer ones now, and a newer marker
        # perhaps.
        raise KafkaUnavailable(
            f"{len(wanted)} snapshots of partition {number} were replaced while they were read: it"
            " begins again"
        )
    if chunk:
        yield chunk


def _opened(log: Log, name: bytes, body: bytes) -> bytes | None:
    try:
        return open_body(log.seals, name, body)
    except NotAuthentic as error:
        raise _Distrust(f"{name.decode()}: {error}") from None


async def _restored(
    partition: Partition, log: Log, chunk: list[tuple[Key, Snapshot]]
) -> tuple[list[Window], dict[Key, int]]:
    """The windows of a chunk with their text, which is read from the log; and the times of their
    last records (ms).
    """
    number, rules = partition.number, partition.rules
    windows: dict[bytes, Refilled] = {}
    try:
        for key, snapshot in chunk:
            windows[str(key).encode()] = Refilled(key, number, rules, snapshot.body)
    except ValueError as error:
        raise _Distrust(f"a snapshot cannot be read: {error}") from None
    names = {str(key).encode(): key for key, _ in chunk}
    lasts = {window.position for window in windows.values() if window.position >= 0}
    offsets = sorted(lasts.union(*(window.missing for window in windows.values())))
    times: dict[int, int] = {}
    pieces = Pieces(log, number)
    while offsets:
        piece = await pieces.read(offsets)
        offsets, texts = offsets[len(piece.asked) :], dict[bytes, dict[int, AnyEvent]]()
        for raw in piece.rows.values():
            if raw.offset in lasts:
                times[raw.offset] = raw.timestamp
            event = event_of(raw, names[raw.key], log.seals) if raw.key in names else None
            if event is not None and raw.key is not None:
                texts.setdefault(raw.key, {})[raw.offset] = event
        for name, found in texts.items():
            _fit(names[name], partial(windows[name].put, found.get))
    restored = [_fit(names[name], window.window) for name, window in windows.items()]
    return restored, {
        window.key: times[window.meta.position]
        for window in restored
        if window.meta.position in times
    }


def _fit(key: Key, build: Callable[[], T]) -> T:
    try:
        return build()
    except Exception as error:  # noqa: BLE001 (a deployment's own callable may fail in any way: the fold will tell)
        raise _Distrust(
            f"{key}: its snapshot and the log do not fit ({type(error).__name__})"
        ) from None
