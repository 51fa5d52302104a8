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

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field

from projections.errors import CorruptWindow, KafkaUnavailable, LogTruncated, ThreadfoldError
from projections.names import Key, parse_key
from projections.storage.protocol import Checkpoint
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
from streams.partition.owned import Fenced
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
WHEN_BEHIND = 4
"""Rounds of a partition that is far behind its log's end are this much rarer."""
RETRY_AFTER = 5.0
LOOK_AGAIN = 600.0
"""Seconds until a partition that can have no snapshots, as its log lost its beginning, is looked at
again.
"""
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


@dataclass(slots=True)
class _Past:
    """What is known of a partition's snapshots."""

    partition: Partition
    stamp: Stamp
    adopted: int
    """Up to here the windows were changed by others."""
    ready: bool = False
    covered: int = -1
    """The offset of the latest marker."""
    begin: int = 0
    """The first offset there is on the topic."""
    clean: int = 0
    """Records on the topic before this offset have been looked after."""
    ours: set[int] = field(default_factory=set)
    """Offsets from ``clean`` on that this process wrote."""
    again: set[Key] = field(default_factory=set)
    """Conversations to be written, or deleted where they have no window, beside those that changed.
    """
    task: asyncio.Task[None] | None = None
    not_before: float = 0.0
    rounds: int = 0
    look_at: float = 0.0
    slept: int = 0
    """Conversations put to sleep since the last marker, which was at ``marked`` (monotonic
    seconds).
    """
    marked: float = field(default_factory=time.monotonic)


