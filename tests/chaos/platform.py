"""The real processes of one seed: workers and gateways, restarted when they end, over an embedded
Kafka, and a Redis behind a proxy.

Nothing is ever killed by name, only what was started here; the guards end everything when the
runner itself dies.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import psutil

from streams.control.control_topic import Control
from streams.control.state import Generation
from streams.log.topics import create_topics
from streams.memory.store_folder import REDIS_STORE
from streams.settings.settings import Settings
from tests.chaos.model_server import Troubled, troubled_model
from tests.chaos.proxy import Proxy, proxied
from tests.chaos.schedule import Plan
from tests.chaos.services import Service, wake
from tests.support.commands import clean_env
from tests.support.ports import own_port
from tests.support.search_module import search_module
from threadfold.embedded.kafka import EmbeddedKafka
from threadfold.embedded.redis import EmbeddedRedis

SCOPES = ["append", "read", "subscribe", "admin", "erase"]
STARTS = 180.0
"""Seconds that the services have to come up: on a machine whose load is 18 they take over 60."""
# Of the settings, what a service is told.
_ENV = (
    "kafka",
    "redis",
    "topic_prefix",
    "group",
    "partitions",
    "replication",
    "min_isr",
    "session_timeout",
    "append_timeout",
    "summary_time_cap",
    "summary_breaker_seconds",
    "snapshot_events",
    "hibernate_after",
    "gateway_host",
)


class ProxiedKafka(EmbeddedKafka):
    """A Kafka that advertises the port ``advertised``, a proxy's."""

    advertised = 0

    def properties(self, port: int, controller: int) -> dict[str, object]:
        advertised = {"advertised.listeners": f"BROKER://127.0.0.1:{self.advertised}"}
        return super().properties(port, controller) | advertised


class SearchRedis(EmbeddedRedis):
    """A Redis with the query engine, where its module is installed."""

    def properties(self, port: int) -> dict[str, str]:
        module = search_module()
        return super().properties(port) | ({"loadmodule": str(module)} if module else {})


class Stack:
    """A Kafka behind a proxy and a Redis, whose data outlive their ends; one for a whole run."""

    def __init__(self, folder: Path) -> None:
        self.kafka = ProxiedKafka(folder / "kafka")
        self.redis = SearchRedis(folder / "redis")
        self.kafka_proxy = Proxy(0, 1)
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Start both, side by side, on the ports they had."""
        if self._server is None:
            self._server = await asyncio.start_server(self.kafka_proxy.accept, "127.0.0.1", 0)
            self.kafka_proxy.port = self.kafka.advertised = self._server.sockets[0].getsockname()[1]
        await asyncio.gather(self.start_kafka(), self.start_redis())

    async def start_kafka(self) -> None:
        """Start Kafka unless it runs."""
        self.kafka.wanted_port = self.kafka.port
        await asyncio.to_thread(self.kafka.start)
        self.kafka_proxy.target = self.kafka.port or 0

    async def start_redis(self) -> None:
        """Start Redis unless it runs."""
        self.redis.wanted_port = self.redis.port
        await asyncio.to_thread(self.redis.start)

    @property
    def bootstrap(self) -> str:
        """Kafka's address as all clients have it."""
        return f"127.0.0.1:{self.kafka_proxy.port}"

    @property
    def aof(self) -> Path:
        """Where Redis keeps its data."""
        return self.redis.data / "appendonlydir"

    async def stop(self) -> None:
        """Stop both; safe to repeat."""
        if self._server is not None:
            self._server.close()
            self._server = None
            await self.kafka_proxy.stop()
        for server in (self.redis, self.kafka):
            if server.port is not None:
                wake(server.pid)
            await asyncio.to_thread(server.stop)


