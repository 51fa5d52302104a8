"""What the live generation publishes: accepted and voided summaries, what changes in the long-term
memory, erasures, loops, compaction requests and dead letters, each to its topic.

Delivery is at least once: everything is published before the checkpoint moves past its cause, and a
repeat carries the same ids.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from hashlib import sha256
from typing import Any

import msgspec

from projections.errors import Erased, InvalidEvent
from projections.events import types as events
from projections.events.times import present
from projections.events.validation import Record, make_record
from projections.fold.outcomes import Taught
from projections.names import Key, Position
from projections.window.trace_steps import Cut
from streams.compaction.requests import CompactionRequest
from streams.log.appender import HEADERS
from streams.log.clients import SharedProducer, kafka_errors
from streams.log.log import Log, Raw
from streams.memory.extraction_requests import request_of
from streams.metrics.declared import ASKED, CUT_UTILIZATION, DEAD_LETTERS, SUMMARIES
from streams.metrics.metrics import Metrics
from streams.partition.effects import Effects, letter_key
from streams.partition.step import RECORD
from streams.projector.memory_announcements import announcement, memories_key
from streams.projector.tracing import compaction_span
from streams.runtime.log_fields import about
from streams.runtime.tracing import Traced, fold_spans
from streams.settings.settings import Settings

logger = logging.getLogger(__name__)
_Message = tuple[int, str, bytes, bytes, list[tuple[str, bytes]]]
"""A message to publish: as of which offset, to which topic, key, value and headers."""


class Publisher:
    """One idempotent producer for everything the projector publishes."""

    def __init__(
        self,
        settings: Settings,
        log: Log,
        metrics: Metrics | None = None,
        copied: Callable[[str, int, int], bool] = lambda tenant, partition, offset: False,
    ) -> None:
        """Args: ``copied`` says of a tenant's event, by partition and offset, whether it came with
        a copy of another log. What is appended because of it came, too.
        """
        self.settings = settings
        self._copied = copied
        self._metrics = metrics or Metrics()
        self._log = log
        # Others read the summaries, with clients of their own.
        self._producer = SharedProducer(settings, settings.public_codec)
        self.set_aside = Counter[int]()
        """Records that are nobody's, by partition, since the last :meth:`take_set_aside`."""
        self._accepted: dict[int, set[str]] = {}
        self.announced_before: dict[int, int] = {}
        """For each partition the offset from which on effects have not been published (a replay
        publishes nothing again).
        """

    async def stop(self) -> None:
        """Flush and close."""
        await self._producer.stop()

    def take_set_aside(self) -> Counter[int]:
        """The records that are nobody's and were not taken before, by partition."""
        taken, self.set_aside = self.set_aside, Counter()
        return taken

    def take_accepted(self, partition: int) -> set[str]:
        """The ids of a partition's summaries that were accepted and not taken before."""
        return self._accepted.pop(partition, set())

    async def publish(self, partition: int, effects: Effects, batch: Sequence[Raw]) -> None:
        """Publish the effects of a batch, in log order, and wait until it is safe.

        Raises:
            KafkaUnavailable: unknown what is published; the batch must be published again.
        """
        since = self.announced_before.get(partition, 0)
        rows = {raw.position: raw for raw in batch}
        messages: list[_Message] = []

        def new(offset: int) -> bool:
            return effects.by.get(offset, offset) >= since

        news = [(key, offset, offset) for key, offset, _ in effects.accepted]
        news += [(key, offset, offset) for key, offset in effects.erased]
        messages += await self._records(partition, rows, news, new)
        for key, offset, summary_id in effects.voided:
            if new(offset):
                value = _voided(key, summary_id, Position(partition, offset))
                messages.append((offset, "summaries", str(key).encode(), value, HEADERS))
        # News of the rollback, however long ago the summary was announced the first time.
        messages += await self._records(partition, rows, effects.again, new)
        messages += await self._taught(partition, rows, effects.taught, new)
        for key, due in effects.extractions:
            request = request_of(key, partition, due, self.settings.memory_model)
            asked = new(due.cause) and not self._copied(key.tenant, partition, due.cause)
            if request is not None and asked:
                value = msgspec.json.encode(request)
                messages.append((due.cause, "compactions", str(key).encode(), value, []))
        for dead in effects.dead:
            if new(dead.position.offset):
                letter = msgspec.json.encode(
                    {"position": str(dead.position), "cause": dead.cause, "kind": dead.kind}
                )
                named = letter_key(dead.key)
                messages.append((dead.position.offset, "dead-letters", named, letter, []))
        for key, offset, loop in effects.loops:
            said = not new(offset) or self._copied(key.tenant, partition, offset)
            record = None if said else _loop(key, Position(partition, offset), loop)
            sealed = await self._sealed(record)
            if sealed is not None:
                # To the log itself, and only sent: it is folded when it comes back as a record.
                messages.append((offset, "events", str(key).encode(), sealed, HEADERS))
        messages.sort(key=lambda item: item[0])
        await self._send(
            [(topic, key, value, headers) for _, topic, key, value, headers in messages]
        )
        self._count(partition, effects, new)
        if effects.accepted:
            accepted = self._accepted.setdefault(partition, set())
            accepted.update(summary_id for _, _, summary_id in effects.accepted)
        strays = sum(dead.kind == RECORD and new(dead.position.offset) for dead in effects.dead)
        if strays:
            self.set_aside[partition] += strays

    def _count(self, partition: int, effects: Effects, new: Callable[[int], bool]) -> None:
        for outcome, offsets in (
            ("accepted", [offset for _, offset, _ in effects.accepted]),
            ("voided", [offset for _, offset, _ in effects.voided]),
            ("refused", [offset for _, offset, _ in effects.refused]),
            ("restored", [offset for _, offset, _ in effects.again]),
        ):
            if found := sum(map(new, offsets)):
                self._metrics.add(SUMMARIES, outcome, by=found)
        for key, offset, why in effects.refused:
            if new(offset):
                at = Position(partition, offset)
                logger.info("%s takes no summary at %s: %s", key, at, why, extra=about(key, at))
        for dead in effects.dead:
            if new(dead.position.offset):
                self._metrics.add(DEAD_LETTERS, dead.kind)

    async def _records(
        self,
        partition: int,
        rows: dict[Position, Raw],
        news: Iterable[tuple[Key, int, int]],
        new: Callable[[int], bool],
    ) -> list[_Message]:
        """The records that stand at the last of these offsets, each as of the offset before it if
        that is new.
        """
        due = [(key, at, Position(partition, offset)) for key, at, offset in news if new(at)]
        found = await self._raws(rows, [position for _, _, position in due])
        return [
            (at, "summaries", str(key).encode(), raw.value, HEADERS)
            for key, at, position in due
            if (raw := found.get(position)) is not None and raw.value is not None
        ]

    async def _taught(
        self,
        partition: int,
        rows: dict[Position, Raw],
        news: Iterable[tuple[Key, int, Taught]],
        new: Callable[[int], bool],
    ) -> list[_Message]:
        """What goes to the topic of memories: the log's own record, or what a rollback or a drop
        means, to each user whose memory changes.
        """
        messages: list[_Message] = []
        due = [(key, offset, taught) for key, offset, taught in news if new(offset)]
        found = await self._raws(rows, [Position(partition, offset) for _, offset, _ in due])
        for key, offset, taught in due:
            raw = found.get(Position(partition, offset))
            if raw is not None and raw.value is not None:
                value = announcement(key, raw, taught)
                messages += [
                    (offset, "memories", memories_key(key.tenant, user), value, HEADERS)
                    for user in taught.users
                ]
        return messages

    async def _sealed(self, record: Record | None) -> bytes | None:
        """The value of an event of our own, as it may stand in the log; None where there is none,
        or its conversation is erased by now.
        """
        if record is None:
            return None
        try:
            return (await self._log.seals.seal([record]))[0].value
        except Erased:
            return None

    def report(self, partition: int, key: Key, cut: Cut) -> None:
        """Report a cut as a span, unless it was made before."""
        if cut.at >= self.announced_before.get(partition, 0):
            self._metrics.observe(CUT_UTILIZATION, cut.utilization)
            compaction_span(key, cut.utilization, cut.steps, where="fold")

    def report_folded(
        self, partition: int, traced: Sequence[Traced], begun_ns: int
    ) -> dict[Key, str]:
        """Report events that are visible now, but for those of a replay
        (:func:`streams.runtime.tracing.fold_spans`).
        """
        since = self.announced_before.get(partition, 0)
        return fold_spans(partition, [one for one in traced if one.offset >= since], begun_ns)

    async def _raws(
        self, rows: dict[Position, Raw], positions: Sequence[Position]
    ) -> dict[Position, Raw]:
        """The records at these positions: of this batch, or, of summaries that a rollback put back
        in force, from the log. Those are read at once, as the partition waits.
        """
        missing = [position for position in positions if position not in rows]
        return rows | await self._log.read(missing) if missing else rows

    async def request(self, requests: Sequence[CompactionRequest]) -> list[int]:
        """Send compaction requests; returns their offsets. Raises :class:`KafkaUnavailable`."""
        offsets = await self._send(
            [
                ("compactions", f"{r.tenant}/{r.conversation}".encode(), msgspec.json.encode(r), [])
                for r in requests
            ]
        )
        self._metrics.add(ASKED, by=len(requests))
        return offsets

    async def _send(
        self, messages: list[tuple[str, bytes, bytes, list[tuple[str, bytes]]]]
    ) -> list[int]:
        """Send records; returns their offsets."""
        if not messages:
            return []
        async with (
            kafka_errors(self.settings, "publishing"),
            asyncio.timeout(self.settings.append_timeout),
            self._producer.lent() as producer,
        ):
            futures: list[asyncio.Future[Any]] = []
            try:
                for topic, key, value, headers in messages:
                    name = self.settings.topic(topic)
                    futures.append(await producer.send(name, value, key, headers=headers))
            finally:
                await self._settled(producer, futures)
            for error in [future.exception() for future in futures]:
                if error is not None:
                    raise error
            return [future.result().offset for future in futures]

    async def _settled(self, producer: Any, futures: Sequence[asyncio.Future[Any]]) -> None:
        """Wait until records are in or refused. Where this is cut off they are never sent: another
        process may own the partition by the time Kafka is back, and they must not stand behind what
        that one published (a summary behind the word that its conversation is erased).
        """
        try:
            if futures:
                await asyncio.wait(futures)
        except asyncio.CancelledError:
            for future in futures:
                future.cancel()
            self._producer.abandon(producer)
            raise


