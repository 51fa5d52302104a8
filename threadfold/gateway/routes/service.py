"""The routes that need no key: health, metrics, the documents, and the page ``/docs``.

The page's files are those of Swagger UI, from a package: the page takes nothing from another host,
which would fail behind a firewall and tell others who reads. Its security policy lets the browser
ask this host alone.
"""

from __future__ import annotations

import asyncio
from importlib.util import find_spec
from pathlib import Path as FilePath
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Struct
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from starlette.responses import FileResponse, Response

from projections.errors import Healing, KafkaUnavailable
from threadfold.gateway.access import Connection
from threadfold.gateway.answers import Count
from threadfold.gateway.declaration import Answer, Cost, Routes
from threadfold.gateway.parameters import Path
from threadfold.gateway.problems import NotFound, UnknownSchema
from threadfold.gateway.request import Request
from threadfold.gateway.routes.common import answer
from threadfold.schemas.documents import texts
from threadfold.service.conversations import ConversationService

routes = Routes("Service")
READY_TIMEOUT = 3.0
"""Seconds for all that ``/readyz`` asks."""
_ASSETS = {
    "swagger-ui-bundle.js": ("swagger_bundle.js", "text/javascript; charset=utf-8"),
    "swagger-ui.css": ("swagger_style.css", "text/css; charset=utf-8"),
}
"""The page's files: their names in the package, and what they are."""
_ICON = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16">'
    '<path d="M2 4h12M2 8h8M2 12h4" stroke="#27a" stroke-width="2"/></svg>'
)
_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>threadfold</title>
<link rel="icon" href="docs/favicon.svg">
<link rel="stylesheet" href="docs/swagger-ui.css">
</head>
<body>
<div id="page"></div>
<script src="docs/swagger-ui-bundle.js"></script>
<script src="docs/start.js"></script>
</body>
</html>
"""
_START = """SwaggerUIBundle({
  url: "openapi.json",
  dom_id: "#page",
  deepLinking: true,
  validatorUrl: null,
  defaultModelsExpandDepth: 0,
  persistAuthorization: false,
  tryItOutEnabled: true
});
"""
_POLICY = (
    "default-src 'none'; connect-src 'self'; font-src 'self' data:; img-src 'self' data:;"
    " script-src 'self'; style-src 'self' 'unsafe-inline'"
)
_HOUR = {"Cache-Control": "public, max-age=3600"}


class Alive(Struct):
    """The process is alive."""

    status: Literal["ok"]


class Ready(Struct):
    """Which generation is live, and the log's partitions."""

    status: Literal["ready"]
    generation: Count
    partitions: Count


class AsyncApi(Struct):
    """The topics."""

    asyncapi: str
    channels: dict[str, Any]


class JsonSchema(Struct):
    """A JSON Schema (2020-12)."""

    dialect: str = msgspec.field(name="$schema")
    id: str = msgspec.field(name="$id")


@routes.add(
    "GET",
    "/healthz",
    cost=Cost.FREE,
    summary="Is it alive",
    answers={200: Answer(Alive, {"status": "ok"}, "The process is alive.")},
)
async def healthz() -> Response:
    """The process is alive. This says nothing of Kafka and Redis."""
    return answer({"status": "ok"})


@routes.add(
    "GET",
    "/readyz",
    cost=Cost.FREE,
    summary="May it serve",
    answers={
        200: Answer(
            Ready,
            {"status": "ready", "generation": 1, "partitions": 16},
            "Kafka, Redis and the live generation answer.",
        )
    },
    problems=(503,),
)
async def readyz(request: Request) -> Response:
    """Kafka, Redis and the live generation answer, and (the first time) the windows of every
    partition can be read; else 503.
    """
    return answer(await _ready(request.state.connection))


@routes.add(
    "GET",
    "/metrics",
    cost=Cost.FREE,
    summary="Metrics",
    answers={
        200: Answer(
            str,
            "# TYPE threadfold_http_requests_total counter\n",
            "Prometheus' text format.",
            "text/plain",
        )
    },
)
async def metrics_page(request: Request) -> Response:
    """The gateway's metrics, for Prometheus."""
    return Response(request.state.metrics.page(), media_type=CONTENT_TYPE_LATEST)


@routes.add("GET", "/docs", cost=Cost.FREE, hidden=True)
async def docs() -> Response:
    """The API's documentation as a page."""
    return Response(
        _PAGE, media_type="text/html; charset=utf-8", headers={"Content-Security-Policy": _POLICY}
    )


@routes.add("GET", "/docs/{asset}", cost=Cost.FREE, hidden=True)
async def docs_asset(asset: Annotated[str, Path()]) -> Response:
    """A file of the page."""
    if asset == "start.js":
        return Response(_START, media_type="text/javascript; charset=utf-8", headers=_HOUR)
    if asset == "favicon.svg":
        return Response(_ICON, media_type="image/svg+xml", headers=_HOUR)
    # The package itself reads all of its files where it is imported.
    package = find_spec("offapi")
    if asset not in _ASSETS or package is None or package.origin is None:
        raise NotFound("there is no such file of the page /docs")
    name, media = _ASSETS[asset]
    return FileResponse(FilePath(package.origin).with_name(name), media_type=media, headers=_HOUR)


@routes.add("GET", "/openapi.json", cost=Cost.FREE, hidden=True)
async def openapi_json(request: Request) -> Response:
    """The OpenAPI document."""
    return answer(request.state.openapi())


@routes.add(
    "GET",
    "/asyncapi.json",
    cost=Cost.FREE,
    summary="The AsyncAPI document",
    answers={200: Answer(AsyncApi, {"asyncapi": "3.0.0", "channels": {}}, "AsyncAPI 3.0.")},
)
async def asyncapi() -> Response:
    """The topics, for services that speak Kafka: AsyncAPI 3.0."""
    return Response(texts()["asyncapi.json"], media_type="application/json")


@routes.add(
    "GET",
    "/schemas/{name}.json",
    cost=Cost.FREE,
    summary="The JSON Schema of an event type",
    answers={
        200: Answer(
            JsonSchema,
            {
                "$schema": "https://json-schema.org/draft/2020-12/schema",
                "$id": "urn:threadfold:schema:message:v1",
            },
            "`message` is the CloudEvent in the log, `message.flat` the form to append over HTTP.",
            "application/schema+json",
        )
    },
    problems=(404,),
)
async def schema(name: Annotated[str, Path(example="message")]) -> Response:
    """The JSON Schema (2020-12) of an event type: `message` is the CloudEvent in the log,
    `message.flat` the form to append over HTTP.
    """
    text = texts().get(f"{name}.json")
    if text is None or name == "asyncapi":
        known = ", ".join(file.removesuffix(".json") for file in texts() if file != "asyncapi.json")
        raise UnknownSchema(f"there is no schema {name[:60]!r}: there are {known}")
    return Response(text, media_type="application/schema+json")


async def _ready(connection: Connection) -> dict[str, object]:
    backend = connection.get()
    try:
        async with asyncio.timeout(READY_TIMEOUT):
            state, _ = await asyncio.gather(backend.control.sync(), backend.store.ping())
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