class Platform:
    """All of one seed that faults are done to."""

    def __init__(
        self,
        plan: Plan,
        stack: Stack,
        settings: Settings,
        folder: Path,
        proxy: Proxy,
        model: Troubled,
    ) -> None:
        self.plan, self.stack, self.settings, self.folder = plan, stack, settings, folder
        self.proxy, self.model = proxy, model
        self.direct = Settings.load(
            env={}, **{**_of(settings), "redis": stack.redis.url, "summarizers": _endpoints(model)}
        )
        """The settings with Redis' own address, for whoever looks on from outside."""
        self.workers: list[Service] = []
        self.gateways: list[Service] = []
        self.urls: list[str] = []
        self.keys: dict[str, str] = {}
        self.notes: list[str] = []
        self.erased: set[str] = set()
        """Conversations that were erased, or are just being so."""
        self.wrongs: list[str] = []
        """What a fault's own steps found wrong."""
        self.commands = 0
        """How many commands an operator gave."""
        self.switches = 0
        """How often another generation became the live one."""
        self.server_locks = {"kafka": asyncio.Lock(), "redis": asyncio.Lock()}
        self._ending = False

    def add_worker(self) -> Service:
        """One worker more; the supervisor starts it."""
        name = f"worker-{len(self.workers)}"
        self.workers.append(
            Service(name, ["worker"], self.environment(), self.folder / f"{name}.log")
        )
        return self.workers[-1]

    def add_gateway(self) -> Service:
        """One gateway more, on a port of its own that it keeps."""
        name, port = f"gateway-{len(self.gateways)}", own_port()
        self.gateways.append(
            Service(
                name,
                ["gateway", "--port", str(port)],
                self.environment(),
                self.folder / f"{name}.log",
            )
        )
        self.urls.append(f"http://127.0.0.1:{port}")
        return self.gateways[-1]

    def environment(self) -> dict[str, str]:
        """The settings as services and commands are given them."""
        own = {f"THREADFOLD_{name.upper()}": str(getattr(self.settings, name)) for name in _ENV}
        shared = self.plan.shared_memory and search_module() is not None
        own["THREADFOLD_MEMORY_MODEL"] = self.plan.learner
        own["THREADFOLD_MEMORY_STORE"] = REDIS_STORE if shared else str(self.folder / "memories")
        return clean_env({**own, "THREADFOLD_SUMMARIZERS": json.dumps(_endpoints(self.model))})

    @property
    def services(self) -> list[Service]:
        """All of them."""
        return [*self.workers, *self.gateways]

    async def supervise(self) -> None:
        """Start what is wanted and does not run, as an orchestrator does, for as long as the seed
        runs.
        """
        while not self._ending:
            for service in self.services:
                if (
                    service.wanted
                    and not service.running
                    and time.monotonic() >= service.not_before
                ):
                    service.note_end()
                    service.not_before = time.monotonic() + 1.0
                    await asyncio.to_thread(service.start)
                service.measure()
            await asyncio.sleep(0.1)

    def pick(self, services: list[Service], number: int) -> Service | None:
        """The ``number``-th (modulo) of those that run; None when none does."""
        running = [service for service in services if service.running and not service.frozen]
        return running[number % len(running)] if running else None

    def worker_with(self, port: int) -> Service | None:
        """The worker that holds this local TCP port."""
        for worker in self.workers:
            if worker.process is not None and worker.running:
                try:
                    held = psutil.Process(worker.process.pid).net_connections(kind="tcp")
                except psutil.Error:
                    continue
                if any(found.laddr and found.laddr.port == port for found in held):
                    return worker
        return None

    async def heal(self) -> None:
        """End all trouble: everything that was stopped or frozen goes on."""
        self.proxy.heal()
        self.stack.kafka_proxy.heal()
        self.model.behave()
        for service in self.services:
            service.wake()
        if self.stack.kafka.poll() is None:
            wake(self.stack.kafka.pid)
        await self.stack.start()
        for worker in self.workers[: self.plan.workers]:
            worker.wanted = True

    async def end(self) -> list[str]:
        """End all services as an orchestrator does; returns what they did wrong in their lives."""
        self._ending = True
        for service in self.services:
            service.wanted = False
        await asyncio.gather(*(service.end() for service in self.services))
        return [text for service in self.services for text in service.wrongs()]

    def close(self) -> None:
        """Kill all services; what they were to leave is in the topics and in Redis."""
        self._ending = True
        for service in self.services:
            service.wanted = False
            service.kill()