def _voided(key: Key, summary_id: str, by: Position) -> bytes:
    """A ``summary.voided`` event; its id derives from the summary and the rollback, so a repeat is
    recognised.
    """
    return msgspec.json.encode(
        {
            "specversion": "1.0",
            "id": f"voided-{summary_id}-{by}",
            "type": events.PREFIX + "summary.voided.v1",
            "source": key.source,
            "data": {"summary_id": summary_id, "by": str(by)},
        }
    )


def _loop(key: Key, at: Position, loop: events.LoopDetected) -> Record | None:
    """A ``loop.detected`` event; its id derives from the message that closed the loop, so a repeat
    is a duplicate.

    None when it cannot be made (a tool's name of another producer that no event of ours may carry):
    that must not hold the partition up.
    """
    flat = {"type": "loop.detected", **msgspec.to_builtins(loop)}
    new_id = f"loop-{sha256(f'{key} {at}'.encode()).hexdigest()[:32]}"
    try:
        return make_record(
            key,
            flat,
            where=f"loop of {key}",
            now=present("seconds"),
            new_id=new_id,
        )
    except InvalidEvent as error:
        logger.warning(
            "a loop of identical calls is not announced: %s", error, extra=about(key, at)
        )
        return None


class NullSink:
    """The sink of a candidate generation: it publishes nothing."""

    async def publish(self, partition: int, effects: Effects, batch: Sequence[Raw]) -> None:
        """Publish nothing."""
        del partition, effects, batch

    def report(self, partition: int, key: Key, cut: Cut) -> None:
        """Report to nobody."""
        del partition, key, cut
