"""Rounds: now and then, all windows of a partition that changed are written to the snapshots topic,
and then a marker that says so.

A marker at offset X promises: every conversation of the partition has its latest record on the
topic, with all its events up to X, or has no events up to X. A round takes X from the checkpoint at
its begin and the windows later, a few at a time between batches, so each of them may be ahead of X;
that is why a healed partition passes over what a window has already. Four things could break the
promise:

- *a process that died between two rounds*: its successor reads the log from the last marker on for
  the keys that changed;
- *a frozen process that wakes and writes an old snapshot over a newer one*: each round compares the
  offsets of its own records with the range they fill; a gap is a stranger's record, whose
  conversation is written again before the marker;
- *records that were deleted by hand, or with the topic*: the marker names the topic's first offset,
  each round looks at it;
- *records of another generation or another log* (they could shadow a conversation): as long as no
  marker of this generation fits this log, every key on the topic is written again or deleted.

Records that come after a round's last one are judged by the reader (``streams.recovery.healing``).

Between rounds, conversations that are idle are put to sleep (``streams.recovery.hibernation``):
their records count as a round's, and as nothing comes of them until they wake, the next marker
holds for them. One whose record has to be written again gets a new stub with it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator

from projections.errors import KafkaUnavailable, LogTruncated
from projections.names import Key, parse_key
from projections.storage.records import Checkpoint
from projections.storage.snapshots import (
    MARKER_KEY,
    Marker,
    Stamp,
    encode_marker,
    encode_snapshot,
    stamp_of,
)
from projections.window.window import Window
from streams.encryption.payload_cipher import body_sealer
from streams.log.log import Log
from streams.partition.partition import Partition
from streams.recovery.hibernation import put_to_sleep, sleepers
from streams.recovery.snapshot_topic import Row, SnapshotTopic, find_marker

logger = logging.getLogger(__name__)

SLICE = 16
"""Windows encoded in one go, between two batches: about 1 ms."""
EVENTS_A_WINDOW = 32
"""A round waits for so many events a changed window, so that snapshots (about 12 KB each) do not
outweigh the events themselves.
"""
MAX_CHANGED = 50_000
"""So many changed conversations begin a round whatever else: they are remembered in memory."""
WHEN_BEHIND = 16
"""Rounds of a partition that is far behind its log's end are this much rarer."""
REST_AT_ONCE = 64
"""Conversations put to sleep in one go; the next go is a tick later."""
REST_AGAIN = 256
"""Of those that sleep, so many records are written anew at once: where their snapshots are gone,
each time the log is read for them.
"""
LOOK_EVERY = 5.0
"""Seconds between two looks at who is idle, where the last one found fewer."""
MARK_EVERY = 60.0
"""Seconds after which a round is due that has nothing to write but its marker, where conversations
fell asleep since the last one.
"""


