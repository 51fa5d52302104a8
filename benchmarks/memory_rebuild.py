"""Figure `memory_rebuild`: a memory store built from its topic, as the command does, from the first
record to the file that is switched to.

The topic has what the live projector publishes: accepted records of real chat text, of 1,000 users
in as many conversations, in eight partitions. The peer reads and parses, nothing else.
"""

from __future__ import annotations

import random
import shutil
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import msgspec

from benchmarks.harness import Args, Measured, Result, interleave
from benchmarks.support.stacks import running_stack
from benchmarks.support.texts import memory
from projections.events.codec import full_type
from projections.fold.outcomes import Taught
from projections.names import Key, Position, user_tag
from streams.encryption.payload_cipher import Unsealed
from streams.log.clients import SharedProducer
from streams.log.log import Raw
from streams.log.topics import create_topics
from streams.memory.sqlite_store import SqliteMemories
from streams.memory.store_build import feed_until, rebuild_store
from streams.projector.memory_announcements import announcement, memories_key
from streams.runtime.tune_gc import tune_gc
from streams.settings.settings import Settings

USERS = 1_000
TENANT = "acme"
NOW = 1_760_000_000_000
"""The broker's time of the first record, in ms."""


class MemoryRebuild:
    """Records a second of a rebuilt memory store."""

    name = "memory_rebuild"
    goal = "at least 20,000 records/s"

    async def run(self, args: Args) -> Result:
        """Fill the topic, then build the store again and again."""
        records = 10_000 if args.quick else 100_000
        folder = Path(tempfile.mkdtemp(prefix="memory-rebuild-"))
        try:
            with running_stack() as bench:
                settings = bench.settings("memory", partitions=8, memory_store=str(folder))
                await create_topics(settings)
                await _fill(settings, records)
                tune_gc()  # as the command does
                rounds = await interleave(
                    {
                        "ours": partial(_rebuilt, settings, records),
                        "read_only": partial(_read, settings, records),
                    },
                    args.rounds(),
                )
        finally:
            shutil.rmtree(folder)
        parameters = {"records": records, "users": USERS, "partitions": 8}
        return rounds.result(self.name, "records/s", parameters)


async def _rebuilt(settings: Settings, records: int) -> Measured:
    built = await rebuild_store(settings, Unsealed())
    if built.records != records:
        raise RuntimeError(f"{built.records} records were taken in instead of {records}")
    return Measured(records / built.seconds)


class _Nothing(SqliteMemories):
    """A store that takes nothing in."""

    def apply(self, news: object, checkpoints: object) -> None:
        del news, checkpoints


async def _read(settings: Settings, records: int) -> Measured:
    """Read and decode the topic as a rebuild does, and keep nothing."""
    store, begin = _Nothing(), time.perf_counter()
    await feed_until(settings, Unsealed(), store)
    seconds = time.perf_counter() - begin
    store.close()
    return Measured(records / seconds)


async def _fill(settings: Settings, records: int) -> None:
    producer = SharedProducer(settings)
    topic = settings.topic("memories")
    async with producer.lent() as lent:
        for key, value in _announced(records):
            await lent.send(topic, value, key)
        await lent.flush()
    await producer.stop()


def _announced(records: int) -> Iterator[tuple[bytes, bytes]]:
    rng = random.Random(1)
    for number in range(records):
        user = f"user-{number % USERS}"
        key = Key(TENANT, f"conversation-{number % USERS}")
        value = msgspec.json.encode(
            {
                "specversion": "1.0",
                "id": f"event-{number}",
                "type": full_type("memory.saved"),
                "source": key.source,
                "data": memory(rng, key, user, number),
            }
        )
        raw = Raw(Position(0, number), str(key).encode(), value, NOW + number)
        tag = user_tag(TENANT, user)
        yield memories_key(TENANT, tag), announcement(key, raw, Taught((tag,)))


FIGURE = MemoryRebuild()
