"""A worker that starts answers what was asked before there was one."""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from projections.redis.store import RedisStore
from streams.log.kafka_log import KafkaLog
from streams.settings.settings import Settings
from tests.support.commands import cli
from tests.support.cut_proxy import cut_proxy
from tests.support.generations import open_generation
from tests.support.pipeline import POLICY
from tests.support.ports import closed_port
from tests.support.worker import running_worker, until
from tests.support.worker_process import environment, messages, worker

FAR = 1 << 52
LOSES_KAFKA = """
from streams.worker_parts import Runtime
from threadfold.cli.main import main

async def finds_all(self):
    pass  # and is gone then

Runtime.start = Runtime.show_metrics = finds_all
raise SystemExit(main(["worker"]))
"""
ENDS_AT_ONCE = """
from projections.errors import KafkaUnavailable
from streams.projector.projector import Projector
from threadfold.cli.main import main

async def run(self):
    raise KafkaUnavailable("Kafka left while the projector began")

Projector.run = run
raise SystemExit(main(["worker"]))
"""


@pytest.mark.long
async def test_requests_that_wait_on_their_topic_are_answered_when_a_worker_starts(
    settings: Settings, tmp_path: Path
) -> None:
    # What is lost would be asked for again after so many seconds: longer than this test waits.
    patient = msgspec.structs.replace(settings, summary_time_cap=600.0)
    await open_generation(patient, POLICY)
    log = KafkaLog(patient, patient.partitions)
    requests = KafkaLog(patient, patient.partitions, "compactions")
    store = RedisStore(patient.redis, patient.topic_prefix)

    async def due() -> int:
        waiting = [await store.due(1, p, FAR, 1_000) for p in range(patient.partitions)]
        return sum(map(len, waiting))

    async def asked() -> int:
        return sum((await requests.end_offsets()).values())

    async def all_asked() -> bool:
        return await due() > 0 and await asked() >= await due() and await folded()

    async def folded() -> bool:
        ends = await log.end_offsets()
        stored = {p: await store.checkpoint(1, p) for p in ends}
        return all(
            not end or ((c := stored[p]) is not None and c.offset == end - 1)
            for p, end in ends.items()
        )

    async def none_due() -> bool:
        return await due() == 0

    await log.append(messages(random.Random(5), 0, 400))
    async with running_worker(patient, compact=False):
        await until(all_asked)
    process = worker(patient, tmp_path / "worker.log")
    try:
        await until(none_due, 150, what="a summary of each due window")
    finally:
        process.stop()
        await log.stop()
        await requests.stop()
        await store.close()


@pytest.mark.long
async def test_a_worker_that_loses_redis_while_it_starts_says_so_in_one_line_and_ends(
    settings: Settings,
) -> None:
    """It looks whether all is there before Faust starts, and connects anew in it."""
    await open_generation(settings, POLICY)
    async with cut_proxy(settings.redis, once=True) as proxy:
        env = {
            "THREADFOLD_KAFKA": settings.kafka,
            "THREADFOLD_REDIS": proxy.url.replace("http://", "redis://"),
            "THREADFOLD_TOPIC_PREFIX": settings.topic_prefix,
        }
        ran = await cli("worker", env=env)
    assert ran.code == 2, ran.err
    assert "Traceback" not in ran.err
    last = ran.err.splitlines()[-1]
    assert "Redis at redis://127.0.0.1:" in last and "does not answer" in last, ran.err


@pytest.mark.long
def test_a_worker_that_loses_kafka_while_it_starts_says_so_in_one_line_and_ends(
    settings: Settings,
) -> None:
    nowhere = f"127.0.0.1:{closed_port()}"
    env = {**os.environ, "THREADFOLD_KAFKA": nowhere, "THREADFOLD_REDIS": settings.redis}
    ran = subprocess.run(
        [sys.executable, "-c", LOSES_KAFKA], env=env, capture_output=True, text=True, timeout=60
    )
    assert ran.returncode == 2, ran.stderr
    assert "Starting..." in ran.stderr, "Faust was started"
    assert "Traceback" not in ran.stderr
    last = ran.stderr.splitlines()[-1]
    assert f"Kafka at {nowhere} does not answer" in last, ran.stderr


async def test_a_worker_whose_projector_loses_kafka_as_it_begins_says_so_in_its_last_line(
    settings: Settings,
) -> None:
    await open_generation(settings, POLICY)
    ran = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", ENDS_AT_ONCE],
        env=environment(settings),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ran.returncode == 2, ran.stderr
    assert "Traceback" not in ran.stderr
    assert ran.stderr.splitlines()[-1] == "threadfold: Kafka left while the projector began"
