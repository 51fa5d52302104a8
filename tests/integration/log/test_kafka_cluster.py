"""Three brokers: one dies under load and appenders see latency only; below min ISR a clear 503, and
nothing acknowledged is lost.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
import redis.asyncio as aredis

from projections.events.codec import decode_event
from projections.events.types import SummaryEvent
from projections.names import Key, partition_of
from projections.redis.store import RedisStore
from streams.control.control_topic import Control
from streams.log.clients import admin_client
from streams.log.kafka_log import KafkaLog
from streams.maintenance.verify import verify
from streams.settings.settings import Settings
from tests.conftest import fresh_settings
from tests.support.commands import cli
from tests.support.kafka_cluster import KafkaCluster
from tests.support.serving import serving
from tests.support.worker import running_worker, until
from threadfold.embedded.stack import EmbeddedStack
from threadfold.gateway import create_gateway

TENANT = "acme"
PRODUCERS = 4
APPEND_TIMEOUT = 12.0


@pytest.fixture
def cluster(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[KafkaCluster]:
    with KafkaCluster(tmp_path / "kafka", controllers=getattr(request, "param", 1)) as running:
        yield running


@pytest.fixture
async def settings(stack: EmbeddedStack, cluster: KafkaCluster) -> AsyncIterator[Settings]:
    """Topics on the cluster as ``topics create`` makes them, replicated threefold with two in sync
    at least.
    """
    made = fresh_settings(
        stack,
        kafka=cluster.address,
        partitions=6,
        replication=3,
        min_isr=2,
        append_timeout=APPEND_TIMEOUT,
        session_timeout=6.0,
    )
    client = aredis.Redis.from_url(made.redis)
    await client.flushdb()
    await client.aclose()
    ran = await cli("topics", "create", env=environment(made))
    assert ran.code == 0, ran
    assert "topics: ok" in ran.out
    yield made


def environment(settings: Settings) -> dict[str, str]:
    names = ("kafka", "redis", "topic_prefix", "group", "partitions", "replication", "min_isr")
    return {f"THREADFOLD_{name.upper()}": str(getattr(settings, name)) for name in names}


class Producers:
    """Callers of the gateway, each with conversations of its own, that repeat what was not
    acknowledged under the same ids.
    """

    def __init__(self, http: httpx.AsyncClient) -> None:
        self.http = http
        self.acknowledged: set[str] = set()
        self.refused: list[httpx.Response] = []
        self.slowest = 0.0
        self._stopping = False
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        self._stopping = False
        self._tasks = [asyncio.create_task(self._run(i)) for i in range(PRODUCERS)]

    async def stop(self) -> None:
        """End after the append at hand is acknowledged."""
        self._stopping = True
        await asyncio.gather(*self._tasks)

    async def _run(self, number: int) -> None:
        n = len(self.acknowledged)
        while not self._stopping:
            n += 1
            conversation, new_id = f"c{number}-{n % 3}", f"e{number}-{n}"
            await self._append(conversation, new_id)
            await asyncio.sleep(0.01)

    async def _append(self, conversation: str, new_id: str) -> None:
        event = {"type": "message", "role": "user", "content": f"this is {new_id}", "id": new_id}
        while True:
            began = time.monotonic()
            answer = await self.http.post(f"/v1/conversations/{conversation}/events", json=event)
            self.slowest = max(self.slowest, time.monotonic() - began)
            if answer.status_code == 202:
                self.acknowledged.add(new_id)
                return
            self.refused.append(answer)
            assert answer.status_code == 503, answer.text
            await asyncio.sleep(0.1)

    async def more(self, count: int, limit: float = 60.0) -> None:
        """Wait until this many more are acknowledged."""
        wanted = len(self.acknowledged) + count

        async def reached() -> bool:
            return len(self.acknowledged) >= wanted

        await until(reached, limit)


@asynccontextmanager
async def producing(settings: Settings) -> AsyncIterator[Producers]:
    """A gateway and a worker on the cluster, and producers under way."""
    control = await Control(settings).start()
    await control.ensure_tenant(TENANT)
    key = await control.add_key(TENANT, None)
    await control.stop()
    async with (
        running_worker(settings),
        serving(create_gateway(settings)) as url,
        httpx.AsyncClient(
            base_url=url, headers={"Authorization": f"Bearer {key}"}, timeout=60.0
        ) as http,
    ):

        async def ready() -> bool:
            return (await http.get("/readyz")).status_code == 200

        await until(ready, 60.0)
        yield Producers(http)


async def leader_of_most(settings: Settings, among: set[int]) -> int:
    """The broker, of some, that leads most partitions of the events."""
    async with admin_client(settings) as admin:
        (topic,) = await admin.describe_topics([settings.topic("events")])
    led = Counter(p["leader"] for p in topic["partitions"])
    assert set(led) <= {1, 2, 3}
    assert all(len(p["replicas"]) == 3 for p in topic["partitions"])
    return max(among, key=lambda node: led[node])


async def nothing_lost(settings: Settings, acknowledged: set[str]) -> None:
    """Every acknowledged event is in the log, and every window is the log's fold, each event in it
    once.
    """
    log, store = (
        KafkaLog(settings, settings.partitions),
        RedisStore(settings.redis, settings.topic_prefix),
    )
    control = await Control(settings).start()
    generation = control.state.live_generation

    in_log: Counter[str] = Counter()

    async def all_in_log() -> bool:
        # A broker that was frozen answers as if it still led, until it hears that it does not.
        in_log.clear()
        for partition, end in (await log.end_offsets()).items():
            async for raw in log.scan(partition, 0, end - 1):
                event = decode_event(raw.value or b"")
                if not isinstance(event, SummaryEvent):
                    in_log[event.id] += 1
        return acknowledged <= set(in_log)

    async def applied() -> bool:
        ends = await log.end_offsets()
        found = {p: await store.checkpoint(generation.number, p) for p in ends}
        return all(
            c is not None and not c.healing and c.offset == ends[p] - 1
            for p, c in found.items()
            if ends[p]
        )

    await until(all_in_log, 60.0, "every acknowledged event in the log")
    await until(applied, 60.0)
    report = await verify(log, store, generation, control.state.rules(generation))
    assert report.differing == []
    # Repeats may stand in the log more than once; a window counts each id once.
    counted = 0
    for number in range(PRODUCERS):
        for n in range(3):
            key = Key(TENANT, f"c{number}-{n}")
            _, (stored,) = await store.read(
                generation.number, partition_of(key, settings.partitions), [key]
            )
            if stored is not None:
                counted += stored.load(
                    key, partition_of(key, settings.partitions), control.state.rules(generation)
                ).meta.count
    assert counted == len(in_log)
    await log.stop()
    await control.stop()
    await store.close()


@pytest.mark.long
async def test_one_broker_dies_and_appenders_see_latency_only_and_below_min_isr_a_clear_503(
    cluster: KafkaCluster, settings: Settings
) -> None:
    async with producing(settings) as producers:
        producers.start()
        await producers.more(50)
        first = await leader_of_most(settings, {2, 3})
        cluster.kill(first)
        await producers.more(100)
        assert producers.refused == []
        print(f"one broker killed: the slowest append took {producers.slowest:.1f} s")
        assert producers.slowest < APPEND_TIMEOUT
        short = await cli("topics", "check", env=environment(settings))
        assert short.code == 1
        assert (
            f"under-replicated, one more failure may stop appends: broker {first} is down"
            in short.out
        )
        second = 5 - first
        cluster.kill(second)
        await refused(producers, first, second)
        read = await producers.http.get("/v1/conversations/c0-0/context")
        assert read.status_code == 200, read.text
        doctor = await cli("doctor", env=environment(settings))
        assert doctor.code in (1, 2)
        assert (
            "fewer than min.insync.replicas=2 brokers in sync: nothing can be appended: brokers 2,"
            " 3 are down" in doctor.out
        )
        await asyncio.to_thread(cluster.start, first, second)
        await producers.more(50, 90.0)
        await producers.stop()
        await nothing_lost(settings, producers.acknowledged)


async def refused(producers: Producers, first: int, second: int) -> None:
    """Wait for an append to be refused, and look at the answer."""
    assert {first, second} == {2, 3}

    async def some() -> bool:
        return any("min.insync.replicas" in answer.text for answer in producers.refused)

    await until(some, 60.0)
    answer = next(answer for answer in producers.refused if "min.insync.replicas" in answer.text)
    assert answer.status_code == 503
    assert int(answer.headers["Retry-After"]) >= 1
    assert answer.headers["content-type"] == "application/problem+json"
    detail = answer.json()["detail"]
    assert "fewer than min.insync.replicas=2 brokers in sync: nothing can be appended" in detail
    assert "repeat it with the same ids" in detail
    assert answer.elapsed.total_seconds() < APPEND_TIMEOUT + 1.0


@pytest.mark.long
@pytest.mark.parametrize("cluster", [3], indirect=True, ids=["three-controllers"])
@pytest.mark.parametrize("how", ["kill", "freeze"])
async def test_a_broker_that_is_a_controller_dies_or_hangs_under_load_and_appenders_see_latency_only(
    cluster: KafkaCluster, settings: Settings, how: str
) -> None:
    async with producing(settings) as producers:
        producers.start()
        await producers.more(50)
        node = await leader_of_most(settings, {1, 2, 3})
        (cluster.kill if how == "kill" else cluster.freeze)(node)
        try:
            await producers.more(100)
        finally:
            if how == "freeze":
                cluster.thaw(node)
        print(
            f"{how} of a leader and controller: the slowest append took {producers.slowest:.1f} s"
        )
        assert producers.refused == []
        await producers.stop()
        await nothing_lost(settings, producers.acknowledged)
