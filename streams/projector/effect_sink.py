"""What the live generation says: accepted and voided summaries, erasures, loops, compaction
requests and dead letters, each to its topic.

Delivery is at least once: everything is published before the checkpoint moves past its cause, and a
repeat carries the same ids.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

import msgspec

from projections.errors import Erased, InvalidEvent
from projections.events import types as events
from projections.events.validation import Record, make_record
from projections.names import Key, Position
from projections.window.trace_steps import Cut
from streams.compaction.requests import CompactionRequest
from streams.log.clients import SharedProducer, kafka_errors
from streams.log.log import HEADERS, Log, Raw
from streams.partition.effects import Effects
from streams.projector.tracing import compaction_span
from streams.settings.settings import Settings

logger = logging.getLogger(__name__)
_Said = tuple[int, str, bytes, bytes, list[tuple[str, bytes]]]
"""What is published: as of which offset, to which topic, key, value and headers."""


class Publisher:
    """One idempotent producer for everything the projector says."""

    def __init__(self, settings: Settings, log: Log) -> None:
        self.settings = settings
        self._log = log
        self._producer = SharedProducer(settings)
        self.silent_before: dict[int, int] = {}
        """For each partition the offset from which on events have not been spoken of yet (a replay
        does not say things again).
        """

    async def stop(self) -> None:
        """Flush and close."""
        await self._producer.stop()

    async def speak(self, partition: int, spoken: Effects, batch: Sequence[Raw]) -> None:
        """Publish what a batch had to say, in log order, and wait until it is safe.

        Raises:
            KafkaUnavailable: unknown what is published; the batch must be spoken of again.
        """
        since = self.silent_before.get(partition, 0)
        rows = {raw.position: raw for raw in batch}
        said: list[_Said] = []
        news = [(key, offset, offset) for key, offset, _ in spoken.accepted] + [
            (key, offset, offset) for key, offset in spoken.erased
        ]
        said += await self._records(partition, rows, news, spoken.by, since)
        for key, offset, summary_id in spoken.voided:
            if spoken.by.get(offset, offset) >= since:
                said.append(
                    (
                        offset,
                        "summaries",
                        str(key).encode(),
                        _voided(key, summary_id, Position(partition, offset)),
                        HEADERS,
                    )
                )
        # News of the rollback, however long ago the summary was announced the first time.
        said += await self._records(partition, rows, spoken.again, spoken.by, since)
        for dead in spoken.dead:
            if spoken.by.get(dead.position.offset, dead.position.offset) >= since:
                letter = msgspec.json.encode(
                    {"position": str(dead.position), "cause": dead.cause, "kind": dead.kind}
                )
                said.append((dead.position.offset, "dead-letters", dead.key or b"", letter, []))
        for key, offset, loop in spoken.loops:
            value = (
                await self._sealed(_loop(key, Position(partition, offset), loop))
                if spoken.by.get(offset, offset) >= since
                else None
            )
            if value is not None:
                # To the log itself, and only sent: it is folded when it comes back as a record.
                said.append((offset, "events", str(key).encode(), value, HEADERS))
        said.sort(key=lambda item: item[0])
        await self._send([(topic, key, value, headers) for _, topic, key, value, headers in said])

    async def _records(
        self,
        partition: int,
        rows: dict[Position, Raw],
        news: Sequence[tuple[Key, int, int]],
        by: dict[int, int],
        since: int,
    ) -> list[_Said]:
        """The records that stand at the last of these offsets, each said as of the one before it,
        from ``since`` on.
        """
        said: list[_Said] = []
        for key, at, offset in news:
            raw = (
                await self._raw(rows, Position(partition, offset))
                if by.get(at, at) >= since
                else None
            )
            if raw is not None and raw.value is not None:
                said.append((at, "summaries", str(key).encode(), raw.value, HEADERS))
        return said

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
        if cut.at >= self.silent_before.get(partition, 0):
            compaction_span(key, cut.utilization, cut.steps, where="fold")

    async def _raw(self, rows: dict[Position, Raw], position: Position) -> Raw | None:
        """The record of an accepted summary: of this batch, or, when a rollback put it back in
        force, from the log.
        """
        return rows.get(position) or (await self._log.read([position])).get(position)

    async def request(self, requests: Sequence[CompactionRequest]) -> None:
        """Send compaction requests; raises :class:`KafkaUnavailable`."""
        await self._send(
            [
                ("compactions", f"{r.tenant}/{r.conversation}".encode(), msgspec.json.encode(r), [])
                for r in requests
            ]
        )

    async def _send(
        self, messages: list[tuple[str, bytes, bytes, list[tuple[str, bytes]]]]
    ) -> None:
        if not messages:
            return
        async with (
            kafka_errors(self.settings, "publishing"),
            asyncio.timeout(self.settings.append_timeout),
            self._producer.lent() as producer,
        ):
            futures: list[Any] = [
                await producer.send(self.settings.topic(topic), value, key, headers=headers)
                for topic, key, value, headers in messages
            ]
            await asyncio.gather(*futures)


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
            now=datetime.now(UTC).isoformat(timespec="seconds"),
            new_id=new_id,
        )
    except InvalidEvent as error:
        logger.warning("a loop of identical calls is not announced: %s", error)
        return None


class NullSink:
    """The voice of a candidate generation: it says nothing."""

    async def speak(self, partition: int, spoken: Effects, batch: Sequence[Raw]) -> None:
        """Say nothing."""
        del partition, spoken, batch

    def report(self, partition: int, key: Key, cut: Cut) -> None:
        """Tell nobody."""
        del partition, key, cut
