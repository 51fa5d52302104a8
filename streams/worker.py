"""The worker: a Faust app with the projector as a service and the compactor as an agent.

``create_app(settings)`` builds it; ``streams.app`` holds the one module-level app, so that ``faust
-A streams.app worker`` works as Faust's users expect; ``run_worker`` is what ``threadfold worker``
calls. Faust's known traps are met here: an exception in an agent would acknowledge its event, so
requests are acknowledged by us, once they are done and in their order; values are taken raw and
decoded by us; topics are made by ``threadfold topics create``; no tables, no web server.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Any

import faust
from faust.transport.drivers import aiokafka as driver

from projections.errors import ThreadfoldError
from streams.compaction.deliveries import Deliveries
from streams.log.clients import KafkaError, kafka_errors, stop_client
from streams.log.login import connection
from streams.runtime.json_logs import write_json
from streams.runtime.throttle_logs import throttle_logs
from streams.runtime.tune_gc import tune_gc
from streams.runtime.watchdog import end_process
from streams.settings.settings import Settings
from streams.worker_parts import PARTS, Runtime

logger = logging.getLogger(__name__)
LONGEST_STOP = 15.0
"""Seconds until a worker that is asked to end does, whatever its brokers do; less than `threadfold
up` and orchestrators give it.
"""


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


class ConsumerThread(StopsOnce, driver.AIOKafkaConsumerThread):  # type: ignore[misc]
    """The thread in which Faust reads the requests."""

    async def on_thread_stop(self) -> None:
        """Stop the consumer in bounded time, without the cancellation that aiokafka lets out while
        its broker is away: it would end the thread with a traceback, and Faust would wait for ever.
        """
        await super(driver.AIOKafkaConsumerThread, self).on_thread_stop()
        if self._consumer is not None:
            await stop_client(self._consumer, self.app.runtime.settings)

    async def seek_to_committed(self) -> Any:
        """Seek all partitions to what is committed, those without to their beginning.

        Faust drops what it had fetched when partitions are given out anew, and then reads from
        here. aiokafka leaves a partition of which nothing is committed yet where it is: behind what
        was dropped.
        """
        return await self.call_thread(self._seek)

    async def _seek(self) -> Any:
        consumer = self._ensure_consumer()
        committed = await consumer.seek_to_committed()
        fresh = [tp for tp, offset in committed.items() if not offset]
        if fresh:
            await consumer.seek_to_beginning(*fresh)
        return committed

    def verify_event_path(self, now: float, tp: Any) -> None:
        """Log what keeps a partition's requests from being read.

        A partition that is sought now, or was taken away, has no position. aiokafka raises then,
        which would end the worker, and there is nothing to log.
        """
        with suppress(AssertionError, AttributeError):
            super().verify_event_path(now, tp)


class Consumer(driver.Consumer):  # type: ignore[misc]
    """Faust's account of the requests that are acknowledged.

    It takes what it could not commit for committed. Those requests come again after the rebalance
    that it could not be committed for, and Faust would not take their acknowledgements.
    """

    thread = ConsumerThread
    _known: Mapping[Any, int | None] = MappingProxyType({})
    """What is committed, as far as Kafka has said so."""

    def _new_consumer_thread(self) -> Any:
        return self.thread(self, loop=self.loop, beacon=self.beacon)

    async def perform_seek(self) -> None:
        await super().perform_seek()
        self._known = dict(self._committed_offset)

    async def _commit_offsets(self, offsets: Mapping[Any, int], *args: Any, **more: Any) -> bool:
        done: bool = await super()._commit_offsets(offsets, *args, **more)
        if done:
            self._known = {**self._known, **offsets}
        else:
            self._committed_offset.update({tp: self._known.get(tp) for tp in offsets})
        return done


class _Transport(driver.Transport):  # type: ignore[misc]
    Consumer = Consumer


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
    """How Faust logs in, as all other clients do (:func:`streams.log.login.connection`)."""
    login = connection(settings)
    context = login.get("ssl_context")
    if (tokens := login.get("sasl_oauth_token_provider")) is not None:
        return faust.auth.OAuthCredentials(oauth_cb=tokens, ssl_context=context)
    if (mechanism := login.get("sasl_mechanism")) is not None:
        return faust.SASLCredentials(
            username=settings.kafka_user,
            password=settings.kafka_password,
            mechanism=mechanism,
            ssl_context=context,
        )
    return None if context is None else faust.SSLCredentials(context)


def create_app(settings: Settings, parts: frozenset[str] = PARTS) -> Any:
    """The Faust app of one worker that runs these parts. Nothing connects before it is started."""
    app = _App(
        settings.compactor_group,
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
    runtime = app.runtime = Runtime(settings, parts=parts)

    def assigned() -> set[int]:
        return {
            tp.partition
            for tp in app.consumer.assignment()
            if tp.topic == settings.topic("compactions")
        }

    @app.service
    class ProjectorService(_Service):
        """Runs the projector beside Faust's agents; its failure is the worker's."""

        async def on_start(self) -> None:
            throttle_logs()
            await runtime.start()
            await runtime.show_metrics()
            runtime.watch(assigned, end_process)
            tune_gc()

        @faust.Service.task  # type: ignore[untyped-decorator]
        async def _run(self) -> None:
            await runtime.project()

        async def on_stop(self) -> None:
            await runtime.stop_projecting()

        async def on_shutdown(self) -> None:
            await runtime.stop()

    if "compactor" in parts:
        _add_agent(app, runtime)
    else:
        app.producer_only = True  # a consumer without a topic would not start
    return app


def _add_agent(app: Any, runtime: Runtime) -> None:
    """Faust assigns partitions and delivers requests; the dispatcher has them answered."""
    deliveries = Deliveries()

    @app.on_partitions_revoked.connect  # type: ignore[untyped-decorator]
    async def revoked(sender: Any, revoked: Any, **kwargs: Any) -> None:
        deliveries.forget()
        # Also here: records can come again before the assignment of their partitions is reported.
        runtime.handed_over()

    @app.on_partitions_assigned.connect  # type: ignore[untyped-decorator]
    async def assigned(sender: Any, assigned: Any, **kwargs: Any) -> None:
        runtime.handed_over()

    requests = app.topic(
        runtime.settings.topic("compactions"),
        key_type=bytes,
        value_type=bytes,
        key_serializer="raw",
        value_serializer="raw",
    )

    @app.agent(requests)  # type: ignore[untyped-decorator]
    async def compact(stream: Any) -> None:
        """Hand compaction requests to the dispatcher, as many as it takes."""
        stream.enable_acks = False
        async for event in stream.events():
            dispatcher = await runtime.dispatching()  # Faust delivers before services are started
            done, current = deliveries.add(event.message.partition, event.ack)
            await dispatcher.take(event.value, done, current)


class _Worker(faust.Worker):  # type: ignore[misc]
    """A worker that ends: Faust's consumer waits for a broker that does not answer for as long as
    it does not.

    Nothing is lost by that: it is what a worker that is killed leaves, and others go on from the
    checkpoints.
    """

    ending: threading.Timer | None = None
    failure: ThreadfoldError | None = None
    """Why it could not start, where that has a name."""
    settings: Settings

    async def start(self) -> None:
        try:
            await self._start()
        except ThreadfoldError as error:
            # Faust would log it with a traceback; what it ends in silence is a start that was
            # cancelled. Whoever runs the worker says it in one line.
            self.failure = error
            raise asyncio.CancelledError from None

    async def _start(self) -> None:
        try:
            await super().start()
        except KafkaError:
            async with kafka_errors(self.settings):
                raise

    def on_setup_root_logger(self, logger: logging.Logger, level: int) -> None:
        super().on_setup_root_logger(logger, level)
        if self.settings.log_format == "json":
            write_json(logging.getLevelName(level))

    async def stop(self) -> None:
        self.end_within()
        await super().stop()

    def end_within(self) -> None:
        """See to it that the process ends: by itself, or at once after :data:`LONGEST_STOP`."""
        if self.ending is None:
            # A thread, as the loop itself may be what hangs.
            self.ending = threading.Timer(LONGEST_STOP, _end_now)
            self.ending.daemon = True
            self.ending.start()


def _end_now() -> None:
    end_process(
        f"it was asked to end, and did not within {LONGEST_STOP:g} s (do Kafka and Redis answer?)",
        "its partitions are taken over after the session time-out",
    )


def run_worker(settings: Settings, parts: frozenset[str] = PARTS) -> int:
    """Run a worker's parts until SIGTERM or SIGINT; returns its exit code. The process has to end
    then: where it has not within :data:`LONGEST_STOP`, it is ended with code 2.

    Raises:
        ThreadfoldError: it could not start, or what it was ended by: an unusable master key.
    """
    settings.require()
    asyncio.run(_check_reachable(settings, parts))
    app = create_app(settings, parts)
    worker = _Worker(app, loglevel=settings.log_level, quiet=False, redirect_stdouts=False)
    worker.settings = settings
    try:
        worker.execute_from_commandline()
    except SystemExit as end:
        failure = worker.failure or app.runtime.failure
        if failure is not None:  # Faust does not log it, and knows no exit code but 1
            raise failure.with_traceback(None) from None
        return int(end.code or 0)
    finally:
        # The interpreter waits for threads, of which an error that ended the loop may leave some.
        worker.end_within()
    return 0


async def _check_reachable(settings: Settings, parts: frozenset[str]) -> None:
    """One clear error before Faust starts, instead of its traceback."""
    runtime = Runtime(settings, parts=parts)
    try:
        await runtime.start()
        await runtime.show_metrics()
    finally:
        await runtime.stop()
