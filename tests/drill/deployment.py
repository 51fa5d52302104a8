"""A deployment for the drill: ``threadfold up`` with a model endpoint, quotas, TLS and a policy's
callable, and what an operator sees of it.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import signal
import ssl
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import psutil
from aiohttp import web

from projections.names import Key, partition_of
from streams.control.control_topic import Control
from streams.settings.quotas import Quota
from streams.settings.settings import Settings
from tests.drill.release import FIXED
from tests.support.certificates import Authority
from tests.support.commands import COMMAND, Ran, clean_env, cli, ok
from tests.support.model_server import ModelServer, completion, model_server
from tests.support.pipeline import POLICY, sentence
from tests.support.ports import own_port
from tests.support.summary_workers import SUMMARY
from tests.support.worker import until

ROOT = Path(__file__).resolve().parents[2]
PARTITIONS = 4
TENANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "modelled": {**POLICY, "summarizer": "cheap"},
    "fragile": {
        **POLICY,
        "compaction": False,
        "reducers": [{"name": "compact_tool_results", "replacement": "callable:shorten"}],
    },
    "flood": {},
}


class Deployment:
    """A running deployment. Faults reach into it; ``doctor``, ``metrics`` and the log of ``up`` are
    what an operator looks at.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.data = folder / "data"
        self.log = folder / "up.log"
        self.authority = Authority(folder / "tls")
        self.certificate, self.private_key = self.authority.issue("gateway")
        self.metrics_port = own_port()
        self.keys: dict[str, str] = {}
        self.fixed = folder / "fixed"
        """A file that is there when the policy's callable is fixed."""
        self.model = "well"
        """How the model endpoint answers: well, slow, or down."""
        self.healed = 0.0
        """Partitions that had healed before Redis was flushed."""
        self.flooding: asyncio.Task[None] | None = None
        self._rng = random.Random(1)
        self._up: Process | None = None

    @property
    def settings(self) -> Settings:
        """The settings by which commands reach it."""
        return Settings.load(config=self.data / "threadfold.toml", env={})

    async def answer(
        self, server: ModelServer, request: web.Request, asked: dict[str, Any]
    ) -> web.StreamResponse:
        """What the model endpoint answers."""
        if self.model == "down":
            return web.Response(status=503)
        if self.model == "slow":
            for _ in range(150):
                await asyncio.sleep(0.1)
                if self.model != "slow":
                    break
        return web.json_response(completion(f"They spoke of order 4711. {SUMMARY}"))

    async def start(self, model_url: str) -> None:
        """Start ``up``, make the tenants, and let each say something."""
        os.environ[FIXED] = str(self.fixed)  # of the commands that run in this process, too
        endpoint = {"base_url": model_url, "model": "small", "timeout": 20, "max_concurrent": 1}
        env = {
            "PARTITIONS": str(PARTITIONS),
            "SUMMARIZERS": json.dumps({"cheap": endpoint}),
            "SUMMARY_BREAKER_SECONDS": "5",
            "SUMMARY_TIME_CAP": "25",
            "CALLABLES": json.dumps({"shorten": "tests.drill.release:shorten"}),
            "QUOTA_REQUESTS_PER_SECOND": "100",
            "GATEWAY_CERTIFICATE": str(self.certificate),
            "GATEWAY_PRIVATE_KEY": str(self.private_key),
            "SNAPSHOT_EVENTS": "200",
        }
        with self.log.open("wb") as log:
            self._up = await asyncio.create_subprocess_exec(
                *COMMAND,
                *("up", "--port", "0", "--data", str(self.data)),
                *("--metrics-port", str(self.metrics_port)),
                env=clean_env({f"THREADFOLD_{name}": value for name, value in env.items()}),
                cwd=ROOT,
                stdout=log,
                stderr=log,
            )

        async def ready() -> bool:
            assert self._up is not None and self._up.returncode is None, self.log.read_text()
            return "ready: " in self.log.read_text()

        await until(ready, 120)
        for name, policy in TENANTS.items():
            file = self.folder / f"{name}.json"
            file.write_text(json.dumps(policy))
            ran = await self.run("tenants", "add", name, "--policy", file, "--encryption", "off")
            self.keys[name] = ran.lines[-1]
        control = await Control(self.settings).start()
        # Also a busy machine asks more than that.
        await control.change_tenant("flood", None, lambda _: Quota(requests_per_second=5))
        await control.stop()
        for name in TENANTS:
            await self.talk(name, "c1", turns=3)

    async def stop(self) -> None:
        """End everything."""
        await self.stop_flood()
        if self._up is not None and self._up.returncode is None:
            for name in ("worker", "kafka"):
                # What a fault has frozen ends in order, too.
                with suppress(psutil.NoSuchProcess):
                    if process := await self._running(name):
                        process.send_signal(signal.SIGCONT)
            self._up.terminate()
            await self._up.wait()

    # -- what an operator does and sees

    async def run(self, *words: str | Path) -> Ran:
        """A command that has to succeed."""
        return await ok(*words, "--data", self.data)

    async def doctor(self) -> list[str]:
        """What ``threadfold doctor`` finds wrong."""
        ran = await cli("doctor", "--data", self.data)
        return [line for line in ran.lines if line.startswith("wrong ")]

    def said(self) -> list[str]:
        """The lines of ``up``."""
        return self.log.read_text().splitlines()

    def last_lines(self) -> str:
        """The ends of all logs."""
        logs = [self.log, *sorted((self.data / "logs").iterdir())]
        return "\n".join(f"{log.name}:\n{log.read_text()[-4_000:]}" for log in logs)

    async def metrics(self) -> str:
        """The pages of the gateway and of the worker; of one that does not answer nothing."""
        pages = []
        async with self._http() as http:
            for url in (
                f"{self.settings.gateway_url}/metrics",
                f"http://127.0.0.1:{self.metrics_port}/metrics",
            ):
                with suppress(httpx.HTTPError):
                    pages.append((await http.get(url)).text)
        return "\n".join(pages)

    async def value(self, metric: str) -> float:
        """The sum of a metric's samples."""
        found = re.findall(
            rf"^{metric}(?:\{{[^}}]*\}})? (\S+)$", await self.metrics(), re.MULTILINE
        )
        return sum(map(float, found))

    async def ask(self, tenant: str, method: str, path: str, body: object = None) -> httpx.Response:
        """A request of a tenant."""
        headers = {"Authorization": f"Bearer {self.keys[tenant]}"}
        async with self._http() as http:
            url = f"{self.settings.gateway_url}/v1{path}"
            return await http.request(method, url, json=body, headers=headers)

    def _http(self) -> httpx.AsyncClient:
        trusted = ssl.create_default_context(cafile=self.authority.ca)
        return httpx.AsyncClient(verify=trusted, trust_env=False, timeout=30)

    # -- what faults need

    async def talk(self, tenant: str, conversation: str, turns: int = 30) -> int:
        """Messages of a conversation; returns the answer's status."""
        messages = [{"role": "user", "content": sentence(self._rng)} for _ in range(turns)]
        path = f"/conversations/{conversation}/messages"
        return (await self.ask(tenant, "POST", path, messages)).status_code

    async def process(self, name: str) -> psutil.Process:
        """The worker or the gateway, or the server called kafka or redis, not its guard; one that
        has just ended is waited for until ``up`` has started it again.
        """
        return await until(lambda: self._running(name), what=f"a running {name}")

    async def runs(self, name: str) -> bool:
        """Whether a process of :meth:`process` runs."""
        return await self._running(name) is not None

    async def _running(self, name: str) -> psutil.Process | None:
        assert self._up is not None
        marks = {"kafka": "kafka.Kafka", "redis": "-server"}
        mark = marks.get(name, f"threadfold.cli {name}")
        for process in psutil.Process(self._up.pid).children(recursive=True):
            with suppress(psutil.Error):
                line = " ".join(process.cmdline())
                ended = process.status() == psutil.STATUS_ZOMBIE
                if mark in line and "guard.py" not in line and not ended:
                    return process
        return None

    def redis(self, *words: str) -> str:
        """A command of Redis, by its operator."""
        import redis

        with redis.Redis.from_url(self.settings.redis) as client:
            return str(client.execute_command(*words))

    def names_in(self, partition: int, tenant: str, count: int) -> list[str]:
        """Conversations of one partition."""
        names = (f"p{number}" for number in range(100_000))
        found = (n for n in names if partition_of(Key(tenant, n), PARTITIONS) == partition)
        return [next(found) for _ in range(count)]

    def start_flood(self) -> None:
        """Let one tenant ask as fast as it can."""

        async def ask_on() -> None:
            url = f"{self.settings.gateway_url}/v1/conversations"
            headers = {"Authorization": f"Bearer {self.keys['flood']}"}
            async with self._http() as http:
                while True:
                    with suppress(httpx.HTTPError):
                        asked = (http.get(url, headers=headers) for _ in range(50))
                        await asyncio.gather(*asked)

        self.flooding = asyncio.create_task(ask_on())

    async def stop_flood(self) -> None:
        """End it."""
        if self.flooding is not None:
            self.flooding.cancel()
            with suppress(asyncio.CancelledError):
                await self.flooding
            self.flooding = None


@asynccontextmanager
async def deployed(folder: Path) -> AsyncIterator[Deployment]:
    """A deployment that runs in this folder until the block ends."""
    made = Deployment(folder)
    async with model_server(made.answer) as server:
        try:
            await made.start(server.url)
            yield made
        finally:
            await made.stop()
