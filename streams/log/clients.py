"""Making aiokafka clients, and naming their failures by cause: the one place that knows how
threadfold talks to its brokers.

Other rooms import the names of aiokafka that they need from here (``X as X`` below).
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from itertools import chain
from typing import Any

from aiokafka import AIOKafkaConsumer as AIOKafkaConsumer
from aiokafka import AIOKafkaProducer
from aiokafka import TopicPartition as TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.client import ConnectionGroup
from aiokafka.errors import (
    ConsumerStoppedError,
    InvalidProducerEpoch,
    InvalidProducerIdMapping,
    LeaderNotAvailableError,
    MessageSizeTooLargeError,
    NotLeaderForPartitionError,
    OutOfOrderSequenceNumber,
    ProducerClosed,
    ProducerFenced,
    UnknownProducerId,
    UnknownTopicOrPartitionError,
)
from aiokafka.errors import IllegalStateError as IllegalStateError
from aiokafka.errors import KafkaError as KafkaError

from projections.errors import EventTooLarge, KafkaUnavailable, TopicMismatch
from streams.log.login import connection, remedy_of
from streams.runtime.tasks import end_tasks
from streams.settings.settings import Settings

logger = logging.getLogger(__name__)
# Each connection would say that SASL/PLAIN does not encrypt the password: the documentation does.
logging.getLogger("aiokafka.conn").addFilter(lambda record: "in the clear" not in str(record.msg))
CLOSE_LIMIT = 3.0
"""Seconds that a client has to flush and to close; a service that ends closes several, and is
killed if it takes too long.
"""

LOOK_AGAIN = 0.2
"""Seconds between two looks for a broker."""
OF_FILES = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)
"""Errors of this machine's files, which say nothing of Kafka."""

MAX_REQUEST = 16 << 20
"""Bytes of one produce request; the topics' ``max.message.bytes`` is the same."""

OWN_CODEC = "zstd"
"""Compresses the records that only threadfold has to read."""
READ_SHARE = 0.65
"""The part of the append time-out in which a read is answered. In the rest a request may wait for
its turn: whoever asked has the answer within the time-out.
"""
REQUEST_SHARE = 0.2
"""The part of the append time-out that one request may take: a broker that hangs, or whose machine
is lost, does not say so, and what was sent to it has to go to the partition's next leader within
the time that an append has.
"""

LOST_PLACE = (
    OutOfOrderSequenceNumber,
    InvalidProducerEpoch,
    InvalidProducerIdMapping,
    UnknownProducerId,
    ProducerFenced,
    LeaderNotAvailableError,
    NotLeaderForPartitionError,
)
"""After these an idempotent producer of aiokafka can append nothing more to the partition: the
broker expects another sequence number (its log lost its tail, say), or a batch that expired without
a leader took a number and was never sent. Only another producer helps.
"""


def make_producer(settings: Settings, codec: str = OWN_CODEC) -> AIOKafkaProducer:
    """An idempotent producer that waits for all in-sync replicas; zstd costs nothing here
    (ARCHITECTURE, Faust and aiokafka). ``codec`` compresses what it sends (``none``: nothing does).
    """
    producer = AIOKafkaProducer(
        **connection(settings),
        enable_idempotence=True,
        acks="all",
        compression_type=None if codec == "none" else codec,
        linger_ms=2,
        max_batch_size=1 << 20,
        max_request_size=MAX_REQUEST,
        request_timeout_ms=max(1000, int(settings.append_timeout * 1000 * REQUEST_SHARE)),
    )
    # A batch without a leader to go to waits as long as its callers do, not only as long as a
    # request may take.
    producer._message_accumulator._batch_ttl = settings.append_timeout
    return producer


