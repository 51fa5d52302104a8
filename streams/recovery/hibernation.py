"""Hibernation: a partition's owner replaces windows that have been idle for long by stubs, a
bounded number at a time.

First the whole window is written to the snapshots topic, as one record with its text and recent
ids; when that is safe, the window is replaced by its stub, atomically and fenced, if it has not
changed since. So a crash in between leaves a record that is the conversation's latest, as a round's
would be, and the window as it was.

The records keep what ``streams.recovery.partition_snapshots`` promises of snapshots: each holds all
its conversation's events up to the checkpoint it names.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from projections.names import Key
from projections.storage.layout import HEAD, decode_head
from projections.storage.records import Checkpoint, Stored, rest_write, stored_form, stub_write
from projections.storage.snapshots import Stamp, encode_packed
from projections.storage.stubs import STUB, Stub, decode_stub, pack, stub_of
from streams.encryption.payload_cipher import body_sealer
from streams.partition.partition import Partition
from streams.recovery.snapshot_topic import Row, SnapshotTopic

logger = logging.getLogger(__name__)

SLICE = 16
"""Windows packed in one go, beside the loop: about 10 ms."""
LARGEST = 8 << 20
"""Bytes of a packed window that is still put to sleep; Kafka takes 16 MiB in one message."""


class Rested(NamedTuple):
    """What became of windows: the offsets of the records that were written, whose they are, and who
    sleeps by them now.
    """

    offsets: list[int]
    written: set[Key]
    asleep: set[Key]


class _Packed(NamedTuple):
    key: Key
    stub: Stub
    body: bytes
    id_blocks: list[bytes]


async def put_to_sleep(
    partition: Partition, topic: SnapshotTopic, stamp: Stamp, keys: Sequence[Key]
) -> Rested:
    """Replace these conversations' windows by stubs; those that sleep already get a new record and
    a new stub.

    To be called by the owner, without ``partition.turn``, and while nothing else empties
    ``partition.changed``. A window that is due for a summary, quarantined, of an erased
    conversation, or too large stays, and comes up again after its next write. What is asleep leaves
    ``changed``.

    Raises:
        Fenced: the partition is another's now.
        KafkaUnavailable, RedisUnavailable: as named; nothing is wrong then, call it again.
        CorruptWindow: as ``Partition.stored`` says.
    """
    async with partition.turn:
        at: Checkpoint = partition.checkpoint
        stored = await partition.stored(keys)
        kept, partition.changed = partition.changed or set(), set()
    asleep: set[Key] = set()
    try:
        wanted = {key: parts for key, parts in zip(keys, stored, strict=True) if parts is not None}
        packed, offsets = [], []
        for some in _slices(list(wanted.items())):
            done = [one for one in await asyncio.to_thread(_packed, some) if _may(partition, one)]
            rows = [_row(partition, one, stamp, at) for one in done]
            offsets += await topic.put(partition.number, rows) if rows else []
            packed += done
        stubs = {
            one.key: msgspec.structs.replace(one.stub, at=offset)
            for one, offset in zip(packed, offsets, strict=True)
        }
        async with partition.turn:
            moved = partition.changed or set()
            # What was written meanwhile comes up again by that write.
            left = [rest_write(key) for key in keys if key not in stubs and key not in moved]
            await partition.rest(
                [
                    *left,
                    *(
                        stub_write(one.key, stubs[one.key], one.id_blocks)
                        for one in packed
                        if one.key not in moved
                    ),
                ]
            )
            asleep = stubs.keys() - moved
        return Rested(offsets, set(stubs), asleep)
    finally:
        partition.changed = (partition.changed or set()) | (kept - asleep)


async def sleepers(partition: Partition, keys: Iterable[Key]) -> dict[Key, Stub]:
    """The stubs of those conversations that sleep, a bounded number asked for at a time; raises
    like :func:`put_to_sleep`.
    """
    found: dict[Key, Stub] = {}
    for some in _slices(sorted(keys), 256):
        answers = await asyncio.gather(
            *(
                partition.store.fields(partition.generation, partition.number, key, [STUB])
                for key in some
            )
        )
        for key, (_, fields) in zip(some, answers, strict=True):
            if STUB in fields:
                with stored_form(key):
                    found[key] = decode_stub(fields[STUB])
    return found


def _packed(some: Sequence[tuple[Key, Stored]]) -> list[_Packed]:
    found = []
    for key, parts in some:
        with stored_form(key):
            head = decode_head(parts.fields[HEAD])
        if not head.erased and head.due is None and head.quarantine is None:
            body = pack(parts.fields, parts.id_blocks)
            with stored_form(key):
                stub = stub_of(parts.fields, -1, body)
            # The names of blocks that the store has: none, where it has a stub.
            blocks = [] if parts.stub is not None else list(parts.id_blocks)
            found.append(_Packed(key, stub, body, blocks))
    return found


def _may(partition: Partition, one: _Packed) -> bool:
    if len(one.body) > LARGEST:
        logger.warning("%s does not hibernate: its window has %d MiB", one.key, len(one.body) >> 20)
        return False
    return not partition.log.seals.is_erased(str(one.key).encode())


def _row(partition: Partition, one: _Packed, stamp: Stamp, at: Checkpoint) -> Row:
    name = str(one.key).encode()
    return name, encode_packed(
        stamp, at.offset, at.digest, body_sealer(partition.log.seals, name)(one.body)
    )


def _slices(items: Sequence, size: int = SLICE) -> Iterable[Sequence]:  # type: ignore[type-arg]
    return [items[i : i + size] for i in range(0, len(items), size)]
