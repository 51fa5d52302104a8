"""A worker that is asked to end does so within its bound, whatever its servers do, and logs no
traceback.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Literal

import pytest

from projections.events.validation import make_record
from projections.redis.store import RedisStore
from streams.log.kafka_log import KafkaLog
from streams.log.topics import create_topics
from streams.settings.settings import Settings
from streams.worker import LONGEST_STOP
from tests.conftest import fresh_settings
from tests.support.generations import open_generation
from tests.support.pipeline import POLICY
from tests.support.worker import until
from tests.support.worker_process import KEYS, WORKER, messages, worker
from threadfold.embedded.stack import EmbeddedStack


@pytest.fixture
def own_stack(tmp_path: Path) -> Iterator[EmbeddedStack]:
    """A stack of its own: its servers are killed here."""
    with EmbeddedStack(tmp_path / "stack") as running:
        yield running


@pytest.fixture
async def settings(own_stack: EmbeddedStack) -> AsyncIterator[Settings]:
    made = fresh_settings(own_stack, append_timeout=5.0, session_timeout=6.0)
    await create_topics(made)
    await open_generation(made, POLICY)
    yield made


@pytest.mark.long
@pytest.mark.parametrize("away", ["nothing", "kafka", "redis"])
async def test_a_worker_that_ends_under_load_logs_no_traceback(
    settings: Settings,
    own_stack: EmbeddedStack,
    tmp_path: Path,
    away: Literal["nothing", "kafka", "redis"],
) -> None:
    log, store = (
        KafkaLog(settings, settings.partitions),
        RedisStore(settings.redis, settings.topic_prefix),
    )
    assert own_stack.embedded_kafka is not None and own_stack.embedded_redis is not None
    path, rng = tmp_path / "worker.log", random.Random(11)
    process = worker(settings, path)
    for i in range(20):
        await log.append(messages(rng, 200 * i, 200))

    async def folds() -> bool:
        stored = [await store.checkpoint(1, p) for p in range(settings.partitions)]
        return all(one is not None and one.offset > 0 for one in stored)

    await until(folds)
    if away == "nothing":
        await log.append(messages(rng, 4_000, 2_000))
    else:
        server = own_stack.embedded_kafka if away == "kafka" else own_stack.embedded_redis
        await log.append(messages(rng, 4_000, 200))
        server.kill()

        async def noticed() -> bool:
            return "waits" in path.read_text() or "waiting" in path.read_text()

        if away == "redis":
            await until(noticed)
    begin = time.monotonic()
    code = await asyncio.to_thread(process.stop, LONGEST_STOP + 5)
    logged = path.read_text()
    assert time.monotonic() - begin < LONGEST_STOP + 5, logged[-2000:]
    assert code == 0 or (away != "nothing" and code == 2), logged[-2000:]
    assert "Traceback" not in logged, logged[-6000:]
    await log.stop()
    await store.close()


ENDED = f"""
from streams import worker
from streams.partition import partition

def ended(window, offset, event, *rest):
    raise KeyboardInterrupt

partition.apply = ended
worker.LONGEST_STOP = 3.0
{WORKER}
"""


@pytest.mark.long
async def test_a_worker_whose_loop_an_error_ended_leaves_no_process_that_does_nothing(
    settings: Settings, tmp_path: Path
) -> None:
    log, path = KafkaLog(settings, settings.partitions), tmp_path / "worker.log"
    process = worker(settings, path, "-c", ENDED)
    found = {"type": "tool.result", "tool_call_id": "a", "content": "found"}
    now = "2026-01-01T00:00:00Z"
    await log.append([make_record(KEYS[0], found, where="event", now=now, new_id="r1")])
    await until(lambda: asyncio.sleep(0.1, process.poll() is not None), 60)
    assert process.poll() != 0, path.read_text()[-2000:]
    await log.stop()
