"""The gateway's application: routes, health, and a connection that is made, and made again, in the
background.

It listens even while Kafka is away: ``/healthz`` tells that the process is alive, everything else
answers 503 until it is connected.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import msgspec
from fastapi import FastAPI, Request
from fastapi.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from projections.errors import Healing, KafkaUnavailable, ThreadfoldError
from projections.events.tokenizer import count_all
from streams.encryption.master_keys import master_keys_of
from streams.runtime.tasks import end_tasks
from streams.settings.quotas import NO_QUOTA, Quota
from streams.settings.settings import Settings
from threadfold.gateway import (
    conversations,
    erasing,
    lists,
    openapi,
    problems,
    reference,
    streams,
    tenants,
    turns,
)
from threadfold.gateway.access import Caller, Connection
from threadfold.gateway.gate import Gate
from threadfold.gateway.hot import Hot
from threadfold.gateway.key_sets import check_source
from threadfold.gateway.metrics import Measured, Metrics
from threadfold.gateway.room import Room
from threadfold.quotas import Quotas, SharedBuckets
from threadfold.service.appended import Appended
from threadfold.service.conversations import ConversationService
from threadfold.streaming import Live

logger = logging.getLogger(__name__)
RECONNECT = 1.0
READY_TIMEOUT = 3.0
"""Seconds between two attempts to connect, and for all that ``/readyz`` asks."""


class Gateway(FastAPI):
    """The framework's application behind a front of our own: the gate, the room, and the short way
    (``threadfold.gateway.hot``).
    """

    front: ASGIApp | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, or the lifespan."""
        if self.front is not None and scope["type"] == "http":
            await self.front(scope, receive, send)
        else:
            await self.routed(scope, receive, send)

    async def routed(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request that has passed the front."""
        await super().__call__(scope, receive, send)


def create_gateway(settings: Settings, on_connected: Callable[[], None] = lambda: None) -> FastAPI:
    """The ASGI application. Nothing connects before its lifespan begins.

    Args:
        on_connected: called once everything that lives as long as the process has been made.

    Raises:
        InvalidSettings: an address is missing, a master key is wrong, or the file with the keys of
            tokens is not there.
    """
    settings.require()
    master_keys_of(settings)
    check_source(settings.jwt_keys)
    connection = Connection(settings)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        connecting = asyncio.create_task(
            _connect(settings, app, on_connected), name="gateway-connecting"
        )
        try:
            yield
        finally:
            await end_tasks([connecting])
            if app.state.live is not None:
                await app.state.live.stop()
                app.state.live = None
            await connection.credentials.close()
            if connection.quotas is not None:
                await connection.quotas.stop()
            if connection.backend is not None:
                await connection.backend.stop()
            connection.backend = connection.quotas = None

    app = Gateway(
        title="threadfold",
        version="1",
        lifespan=lifespan,
        redirect_slashes=False,
        docs_url=None,
        redoc_url=None,
    )
    app.state.connection = connection
    app.state.live = None
    app.state.ending = False
    metrics = Metrics()
    problems.install(app)
    hot = Hot(app.routed, connection)
    room = Room(
        hot,
        quota_of=lambda tenant: (
            NO_QUOTA if connection.quotas is None else connection.quotas.of(tenant)
        ),
    )
    app.front = Measured(
        Gate(room, connection=connection), metrics=metrics, ending=lambda: bool(app.state.ending)
    )
    for routes in (conversations, turns, lists, streams, tenants, erasing, reference):
        app.include_router(routes.router)
    openapi.install(app)

    @app.get("/metrics")
    async def metrics_page() -> Response:
        """What Prometheus reads."""
        return metrics.page()

    @app.get("/healthz")
    async def healthz() -> Response:
        """The process is alive; says nothing of what it depends on."""
        return Response(b'{"status":"ok"}', media_type="application/json")

    @app.get("/readyz")
    async def readyz(request: Request) -> Response:
        """Kafka, Redis and the live generation answer, and (the first time) every partition's
        windows may be read; else 503.
        """
        return Response(
            msgspec.json.encode(await _ready(request.app.state.connection)),
            media_type="application/json",
        )

    return app


def end_streams(app: FastAPI) -> None:
    """End all streams, and let none begin: what a server does first when it stops, as it waits for
    open connections.

    Requests that it cuts off from now on are told so.
    """
    app.state.ending = True
    if app.state.live is not None:
        app.state.live.end_streams()


async def _connect(settings: Settings, app: FastAPI, on_connected: Callable[[], None]) -> None:
    """Try until it is connected; after that the clients reconnect by themselves."""
    connection: Connection = app.state.connection
    while connection.backend is None:
        backend = ConversationService(settings)
        try:
            # The first count makes its tables, for half a second: not in the loop, and not while
            # somebody waits for an append.
            await asyncio.to_thread(count_all, ["warm"])
            await backend.start()
            app.state.live = await Live(backend).start()
            connection.quotas = quotas = await _quotas(settings, backend).start()
            app.state.live.on_kept(_charging(backend, quotas))
            connection.backend = backend
        except Exception as error:  # whatever it was, a gateway that listens has to go on trying
            if app.state.live is not None:
                await app.state.live.stop()
                app.state.live = None
            await backend.stop()
            if isinstance(error, ThreadfoldError):
                logger.warning("not connected yet: %s", error)
                connection.reason = str(error)
            else:
                logger.exception("not connected yet")
                connection.reason = f"an error that was not foreseen ({type(error).__name__})"
            await asyncio.sleep(RECONNECT)
    on_connected()


def _quotas(settings: Settings, backend: ConversationService) -> Quotas:
    default = settings.quota()

    def quota_of(name: str) -> Quota:
        tenant = backend.control.state.tenants.get(name)
        return default if tenant is None else tenant.quota.over(default)

    quotas = Quotas(SharedBuckets(settings.redis, settings.topic_prefix), quota_of)
    backend.control.on_change(lambda _: quotas.refresh())
    return quotas


def _charging(
    backend: ConversationService, quotas: Quotas
) -> Callable[[str, Sequence[Appended]], None]:
    """What charges the texts in progress that were kept as messages: nobody's request appended
    them.
    """

    def charge(tenant: str, appended: Sequence[Appended]) -> None:
        Caller(tenant, backend, quotas).charge(appended)

    return charge


async def _ready(connection: Connection) -> dict[str, object]:
    backend = connection.get()
    try:
        async with asyncio.timeout(READY_TIMEOUT):
            state, _ = await asyncio.gather(backend.control.sync(), backend.store.inner.ping())
            generation = state.live_generation
            if not connection.was_ready:
                # Later on, a partition that heals must not take the whole gateway out of service:
                # its reads say so themselves.
                await _all_readable(backend, generation.number)
                connection.was_ready = True
    except TimeoutError:
        raise KafkaUnavailable(
            f"Kafka or Redis did not answer within {READY_TIMEOUT:g} s"
        ) from None
    return {"status": "ready", "generation": generation.number, "partitions": generation.partitions}


async def _all_readable(backend: ConversationService, generation: int) -> None:
    checkpoints = await asyncio.gather(
        *(backend.store.checkpoint(generation, p) for p in range(backend.log.partitions))
    )
    behind = sum(checkpoint is None or checkpoint.healing for checkpoint in checkpoints)
    if behind:
        raise Healing(
            f"the windows of {behind} of {len(checkpoints)} partitions are not up to the log yet:"
            " does a worker run?"
        )