class SharedProducer:
    """One producer for many callers, started by the first who needs it."""

    def __init__(self, settings: Settings, codec: str = OWN_CODEC) -> None:
        self._settings = settings
        self._codec = codec
        self._producer: AIOKafkaProducer | None = None
        self._starting = asyncio.Lock()
        self._leaving: set[asyncio.Task[None]] = set()

    async def get(self) -> AIOKafkaProducer:
        """The running producer; raises aiokafka's errors when it cannot be started (see
        :func:`kafka_errors`).
        """
        if self._producer is not None:
            return self._producer
        async with self._starting:
            if self._producer is None:
                producer = make_producer(self._settings, self._codec)
                await start_client(producer, self._settings)
                self._producer = producer
            return self._producer

    @asynccontextmanager
    async def lent(self) -> AsyncIterator[AIOKafkaProducer]:
        """The running producer; one that lost its place is retired, so that whoever tries again
        gets another.
        """
        producer = await self.get()
        try:
            yield producer
        except LOST_PLACE as error:
            self.retire(producer, error)
            raise

    def retire(self, producer: Any, error: Exception) -> None:
        """Let nobody have this producer any more; what others have under way with it goes on, and
        then it is closed.
        """
        if producer is None or producer is not self._producer:
            return
        logger.warning(
            "a producer lost its place in the log (%s) and is replaced",
            type(error).__name__,
        )
        leaving: Any = producer
        self._producer = None
        self._leave(leaving.stop())

    def abandon(self, producer: Any) -> None:
        """End this producer at once: what it holds is never sent, and its callers' sends fail.

        A producer goes on trying what its callers have given up. What is already on its way may
        still arrive.
        """
        if producer is self._producer:
            self._producer = None
        _fail_unsent(producer, KafkaError("another caller's records could not be sent"))
        self._leave(_end(producer))

    def _leave(self, ending: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(ending, name="producer-leaves")
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)

    async def stop(self) -> None:
        """Flush and close it; what Kafka does not take within :data:`CLOSE_LIMIT` stays unknown."""
        await end_tasks(list(self._leaving))
        if self._producer is not None:
            producer, self._producer = self._producer, None
            await stop_client(producer, self._settings)


def _fail_unsent(producer: Any, error: KafkaError) -> None:
    """Let a producer send nothing more; those who wait for it get the error."""
    # Before anything fails: aiokafka stumbles over failed records that it is about to send.
    producer._sender.sender_task.cancel()
    accumulator = producer._message_accumulator
    # What waits for another try is removed by its failure and by the sender: aiokafka would
    # stumble over the second one.
    accumulator._pending_batches = _Pending(accumulator._pending_batches)
    batches = [*chain(*accumulator._batches.values()), *accumulator._pending_batches]
    accumulator.fail_all(error)
    for batch in batches:
        for future in (
            batch.future,
            batch._drain_waiter,
            *(sent for sent, _ in batch._msg_futures),
        ):
            if not future.cancelled():
                future.exception()  # looked at, as perhaps nobody waits for it any more


class _Pending(set[Any]):
    """A set from which the same thing may be removed twice."""

    def remove(self, element: Any) -> None:
        self.discard(element)


async def _end(producer: Any) -> None:
    sender: asyncio.Task[None] = producer._sender.sender_task
    producer._closed = True
    # It waits for the requests that are under way, and they end with their connections.
    await producer.client.close()
    while not sender.done():
        # Without its client, one that waits for a leader would do so for ever.
        sender.cancel()
        await asyncio.wait({sender}, timeout=0.1)


def make_consumer(
    settings: Settings, *, group: str | None = None, **options: Any
) -> AIOKafkaConsumer:
    """A consumer that never commits by itself; without a group it is for reading at positions."""
    return AIOKafkaConsumer(
        **connection(settings),
        group_id=group,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        session_timeout_ms=int(settings.session_timeout * 1000),
        heartbeat_interval_ms=int(settings.session_timeout * 1000 / 4),
        **{"max_partition_fetch_bytes": 4 << 20, "fetch_max_wait_ms": 200, **options},
    )


@asynccontextmanager
async def sequential_consumer(
    settings: Settings, partitions: list[TopicPartition]
) -> AsyncIterator[AIOKafkaConsumer]:
    """A consumer of its own for some partitions, which reads ahead; closed at the end."""
    consumer = make_consumer(settings)
    await start_client(consumer, settings)
    try:
        consumer.assign(partitions)
        yield consumer
    finally:
        await stop_client(consumer, settings)


def route(consumer: AIOKafkaConsumer, tp: TopicPartition) -> object:
    """What a partition's records come over just now: its leader, and the connection to it. Two
    routes compare equal as long as neither changed.
    """
    client: Any = consumer._client
    leader = client.cluster.leader_for_partition(tp)
    return leader, client._conns.get((leader, ConnectionGroup.DEFAULT))


@asynccontextmanager
async def admin_client(settings: Settings) -> AsyncIterator[AIOKafkaAdminClient]:
    """An admin client, closed at the end."""
    admin = AIOKafkaAdminClient(**connection(settings), request_timeout_ms=10_000)
    async with kafka_errors(settings):
        await start_client(admin, settings)
        try:
            await _knows_a_broker(admin._client, settings)
            yield admin
        finally:
            await admin.close()


