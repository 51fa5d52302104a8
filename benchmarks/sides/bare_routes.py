"""Peers of figure `gateway_single`: bare routes of FastAPI and Starlette, on the gateway's server,
that move the bytes the gateway moves.

``bare`` is a FastAPI application: its append reads the body, gives aiokafka a record of as many
bytes as the gateway would, waits until all in-sync replicas have it, and answers as many bytes as
the gateway; its read gets a document of the same bytes from Redis in one round trip and answers
with it. It checks no key, counts no token, and knows the records before the clock starts.
``bare_starlette`` has the same functions as routes of Starlette, without FastAPI's work; ``no_io``
reads the body and answers the same bytes out of its memory.

The job has ``how``, ``texts`` (a file: the conversations' flat events, as ``[conversation,
flat]``), ``answer`` (bytes of an append's answer) and ``prefix`` (of the documents' keys in Redis).
"""

from __future__ import annotations

import gc
import itertools
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import redis.asyncio as aredis
from aiokafka import AIOKafkaProducer
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from benchmarks.sides.append_client import producer
from benchmarks.sides.gateway import end_with_stdin
from benchmarks.support.children import read_job
from benchmarks.support.texts import TENANT
from projections.names import partition_of
from projections.policy.policy import Rules
from streams.log.appender import HEADERS
from streams.settings.settings import Settings
from threadfold.gateway.server import serve_app
from threadfold.service.drafts import Drafter

APPEND, READ = "/v1/conversations/{conversation}/events", "/v1/conversations/{conversation}/context"
READY = "/v1/events"
LINGER_MS = 0
"""What a single event is sent with: aiokafka's default, and the least time to an acknowledgement.
"""


class Bare:
    """The routes' work. Each record is another one, until all have been sent; then they come again
    with the ids they had.
    """

    def __init__(self, settings: Settings, job: dict[str, Any]) -> None:
        self._settings = settings
        items = json.loads(Path(job["texts"]).read_text())
        drafter = Drafter(TENANT, Rules(), settings.partitions, settings.max_event_bytes)
        # Several records of each text: their ids differ, so the worker folds each.
        made = [
            record
            for _ in range(job["times"])
            for record in drafter.records(items, "event", False, None)
        ]
        self._rows = itertools.cycle(
            [(partition_of(r.key, settings.partitions), str(r.key).encode(), r.value) for r in made]
        )
        self._answer = b"x" * job["answer"]
        self._prefix = job["prefix"]
        self._io = job["how"] != "no_io"
        self._topic = settings.topic("events")
        self._documents: dict[str, bytes] = {}
        self._producer: AIOKafkaProducer
        self._redis: Any

    @asynccontextmanager
    async def lifespan(self, _: object) -> AsyncIterator[None]:
        """Connect, and have every document at hand for ``no_io``."""
        self._redis = aredis.Redis.from_url(self._settings.redis, max_connections=64)
        self._producer = producer(self._settings, LINGER_MS)
        await self._producer.start()
        names = [name async for name in self._redis.scan_iter(match=f"{self._prefix}*", count=1000)]
        if names:
            values = await self._redis.mget(names)
            self._documents = {
                name.decode().removeprefix(self._prefix): value
                for name, value in zip(names, values, strict=True)
            }
        gc.collect()
        gc.freeze()  # the records and documents that lie ready are no work for the collector
        try:
            yield
        finally:
            await self._producer.stop()
            await self._redis.aclose()

    async def append(self, request: Request) -> Response:
        """Read the body, send a record, wait for its acknowledgement."""
        await request.body()
        if self._io:
            partition, key, value = next(self._rows)
            await self._producer.send_and_wait(
                self._topic, value, key, partition=partition, headers=HEADERS
            )
        return Response(self._answer, 202, media_type="application/json")

    async def read(self, conversation: str) -> Response:
        """Get a document and answer with it."""
        document = (
            await self._redis.get(self._prefix + conversation)
            if self._io
            else self._documents[conversation]
        )
        return Response(document, media_type="application/json")


async def refused(_: Request) -> Response:
    """What the gateway says to an empty list, for whoever waits until it is there."""
    return Response(b"{}", 422, media_type="application/json")


def with_fastapi(bare: Bare) -> Any:
    """As anybody would write it."""
    from fastapi import FastAPI

    app = FastAPI(lifespan=bare.lifespan, docs_url=None, redoc_url=None, openapi_url=None)

    async def append(request: Request, conversation: str) -> Response:
        return await bare.append(request)

    async def read(conversation: str) -> Response:
        return await bare.read(conversation)

    app.post(APPEND, status_code=202)(append)
    app.get(READ)(read)
    app.post(READY)(refused)
    return app


def with_starlette(bare: Bare) -> Any:
    """The same without FastAPI's dependencies and parameters."""

    async def read(request: Request) -> Response:
        return await bare.read(request.path_params["conversation"])

    ways: Sequence[tuple[str, Callable[[Request], Awaitable[Response]], str]] = (
        (APPEND, bare.append, "POST"),
        (READ, read, "GET"),
        (READY, refused, "POST"),
    )
    return Starlette(
        routes=[Route(path, way, methods=[method]) for path, way, method in ways],
        lifespan=bare.lifespan,
    )


if __name__ == "__main__":
    settings, _, job = read_job()
    end_with_stdin()
    bare = Bare(settings, job)
    serve_app(
        with_starlette(bare) if job["how"] == "bare_starlette" else with_fastapi(bare), settings
    )
