"""Is this still the log that the windows were folded from? Asked when a partition is prepared, and
while it is fed.

A topic can be deleted and made anew under its name, and a partition can lose its tail (an election
of a replica that lagged, a disk that was restored): then other events stand, or will stand, at
offsets that were folded, and a consumer goes on without a word. What tells:

- the record of a checkpoint is not in the log as it was (:func:`why_other`), read again after
  assignment and reconnection;
- records come over another connection, or from another leader, than those before: a partition loses
  its tail only with its leader's restart or replacement, so what was handed on last and what came
  now are read again from the log (:meth:`Watch.follows`);
- records come from before what was handed on: the log is shorter than that, and aiokafka begins at
  its first record;
- the log's end is before a checkpoint, or the topic's id is another one: looked at every
  :data:`LOOK_EVERY` seconds, as nothing else shows that a partition is idle, or that a topic was
  made anew and has as many records again (:meth:`Watch.changed`).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import NamedTuple
from uuid import UUID

from projections.errors import CorruptWindow, ThreadfoldError
from projections.names import Position
from projections.storage.records import Checkpoint
from streams.log.clients import AIOKafkaConsumer, KafkaError, TopicPartition, route
from streams.log.log import Log, Row
from streams.log.topic_ids import refresh, topic_id

logger = logging.getLogger(__name__)

LOOK_EVERY = 1.0
"""Seconds between two looks at the topic's id and the log's ends: two small requests."""
SETTLE = 2.0
"""Seconds for which a log must be shorter than it was to be taken for another one."""


def identity(raw: Row) -> str:
    """What tells a record from another one at the same offset: the hex SHA-256 of key and value."""
    return sha256((raw.key or b"") + b"\n" + (raw.value or b"")).hexdigest()


async def is_of(log: Log, number: int, checkpoint: Checkpoint, end: int) -> bool:
    """Whether a checkpoint's record is in this log, which ends before offset ``end``, by its
    content and the broker's time.

    The time tells a log that the same events were appended to once more. Raises KafkaUnavailable.
    """
    if checkpoint.offset < 0:
        return True
    if checkpoint.offset >= end:
        return False
    position = Position(number, checkpoint.offset)
    raw = (await log.read([position])).get(position)
    return raw is not None and (raw.timestamp, identity(raw)) == (
        checkpoint.timestamp,
        checkpoint.digest,
    )


async def settled_end(log: Log, number: int, known: int) -> int:
    """Where a partition ends; ``known`` is where it ended once.

    A new leader may report an earlier end until its followers have reported what they have, so an
    end before ``known`` counts only when it stays there for :data:`SETTLE` seconds. Raises
    KafkaUnavailable.
    """
    deadline = time.monotonic() + SETTLE
    while True:
        end = (await log.last_records())[number]
        if end >= known or time.monotonic() > deadline:
            return end
        await asyncio.sleep(SETTLE / 20)


async def why_other(
    log: Log, number: int, checkpoint: Checkpoint | None, begin: int, end: int
) -> str | None:
    """Why the log, which has a partition's records from ``begin`` to before ``end``, is not the one
    a checkpoint was made of.

    None: it is, as far as is known: a record that was lost with the log's beginning
    (:mod:`streams.log.retention`) proves nothing. Raises KafkaUnavailable.
    """
    if checkpoint is None or checkpoint.offset < begin:
        return None
    if checkpoint.latest >= end:
        return (
            f"the log ends at offset {end}, but its windows were folded up to {checkpoint.latest}"
        )
    if not await is_of(log, number, checkpoint, end):
        return (
            f"another record stands at offset {checkpoint.offset}, up to which its windows were"
            " folded"
        )
    return None


class StoredPlace(NamedTuple):
    """What is stored of a partition, and the log there is now."""

    checkpoint: Checkpoint | None
    """None: there is none that can be read and is of this log."""
    begin: int
    end: int
    """The log's first offset, and the one its next record gets."""
    other: bool
    """Whether the stored one is of another log, or the topic was made anew."""


