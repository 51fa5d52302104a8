"""Kafka's own tools write and read the topics: Java's partitioner, records and headers are ours,
and what is no event stops nothing.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import redis.asyncio as aredis

from projections.names import Key, partition_of
from streams.log.clients import make_consumer
from streams.log.kafka_log import KafkaLog
from streams.log.topics import create_topics
from streams.settings.settings import Settings
from tests.conftest import fresh_settings
from tests.support.generations import open_generation
from tests.support.kafka_tools import tool
from tests.support.pipeline import POLICY
from tests.support.worker import running_worker, until
from tests.support.worker_process import all_applied, verified
from threadfold.embedded.stack import EmbeddedStack
from threadfold.service.conversations import ConversationService

HEADER = "content-type:application/cloudevents+json"
KEYS = [Key("acme", f"java-{i}") for i in range(12)]


@pytest.fixture
async def settings(stack: EmbeddedStack) -> AsyncIterator[Settings]:
    made = fresh_settings(stack, partitions=7, max_poison_share=1.0)
    client = aredis.Redis.from_url(made.redis)
    await client.flushdb()
    await client.aclose()
    await create_topics(made)
    await open_generation(made, POLICY, acme=None)
    yield made


def event(key: Key, number: int, text: str) -> dict[str, Any]:
    return {
        "specversion": "1.0",
        "id": f"{key.conversation}-{number}",
        "type": "threadfold.message.v1",
        "source": key.source,
        "time": "2026-01-01T00:00:00Z",
        "data": {"role": "user", "content": text},
    }


async def read_by_java(
    settings: Settings, topic: str, count: int, folder: Path
) -> list[tuple[str, str, str, str]]:
    """Partition, headers, key and value of a topic's first records, as the console consumer prints
    them.
    """
    shown = ["partition", "headers", "key", "value"]
    out, _ = await tool(
        "consumer.ConsoleConsumer",
        *(
            "--bootstrap-server",
            settings.kafka,
            "--topic",
            settings.topic(topic),
            "--from-beginning",
        ),
        *("--max-messages", str(count), "--timeout-ms", "30000", "--property", "key.separator=\t"),
        *(part for name in shown for part in ("--property", f"print.{name}=true")),
        folder=folder,
    )
    rows = [line.split("\t") for line in out.splitlines()]
    assert all(len(row) == 4 for row in rows), out
    return [(row[0].removeprefix("Partition:"), row[1], row[2], row[3]) for row in rows]


async def read_by_python(settings: Settings, topic: str) -> list[tuple[str, str, str, str]]:
    consumer = make_consumer(settings)
    consumer.subscribe([settings.topic(topic)])
    await consumer.start()
    rows: list[tuple[str, str, str, str]] = []
    try:
        await until(lambda: _assigned(consumer))
        ends = sum((await consumer.end_offsets(consumer.assignment())).values())
        while len(rows) < ends:
            for batch in (await consumer.getmany(timeout_ms=500)).values():
                for row in batch:
                    headers = ",".join(f"{name}:{value.decode()}" for name, value in row.headers)
                    rows.append((str(row.partition), headers, row.key.decode(), row.value.decode()))
    finally:
        await consumer.stop()
    return rows


async def _assigned(consumer: Any) -> bool:
    return bool(consumer.assignment())


@pytest.mark.long
async def test_events_of_the_console_producer_land_in_the_right_window_and_the_console_consumer_reads_ours(
    settings: Settings, tmp_path: Path
) -> None:
    lines = []
    for number in range(30):
        for key in KEYS:
            value = event(
                key,
                number,
                f"Said by Java as {number}: grüße 你好, order 4711 of {key.conversation} was"
                " shipped late",
            )
            lines.append(f"{HEADER}\t{key}\t{json.dumps(value, ensure_ascii=False)}")
    async with running_worker(settings) as runtime, ConversationService(settings) as backend:
        await tool(
            "ConsoleProducer",
            *("--bootstrap-server", settings.kafka, "--topic", settings.topic("events")),
            *("--property", "parse.key=true", "--property", "parse.headers=true"),
            *("--property", "key.separator=\t", "--property", "headers.delimiter=\t"),
            text="".join(f"{line}\n" for line in lines).encode(),
            folder=tmp_path,
        )
        log = KafkaLog(settings, settings.partitions)
        await all_applied(settings, log, runtime.store)

        async def summarised() -> bool:
            return sum([n async for n in _summaries(settings)]) > 0

        await until(summarised)
        for key in KEYS:
            window = await backend.window(key.tenant, key.conversation)
            assert window.meta.count >= 30
            shown = json.loads(await backend.context(key.tenant, key.conversation))["messages"]
            wanted = (
                f"Said by Java as 29: grüße 你好, order 4711 of {key.conversation} was shipped late"
            )
            assert shown[-1] == {"role": "user", "content": wanted}
        assert (await verified(settings, log, runtime.store)).differing == []
        await log.stop()
    by_python = await read_by_python(settings, "events")
    by_java = await read_by_java(settings, "events", len(by_python), tmp_path)
    assert sorted(by_java) == sorted(by_python)
    assert {headers for _, headers, _, _ in by_java} == {HEADER}
    # Java chose these partitions, for its own records.
    assert {(key, int(partition)) for partition, _, key, _ in by_java} == {
        (str(key), partition_of(key, 7)) for key in KEYS
    }
    summaries = await read_by_python(settings, "summaries")
    assert summaries
    assert sorted(await read_by_java(settings, "summaries", len(summaries), tmp_path)) == sorted(
        summaries
    )


async def _summaries(settings: Settings) -> AsyncIterator[int]:
    log = KafkaLog(settings, settings.partitions, "summaries")
    for end in (await log.end_offsets()).values():
        yield end
    await log.stop()


@pytest.mark.long
async def test_what_the_verifiable_producer_writes_is_reported_as_dead_letters_and_stops_nothing(
    settings: Settings, tmp_path: Path
) -> None:
    async with running_worker(settings) as runtime, ConversationService(settings) as backend:
        out, _ = await tool(
            "VerifiableProducer",
            *(
                "--bootstrap-server",
                settings.kafka,
                "--topic",
                settings.topic("events"),
                "--max-messages",
                "40",
                "--acks",
                "-1",
            ),
            folder=tmp_path,
        )
        said = [json.loads(line) for line in out.splitlines()]
        assert sum(line["name"] == "producer_send_success" for line in said) == 40
        await backend.append(
            "acme",
            [
                (key.conversation, {"type": "message", "role": "user", "content": "after it"})
                for key in KEYS
            ],
        )
        log = KafkaLog(settings, settings.partitions)
        await all_applied(settings, log, runtime.store)
        for key in KEYS:
            assert (await backend.window(key.tenant, key.conversation)).meta.count == 1
        letters = KafkaLog(settings, settings.partitions, "dead-letters")
        told: list[dict[str, str]] = []
        for partition, end in (await letters.end_offsets()).items():
            told += [
                json.loads(raw.value or b"") async for raw in letters.scan(partition, 0, end - 1)
            ]
        assert len(told) == 40
        assert {letter["cause"] for letter in told} == {
            "the record's key is not tenant/conversation"
        }
        sent = {
            f"{line['partition']}-{line['offset']}"
            for line in said
            if line["name"] == "producer_send_success"
        }
        assert {letter["position"] for letter in told} == sent
        await letters.stop()
        await log.stop()
