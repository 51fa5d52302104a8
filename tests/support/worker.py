"""A projector and a compactor running in the test's own loop, on real Kafka and Redis."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiokafka import AIOKafkaConsumer

from streams.log.clients import make_consumer
from streams.runtime.processor import Threads
from streams.runtime.tasks import end_tasks
from streams.settings.settings import Settings
from streams.worker_parts import Runtime


@asynccontextmanager
async def running_worker(settings: Settings, *, compact: bool = True) -> AsyncIterator[Runtime]:
    """A worker's parts without Faust around them: the projector, and (unless told not to) the
    compactor fed from its topic.
    """
    runtime = Runtime(settings, processor=Threads())
    await runtime.start()
    assert runtime.projector is not None
    tasks = [asyncio.create_task(runtime.projector.run(), name="projector")]
    consumer = make_consumer(settings, group=f"{settings.group}.agents")
    if compact:
        consumer.subscribe([settings.topic("compactions")])
        await consumer.start()
        tasks.append(asyncio.create_task(_compact(runtime, consumer), name="compactor"))
    try:
        yield runtime
    finally:
        runtime.projector.stop()
        await asyncio.wait(tasks[:1], timeout=10)
        await end_tasks(tasks)
        results = [task.exception() for task in tasks if task.done() and not task.cancelled()]
        await consumer.stop()
        await runtime.stop()
        for result in results:
            if result is not None:
                raise result


async def _compact(runtime: Runtime, consumer: AIOKafkaConsumer) -> None:
    assert runtime.dispatcher is not None
    async for row in consumer:
        await runtime.dispatcher.take(row.value, lambda: None)


async def until(condition, limit: float = 60.0, what: str = "the condition"):  # type: ignore[no-untyped-def]
    """Wait until an async condition returns something true, and return it.

    The limit is for what never comes: a busy machine takes many times what an idle one does.
    """
    # A client of Kafka's can swallow the one cancellation of a timeout.
    end = asyncio.get_running_loop().time() + limit
    async with asyncio.timeout(limit):
        while True:
            result = await condition()
            if result:
                return result
            if asyncio.get_running_loop().time() > end:
                raise TimeoutError(f"{what} did not come within {limit:g} s")
            await asyncio.sleep(0.02)