async def stored_place(
    log: Log,
    number: int,
    stored: Awaitable[Checkpoint | None],
    *,
    committed: int = 0,
    recreated: bool = False,
    name: str,
) -> StoredPlace:
    """Read a partition's stored checkpoint, and look whether it is of the log there is now; what is
    not is logged.

    Args:
        committed: the offset its group committed: the log ended there or later once.
        recreated: the topic was made anew since: a checkpoint is of it only where its record is in
            it, as when the partition was folded anew before the topic's new id was seen.
        name: who asks, for the log line.

    Raises:
        KafkaUnavailable, RedisUnavailable: it is unknown now.
    """
    try:
        checkpoint = await stored
    except CorruptWindow as error:
        logger.error("%s: partition %d: %s", name, number, error)
        checkpoint = None
    begin = (await log.beginning_offsets())[number]
    known = max(committed, 0 if checkpoint is None else checkpoint.latest + 1)
    end = await settled_end(log, number, known)
    why = await why_other(log, number, checkpoint, begin, end)
    proven = checkpoint is not None and checkpoint.offset >= max(begin, 0)
    if why is None and recreated and not proven:
        why = "its topic was made anew"
    if why is not None:
        logger.warning(
            "%s: partition %d: the log is not the one it was folded from, it is folded anew: %s",
            name,
            number,
            why,
        )
        checkpoint = None
    return StoredPlace(checkpoint, begin, end, why is not None)


class Start(NamedTuple):
    """Where a partition goes on."""

    checkpoint: Checkpoint
    """What is stored, an empty one where that is nothing, or not of this log."""
    begin: int
    end: int
    """The log's first offset, and the one its next record gets."""
    target: int
    """Up to here it heals: readers have seen that much, or are not to see less."""
    other: bool
    """Whether this is another log than the one that was folded and announced."""


def find_start(
    number: int, place: StoredPlace, *, committed: int, served: int, accept: bool
) -> Start:
    """Find where a partition goes on, and up to where it heals.

    Args:
        committed: the offset its group committed: what is before it was announced.
        served: the offset up to which it was served.
        accept: whether a log without its beginning is folded from what is left.
    """
    stored, begin, end, other = place
    if not other and committed > end:
        other = True
        logger.warning(
            "partition %d: the log lost its tail: it was read up to offset %d and ends at %d",
            number,
            committed - 1,
            end,
        )
    # Where Redis lost it, was started anew or another one took over, nobody knows how far readers
    # have seen, but no farther than the end.
    unknown = committed > 0 if stored is None else stored.unverified
    # What a healing that was cut off left under a checkpoint of no record may be of another log
    # than this one is now.
    nothing = stored is None or (stored.offset < 0 and (other or end > 0))
    checkpoint = Checkpoint()
    if stored is not None and not nothing:
        checkpoint = replace(stored, unverified=False, withheld_until=0)
    seen = max(committed - 1, served)
    if seen <= checkpoint.latest:
        # Windows that are ahead of the checkpoint are as readers have seen them.
        seen = min(seen, checkpoint.offset)
    known = stored.target if stored is not None and stored.behind else -1
    # All that another log has is new to readers and subscribers.
    target = end - 1 if other or unknown else max(seen, known)
    if begin > checkpoint.offset + 1:
        # Events are missing that were not folded: no reader is served before snapshots, or the
        # operator's word, bridge that.
        target = checkpoint.offset if accept and begin == end else end - 1
    return Start(checkpoint, begin, end, min(target, end - 1), other)


@dataclass(slots=True)
class _Fed:
    """What was handed on of a partition: where it goes on, the record before that, and the way it
    came.
    """

    next: int
    mark: tuple[int, str] | None
    """The checkpoint's timestamp and digest; None where nothing was folded, or where that record is
    missing.
    """
    last: Row | None
    """The record handed on last; None: the checkpoint's is the one before what comes next."""
    way: object


