"""A worker in a process of its own, its traffic, and the check of every window at the end."""

from __future__ import annotations

import os
import random
import sys
from pathlib import Path

from projections.errors import KafkaUnavailable, RedisUnavailable
from projections.events.validation import Record, make_record
from projections.names import Key
from projections.redis.store import RedisStore
from streams.control.control_topic import Control
from streams.log.kafka_log import KafkaLog
from streams.maintenance.verify import VerifyReport, verify
from streams.settings.settings import Settings
from tests.support.pipeline import POLICY, sentence
from tests.support.worker import until
from threadfold.embedded.process import GuardedProcess

KEYS = [Key("acme", f"c{i}") for i in range(10)]


WORKER = (
    "import sys; from streams.worker import run_worker; from streams.settings.settings import"
    " Settings; sys.exit(run_worker(Settings.load()))"
)


def environment(settings: Settings) -> dict[str, str]:
    names = (
        "kafka",
        "redis",
        "topic_prefix",
        "group",
        "partitions",
        "replication",
        "min_isr",
        "session_timeout",
    )
    return {
        **os.environ,
        **{f"THREADFOLD_{name.upper()}": str(getattr(settings, name)) for name in names},
    }


def worker(settings: Settings, log: Path, *command: str) -> GuardedProcess:
    process = GuardedProcess(
        [sys.executable, *(command or ("-c", WORKER))], env=environment(settings), log=log
    )
    process.start()
    return process


def messages(rng: random.Random, start: int, n: int) -> list[Record]:
    return [
        make_record(rng.choice(KEYS), {"type": "message", "role": "user", "content": sentence(rng)}, where="event",
                    now="2026-01-01T00:00:00Z", new_id=f"m{start + i}")
        for i in range(n)
    ]  # fmt: skip


async def all_applied(
    settings: Settings, log: KafkaLog, store: RedisStore, limit: float = 60.0
) -> None:
    async def reached() -> bool:
        try:
            ends = await log.end_offsets()
            checkpoints = [await store.checkpoint(1, p) for p in range(settings.partitions)]
        except (KafkaUnavailable, RedisUnavailable):
            return False
        return all(
            c is not None and not c.healing and c.offset == ends[p] - 1
            for p, c in enumerate(checkpoints)
        )

    await until(reached, limit)


async def verified(settings: Settings, log: KafkaLog, store: RedisStore) -> VerifyReport:
    control = await Control(settings).start()
    record = control.state.generations[1]
    report = await verify(log, store, record, control.state.rules(record))
    await control.stop()
    return report


async def count_messages(log: KafkaLog, store: RedisStore, settings: Settings) -> int:
    """Messages that windows say they applied: all events less summaries."""
    from projections.events.codec import decode_event
    from projections.events.types import SummaryEvent
    from projections.policy.policy import Rules

    total = 0
    ends = await log.end_offsets()
    for partition in range(settings.partitions):
        accepted: set[str] = set()
        async for raw in log.scan(partition, 0, ends[partition] - 1):
            event = decode_event(raw.value or b"")
            if isinstance(event, SummaryEvent):
                accepted.add(event.data.summary_id)
        keys = [key for key in KEYS if log_partition(key, settings) == partition]
        for key, parts in zip(keys, (await store.read(1, partition, keys))[1], strict=True):
            if parts is None:
                continue
            window = parts.load(key, partition, Rules(POLICY))
            summaries, at = 0, window.meta.summary
            offset = at.offset if at else None
            while offset is not None:
                summaries += 1
                (raw,) = [r async for r in log.scan(partition, offset, offset)]
                event = decode_event(raw.value or b"")
                assert isinstance(event, SummaryEvent)
                offset = (
                    None
                    if event.data.previous_position is None
                    else int(event.data.previous_position.rpartition("-")[2])
                )
            total += window.meta.count - summaries
    return total


def log_partition(key: Key, settings: Settings) -> int:
    from projections.names import partition_of

    return partition_of(key, settings.partitions)