class PartitionSnapshots:
    """The snapshots of one partition: what is known of them, and what its rounds do.

    Each method raises :class:`streams.partition.owned.Fenced` where the partition is another
    process' now, and CorruptWindow, KafkaUnavailable and RedisUnavailable as named.
    """

    def __init__(self, partition: Partition, log: Log, topic: SnapshotTopic) -> None:
        self.partition = partition
        self._log = log
        self._topic = topic
        self._stamp: Stamp = stamp_of(partition.generation, partition.rules)
        self._adopted = partition.checkpoint.offset
        """Up to here the windows were changed by others."""
        self.ready = False
        """Whether it is known what changed since the latest marker."""
        self.covered = -1
        """The offset of the latest marker."""
        self.rounds = 0
        """Markers written so far."""
        self.again: set[Key] = set()
        """Conversations to be written, or deleted where they have no window, beside those that
        changed.
        """
        self._begin = 0
        """The first offset there is on the topic."""
        self._clean = 0
        """Records on the topic before this offset have been looked after."""
        self._ours: set[int] = set()
        """Offsets from ``clean`` on that this process wrote."""
        self.look_at = 0.0
        """When to look for idle conversations again (monotonic seconds)."""
        self.slept = 0
        """Conversations put to sleep since the last marker."""
        self._marked = time.monotonic()

    def is_due(self, every: int, *, behind: bool = False) -> bool:
        """Whether a round is due, where ``every`` so many events make it so; later while the
        partition is ``behind`` its log's end.
        """
        changed = len(self.partition.changed or ()) + len(self.again)
        enough = max(every * (WHEN_BEHIND if behind else 1), EVENTS_A_WINDOW * changed)
        marker_alone = (
            self.slept > 0 and not changed and time.monotonic() >= self._marked + MARK_EVERY
        )
        # What was erased has to leave the topic now, not when enough else has changed.
        if self.partition.erased or marker_alone:
            return True
        return self.partition.checkpoint.offset - self.covered >= enough or changed >= MAX_CHANGED

    async def learn(self) -> None:
        """Find the last marker, and what changed between it and the take-over."""
        number = self.partition.number
        self._begin, end = await self._topic.bounds(number)
        self.covered, self._clean, self._ours = -1, self._begin, set()
        found = await find_marker(self._topic, self._log, number, self._stamp)
        if found is not None and found[0].offset <= self._adopted and found[0].begin == self._begin:
            self.covered, self._clean = found[0].offset, found[0].clean
        elif (
            first := (await self._log.beginning_offsets())[number]
        ) > 0 and self._adopted >= first:
            # Conversations whose events are all gone are named nowhere: a marker would promise more
            # than is there.
            raise LogTruncated(
                f"the log begins at offset {first}: not all its conversations are known, and there"
                " is no marker to go on from"
            )
        # Else all windows were folded since, or nobody has taken a snapshot of this generation and
        # this log: begin with everything.
        latest = {
            key: offset async for key, offset in _keys(self._topic, number, self._clean, end - 1)
        }
        again = {
            key async for key, _ in _keys(self._log, number, self.covered + 1, self._adopted)
        } | latest.keys()
        if found is not None:
            # Whose latest record is the one its stub names needs no other; of this generation and
            # code, as the marker is.
            asleep = await sleepers(self.partition, latest)
            again -= {key for key, stub in asleep.items() if stub.at == latest[key]}
        self.again |= again
        # Whoever folded an erasure may not have come to the round that takes its text away.
        erased = {key for key in again if self._log.seals.is_erased(str(key).encode())}
        self.partition.erased |= erased
        self._clean = end
        self.ready = True

    async def rest(self, after: float) -> None:
        """Put some of those to sleep that were written ``after`` seconds ago or earlier, by the
        broker's clock.
        """
        partition = self.partition
        before_ms = int((time.time() - after) * 1000)
        keys = await partition.store.idle(
            partition.generation, partition.number, before_ms, REST_AT_ONCE
        )
        self.look_at = time.monotonic() + (LOOK_EVERY if len(keys) < REST_AT_ONCE else 0.0)
        if keys:
            await self._sleep(keys)

    async def _sleep(self, keys: list[Key]) -> set[Key]:
        """Put conversations to sleep, again where they sleep already; returns whose records were
        written.
        """
        rested = await put_to_sleep(self.partition, self._topic, self._stamp, keys)
        self._ours |= set(rested.offsets)
        self.again -= rested.asleep
        self.slept += len(rested.asleep)
        return rested.written

    async def write(self) -> None:
        """Write everything that changed, then the marker."""
        partition = self.partition
        begin, end = await self._topic.bounds(partition.number)
        if begin != self._begin or end < self._clean:
            # The topic was made anew, or records were deleted: what has changed since some marker
            # is no longer enough.
            logger.warning(
                "partition %d: its snapshots were deleted; all of them are written again",
                partition.number,
            )
            self.ready, self._adopted = False, partition.checkpoint.offset
            return
        async with partition.turn:
            at, taken = partition.checkpoint, partition.changed or set()
            partition.changed, partition.erased = set(), set()
        # Kept until the marker is safe: a round that fails is taken anew, with all of this.
        self.again |= taken
        written = set(self.again)
        await self.publish(written)
        await self._look_after_strangers()
        clean = max(self._ours, default=self._clean - 1) + 1
        marker = Marker(
            self._stamp, at.offset, at.digest, self._begin, clean, int(time.time() * 1000)
        )
        ours = await self._topic.put(partition.number, [(MARKER_KEY, encode_marker(marker))])
        self.covered, self._clean, self._ours, self.again = at.offset, clean, set(ours), set()
        self.rounds += 1
        self.slept, self._marked = 0, time.monotonic()
        logger.info(
            "partition %d: %d windows under snapshots up to offset %d",
            partition.number,
            len(written),
            at.offset,
        )

    async def publish(self, keys: set[Key]) -> None:
        """Write the snapshots of these conversations; the marker is left as it is."""
        asleep, written = sorted(await sleepers(self.partition, keys)), set[Key]()
        for i in range(0, len(asleep), REST_AGAIN):
            written |= await self._sleep(asleep[i : i + REST_AGAIN])
        order = sorted(keys - written)
        for i in range(0, len(order), SLICE):
            self._ours |= set(
                await self._topic.put(self.partition.number, await self._rows(order[i : i + SLICE]))
            )

    async def _rows(self, keys: list[Key]) -> list[Row]:
        partition = self.partition
        async with partition.turn:
            at: Checkpoint = partition.checkpoint
            windows = await partition.windows(keys)
            found = list(zip([str(key).encode() for key in keys], windows, strict=True))
            return [
                (name, None if window is None else self._encoded(name, window, at))
                for name, window in found
            ]

    def _encoded(self, name: bytes, window: Window, at: Checkpoint) -> bytes:
        """A window's snapshot; where its conversation's payloads are sealed, it is as well."""
        return encode_snapshot(
            window,
            self._stamp,
            at.offset,
            at.digest,
            body_sealer(self._log.seals, name, erased=window.meta.erased),
        )

    async def _look_after_strangers(self) -> None:
        """Write again what somebody else wrote between this round's records."""
        number, seen = self.partition.number, self._clean
        for _ in range(3):
            last = max(self._ours, default=-1)
            gaps = [offset for offset in range(seen, last + 1) if offset not in self._ours]
            if not gaps:
                return
            wanted, seen = set(gaps), last + 1
            rows = [
                row
                async for row in self._topic.scan(number, gaps[0], gaps[-1])
                if row.position.offset in wanted
            ]
            keys = {
                key
                for row in rows
                if row.key is not None and (key := parse_key(row.key)) is not None
            }
            self.again |= keys
            await self.publish(keys)
        raise KafkaUnavailable(f"another process writes snapshots of partition {number}, too")


async def _keys(
    log: SnapshotTopic | Log, partition: int, first: int, last: int
) -> AsyncIterator[tuple[Key, int]]:
    """The conversations that records of a range name, and the records' offsets, in order."""
    async for raw in log.scan(partition, first, last):
        key = parse_key(raw.key) if raw.key is not None else None
        if key is not None:
            yield key, raw.position.offset
