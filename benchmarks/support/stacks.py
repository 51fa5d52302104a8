"""A Kafka and a Redis to measure on, and topics filled with records."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import redis as sync_redis

from benchmarks.harness import say
from benchmarks.support.machine import note_load, note_servers, output_of
from projections.events.validation import Record
from streams.control.control_topic import Control
from streams.control.key_ring import KeyRing, encrypting
from streams.log.clients import admin_client
from streams.log.kafka_log import KafkaLog
from streams.log.topics import create_topics
from streams.settings.settings import Settings
from threadfold.embedded.stack import EmbeddedStack

APPEND_AT_ONCE = 5_000
DELETED_WITHIN = 30.0
SETTLED = 4
STIR = 20_000
"""Bytes by which Redis' memory goes up and down while nothing happens."""


@dataclass(frozen=True, slots=True)
class Bench:
    """A running Kafka and Redis. ``pids`` are those of embedded servers; configured ones are not
    metered.
    """

    stack: EmbeddedStack
    pids: dict[str, list[int]]

    def settings(self, name: str, **overrides: Any) -> Settings:
        """Settings with topics of their own, named after ``name``; everything else is the product's
        default.
        """
        base = {
            "kafka": self.stack.kafka,
            "redis": self.stack.redis,
            "topic_prefix": f"bench.{name}.{os.getpid()}",
            "replication": 1,
        }
        return Settings.load(env={}, **{**base, **overrides})

    def flush(self) -> None:
        """Empty Redis, at once and in the foreground."""
        with sync_redis.Redis.from_url(self.stack.redis) as client:
            client.execute_command("FLUSHALL", "SYNC")

    async def forget(self, settings: Settings) -> None:
        """Empty Redis, and the snapshots topic that would bring it back: what is projected next is
        folded from the log.
        """
        self.flush()
        topic = settings.topic("snapshots")
        async with admin_client(settings) as admin:
            await admin.delete_topics([topic])
            deadline = time.monotonic() + DELETED_WITHIN
            while topic in await admin.list_topics():
                if time.monotonic() > deadline:
                    raise RuntimeError(f"topic {topic} was not deleted within {DELETED_WITHIN:g} s")
                await asyncio.sleep(0.05)
        await create_topics(settings)

    def used_memory(self) -> int:
        """What Redis says it uses, in bytes, once that no longer changes (buffers of closed
        connections go a moment later).
        """
        with sync_redis.Redis.from_url(self.stack.redis) as client:
            last, same = -1, 0
            while same < SETTLED:
                used = int(client.info("memory")["used_memory"])
                same = same + 1 if abs(used - last) < STIR else 0
                last = used
                time.sleep(0.05)
            return last


@contextmanager
def running_stack() -> Iterator[Bench]:
    """The Kafka and Redis of THREADFOLD_KAFKA and THREADFOLD_REDIS, else embedded ones, for one
    figure.
    """
    note_load()
    with EmbeddedStack(
        kafka=os.environ.get("THREADFOLD_KAFKA"), redis=os.environ.get("THREADFOLD_REDIS")
    ) as stack:
        named = {"kafka": stack.embedded_kafka, "redis": stack.embedded_redis}
        bench = Bench(
            stack, {name: [server.pid] for name, server in named.items() if server is not None}
        )
        with sync_redis.Redis.from_url(stack.redis) as client:
            info = client.info("server")
        version = (
            f"Valkey {info['valkey_version']}"
            if "valkey_version" in info
            else f"Redis {info['redis_version']}"
        )
        note_servers(_kafka_version(stack), version)
        yield bench


def _kafka_version(stack: EmbeddedStack) -> str:
    """The embedded Kafka's version, from the name of its own jar on the command line."""
    if stack.embedded_kafka is None:
        return "configured"
    command = output_of("ps", "-ww", "-o", "command=", "-p", str(stack.embedded_kafka.pid))
    names = [Path(part).name for part in command.replace(":", " ").split()]
    found = [name for name in names if name.startswith("kafka-clients-")]
    return found[0].removeprefix("kafka-clients-").removesuffix(".jar") if found else "embedded"


@asynccontextmanager
async def filled_log(settings: Settings, records: Iterable[Record]) -> AsyncIterator[KafkaLog]:
    """Make the topics, the first generation and the tenants, and append the records; the log stays
    open.
    """
    await create_topics(settings)
    control = await Control(settings).start()
    await control.ensure_generation(settings.partitions)
    keys = await KeyRing(settings, encrypting(control)).start()
    log = KafkaLog(settings, settings.partitions, seals=keys)
    try:
        await fill(log, control, records)
        yield log
    finally:
        await log.stop()
        await keys.stop()
        await control.stop()


async def fill(log: KafkaLog, control: Control, records: Iterable[Record]) -> int:
    """Append records; returns how many there were."""
    begin, count = time.perf_counter(), 0
    batch: list[Record] = []
    for record in records:
        batch.append(record)
        if len(batch) >= APPEND_AT_ONCE:
            count += await _append(log, control, batch)
            batch = []
    if batch:
        count += await _append(log, control, batch)
    seconds = time.perf_counter() - begin
    say(f"filled the log with {count} events in {seconds:.1f} s")
    return count


async def _append(log: KafkaLog, control: Control, batch: Sequence[Record]) -> int:
    for tenant in {record.key.tenant for record in batch}:
        await control.ensure_tenant(tenant)
    await log.append(batch)
    return len(batch)
