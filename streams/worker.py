"""The worker: a Faust app with the projector as a service and the compactor as an agent.

``create_app(settings)`` builds it; ``streams.app`` holds the one module-level app, so that ``faust
-A streams.app worker`` works as Faust's users expect; ``run_worker`` is what ``threadfold worker``
calls. Faust's known traps are met here: an exception in an agent would acknowledge its event, so
the agent catches everything itself (a lost request is sent again by the projector); values are
taken raw and decoded by us; topics are made by ``threadfold topics create``; no tables, no web
server.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from typing import Any

import faust
from faust.transport.drivers import aiokafka as driver

from projections.errors import ThreadfoldError, TopicMismatch
from projections.names import Key
from projections.redis.store import RedisStore
from streams.compaction.compactor import Compactor, decode_request
from streams.control.control_topic import Control
from streams.control.key_ring import KeyRing, encrypting
from streams.log.clients import stop_client
from streams.log.kafka_log import KafkaLog
from streams.log.topics import partition_count
from streams.projector.compaction_scheduler import StillDue
from streams.projector.progress import AnswerProgress, FoldProgress
from streams.projector.projector import Projector
from streams.runtime.log_fields import about
from streams.runtime.throttle_logs import throttle_logs
from streams.runtime.tune_gc import tune_gc
from streams.runtime.watchdog import Look, Watchdog, end_process
from streams.settings.settings import Settings

logger = logging.getLogger(__name__)
LONGEST_STOP = 15.0
"""Seconds until a worker that is asked to end does, whatever its brokers do; less than `threadfold
up` and orchestrators give it.
"""


PROJECTOR_STOP = 6.0
"""Seconds of these for the projector to write the snapshots that are due and to leave its group."""


class Runtime:
    """The parts a worker runs on, started and stopped together."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings.require()
        self.control = Control(settings)
        self.keys = KeyRing(settings, encrypting(self.control))
        self.store = RedisStore(settings.redis, settings.topic_prefix, compress=settings.compress)
        self.log: KafkaLog | None = None
        self.projector: Projector | None = None
        self.compactor: Compactor | None = None
        self.watchdog: Watchdog | None = None
        self._agents: AnswerProgress | None = None
        self._projecting: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Connect, and refuse to run over a log whose partition count is not the one its windows
        were built on.

        Raises:
            KafkaUnavailable, RedisUnavailable, TopicMismatch: as named.
            KeyUnusable: a master key that wraps keys is missing, or is another one.
        """
        partitions = await partition_count(self.settings)
        await self.control.start()
        generation = await self.control.ensure_generation(partitions)
        generation.check_partitions(self.settings.topic("events"), partitions)
        await self.keys.start()
        self.keys.check()
        server = await self.store.ping()
        if server["maxmemory_policy"] != "noeviction":
            raise TopicMismatch(
                f"Redis has maxmemory-policy {server['maxmemory_policy']}: set noeviction, or"
                " windows vanish unseen"
            )
        self.log = KafkaLog(self.settings, partitions, seals=self.keys)
        self.projector = Projector(self.settings, self.control, self.log, self.store)
        self.compactor = Compactor(
            self.settings,
            self.log,
            still_due=StillDue(self.store, lambda: self.control.state.live_generation.number),
        )

    def watch(self, agents: AnswerProgress, end: Callable[[str], None]) -> None:
        """Begin to watch that partitions and requests move on; ``end`` is called when they do not
        (:mod:`streams.runtime.watchdog`).
        """
        if self.settings.watchdog_seconds and self.log is not None and self.projector is not None:
            fold = FoldProgress(self.projector, self.log, self.store)

            async def looks() -> dict[str, Look]:
                return {**await fold(), **await agents()}

            # A summary may take its whole time, and its partition's next request has to wait for
            # it.
            self._agents = agents
            self.watchdog = Watchdog(
                looks, max(self.settings.watchdog_seconds, 3 * self.settings.summary_time_cap), end
            )
            self.watchdog.start()

    async def project(self) -> None:
        """Run the projector; raises what it does."""
        if self.projector is not None:
            self._projecting = asyncio.create_task(self.projector.run(), name="projector")
            await self._projecting

    async def stop_projecting(self) -> None:
        """Stop the watchdog and the projector, and wait for the projector's end.

        Faust cancels it a moment later. Cancelled in the middle of its end, what it began would go
        on with clients that are closed.
        """
        if self.watchdog is not None:
            self.watchdog.stop()
        if self.projector is not None:
            self.projector.stop()
        if self._projecting is not None:
            await asyncio.wait({self._projecting}, timeout=PROJECTOR_STOP)

    async def stop(self) -> None:
        """Stop the compactor's connections, the log's, the control follower's and Redis'."""
        if self.watchdog is not None:
            self.watchdog.stop()
        if self._agents is not None:
            await self._agents.stop()
        if self.compactor is not None:
            await self.compactor.close()
        if self.log is not None:
            await self.log.stop()
        await self.keys.stop()
        await self.control.stop()
        await self.store.close()


class StopsOnce:
    """Mixed into a service of Faust with a thread of its own: it can be stopped after its thread
    came to its end.

    A crash of any service ends the thread by itself, and with it the thread's loop. Faust stops all
    services after that, and would log that this loop is closed, with a traceback.
    """

    def _stopped_set(self) -> None:
        service: Any = self
        try:
            super()._stopped_set()  # type: ignore[misc]
        except RuntimeError:
            if not service.thread_loop.is_closed():
                raise
            service._stopped.set()

    async def call_thread(self, *args: Any, **kwargs: Any) -> Any:
        """Have the thread call a function; cancelled where it came to its end, as its caller is to
        be, too.
        """
        service: Any = self
        if service.thread_loop.is_closed():
            raise asyncio.CancelledError
        return await super().call_thread(*args, **kwargs)  # type: ignore[misc]


class _ConsumerThread(StopsOnce, driver.AIOKafkaConsumerThread):  # type: ignore[misc]
    """The thread in which Faust reads the requests."""

    async def on_thread_stop(self) -> None:
        """Stop the consumer in bounded time, without the cancellation that aiokafka lets out while
        its broker is away: it would end the thread with a traceback, and Faust would wait for ever.
        """
        await super(driver.AIOKafkaConsumerThread, self).on_thread_stop()
        if self._consumer is not None:
            await stop_client(self._consumer, self.app.runtime.settings)


class _Consumer(driver.Consumer):  # type: ignore[misc]
    thread = _ConsumerThread

    def _new_consumer_thread(self) -> Any:
        return self.thread(self, loop=self.loop, beacon=self.beacon)


class _Transport(driver.Transport):  # type: ignore[misc]
    Consumer = _Consumer


class _App(faust.App):  # type: ignore[misc]
    runtime: Runtime

    def _new_transport(self) -> Any:
        return _Transport(self.conf.broker_consumer, self)

    def _create_directories(self) -> None:
        """Faust would make folders for tables in the working directory; there are no tables."""


class _Service(faust.Service):  # type: ignore[misc]
    """A service whose failure by a named cause is not logged with where it was raised: whoever runs
    the worker says it in one line.
    """

    async def crash(self, reason: BaseException) -> None:
        logger.disabled = isinstance(reason, ThreadfoldError)
        try:
            await super().crash(reason)
        finally:
            logger.disabled = False


def _credentials(settings: Settings) -> Any:
    """How Faust logs in, as all other clients do (:func:`streams.log.clients.connection`)."""
    if not settings.kafka_user:
        return None
    return faust.SASLCredentials(
        username=settings.kafka_user, password=settings.kafka_password, mechanism="PLAIN"
    )


def create_app(settings: Settings) -> Any:
    """The Faust app of one worker. Nothing connects before it is started."""
    app = _App(
        f"{settings.group}.agents",
        broker=[f"kafka://{host.strip()}" for host in settings.kafka.split(",")],
        broker_credentials=_credentials(settings),
        topic_disable_leader=True,
        topic_allow_declare=False,
        topic_replication_factor=settings.replication or 1,
        store="memory://",
        web_enabled=False,
        stream_wait_empty=False,
        processing_guarantee="at_least_once",
        consumer_auto_offset_reset="earliest",
        broker_session_timeout=settings.session_timeout,
        broker_heartbeat_interval=settings.session_timeout / 4,
        producer_max_request_size=16 << 20,
        consumer_max_fetch_size=16 << 20,
    )
    runtime = app.runtime = Runtime(settings)
    taken = 0

    def assigned() -> set[int]:
        return {
            tp.partition
            for tp in app.consumer.assignment()
            if tp.topic == settings.topic("compactions")
        }

    requests = app.topic(
        settings.topic("compactions"),
        key_type=bytes,
        value_type=bytes,
        key_serializer="raw",
        value_serializer="raw",
    )

    @app.service
    class ProjectorService(_Service):
        """Runs the projector beside Faust's agents; its failure is the worker's."""

        async def on_start(self) -> None:
            throttle_logs()
            await runtime.start()
            runtime.watch(
                AnswerProgress(settings, app.conf.id, assigned, lambda: taken), end_process
            )
            tune_gc()

        @faust.Service.task  # type: ignore[untyped-decorator]
        async def _run(self) -> None:
            await runtime.project()

        async def on_stop(self) -> None:
            await runtime.stop_projecting()

        async def on_shutdown(self) -> None:
            await runtime.stop()

    @app.agent(requests, concurrency=settings.compactor_concurrency)  # type: ignore[untyped-decorator]
    async def compact(stream: Any) -> None:
        """Answer compaction requests, a bounded number at a time."""
        nonlocal taken
        async for value in stream:
            taken += 1
            if runtime.compactor is not None:
                await answer(runtime.compactor, value, settings.summary_time_cap)

    return app


async def answer(compactor: Compactor, value: bytes | None, time_cap: float) -> None:
    """Answer one request within ``time_cap`` seconds; what goes wrong is logged and left to the
    projector's next request.
    """
    request = decode_request(value)
    if request is None:
        logger.warning("a compaction request that cannot be read is passed over")
        return
    key = Key(request.tenant, request.conversation)
    failed = f"compaction of {key} failed, it will be asked for again"
    try:
        async with asyncio.timeout(time_cap):
            await compactor.answer_if_due(request)
    except (ThreadfoldError, TimeoutError) as error:
        why = str(error) or "it took too long"
        logger.warning("%s: %s", failed, why, extra=about(key))
    except Exception:
        logger.exception(failed, extra=about(key))


class _Worker(faust.Worker):  # type: ignore[misc]
    """A worker that ends: Faust's consumer waits for a broker that does not answer for as long as
    it does not.

    Nothing is lost by that: it is what a worker that is killed leaves, and others go on from the
    checkpoints.
    """

    ending: threading.Timer | None = None

    async def stop(self) -> None:
        if self.ending is None:
            # A thread, as the loop itself may be what hangs.
            self.ending = threading.Timer(LONGEST_STOP, _end_now)
            self.ending.daemon = True
            self.ending.start()
        await super().stop()


def _end_now() -> None:
    end_process(
        f"it was asked to end, and did not within {LONGEST_STOP:g} s (do Kafka and Redis answer?)",
        "its partitions are taken over after the session time-out",
    )


def run_worker(settings: Settings) -> int:
    """Run a worker until SIGTERM or SIGINT; returns its exit code: 2 when it could not end in order
    within :data:`LONGEST_STOP`.

    Raises:
        ThreadfoldError: it could not start, or what it was ended by: an unusable master key.
    """
    settings.require()
    asyncio.run(_check_reachable(settings))
    app = create_app(settings)
    worker = _Worker(app, loglevel=settings.log_level, quiet=False, redirect_stdouts=False)
    try:
        worker.execute_from_commandline()
    except SystemExit as end:
        projector = app.runtime.projector
        if projector is not None and projector.runtime.failure is not None:
            # Faust has logged it, and knows no exit code but 1.
            raise projector.runtime.failure.with_traceback(None) from None
        return int(end.code or 0)
    finally:
        if worker.ending is not None:
            worker.ending.cancel()
    return 0


async def _check_reachable(settings: Settings) -> None:
    """One clear error before Faust starts, instead of its traceback."""
    runtime = Runtime(settings)
    try:
        await runtime.start()
    finally:
        await runtime.stop()
