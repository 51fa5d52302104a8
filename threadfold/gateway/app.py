"""The gateway's application: routes, health, and a connection that is made, and made again, in the background.

It listens even while Kafka is away: ``/healthz`` tells that the process is alive, everything else answers 503 until it is connected.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
from fastapi import FastAPI, Request
from fastapi.responses import Response

from projections.errors import Healing, KafkaUnavailable, ThreadfoldError
from streams.settings import Settings
from threadfold.backend import Backend
from threadfold.gateway import conversations, lists, problems, turns
from threadfold.gateway.access import Connection
from threadfold.gateway.room import Room

logger = logging.getLogger(__name__)
RECONNECT = 1.0
READY_TIMEOUT = 3.0
"""Seconds between two attempts to connect, and for all that ``/readyz`` asks."""


def create_gateway(settings: Settings) -> FastAPI:
    """The ASGI application. Nothing connects before its lifespan begins.

    Raises:
        InvalidSettings: an address is missing.
    """
    settings.require()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        connection: Connection = app.state.connection
        connecting = asyncio.create_task(_connect(settings, connection), name="gateway-connecting")
        try:
            yield
        finally:
            connecting.cancel()
            await asyncio.gather(connecting, return_exceptions=True)
            if connection.backend is not None:
                await connection.backend.stop()
                connection.backend = None

    app = FastAPI(title="threadfold", version="1", lifespan=lifespan, redirect_slashes=False, redoc_url=None)
    app.state.connection = Connection()
    problems.install(app)
    app.add_middleware(Room)
    for routes in (conversations, turns, lists):
        app.include_router(routes.router)

    @app.get("/healthz")
    async def healthz() -> Response:
        """The process is alive; says nothing of what it depends on."""
        return Response(b'{"status":"ok"}', media_type="application/json")

    @app.get("/readyz")
    async def readyz(request: Request) -> Response:
        """Kafka, Redis and the live generation answer, and (the first time) every partition's windows may be read; else 503."""
        return Response(msgspec.json.encode(await _ready(request.app.state.connection)), media_type="application/json")

    return app


async def _connect(settings: Settings, connection: Connection) -> None:
    """Try until it is connected; after that the clients reconnect by themselves."""
    while connection.backend is None:
        backend = Backend(settings)
        try:
            connection.backend = await backend.start()
        except Exception as error:  # whatever it was, a gateway that listens has to go on trying
            await backend.stop()
            if isinstance(error, ThreadfoldError):
                logger.warning("not connected yet: %s", error)
                connection.reason = str(error)
            else:
                logger.exception("not connected yet")
                connection.reason = f"an error that was not foreseen ({type(error).__name__})"
            await asyncio.sleep(RECONNECT)


async def _ready(connection: Connection) -> dict[str, object]:
    backend = connection.get()
    try:
        async with asyncio.timeout(READY_TIMEOUT):
            state, _ = await asyncio.gather(backend.control.sync(), backend.store.ping())
            generation = state.live_generation
            if not connection.was_ready:
                # Later on, a partition that heals must not take the whole gateway out of service: its reads say so themselves.
                await _all_readable(backend, generation.number)
                connection.was_ready = True
    except TimeoutError:
        raise KafkaUnavailable(f"Kafka or Redis did not answer within {READY_TIMEOUT:g} s") from None
    return {"status": "ready", "generation": generation.number, "partitions": generation.partitions}


async def _all_readable(backend: Backend, generation: int) -> None:
    checkpoints = await asyncio.gather(*(backend.store.checkpoint(generation, p) for p in range(backend.log.partitions)))
    behind = sum(checkpoint is None or checkpoint.healing for checkpoint in checkpoints)
    if behind:
        raise Healing(f"the windows of {behind} of {len(checkpoints)} partitions are not up to the log yet: does a worker run?")