class Watch:
    """Watches the log beside a consumer that feeds partitions of it. Used within one event loop."""

    def __init__(self, log: Log, topic: str, consumer: AIOKafkaConsumer) -> None:
        self._log = log
        self._topic = topic
        self._consumer = consumer
        self._fed: dict[int, _Fed] = {}
        self._id: UUID | None = None
        self._former: set[UUID] = set()
        self._missing = False

    def way(self, number: int) -> object:
        """The way on which the partition's records come just now: its leader, and the connection to
        it.
        """
        return route(self._consumer, TopicPartition(self._topic, number))

    def begin(self, number: int, checkpoint: Checkpoint, begin: int, way: object) -> None:
        """A partition is fed from after a checkpoint; ``way`` is what :meth:`way` returned before
        the checkpoint's record was read.
        """
        known = checkpoint.offset >= max(0, begin)
        self._fed[number] = _Fed(
            max(checkpoint.offset + 1, begin),
            (checkpoint.timestamp, checkpoint.digest) if known else None,
            None,
            way,
        )

    def end(self, number: int) -> None:
        """A partition is not fed any more."""
        self._fed.pop(number, None)

    async def follows(self, number: int, rows: Sequence[Row]) -> bool:
        """Whether rows that came may be handed on: they follow those before, in the log that there
        is now.

        When they do not the partition has to be prepared anew. Raises KafkaUnavailable.
        """
        fed, way = self._fed.get(number), self.way(number)
        if fed is None:
            return False
        first, last, why = rows[0].offset, rows[-1], ""
        if first < fed.next:
            why = f"records come from offset {first}, {fed.next} was to be next"
        elif first > fed.next and (await self._log.beginning_offsets())[number] > fed.next:
            why = f"the records from offset {fed.next} to {first - 1} are missing"
        elif way != fed.way and not await self._stand(number, fed, last):
            why = f"after a reconnection the log is not what it was at offset {fed.next - 1}"
        if why:
            logger.warning("partition %d: %s", number, why)
            return False
        fed.next, fed.last, fed.way = last.offset + 1, last, way
        return True

    async def _stand(self, number: int, fed: _Fed, last: Row) -> bool:
        """Whether the record before those that came, and the last of them, are in the log as they
        were.
        """
        marks = {last.offset: (last.timestamp, identity(last))}
        before = fed.mark if fed.last is None else (fed.last.timestamp, identity(fed.last))
        if before is not None:
            marks[fed.next - 1] = before
        found = await self._log.read(Position(number, offset) for offset in marks)
        there = {position.offset: (raw.timestamp, identity(raw)) for position, raw in found.items()}
        # Where the log has lost its beginning, a missing record proves nothing.
        return all(
            there.get(offset, mark if offset < min(there, default=0) else None) == mark
            for offset, mark in marks.items()
        )

    async def changed(self) -> bool:
        """Whether the topic is another one than at the first look; raises aiokafka's errors when
        that is not known.
        """
        known, found = self._id, await topic_id(self._consumer, self._topic)
        missing, self._missing = self._missing, found is None
        if found is None and not missing and known is not None:
            logger.error(
                "topic %s is missing: create it with `threadfold topics create`, or restore it",
                self._topic,
            )
        if found in self._former:
            return False  # a broker that lags behind the others
        if found is not None and found != known:
            self._id = found
            if known is not None:
                self._former.add(known)
        refresh(self._consumer, self._topic, changed=found != known)
        return known is not None and found is not None and found != known

    def behind(self, checkpoints: Mapping[int, int], ends: Mapping[int, int]) -> list[int]:
        """The partitions whose log ends before their checkpoint's offset."""
        return [
            number
            for number, offset in checkpoints.items()
            if offset >= ends.get(number, offset + 1)
        ]

    async def look(
        self,
        folded: Callable[[], Mapping[int, int]],
        made_anew: Callable[[], None],
        shorter: Callable[[int], None],
    ) -> None:
        """Look every second, until cancelled, and report what is found.

        Args:
            folded: gives the offset up to which each partition is folded.
            made_anew: called when the topic is another one.
            shorter: called with a partition whose log ends before that offset.
        """
        while True:
            try:
                if await self.changed():
                    logger.warning(
                        "topic %s was recreated: all its partitions are folded again", self._topic
                    )
                    made_anew()
                upto = folded()
                for number in self.behind(upto, await self._log.end_offsets()) if upto else []:
                    logger.warning(
                        "partition %d is shorter than its checkpoint: the checkpoint is checked"
                        " again",
                        number,
                    )
                    shorter(number)
            except (KafkaError, ThreadfoldError) as error:
                logger.info("whether the log is still the same is unknown now: %s", error)
            except Exception:
                logger.exception("looking at the log failed; trying again")
            await asyncio.sleep(LOOK_EVERY)