async def _knows_a_broker(client: Any, settings: Settings) -> None:
    """Wait until the cluster names a broker: one that is fenced for a moment is not named."""
    async with asyncio.timeout(settings.append_timeout):
        while not client.cluster.brokers():
            await asyncio.sleep(LOOK_AGAIN)
            await client.force_metadata_update()


START_GRACE = 0.5
"""Seconds in which a start that nobody waits for any more may end by itself."""
_closing: set[asyncio.Future[Any]] = set()
"""Clients that failed to start and are being closed: the event loop holds no task by itself."""


async def start_client(client: Any, settings: Settings, limit: float | None = None) -> None:
    """Start an aiokafka client within ``limit`` seconds (default: the append time-out); one that
    failed to start is closed.
    """
    starting = asyncio.ensure_future(client.start())
    try:
        async with asyncio.timeout(limit or settings.append_timeout):
            await asyncio.shield(starting)
    except BaseException:
        closing = asyncio.ensure_future(_close(client, starting))
        _closing.add(closing)
        closing.add_done_callback(_closing.discard)
        # Who is cancelled once more meanwhile leaves no client that is closed in part.
        await asyncio.shield(closing)
        raise


async def _close(client: Any, starting: asyncio.Future[None]) -> None:
    # Before it is cut off: aiokafka forgets the connection by which a start asks for the brokers.
    await asyncio.wait({starting}, timeout=START_GRACE)
    await end_tasks([starting])
    await (getattr(client, "stop", None) or client.close)()


async def stop_client(client: Any, settings: Settings) -> None:
    """Stop an aiokafka client within :data:`CLOSE_LIMIT` (or the append time-out, if that is less):
    by itself it tries for ever to reach brokers that are away. Nothing of it goes on afterwards.
    """
    task = asyncio.ensure_future(client.stop())
    # Not a time-out around it: aiokafka's own wait_for can swallow a cancellation (Python 3.11),
    # and go on waiting.
    done, _ = await asyncio.wait({task}, timeout=min(CLOSE_LIMIT, settings.append_timeout))
    if done and not task.cancelled():
        task.result()
        return
    if task.cancelled():  # aiokafka lets the cancellation of its own task out
        logger.info("a fetch was under way while its client stopped")
    else:
        logger.warning(
            "Kafka at %s does not answer: a client is closed without an orderly stop",
            settings.kafka,
        )
        await end_tasks([task])
    await _cut_off(client)


async def _cut_off(client: Any) -> None:
    """End what a client still does that stopped in part: its tasks, and its connections."""
    if isinstance(client, AIOKafkaProducer):
        _fail_unsent(client, ProducerClosed())
        await _end(client)
        return
    group, fetcher = client._coordinator, client._fetcher
    names = ("_coordination_task", "_heartbeat_task", "_commit_refresh_task")
    tasks = [getattr(group, name, None) for name in names]
    if fetcher is not None:
        tasks += [fetcher._fetch_task, *fetcher._pending_tasks]
    await end_tasks(tasks)
    await client._client.close()


@asynccontextmanager
async def reading_kafka(settings: Settings, what: str) -> AsyncIterator[None]:
    """A read that ends within :data:`READ_SHARE` of the append time-out, with its failures named by
    cause: a broker that hangs would hold it for as long as a client's own time-outs add up to.
    """
    limit = settings.append_timeout * READ_SHARE
    async with kafka_errors(settings, what):
        try:
            async with asyncio.timeout(limit):
                yield
        except TimeoutError:
            raise TimeoutError(f"no answer within {limit:g} s") from None


@asynccontextmanager
async def kafka_errors(settings: Settings, what: str = "") -> AsyncIterator[None]:
    """Name Kafka's failures by cause; ``what`` begins the message, where given."""
    begin = f"{what}: " if what else ""
    try:
        yield
    except MessageSizeTooLargeError as error:
        raise EventTooLarge(f"{begin}Kafka refuses a message of this size") from error
    except UnknownTopicOrPartitionError as error:
        raise TopicMismatch(
            f"{begin}a topic does not exist: run `threadfold topics create`"
        ) from error
    except (KafkaError, ConsumerStoppedError, TimeoutError, OSError) as error:
        if isinstance(error, OSError) and error.errno in OF_FILES:
            raise
        reason = (str(error).strip() or type(error).__name__).splitlines()[0][:160]
        raise KafkaUnavailable(
            f"{begin}Kafka at {settings.kafka} does not answer ({reason}):"
            f" {remedy_of(error, settings)}"
        ) from error
