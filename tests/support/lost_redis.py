"""A Redis that is emptied, and whether every window is right afterwards."""

from __future__ import annotations

import redis.asyncio as aredis

from projections.names import Key
from projections.redis.store import RedisStore
from streams.control.control_topic import Control
from streams.log.kafka_log import KafkaLog
from streams.maintenance.verify import verify
from streams.settings.settings import Settings
from streams.worker_parts import Runtime
from tests.support.worker import until


async def flush(settings: Settings) -> None:
    client = aredis.Redis.from_url(settings.redis)
    await client.flushdb()
    await client.aclose()


async def covered(runtime: Runtime, settings: Settings, ends: dict[int, int]) -> None:
    """Wait until every partition's marker is within a round of its end."""
    assert runtime.projector is not None
    taken = runtime.projector.snapshot_writer

    async def reached() -> bool:
        return all(
            taken.covered(p) >= ends[p] - 1 - settings.snapshot_events
            for p in range(settings.partitions)
        )

    await until(reached)


async def differing(
    settings: Settings, log: KafkaLog, store: RedisStore, number: int = 1
) -> list[str]:
    control = await Control(settings).start()
    record = control.state.generations[number]
    report = await verify(log, store, record, control.state.rules(record))
    await control.stop()
    assert report.verified == len(KEYS)
    return report.differing


KEYS = [Key("acme", f"c{i}") for i in range(10)]
