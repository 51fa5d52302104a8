"""``threadfold up`` as a user meets it: real processes, from nothing to `ready:`, restarts, sudden
deaths.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import ssl
import time
import tomllib
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from redis.asyncio import Redis
from redis.exceptions import AuthenticationError

from tests.support.certificates import Authority
from tests.support.commands import cli, ok, start
from tests.support.ports import own_port
from tests.support.processes import alive, freeze
from tests.support.up import request, running
from tests.support.worker import until
from threadfold.embedded.probe import kafka_cluster

HELLO = {"type": "message", "role": "user", "content": "hello"}
pytestmark = pytest.mark.timeout(400)


async def test_up_serves_and_ends_cleanly(tmp_path: Path) -> None:
    data = tmp_path / "data"
    port = own_port()
    async with running(data, "--metrics-port", str(port)) as first:
        url = await first.ready()
        key = re.fullmatch(r"key for tenant demo: (tf_\S+)", first.lines[0])[1]  # type: ignore[index]
        assert len(first.lines) == 2
        sent = await request(f"{url}/v1/conversations/c/events?wait=applied", key, HELLO)
        assert sent["events"][0]["status"] == "applied"
        async with httpx.AsyncClient(trust_env=False) as http:
            samples = (await http.get(f"http://127.0.0.1:{port}/metrics")).text
            console = await http.get(f"{url}/console")
        assert console.status_code == 200 and "console.js" in console.text
        assert re.search(r'threadfold_events_total\{outcome="applied",.*\} 1.0', samples)
        shown = json.loads((await ok("tenants", "show", "demo", "--data", data)).out)
        assert shown["used_today"] == {"summary_tokens": 0.0, "summary_cost": 0.0}
        assert shown["quota_in_force"]["summary_weight"] == 1
        config = tomllib.loads((data / "threadfold.toml").read_text())
        assert config["gateway_url"] == url
        assert (config["replication"], config["min_isr"], config["partitions"]) == (1, 1, 16)
        assert (
            json.loads((await ok("context", "demo", "c", "--data", data)).out)["messages"][0][
                "content"
            ]
            == "hello"
        )
        assert (await ok("doctor", env={"THREADFOLD_CONFIG": str(data / "threadfold.toml")})).lines[
            -1
        ] == "ok    lag: none: 1 events applied"

        # Chat text and passwords are for the owner alone: on disk, in `ps`, and over the ports.
        secrets = [config["kafka_password"], urlsplit(config["redis"]).password]
        assert all(secrets)
        for folder in (data, data / "stack", data / "logs"):
            assert folder.stat().st_mode & 0o077 == 0
        commands = " ".join(first.children().values())
        logs = [*data.glob("stack/*/*.log"), *data.glob("logs/*.log")]
        assert len(logs) == 4
        told = commands + "".join(log.read_text() for log in logs)
        assert not [secret for secret in secrets if secret in told]
        async with Redis(port=urlsplit(config["redis"]).port) as stranger:
            with pytest.raises(AuthenticationError):
                await stranger.keys("*")
        assert kafka_cluster(*config["kafka"].split(":")) is None

        second = await cli("up", "--data", data, "--port", "0")
        assert second.code == 2
        assert f"is in use by process {first.process.pid}" in second.said

        family = first.children()
        code, said = await first.end()
        assert code == 0, said
        assert said.splitlines()[-1] == "stopping"
        assert (
            f"\nconsole: {url}/console (sign in with the key that the first start printed" in said
        )
        assert not [args for pid, args in family.items() if alive(pid)]


@pytest.mark.long
async def test_with_a_certificate_the_gateway_speaks_tls(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.issue("gateway")
    env = {
        "THREADFOLD_GATEWAY_CERTIFICATE": str(certificate),
        "THREADFOLD_GATEWAY_PRIVATE_KEY": str(key),
    }
    trusted = ssl.create_default_context(cafile=str(authority.ca))
    async with running(tmp_path / "data", env=env) as up:
        url = await up.ready()
        assert url.startswith("https://127.0.0.1:")
        headers = {"Authorization": f"Bearer {up.lines[0].rpartition(' ')[2]}"}
        async with httpx.AsyncClient(
            base_url=url, headers=headers, verify=trusted, trust_env=False, timeout=30
        ) as http:
            said = await http.post("/v1/conversations/c/events?wait=applied", json=HELLO)
            assert said.status_code == 200
            async with http.stream("GET", "/v1/conversations/c/stream") as stream:
                assert stream.headers["content-type"].startswith("text/event-stream")
        assert (await up.end())[0] == 0
    key.write_text("no key")
    process = await start("up", "--data", tmp_path / "other", "--port", "0", env=env)
    _, errors = await process.communicate()
    assert process.returncode == 2
    assert re.fullmatch(r".*gateway_certificate .* do not load .*\n", errors.decode())


@pytest.mark.long
async def test_up_keeps_its_data_and_its_keys(tmp_path: Path) -> None:
    data = tmp_path / "data"
    async with running(data, "--workers", "2") as first:
        url = await first.ready()
        key = first.lines[0].split()[-1]
        await request(f"{url}/v1/conversations/c/events?wait=applied", key, HELLO)
        workers = [
            args
            for args in first.children().values()
            if args.endswith("threadfold.cli worker") and "guard.py" not in args
        ]
        assert len(workers) == 2
        assert (await first.end())[0] == 0

    async with running(data) as again:
        url = await again.ready()
        assert again.lines == [f"ready: {url}"]  # no second key
        assert (await request(f"{url}/v1/conversations/c/context", key))["count"] == 1
        assert (await again.end(signal.SIGINT))[0] == 0


@pytest.mark.long
async def test_after_a_sudden_death_nothing_stays_and_the_next_up_works(tmp_path: Path) -> None:
    data = tmp_path / "data"
    async with running(data) as first:
        await first.ready()
        await ok("append", "demo", "c", "--data", data, text='{"role": "user", "content": "kept"}')
        family = first.children()
        assert len(family) == 8  # Kafka, Redis, worker and gateway, each with its guard
        first.process.kill()
        await first.process.communicate()
    async with running(data) as again:
        url = await again.ready()
        assert not [args for pid, args in family.items() if alive(pid)]
        assert url == tomllib.loads((data / "threadfold.toml").read_text())["gateway_url"]

        async def kept() -> bool:
            ran = await cli("context", "demo", "c", "--data", data)
            return ran.code == 0 and json.loads(ran.out)["messages"][0]["content"] == "kept"

        await until(kept)
        assert (await again.end())[0] == 0


@pytest.mark.long
async def test_a_service_or_server_that_dies_is_started_again(tmp_path: Path) -> None:
    data = tmp_path / "data"
    async with running(data) as up:
        url = await up.ready()
        key = up.lines[0].split()[-1]
        before = {name: up.service(name) for name in ("worker", "gateway")}
        for pid in before.values():
            os.kill(pid, signal.SIGKILL)
        (redis,) = (
            pid
            for pid, args in up.children().items()
            if "valkey" in args or "redis-server" in args
            if "guard.py" not in args
        )
        os.kill(redis, signal.SIGKILL)

        async def back() -> bool:
            try:
                sent = await request(
                    f"{url}/v1/conversations/d/events?wait=applied",
                    key,
                    {"type": "message", "role": "user", "content": "x"},
                )
            except OSError:  # also 503: not all of it is back
                return False
            return bool(sent["events"][0]["status"] == "applied")

        await until(back, limit=60)
        assert all(up.service(name) != pid for name, pid in before.items())
        code, said = await up.end()
        assert code == 0
        assert "worker-1 ended with exit code 137" in said
        assert "gateway ended with exit code 137" in said
        assert re.search(r"redis ended with exit code 137 \(.*\): starting it again in", said)


@pytest.mark.long
async def test_kafka_that_cannot_restart_at_once_is_tried_until_it_can(tmp_path: Path) -> None:
    data = tmp_path / "data"
    async with running(data) as up:
        url = await up.ready()
        key = up.lines[0].split()[-1]
        config = tomllib.loads((data / "threadfold.toml").read_text())
        (kafka,) = (pid for pid, args in up.children().items() if args.split()[0].endswith("/java"))
        log = data / "stack" / "kafka" / "kafka.log"
        before = log.read_text().count("Address already in use")
        os.kill(kafka, signal.SIGKILL)
        with socket.socket() as obstacle:
            obstacle.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            await until(lambda: asyncio.to_thread(binds, obstacle, config["kafka"]))
            obstacle.listen()

            async def tried_twice() -> bool:
                return log.read_text().count("Address already in use") > before + 1

            await until(tried_twice, limit=90)
            assert up.process.returncode is None

        async def back() -> bool:
            try:
                sent = await request(f"{url}/v1/conversations/c/events?wait=applied", key, HELLO)
            except OSError:
                return False
            return bool(sent["events"][0]["status"] == "applied")

        await until(back, limit=90)
        code, said = await up.end()
        assert code == 0
        pauses = re.findall(r"kafka cannot be started \(.*\): trying again in ([0-9.]+) s", said)
        assert len(pauses) >= 1
        assert pauses == sorted(pauses, key=float)


def binds(listener: socket.socket, address: str) -> bool:
    host, _, port = address.partition(":")
    try:
        listener.bind((host, int(port)))
    except OSError:
        return False
    return True


@pytest.mark.long
async def test_up_ends_soon_and_loses_nothing_though_its_servers_hang(tmp_path: Path) -> None:
    data = tmp_path / "data"
    async with running(data) as up:
        url = await up.ready()
        key = up.lines[0].split()[-1]
        sent = await request(f"{url}/v1/conversations/c/events?wait=applied", key, HELLO)
        assert sent["events"][0]["status"] == "applied"
        family = up.children()
        hung = [
            pid
            for pid, args in family.items()
            if "guard.py" not in args
            if args.split()[0].endswith("/java") or "valkey" in args or "redis-server" in args
        ]
        assert len(hung) == 2
        for pid in hung:
            freeze(pid)
        since = time.monotonic()
        code, said = await up.end()
        assert code == 0, said
        assert time.monotonic() - since < 27  # 20 for all; where the gateway hangs, 3 more
        assert not [args for pid, args in family.items() if alive(pid)]
    async with running(data) as again:
        await again.ready()
        ran = await ok("context", "demo", "c", "--data", data)
        assert json.loads(ran.out)["messages"][0]["content"] == HELLO["content"]


@pytest.mark.long
@pytest.mark.parametrize("before", [None, signal.SIGINT])
async def test_up_stopped_while_it_starts_leaves_nothing(
    tmp_path: Path, before: signal.Signals | None
) -> None:
    async with running(tmp_path / "data") as up:
        assert up.process.stderr is not None
        assert (await up.process.stderr.readline()).startswith(b"starting Kafka and Redis")

        async def launched() -> bool:
            return len(up.children()) >= 2

        await until(launched)
        family = up.children()
        if before is not None:
            up.process.send_signal(before)
        code, said = await up.end()
        assert code == 0, said
        assert "Traceback" not in said
        assert not [args for pid, args in family.items() if alive(pid)]


@pytest.mark.long
async def test_services_that_cannot_start_are_given_up_with_the_end_of_their_log(
    tmp_path: Path,
) -> None:
    # A setting of Faust alone: `up` itself does not look at it, the worker ends by it.
    async with running(tmp_path / "data", env={"STREAM_BUFFER_MAXSIZE": "nonsense"}) as up:
        async with asyncio.timeout(100):
            _, err = await up.process.communicate()
        assert up.process.returncode == 2
        last = err.decode().splitlines()[-1]
        assert re.search(
            r"threadfold: (worker-1|gateway) ended 3 times \(exit code \d+\) and is given up: .*;"
            r" see .*\.log",
            last,
        )
