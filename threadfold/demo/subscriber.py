"""A subscriber as anybody could write one: a plain Kafka consumer of the summaries topic, in a
process of its own.

Run as ``python -m threadfold.demo.subscriber KAFKA TOPIC``. It prints one JSON line a summary, and
first ``{"ready": true}``. Delivery is at least once, so it tells repeats by the event's id, as the
contract asks of subscribers. It knows nothing else of threadfold.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from typing import Any

from aiokafka import AIOKafkaConsumer
from aiokafka.errors import KafkaError


def line_of(value: bytes, seen: set[str]) -> dict[str, Any]:
    """What to print of one record: a summary, a voiding, or that it was seen before."""
    event = json.loads(value)
    data = event["data"]
    if event["id"] in seen:
        return {"repeat": event["id"]}
    seen.add(event["id"])
    if event["type"] == "threadfold.conversation.erased.v1":
        return {"erased": event["source"]}
    if "ciphertext" in data:
        return {"sealed": event["id"], "source": event["source"]}
    if event["type"] != "threadfold.summary.v1":
        return {"voided": data["summary_id"], "source": event["source"]}
    return {
        "summary": data["summary_id"],
        "source": event["source"],
        "covers": data["span"]["count"],
        "text": data["text"],
    }


async def follow(kafka: str, topic: str) -> None:
    """Print what the topic holds and what arrives, until the process is stopped."""
    consumer = AIOKafkaConsumer(
        topic, bootstrap_servers=kafka, auto_offset_reset="earliest", group_id=None
    )
    await consumer.start()
    try:
        print(json.dumps({"ready": True}), flush=True)
        seen: set[str] = set()
        async for record in consumer:
            print(json.dumps(line_of(record.value, seen)), flush=True)
    finally:
        await consumer.stop()


async def _main(kafka: str, topic: str) -> int:
    task = asyncio.ensure_future(follow(kafka, topic))
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    try:
        await task
    except asyncio.CancelledError:
        return 0
    except (KafkaError, OSError) as error:
        print(f"subscriber: Kafka at {kafka} does not answer: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("use: python -m threadfold.demo.subscriber KAFKA TOPIC")
    sys.exit(asyncio.run(_main(sys.argv[1], sys.argv[2])))