class SnapshotWriter:
    """Takes the rounds of one process' partitions, in the background, one partition at a time."""

    def __init__(self, log: Log, topic: SnapshotTopic, every: int, rest_after: float = 0.0) -> None:
        """Args: ``every`` is how many events of a partition make a round due, 0 turns rounds off,
        and with them hibernation; ``rest_after`` is for how many seconds a conversation has to be
        idle to be put to sleep, 0: never.
        """
        self._rest_after = rest_after
        self._log = log
        self._topic = topic
        self._every = every
        self._pasts: dict[int, _Past] = {}
        self._one = asyncio.Lock()
        self._corrupt: dict[int, CorruptWindow] = {}
        self._ended: set[asyncio.Task[None]] = set()

    def take_over(self, partition: Partition) -> None:
        """Begin with a partition whose checkpoint was just adopted or restored."""
        self.forget([partition.number])
        if self._every > 0:
            partition.changed, partition.erased = set(), set()
            stamp = stamp_of(partition.generation, partition.rules)
            self._pasts[partition.number] = _Past(partition, stamp, partition.checkpoint.offset)

    def forget(self, numbers: Iterable[int]) -> None:
        """Let go of partitions; a round under way ends without its marker."""
        for number in numbers:
            self._corrupt.pop(number, None)
            past = self._pasts.pop(number, None)
            if past is not None and past.task is not None:
                past.task.cancel()
                self._ended.add(past.task)
                past.task.add_done_callback(self._ended.discard)

    async def finish(self, limit: float) -> None:
        """Take the rounds that are due, for ``limit`` seconds at most: whoever stops right after a
        catch-up leaves little to fold again.

        To be called by the owner still, when nothing is folded any more.
        """
        try:
            async with asyncio.timeout(limit):
                for past in list(self._pasts.values()):
                    if past.task is not None:
                        await asyncio.wait([past.task])
                    if not past.partition.checkpoint.healing:
                        if not past.ready:
                            await self._run(past)
                        if past.ready and self._due(past, behind=False):
                            await self._run(past)
        except TimeoutError:
            logger.info("stopping before all snapshots are written: healing would fold more")

    async def stop(self) -> None:
        """Let go of everything."""
        self.forget(list(self._pasts))
        await asyncio.gather(*self._ended, return_exceptions=True)

    def check(self, number: int) -> None:
        """Raise :class:`CorruptWindow`, once, where a round came to a window that cannot be read:
        the owner has to fold it anew.
        """
        if (found := self._corrupt.pop(number, None)) is not None:
            raise found

    def covered(self, number: int) -> int:
        """The offset of the latest marker this process knows of, -1 without one."""
        past = self._pasts.get(number)
        return -1 if past is None else past.covered

    def consider(self, number: int, *, behind: bool = False) -> None:
        """Begin what is due for a partition; called after every batch and now and then besides, and
        returns at once.
        """
        past = self._pasts.get(number)
        if past is None or past.task is not None or past.partition.checkpoint.healing:
            return
        rest = past.ready and not self._due(past, behind)
        if rest and (behind or not self._rest_after or time.monotonic() < past.look_at):
            return
        if time.monotonic() >= past.not_before:
            past.task = asyncio.create_task(self._run(past, rest=rest), name=f"snapshots-{number}")

    def _due(self, past: _Past, behind: bool) -> bool:
        changed = len(past.partition.changed or ()) + len(past.again)
        enough = max(self._every * (WHEN_BEHIND if behind else 1), EVENTS_A_WINDOW * changed)
        # What was erased is to go from the topic now, not when enough else has changed.
        marker_alone = (
            past.slept > 0 and not changed and time.monotonic() >= past.marked + MARK_EVERY
        )
        if past.partition.erased or marker_alone:
            return True
        return past.partition.checkpoint.offset - past.covered >= enough or changed >= MAX_CHANGED

    async def _run(self, past: _Past, *, rest: bool = False) -> None:
        number = past.partition.number
        try:
            async with self._one:
                if rest:
                    await self._rest(past)
                elif past.ready:
                    await self._round(past)
                else:
                    await self._learn(past)
        except Fenced:
            # Whoever owns the partition now takes it over, and its rounds.
            past.not_before = time.monotonic() + RETRY_AFTER
        except CorruptWindow as error:
            self._corrupt[number] = error
            past.not_before = time.monotonic() + RETRY_AFTER
        except LogTruncated as error:
            logger.warning("no snapshots of partition %d: %s", number, error)
            past.not_before = time.monotonic() + LOOK_AGAIN
        except ThreadfoldError as error:
            logger.warning("snapshots of partition %d wait: %s", number, error)
            past.not_before = time.monotonic() + RETRY_AFTER
        except Exception:
            logger.exception("snapshots of partition %d failed; they are tried again", number)
            past.not_before = time.monotonic() + RETRY_AFTER
        finally:
            past.task = None

    async def _learn(self, past: _Past) -> None:
        """Find the last marker, and what changed between it and the take-over."""
        number = past.partition.number
        past.begin, end = await self._topic.bounds(number)
        past.covered, past.clean, past.ours = -1, past.begin, set()
        found = await find_marker(self._topic, self._log, number, past.stamp)
        if found is not None and found[0].offset <= past.adopted and found[0].begin == past.begin:
            past.covered, past.clean = found[0].offset, found[0].clean
        elif (first := (await self._log.beginning_offsets())[number]) > 0 and past.adopted >= first:
            # Conversations whose events are all gone are named nowhere: a marker would promise more
            # than is there.
            raise LogTruncated(
                f"the log begins at offset {first}: not all its conversations are known, and there"
                " is no marker to go on from"
            )
        # Else all windows were folded since, or nobody has taken a snapshot of this generation and
        # this log: begin with everything.
        latest = {
            key: offset async for key, offset in _keys(self._topic, number, past.clean, end - 1)
        }
        again = {
            key async for key, _ in _keys(self._log, number, past.covered + 1, past.adopted)
        } | latest.keys()
        if found is not None:
            # Whose latest record is the one its stub names needs no other; of this generation and
            # code, as the marker is.
            asleep = await sleepers(past.partition, latest)
            again -= {key for key, stub in asleep.items() if stub.at == latest[key]}
        past.again |= again
        past.clean = end
        past.ready = True

    async def _rest(self, past: _Past) -> None:
        """Put some of those to sleep that were written long ago, by the broker's clock."""
        partition = past.partition
        before_ms = int((time.time() - self._rest_after) * 1000)
        keys = await partition.store.idle(
            partition.generation, partition.number, before_ms, REST_AT_ONCE
        )
        past.look_at = time.monotonic() + (LOOK_EVERY if len(keys) < REST_AT_ONCE else 0.0)
        if keys:
            await self._sleep(past, keys)

    async def _sleep(self, past: _Past, keys: list[Key]) -> set[Key]:
        """Put conversations to sleep, again where they sleep already; returns whose records were
        written.
        """
        rested = await put_to_sleep(past.partition, self._topic, past.stamp, keys)
        past.ours |= set(rested.offsets)
        past.again -= rested.asleep
        past.slept += len(rested.asleep)
        return rested.written

    async def _round(self, past: _Past) -> None:
        """Write everything that changed, then the marker."""
        partition = past.partition
        begin, end = await self._topic.bounds(partition.number)
        if begin != past.begin or end < past.clean:
            # The topic was made anew, or records were deleted: what has changed since some marker
            # is no longer enough.
            logger.warning(
                "partition %d: its snapshots were deleted; all of them are written again",
                partition.number,
            )
            past.ready, past.adopted = False, partition.checkpoint.offset
            return
        async with partition.turn:
            at, taken = partition.checkpoint, partition.changed or set()
            partition.changed, partition.erased = set(), set()
        # Kept until the marker is safe: a round that fails is taken anew, with all of this.
        past.again |= taken
        written = set(past.again)
        await self._publish(past, written)
        await self._look_after_strangers(past)
        clean = max(past.ours, default=past.clean - 1) + 1
        marker = Marker(
            past.stamp, at.offset, at.digest, past.begin, clean, int(time.time() * 1000)
        )
        ours = await self._topic.put(partition.number, [(MARKER_KEY, encode_marker(marker))])
        past.covered, past.clean, past.ours, past.again = at.offset, clean, set(ours), set()
        past.rounds += 1
        past.slept, past.marked = 0, time.monotonic()
        logger.info(
            "partition %d: %d windows under snapshots up to offset %d",
            partition.number,
            len(written),
            at.offset,
        )

    async def _publish(self, past: _Past, keys: set[Key]) -> None:
        asleep, written = sorted(await sleepers(past.partition, keys)), set[Key]()
        for i in range(0, len(asleep), REST_AGAIN):
            written |= await self._sleep(past, asleep[i : i + REST_AGAIN])
        order = sorted(keys - written)
        for i in range(0, len(order), SLICE):
            past.ours |= set(
                await self._topic.put(
                    past.partition.number, await self._rows(past, order[i : i + SLICE])
                )
            )

    async def _rows(self, past: _Past, keys: list[Key]) -> list[Row]:
        partition = past.partition
        async with partition.turn:
            at: Checkpoint = partition.checkpoint
            windows = await partition.windows(keys)
            found = list(zip([str(key).encode() for key in keys], windows, strict=True))
            return [
                (name, None if window is None else self._encoded(name, window, past.stamp, at))
                for name, window in found
            ]

    def _encoded(self, name: bytes, window: Window, stamp: Stamp, at: Checkpoint) -> bytes:
        """A window's snapshot; where its conversation's payloads are sealed, it is as well."""
        return encode_snapshot(
            window,
            stamp,
            at.offset,
            at.digest,
            body_sealer(self._log.seals, name, erased=window.meta.erased),
        )

    async def _look_after_strangers(self, past: _Past) -> None:
        """Write again what somebody else wrote between this round's records."""
        number, seen = past.partition.number, past.clean
        for _ in range(3):
            last = max(past.ours, default=-1)
            gaps = [offset for offset in range(seen, last + 1) if offset not in past.ours]
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
            past.again |= keys
            await self._publish(past, keys)
        raise KafkaUnavailable(f"another process writes snapshots of partition {number}, too")


async def _keys(
    log: SnapshotTopic | Log, partition: int, first: int, last: int
) -> AsyncIterator[tuple[Key, int]]:
    """The conversations that records of a range name, and the records' offsets, in order."""
    async for raw in log.scan(partition, first, last):
        key = parse_key(raw.key) if raw.key is not None else None
        if key is not None:
            yield key, raw.position.offset