def _of(settings: Settings) -> dict[str, Any]:
    return {name: getattr(settings, name) for name in _ENV}


def _endpoints(model: Troubled) -> dict[str, Any]:
    return {"model": {"base_url": model.url, "model": "small-1", "timeout": 1.0}}


def settings_of(plan: Plan, stack: Stack, redis_port: int) -> Settings:
    """Settings with topics and groups of this seed alone, Redis behind the proxy, and times short
    enough for a run of seconds.
    """
    name = f"chaos{plan.seed}x{time.time_ns() % 10**9}"
    return Settings.load(
        env={},
        kafka=stack.bootstrap,
        redis=f"redis://127.0.0.1:{redis_port}/0",
        topic_prefix=name,
        group=name,
        partitions=plan.partitions,
        replication=1,
        min_isr=1,
        session_timeout=plan.session_timeout,
        append_timeout=None if plan.patient else 3.0,
        summary_time_cap=None if plan.patient else 4.0,
        hibernate_after=plan.hibernate_after,
        summary_breaker_seconds=1.0,
        snapshot_events=plan.snapshot_events,
    )


@asynccontextmanager
async def platform(
    plan: Plan, stack: Stack, folder: Path, say: Callable[[str], None]
) -> AsyncIterator[Platform]:
    """Topics, tenants, keys and processes of a seed; all of it is gone afterwards but the topics'
    files and the logs in ``folder``.
    """
    async with (
        proxied(int(stack.redis.address.rpartition(":")[2]), plan.seed) as proxy,
        troubled_model(plan) as model,
    ):
        settings = settings_of(plan, stack, proxy.port)
        made = Platform(plan, stack, settings, folder, proxy, model)
        model.find = made.worker_with
        for _ in range(plan.workers):
            made.add_worker()
        for _ in range(plan.gateways):
            made.add_gateway()
        supervisor: asyncio.Task[None] | None = None
        try:
            await create_topics(settings)
            # Processes take seconds to come up, and wait for what is missing; the tenants are made
            # meanwhile.
            await _prepare(made)
            supervisor = asyncio.create_task(made.supervise(), name="supervisor")
            await until_ready(made)
            say("ready")
            yield made
        finally:
            made.close()
            if supervisor is not None:
                # Not cancelled: a process that it is just starting, in a thread, would outlive
                # this.
                await asyncio.wait([supervisor])
            made.close()
            if supervisor is not None:
                supervisor.result()


async def _prepare(made: Platform) -> None:
    """The generation with the seed's policy, the tenants and their keys; Redis is emptied."""
    import redis.asyncio as aredis

    client = aredis.Redis.from_url(made.direct.redis)
    await client.flushall()
    await client.aclose()
    control = await Control(made.direct).start()
    try:
        await control.write(
            {
                "generation/1": Generation(1, made.plan.partitions, made.plan.policy),
                "generation/live": 1,
            }
        )
        for i in range(made.plan.tenants):
            await control.ensure_tenant(f"t{i}")
            made.keys[f"t{i}"] = await control.add_key(f"t{i}", SCOPES)
    finally:
        await control.stop()


async def until_ready(made: Platform) -> None:
    """Wait until every gateway says it is ready; raises TimeoutError."""
    async with (
        asyncio.timeout(STARTS),
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=2)) as http,
    ):
        for url in made.urls:
            while True:
                if await _is_ready(http, url):
                    break
                await asyncio.sleep(0.1)


async def _is_ready(http: aiohttp.ClientSession, url: str) -> bool:
    try:
        async with http.get(f"{url}/readyz") as answer:
            return answer.status == 200
    except (aiohttp.ClientError, TimeoutError):
        return False


def keep_logs(folder: Path, target: Path) -> None:
    """Copy the services' logs to where they outlive the run."""
    target.mkdir(parents=True, exist_ok=True)
    for log in folder.glob("*.log"):
        shutil.copy(log, target / log.name)
