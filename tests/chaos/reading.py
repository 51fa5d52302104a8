"""After the faults: waiting until all is folded and compacted, then reading topics by a plain
consumer, and windows over HTTP.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Any

import aiohttp
from aiokafka import AIOKafkaConsumer
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError

from projections.errors import KafkaUnavailable, RedisUnavailable
from projections.names import Key, partition_of
from projections.policy.policy import Rules
from projections.redis.store import RedisStore
from projections.storage.stubs import STUB
from streams.control.control_topic import Control
from streams.control.state import Generation
from streams.log.kafka_log import KafkaLog
from streams.maintenance.verify import verify
from streams.stack import open_stack
from tests.chaos.evidence import Ack, Evidence, Row, Seen, is_garbage
from tests.chaos.platform import Platform
from threadfold.cli.common import open_snapshots

SETTLE = 180.0
"""Seconds in which everything has to be folded and every due summary taken, once all runs again; a
few is usual.
"""
COLLECTED = 20
"""How often the evidence is read until nothing comes in between."""
COMPACTED = frozenset({"snapshots", "control", "keys"})
"""Topics of which the broker keeps the latest record of each key."""
_FAR = 1 << 53


async def settle(
    platform: Platform, log: KafkaLog, store: RedisStore, keys: Sequence[str]
) -> str | None:
    """Wait until all is folded, nothing heals, nothing is due and nothing new comes; returns what
    is still open when it does not happen.

    ``keys`` are the conversations: none of their windows may be due, whether the list of those that
    are says so or not.
    """
    names = [Key(*key.split("/")) for key in keys]
    control = await Control(platform.direct).start()
    try:
        live = control.state.live_generation
        rules = control.state.rules(live)
    finally:
        await control.stop()
    why, calm, before = "nothing was seen", 0, {}
    loop = asyncio.get_running_loop()
    deadline = loop.time() + SETTLE
    while loop.time() < deadline:
        try:
            ends = await log.end_offsets()
            open_ = await _open(store, live.number, ends) or await _due(store, live, rules, names)
            if calm >= 3 and open_ is None and ends == before:
                open_ = await _asked(platform)
        except (KafkaUnavailable, RedisUnavailable, KafkaError) as error:
            ends, open_ = {}, str(error)
        calm = calm + 1 if open_ is None and ends == before else 0
        if calm >= 4:
            return None
        if open_ is not None or ends != before:
            why = open_ or "events still come"
        before = ends
        await asyncio.sleep(0.15)
    return why


async def _open(store: RedisStore, live: int, ends: dict[int, int]) -> str | None:
    for number in sorted(ends):
        checkpoint = await store.checkpoint(live, number)
        if ends[number] == 0:
            continue
        if checkpoint is None or checkpoint.healing:
            return f"partition {number} heals"
        if checkpoint.offset != ends[number] - 1:
            return f"partition {number} is folded to {checkpoint.offset} of {ends[number] - 1}"
        due: list[Key] = await store.due(live, number, _FAR, 100)
        if due:
            return (
                f"{', '.join(map(str, due[:5]))} of partition {number} are due and get no summary"
            )
    return None


async def _asked(platform: Platform) -> str | None:
    """A request that no worker has acknowledged: what it teaches may still come."""
    if platform.plan.learning == "off":
        return None
    topic = platform.settings.topic("compactions")
    consumer = AIOKafkaConsumer(topic, bootstrap_servers=platform.settings.kafka)
    admin = AIOKafkaAdminClient(bootstrap_servers=platform.settings.kafka)
    try:
        await consumer.start()
        await admin.start()
        ends = await consumer.end_offsets(consumer.assignment())
        done = await admin.list_consumer_group_offsets(platform.settings.compactor_group)
    finally:
        await consumer.stop()
        await admin.close()
    acknowledged = {tp: done[tp].offset if tp in done else 0 for tp in ends}
    waiting = [
        f"{end - acknowledged[tp]} requests of partition {tp.partition} from {acknowledged[tp]}"
        for tp, end in sorted(ends.items())
        if end > acknowledged[tp]
    ]
    return f"not acknowledged: {', '.join(waiting)}" if waiting else None


async def _due(store: RedisStore, live: Generation, rules: Rules, keys: list[Key]) -> str | None:
    """A window that is due and not listed as due would wait for ever; one that sleeps is not due."""
    for key in keys:
        number = partition_of(key, live.partitions)
        parts = (await store.read(live.number, number, [key]))[1][0]
        if (
            parts is not None
            and STUB not in parts.fields
            and parts.load(key, number, rules).meta.due is not None
        ):
            return f"{key} of partition {number} is due and gets no summary"
    return None


async def collect(platform: Platform, log: KafkaLog, acks: list[Ack]) -> Evidence:
    """The topics as they are, and every conversation of the log as its tenant reads it, all of one
    moment.

    A summary that was asked for twice may be answered a second time long after the first answer was
    taken: then everything is read again.
    """
    for _ in range(COLLECTED):
        before = await log.end_offsets()
        evidence = await _collect(platform, acks)
        if await log.end_offsets() == before:
            return evidence
        await asyncio.sleep(0.5)
    raise AssertionError(
        f"new records came to {platform.settings.topic('events')} while nobody appended, each of"
        f" {COLLECTED} times it was read"
    )


async def _collect(platform: Platform, acks: list[Ack]) -> Evidence:
    gone = platform.erased
    evidence = Evidence([ack for ack in acks if ack.key not in gone])
    evidence.log = [row for row in await read_topic(platform, "events") if row.key not in gone]
    evidence.summaries = [
        row for row in await read_topic(platform, "summaries") if row.key not in gone
    ]
    evidence.letters = await read_topic(platform, "dead-letters")
    evidence.memories = await read_topic(platform, "memories")
    rng = random.Random(platform.plan.seed)
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=15)) as http:
        for key in sorted({row.key for row in evidence.log if not is_garbage(row)}):
            evidence.windows[key] = await _seen(http, platform, key, rng)
    return evidence


async def read_topic(platform: Platform, name: str) -> list[Row]:
    """All records of a topic, by a consumer that knows nothing of this project."""
    topic = platform.settings.topic(name)
    consumer = AIOKafkaConsumer(
        topic,
        bootstrap_servers=platform.settings.kafka,
        group_id=None,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
    )
    await consumer.start()
    try:
        partitions = sorted(consumer.assignment())
        assert partitions, f"topic {topic} has no partitions"
        ends = await consumer.end_offsets(partitions)
        rows: list[Row] = []
        async with asyncio.timeout(60):
            while any([await consumer.position(tp) < ends[tp] for tp in partitions]):
                for found in (await consumer.getmany(timeout_ms=300)).values():
                    rows += [
                        Row(
                            r.partition,
                            r.offset,
                            (r.key or b"").decode(errors="replace"),
                            r.value or b"",
                            r.timestamp,
                        )
                        for r in found
                    ]
        assert name in COMPACTED or len(rows) >= sum(ends.values()), (
            f"{len(rows)} of {sum(ends.values())} records of {topic} were read"
        )
        return rows
    finally:
        await consumer.stop()


async def _seen(
    http: aiohttp.ClientSession, platform: Platform, key: str, rng: random.Random
) -> Seen:
    tenant, _, conversation = key.partition("/")
    base = f"/v1/conversations/{conversation}"

    async def get(path: str) -> Any:
        return await read(http, rng.choice(platform.urls) + path, platform.keys[tenant])

    return Seen(
        await get(f"{base}/context?format=events"),
        await get(f"{base}/context"),
        await pages(get, f"{base}/history?limit=100", "events", "before"),
        await pages(get, f"{base}/summaries?limit=50", "summaries", "before"),
    )


async def pages(get: Any, path: str, name: str, cursor: str) -> list[dict[str, Any]]:
    """All that a list has, page by page."""
    found: list[dict[str, Any]] = []
    page = await get(path)
    found += page[name]
    while page["next_before"] is not None:
        page = await get(f"{path}&{cursor}={page['next_before']}")
        found += page[name]
    return found


async def read(http: aiohttp.ClientSession, url: str, key: str, limit: float = 30.0) -> Any:
    """A read, repeated while it answers 503; raises AssertionError when it answers anything else,
    or 503 for too long.
    """
    deadline = asyncio.get_running_loop().time() + limit
    while True:
        async with http.get(url, headers={"Authorization": f"Bearer {key}"}) as answer:
            if answer.status == 200:
                return await answer.json()
            text = await answer.text()
        assert answer.status == 503 and asyncio.get_running_loop().time() < deadline, (
            f"{url} answered {answer.status}: {text[:300]}"
        )
        await asyncio.sleep(0.1)


async def differing(platform: Platform) -> list[str]:
    """Conversations whose windows are not, byte for byte, what the log folds to from its first
    event.
    """
    async with open_stack(platform.direct) as stack, open_snapshots(stack) as snapshots:
        rules = stack.control.state.rules(stack.generation)
        report = await verify(
            stack.log, stack.store, stack.generation, rules, snapshots=snapshots, deep=True
        )
        return report.differing
