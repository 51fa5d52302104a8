"""Sides of figure `append` within a process: our backend, and aiokafka's producer given the bytes
that our backend would send.

The job's ``how`` is ``backend`` (``ConversationService.append``: check, count, wrap, send),
``bare_send`` (``send`` a record, acknowledgements awaited list by list) or ``bare_batch``
(``create_batch`` and ``send_batch``, one batch for each partition of a list). Some callers take
lists in turn until all are sent; each waits for its list's acknowledgement before it takes the next
one. What the peers send was checked, counted and encoded before the clock started. With ``clock``,
the seconds that our side spends in counting are reported, too (``fast``: with toktok).
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any

from aiokafka import AIOKafkaProducer

from benchmarks.support.children import answer, read_job
from benchmarks.support.flats import TENANT, Items, item_lists
from benchmarks.support.meters import Meter
from projections.events import token_cost, tokenizer
from projections.events.validation import Record
from projections.names import partition_of
from projections.policy.policy import Rules
from streams.log.appender import HEADERS
from streams.log.clients import MAX_REQUEST
from streams.settings.settings import Settings
from threadfold.service.conversations import ConversationService
from threadfold.service.drafts import Drafter

Send = Callable[[Any], Awaitable[object]]


async def timed(
    send: Send, lists: Sequence[Any], callers: int, groups: dict[str, list[int]]
) -> tuple[float, dict[str, Any], list[float]]:
    """Send all lists with some callers; returns seconds, what was used, and the milliseconds each
    list took.
    """
    warm, rest = lists[: 2 * callers], lists[2 * callers :]
    await _send_all(send, iter(warm), callers, [])
    took: list[float] = []
    meter, begin = Meter(groups), time.perf_counter()
    await _send_all(send, iter(rest), callers, took)
    seconds = time.perf_counter() - begin
    return seconds, meter.stop(), took


async def _send_all(send: Send, lists: Iterator[Any], callers: int, took: list[float]) -> None:
    async def caller() -> None:
        for one in lists:
            begin = time.perf_counter()
            await send(one)
            took.append((time.perf_counter() - begin) * 1000)

    await asyncio.gather(*(caller() for _ in range(callers)))


def clock_counting(spent: list[float], fast: bool) -> None:
    """Add up the CPU seconds spent in counting; without ``fast``, count as where toktok is not
    installed.
    """
    count_all = tokenizer.count_all
    if not fast:
        sys.modules["toktok"] = None  # type: ignore[assignment]

    def clocked(texts: Sequence[str], encoding: str) -> tuple[list[int], set[int]]:
        begin = time.thread_time()
        found = count_all(texts, encoding)
        spent.append(time.thread_time() - begin)
        return found

    token_cost.count_all = clocked  # type: ignore[assignment, attr-defined]


async def backend(
    settings: Settings, lists: list[Items], callers: int, groups: dict[str, list[int]]
) -> tuple[Any, ...]:
    """Our side; the encoding is loaded before the clock starts."""
    tokenizer.count_all(["warm"])
    async with ConversationService(settings) as ours:
        return await timed(lambda items: ours.append(TENANT, items), lists, callers, groups)


def producer(settings: Settings, linger_ms: int) -> AIOKafkaProducer:
    """The bare peers' producer: our own settings (``streams.log.clients.make_producer``), and a
    linger of its own.
    """
    return AIOKafkaProducer(
        bootstrap_servers=settings.kafka,
        enable_idempotence=True,
        acks="all",
        compression_type="zstd",
        linger_ms=linger_ms,
        max_batch_size=1 << 20,
        max_request_size=MAX_REQUEST,
    )


async def bare(
    how: str,
    settings: Settings,
    lists: list[list[Record]],
    callers: int,
    linger_ms: int,
    groups: dict[str, list[int]],
) -> tuple[Any, ...]:
    """A peer's side; keys as bytes, partitions and values are ready before the clock starts."""
    topic = settings.topic("events")
    ready = [
        [
            (partition_of(record.key, settings.partitions), str(record.key).encode(), record.value)
            for record in records
        ]
        for records in lists
    ]
    async with producer(settings, linger_ms) as bare_producer:

        async def send(rows: list[tuple[int, bytes, bytes]]) -> None:
            waits = [
                await bare_producer.send(topic, value, key, partition=partition, headers=HEADERS)
                for partition, key, value in rows
            ]
            await asyncio.gather(*waits)

        async def send_batches(rows: list[tuple[int, bytes, bytes]]) -> None:
            by_partition: dict[int, list[tuple[bytes, bytes]]] = {}
            for partition, key, value in rows:
                by_partition.setdefault(partition, []).append((key, value))
            waits = []
            for partition, pairs in by_partition.items():
                batch = bare_producer.create_batch()
                for key, value in pairs:
                    if batch.append(key=key, value=value, timestamp=None, headers=HEADERS) is None:
                        raise RuntimeError(
                            "a list does not fit into one batch: choose shorter lists"
                        )
                waits.append(await bare_producer.send_batch(batch, topic, partition=partition))
            await asyncio.gather(*waits)

        return await timed(send if how == "bare_send" else send_batches, ready, callers, groups)


def main() -> None:
    """Run the side the job names."""
    settings, groups, job = read_job()
    lists = item_lists(job["events"], job["size"], job["spread"])
    how, callers = job["how"], job["callers"]
    spent: list[float] = []
    if job.get("clock"):
        clock_counting(spent, job["fast"])
    if how == "backend":
        found = asyncio.run(backend(settings, lists, callers, groups))
    else:
        drafter = Drafter(TENANT, Rules(), settings.partitions, settings.max_event_bytes)
        made = [drafter.records(items, "event", False, None) for items in lists]
        found = asyncio.run(bare(how, settings, made, callers, job["linger_ms"], groups))
    seconds, usage, took = found
    took.sort()
    events = sum(map(len, lists[2 * callers :]))
    more: dict[str, Any] = {"counting_s": sum(spent[2 * callers :])} if spent else {}
    more.update(
        list_ms_p50=round(took[len(took) // 2], 2),
        list_ms_p99=round(took[len(took) * 99 // 100], 2),
    )
    answer(events / seconds, usage=usage, **more)


if __name__ == "__main__":
    main()
