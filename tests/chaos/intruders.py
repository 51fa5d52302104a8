"""Records that no gateway wrote: whole records repeated, and foreign summaries beside the
compactor's, some right and most wrong.

Both are produced to the topic directly, as any program with access to the broker could.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaError

from streams.runtime.tasks import end_tasks
from streams.settings.settings import Settings
from tests.chaos.evidence import GARBAGE
from tests.chaos.records import absolute
from tests.chaos.schedule import Plan
from tests.chaos.spans import RIVAL

HEADERS = [("content-type", b"application/cloudevents+json")]
LAST = 200
"""Records of which one is repeated: far fewer than 1,024, so a repeat is always known."""
WRONGS = ("", "", "previous", "from", "to", "rollback", "tokens", "positions")


GARBAGES = (
    (b"garbage", b"{}"),
    (b"garbage/of/nobody", b"\xff\xfe"),
    (f"t0/{GARBAGE}1".encode(), b"\x00\x01 no JSON"),
    (f"t0/{GARBAGE}2".encode(), b'{"specversion": "1.0"}'),
)
"""Keys and values of records that are no events: nobody's, or of conversations that have no other."""


async def _start(client: AIOKafkaConsumer | AIOKafkaProducer) -> None:
    while True:
        try:
            return await client.start()
        except KafkaError:
            await asyncio.sleep(0.2)


class Intruder:
    """Follows events and requests, and answers with records of its own. ``repeated`` and ``rivals``
    count what it produced.
    """

    def __init__(self, settings: Settings, plan: Plan) -> None:
        self.settings, self.plan = settings, plan
        self.rng = random.Random(plan.seed * 17 + 3)
        self.repeated = self.rivals = self.thrown = 0
        self._last: deque[tuple[int, bytes, bytes]] = deque(maxlen=LAST)

    async def run(self) -> None:
        """Intrude until cancelled; Kafka being away is waited out."""
        events, requests = self.settings.topic("events"), self.settings.topic("compactions")
        consumer = AIOKafkaConsumer(
            events,
            requests,
            bootstrap_servers=self.settings.kafka,
            auto_offset_reset="earliest",
            group_id=None,
        )
        producer = AIOKafkaProducer(bootstrap_servers=self.settings.kafka, enable_idempotence=True)
        try:
            await _start(consumer)
            await _start(producer)
            while True:
                try:
                    await self._round(consumer, producer, events)
                except KafkaError:
                    await asyncio.sleep(0.2)
        finally:
            await consumer.stop()
            await producer.stop()

    async def _round(
        self, consumer: AIOKafkaConsumer, producer: AIOKafkaProducer, events: str
    ) -> None:
        for tp, rows in (await consumer.getmany(timeout_ms=100)).items():
            for row in rows:
                if tp.topic == events:
                    if GARBAGE.encode() not in (row.key or b""):
                        self._last.append((tp.partition, row.key, row.value))
                elif self.plan.rivals and self.rng.random() < 0.3:
                    found = self._rival(json.loads(row.value))
                    if found is not None:
                        await producer.send(events, found[1], found[0], headers=HEADERS)
                        self.rivals += 1
        if self.plan.repeats and self._last and self.rng.random() < 0.5:
            partition, key, value = self.rng.choice(self._last)
            await producer.send(events, value, key, partition=partition, headers=HEADERS)
            self.repeated += 1
        if self.thrown < self.plan.garbage and self.rng.random() < 0.3:
            key, value = self.rng.choice(GARBAGES)
            await producer.send(events, value, key, headers=HEADERS)
            self.thrown += 1

    def _rival(self, request: dict[str, Any]) -> tuple[bytes, bytes] | None:
        """A summary of the span that was asked for, wrong in one way or in none; None where its
        events are not named.
        """
        positions: list[int] = []
        if request.get("kind") == "extraction":
            return None
        for piece in request["pieces"]:
            if piece.get("offsets") is None:
                return None
            positions += absolute(piece["offsets"])
        wrong = self.rng.choice(WRONGS)
        tenant, conversation, at = request["tenant"], request["conversation"], request["partition"]
        first, last = (
            request["first"] + (wrong == "from"),
            request["last"] + 10_000 * (wrong == "to"),
        )
        spoken = sorted(positions)[1:] if wrong == "positions" else sorted(positions)
        if not spoken:
            return None
        name = f"rival-{self.plan.seed}-{self.rivals}"
        span = {
            "from": f"{at}-{first}",
            "to": f"{at}-{last}",
            "count": len(spoken),
            "digest": "0" * 64,
        }
        span["positions"] = [b - a for a, b in zip([0, *spoken], spoken, strict=False)]
        span["survives_rollbacks"] = self.rng.random() < 0.5
        if request.get("kept"):
            span["kept"] = request["kept"]
        rollback = request.get("rollback")
        data = {
            "summary_id": name,
            "text": f"A rival's words of @{tenant}/{conversation}@.",
            "tokens": 30,
            "span": span,
            "previous": "somebody" if wrong == "previous" else request.get("previous"),
            "previous_position": None if request.get("previous_offset") is None else f"{at}-{request['previous_offset']}",
            "rollback": f"{at}-{(rollback or 0) + 1}" if wrong == "rollback" else None if rollback is None else f"{at}-{rollback}",
            "reason": request["reason"], "summarizer": RIVAL, "trust": "tool", "tokens_before": 100, "tokens_after": 30, "policy": "",
        }  # fmt: skip
        if wrong == "tokens":
            data["text"], data["tokens"] = (
                f"@{tenant}/{conversation}@ " + "far too long " * 4_000,
                20_000,
            )
        source = f"/tenants/{tenant}/conversations/{conversation}"
        event = {
            "specversion": "1.0",
            "id": f"event-{name}",
            "type": "threadfold.summary.v1",
            "source": source,
            "data": data,
        }
        return f"{tenant}/{conversation}".encode(), json.dumps(event).encode()


@asynccontextmanager
async def intruding(settings: Settings, plan: Plan) -> AsyncIterator[Intruder]:
    """An intruder at work, where the plan has one."""
    intruder = Intruder(settings, plan)
    if not (plan.rivals or plan.repeats or plan.garbage):
        yield intruder
        return
    task = asyncio.create_task(intruder.run(), name="intruder")
    try:
        yield intruder
    finally:
        await end_tasks([task])
    if task.done() and not task.cancelled():
        await task
