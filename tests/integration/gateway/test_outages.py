"""The gateway as a process of its own, and what it does while Kafka or Redis is away."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from projections.errors import InvalidSettings
from projections.redis.store import RedisStore
from streams.control.control_topic import Control
from streams.log.topics import create_topics
from streams.settings.settings import Settings
from tests.conftest import fresh_settings
from tests.support.commands import start
from tests.support.gateway import is_problem, say
from tests.support.gateway_outages import gateway, is_ready, make_key
from tests.support.gateway_process import SCOPES
from tests.support.metrics import read
from tests.support.processes import freeze
from tests.support.worker import running_worker, until
from threadfold.cli.common import CONFIG_FILE
from threadfold.cli.configuration import write_config
from threadfold.embedded.kafka import EmbeddedKafka
from threadfold.embedded.ports import free_port
from threadfold.embedded.redis import EmbeddedRedis
from threadfold.embedded.stack import EmbeddedStack
from threadfold.gateway import create_gateway, serve
from threadfold.gateway.server import KEEP_ALIVE, listen

RUN = (
    "from streams.settings.settings import Settings; from threadfold.gateway import serve;"
    " serve(Settings.load())"
)


class Process:
    """``serve`` in a process of its own."""

    def __init__(self, settings: Settings, port: int = 0) -> None:
        env = {**os.environ, "THREADFOLD_KAFKA": settings.kafka, "THREADFOLD_REDIS": settings.redis}
        env |= {
            "THREADFOLD_TOPIC_PREFIX": settings.topic_prefix,
            "THREADFOLD_GATEWAY_PORT": str(port),
        }
        self.child = subprocess.Popen(
            [sys.executable, "-c", RUN],
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def url(self) -> str:
        """Where it listens, as it says itself."""
        assert self.child.stdout is not None
        line = self.child.stdout.readline()
        assert line.startswith("ready: http://127.0.0.1:"), line + (
            self.child.stderr.read() if self.child.stderr else ""
        )
        return line.removeprefix("ready: ").strip()

    def end(self, number: int) -> tuple[int, str]:
        """Send the signal; returns exit code and stderr."""
        self.child.send_signal(number)
        _, errors = self.child.communicate(timeout=20)
        return self.child.returncode, errors


@pytest.fixture
def processes() -> Iterator[list[Process]]:
    started: list[Process] = []
    yield started
    for process in started:
        if process.child.poll() is None:
            process.child.kill()
        process.child.communicate()


@pytest.mark.long
async def test_a_connection_waits_for_its_next_request_for_longer_than_clients_keep_it(
    settings: Settings, processes: list[Process]
) -> None:
    # httpx keeps an unused connection for 5 s, load balancers for 60 s.
    assert KEEP_ALIVE > 60
    processes.append(process := Process(settings))
    place = (await asyncio.to_thread(process.url)).removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(*place)
    for pause in (0, 6):
        await asyncio.sleep(pause)
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        assert await reader.readline() == b"HTTP/1.1 200 OK\r\n"
        await reader.readuntil(b"}")
    writer.close()


async def test_a_check_that_takes_longer_than_a_probe_waits_comes_to_its_end(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("threadfold.gateway.routes.service.READY_TIMEOUT", 0.002)
    await make_key(settings)
    async with running_worker(settings), gateway(settings) as http:
        await is_ready(http)


@pytest.mark.parametrize(
    ("silent", "ask"), [("redis", (RedisStore, "ping")), ("kafka", (Control, "sync"))]
)
async def test_the_first_check_after_a_server_fell_silent_names_that_server(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, silent: str, ask: tuple[type, str]
) -> None:
    await make_key(settings)
    async with running_worker(settings), gateway(settings) as http:
        await is_ready(http)
        with monkeypatch.context() as patch:
            patch.setattr("threadfold.gateway.routes.service.READY_TIMEOUT", 0.2)
            patch.setattr(*ask, lambda _: asyncio.Event().wait())
            answer = await http.get("/readyz")
        assert answer.status_code == 503
        assert answer.json()["type"].endswith(f"{silent}-unavailable")


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.long)]
)
async def test_the_process_says_where_it_listens_serves_and_exits_0_on_a_signal(
    settings: Settings, processes: list[Process], number: int
) -> None:
    key = await make_key(settings)
    process = Process(settings)
    processes.append(process)
    url = await asyncio.to_thread(process.url)
    async with (
        running_worker(settings),
        httpx.AsyncClient(
            base_url=url, headers={"Authorization": f"Bearer {key}"}, timeout=30
        ) as http,
    ):
        assert (await http.get("/healthz")).json() == {"status": "ok"}
        await is_ready(http)
        assert (await http.get("/readyz")).json() == {
            "status": "ready",
            "generation": 1,
            "partitions": settings.partitions,
            "behind": 0,
        }
        appended = await http.post(
            "/v1/conversations/p/events?wait=applied", content=json.dumps([say("a"), say("b")])
        )
        assert [event["status"] for event in appended.json()["events"]] == ["applied", "applied"]
        assert len((await http.get("/v1/conversations/p/context")).json()["messages"]) >= 2
        is_problem(await http.post("/v1/conversations/p/events", content=b"{"), 400, "line 1")
        is_problem(
            await http.get("/v1/conversations/p/context", headers={"Authorization": ""}), 401
        )
    code, errors = await asyncio.to_thread(process.end, number)
    assert code == 0, errors
    assert "Traceback" not in errors


@pytest.mark.long
def test_two_signals_end_it_at_once_and_without_a_traceback(
    settings: Settings, processes: list[Process]
) -> None:
    process = Process(settings)
    processes.append(process)
    process.url()
    process.child.send_signal(signal.SIGINT)
    code, errors = process.end(signal.SIGTERM)
    assert code == 0, errors
    assert "Finished server process" in errors
    assert "Traceback" not in errors


def test_a_port_in_use_is_one_clear_error(settings: Settings, processes: list[Process]) -> None:
    first = Process(settings)
    processes.append(first)
    port = int(first.url().rpartition(":")[2])
    with pytest.raises(InvalidSettings, match=rf"127\.0\.0\.1:{port}.*in use"):
        serve(Settings.load(env={}, kafka=settings.kafka, redis=settings.redis, gateway_port=port))


async def test_it_listens_without_kafka_and_says_so() -> None:
    nowhere = Settings.load(
        env={}, kafka=f"127.0.0.1:{free_port()}", redis=f"redis://127.0.0.1:{free_port()}/0"
    )
    async with gateway(nowhere) as http:
        assert (await http.get("/healthz")).status_code == 200
        is_problem(await http.get("/readyz"), 503, "not connected")
        is_problem(
            await http.get("/v1/conversations/c/context", headers={"Authorization": "Bearer x"}),
            503,
            "not connected",
        )
        is_problem(await http.get("/v1/conversations/c/context"), 401)


def test_answers_do_not_wait_for_the_peers_delayed_ack() -> None:
    # asyncio sets TCP_NODELAY on what such a socket accepts only when its protocol is named;
    # without it, measured answers took 40 ms more.
    with listen("127.0.0.1", 0) as listening:
        assert listening.proto == socket.IPPROTO_TCP


def test_without_addresses_it_does_not_begin() -> None:
    with pytest.raises(InvalidSettings, match="THREADFOLD_KAFKA"):
        create_gateway(Settings.load(env={}, redis="redis://127.0.0.1:1/0"))


async def test_redis_away_appends_go_on_and_reads_answer_503(
    settings: Settings, tmp_path: Path
) -> None:
    with EmbeddedRedis(tmp_path) as redis:
        own = Settings.load(
            env={},
            kafka=settings.kafka,
            redis=redis.url,
            topic_prefix=settings.topic_prefix,
            partitions=4,
        )
        headers = {"Authorization": f"Bearer {await make_key(own)}"}
        async with gateway(own) as http:

            async def append(query: str = "") -> httpx.Response:
                return await http.post(
                    f"/v1/conversations/r/events{query}",
                    content=json.dumps(say("x")),
                    headers=headers,
                )

            async def redis_up() -> float:
                page = read((await http.get("/metrics")).content)
                return page["threadfold_redis_up"][()]

            await until(lambda: _status(append, 202))
            assert await redis_up() == 1
            redis.kill()
            assert await redis_up() == 0
            assert (await append()).status_code == 202
            is_problem(await append("?wait=applied"), 503, "Redis")
            for path in ("context", "history"):
                is_problem(
                    await http.get(f"/v1/conversations/r/{path}", headers=headers), 503, "Redis"
                )
            is_problem(await http.get("/readyz"), 503, "Redis")
            assert (await http.get("/healthz")).status_code == 200


async def _status(request, status: int) -> bool:  # type: ignore[no-untyped-def]
    return bool((await request()).status_code == status)


@pytest.mark.long
async def test_kafka_away_appends_answer_503_in_time_reads_go_on_and_it_comes_back(
    tmp_path: Path,
) -> None:
    with EmbeddedKafka(tmp_path / "kafka") as kafka, EmbeddedRedis(tmp_path / "redis") as redis:
        own = Settings.load(
            env={}, kafka=kafka.address, redis=redis.url, topic_prefix="away", group="away", partitions=2, replication=1, min_isr=1,
            append_timeout=3.0,
        )  # fmt: skip
        await create_topics(own)
        headers = {"Authorization": f"Bearer {await make_key(own)}"}
        async with gateway(own) as http:

            async def append(query: str = "", text: str = "x") -> httpx.Response:
                return await http.post(
                    f"/v1/conversations/k/events{query}",
                    content=json.dumps(say(text)),
                    headers=headers,
                )

            async def context() -> httpx.Response:
                return await http.get("/v1/conversations/k/context", headers=headers)

            async with running_worker(own):
                await is_ready(http)
                assert (await append("?wait=applied", "before")).status_code == 200
            kafka.kill()
            for _ in range(2):
                begun = time.monotonic()
                answers = await asyncio.gather(*(append() for _ in range(5)))
                assert time.monotonic() - begun < own.append_timeout + 1.5
                for answer in answers:
                    is_problem(answer, 503, "same ids")
            assert [m["content"] for m in (await context()).json()["messages"]] == ["before"]
            is_problem(await http.get("/readyz"), 503, "Kafka")

            kafka.wanted_port = kafka.port
            await asyncio.to_thread(kafka.start)
            await until(lambda: _status(append, 202), 60)
            async with running_worker(own):
                await until(lambda: _status(lambda: append("?wait=applied", "after"), 200), 60)
                assert (await context()).json()["messages"][-1]["content"] == "after"
            # The control follower lived through it: a key made now is known.
            headers["Authorization"] = f"Bearer {await make_key(own)}"
            await until(lambda: _status(context, 200))


@pytest.mark.long
async def test_services_end_within_what_up_gives_them_while_kafka_is_frozen_and_requests_under_way_are_answered(
    tmp_path: Path,
) -> None:
    with EmbeddedStack(tmp_path / "stack") as own:
        assert own.embedded_kafka is not None
        settings = fresh_settings(own, gateway_port=0, append_timeout=30.0)
        await create_topics(settings)
        control = await Control(settings).start()
        await control.ensure_generation(settings.partitions)
        await control.ensure_tenant("acme")
        key = await control.add_key("acme", SCOPES)
        await control.stop()
        write_config(tmp_path / CONFIG_FILE, settings)
        processes = [await start(name, "--data", tmp_path) for name in ("gateway", "worker")]
        try:
            assert processes[0].stdout is not None
            url = (await processes[0].stdout.readline()).decode().strip().removeprefix("ready: ")
            async with httpx.AsyncClient(
                base_url=url,
                timeout=60,
                trust_env=False,
                headers={"Authorization": f"Bearer {key}"},
            ) as client:

                async def ready() -> bool:
                    return (await client.get("/readyz")).status_code == 200

                await until(ready, 60)
                message = {"type": "message", "role": "user", "content": "x"}
                (
                    await client.post(
                        "/v1/conversations/c/events", params={"wait": "applied"}, json=message
                    )
                ).raise_for_status()
                freeze(own.embedded_kafka.pid)
                under_way = [
                    asyncio.create_task(client.post("/v1/conversations/c/events", json=message))
                    for _ in range(5)
                ]
                await asyncio.sleep(0.3)
                begun = time.monotonic()
                for process in processes:
                    process.terminate()
                ended = await asyncio.gather(
                    *(asyncio.wait_for(process.communicate(), 20) for process in processes)
                )
                answers = await asyncio.gather(*under_way)
            assert time.monotonic() - begun < 20
            assert [(answer.status_code, answer.json()["title"]) for answer in answers] == [
                (503, "Stopping")
            ] * 5
            assert all(answer.headers["retry-after"] for answer in answers)
            gateway, worker = (process.returncode for process in processes)
            # 2: the worker could not leave its group, and says so.
            assert gateway == 0 and worker in (0, 2), [err.decode()[-500:] for _, err in ended]
            assert not any(b"Traceback" in err for _, err in ended)
        finally:
            os.kill(own.embedded_kafka.pid, signal.SIGCONT)
            for process in processes:
                if process.returncode is None:
                    process.kill()
                    await process.wait()


async def test_a_caller_in_the_same_process_that_cancels_its_request_is_cancelled(
    stack: EmbeddedStack,
) -> None:
    settings = fresh_settings(stack)
    await create_topics(settings)
    control = await Control(settings).start()
    await control.ensure_generation(settings.partitions)
    await control.ensure_tenant("acme")
    key = await control.add_key("acme", ["append", "read", "subscribe"])
    await control.stop()
    app = create_gateway(settings)
    transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(
            transport=transport,
            base_url="http://g",
            headers={"Authorization": f"Bearer {key}"},
        ) as client,
    ):
        url, message = "/v1/conversations/cancelled/events", say("x")

        async def connected() -> bool:
            return (await client.post(url, json=message)).status_code == 202

        await until(connected)
        # No worker runs, so this waits.
        task = asyncio.create_task(client.post(f"{url}?wait=applied", json=message))
        await asyncio.sleep(0.2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
