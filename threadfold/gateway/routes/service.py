"""The routes about the service: health, metrics, the documents, and the page ``/docs``. All but
the workers' metrics need no key.

The page shows the OpenAPI document with Swagger UI, whose files come from a package. It loads
nothing from another host: that would fail behind a firewall and tell others who reads. Its security
policy lets the browser ask only this host.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path as FilePath
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from starlette.responses import Response

from projections.errors import Healing, KafkaUnavailable, RedisUnavailable, ThreadfoldError
from projections.storage.records import Checkpoint
from streams.metrics.reports import GATEWAYS, WORKERS, reported_page, reports_of
from streams.runtime.paced import Paced
from threadfold.gateway.access import Caller, Connection, GatewayState
from threadfold.gateway.answers import Count
from threadfold.gateway.declaration import Answer, Cost, Routes
from threadfold.gateway.parameters import Path
from threadfold.gateway.problems import NotFound, UnknownSchema
from threadfold.gateway.request import Request
from threadfold.gateway.routes.common import JsonBytes, file_answer
from threadfold.schemas.documents import texts

routes = Routes("Service")
_free = partial(routes.add, "GET", cost=Cost.FREE)
_head = partial(routes.add, "HEAD", cost=Cost.FREE, hidden=True)
"""Some balancers probe by HEAD: the server sends what GET answers, without the body."""
READY_TIMEOUT = 3.0
"""Seconds for all checks of ``/readyz``."""
LATE = 30.0
"""Seconds since a check began in which a later probe may have its answer."""
METRICS_PAUSE = 0.1
"""Seconds from the begin of one page of ``/metrics`` to the next: a page takes 10 ms of the event
loop, and nobody needs a key for it.
"""
METRICS_TIMEOUT = 1.0
"""Seconds for what ``/metrics`` asks of Kafka and Redis; what is unknown then is left out."""
_OWN = FilePath(__file__).parents[1] / "page"
_JAVASCRIPT = "text/javascript; charset=utf-8"
_ASSETS = {
    "start.js": ("", "start.js", _JAVASCRIPT),
    "favicon.svg": ("", "favicon.svg", "image/svg+xml"),
    "swagger-ui-bundle.js": ("offapi", "swagger_bundle.js", _JAVASCRIPT),
    "swagger-ui.css": ("offapi", "swagger_style.css", "text/css; charset=utf-8"),
}
"""The page's files: their package (empty: our own), their names in it, and their media types."""
_POLICY = (
    "default-src 'none'; connect-src 'self'; font-src 'self' data:; img-src 'self' data:;"
    " script-src 'self'; style-src 'self' 'unsafe-inline'; base-uri 'none'; form-action 'none';"
    " frame-ancestors 'none'"
)
_SAFE = {"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer"}
_PAGE = {"Content-Security-Policy": _POLICY, **_SAFE}
_HOUR = {"Cache-Control": "public, max-age=3600", **_SAFE}


class Alive(Struct):
    """The process is alive."""

    status: Literal["ok"]


class Ready(Struct):
    """Kafka, Redis and the live generation answer: its number, the log's partitions, how many
    events are in the log and not in the windows yet (`behind`, in all partitions), and which
    partitions are halted: nothing new is folded there. ``redis`` says why Redis takes no writes:
    windows stand still then, and appends go on. ``memory`` says why this gateway's store of the
    long-term memory cannot be used; all else goes on. ``restoring`` is of how many conversations
    reads answer 503 while the others are served: older events of theirs are being read again.
    """

    status: Literal["ready"]
    generation: Count
    partitions: Count
    behind: Count
    halted: list[Count] | UnsetType = UNSET
    redis: str | UnsetType = UNSET
    memory: str | UnsetType = UNSET
    restoring: Count | UnsetType = UNSET


class AsyncApi(Struct):
    """The topics, as an AsyncAPI 3.0 document."""

    asyncapi: str
    channels: dict[str, Any]


class JsonSchema(Struct):
    """A JSON Schema (2020-12)."""

    dialect: str = msgspec.field(name="$schema")
    id: str = msgspec.field(name="$id")


@_head("/healthz")
@_free("/healthz", "Is the process alive", Alive)
async def healthz() -> dict[str, str]:
    """The process is alive. Kafka and Redis are not asked."""
    return {"status": "ok"}


@_head("/readyz")
@_free("/readyz", "Is the gateway ready", Ready, problems=(503,))
async def readyz(request: Request) -> dict[str, object]:
    """200 if Kafka, Redis and the live generation answer, else 503. The first time, the windows of
    every partition must be readable, too. A halted partition is named: the others are served. So is
    a Redis that takes no writes: every gateway has the same, and reads and appends go on; and a
    memory store that cannot be used; and how many conversations are still being restored.
    """
    ready = await _ready(request.state.connection)
    memory = request.state.memory
    fault = None if memory is None else memory.fault
    return ready if fault is None else {**ready, "memory": fault.cause}


@_free(
    "/metrics",
    "Metrics",
    Answer(
        str,
        "Prometheus' text format.",
        "# TYPE threadfold_http_requests_total counter\n",
        "text/plain",
    ),
)
async def metrics_page(request: Request) -> Response:
    """The gateway's metrics, for Prometheus. No label names a tenant. All who ask at the same time
    have one page.
    """
    state = request.state
    if state.pages is None:
        state.pages = Paced(partial(_metrics_page, state), METRICS_PAUSE)
    return Response(await state.pages.get(), media_type=CONTENT_TYPE_LATEST)


@routes.add(
    "GET",
    "/v1/workers/metrics",
    "Metrics of all workers",
    Answer(
        str,
        "Prometheus' text format.",
        "# TYPE threadfold_events_total counter\n",
        "text/plain",
    ),
    scope="admin",
    cost=Cost.ADMINISTRATION,
)
async def workers_metrics(caller: Caller) -> Response:
    """The metrics that workers reported in the last 45 s, for Prometheus: with a label `worker` for
    each process. With a label `gateway`, what tenants use of their quotas. Labels name tenants, so
    this needs the scope `admin`.
    """
    settings = caller.backend.settings
    reports = [await reports_of(settings, kind) for kind in (WORKERS, GATEWAYS)]
    return Response(reported_page(*reports), media_type=CONTENT_TYPE_LATEST)


@_free("/docs", hidden=True)
async def docs() -> Response:
    """The API's documentation as a page."""
    return file_answer(_OWN / "index.html", "text/html; charset=utf-8", _PAGE)


@_free("/docs/{asset}", hidden=True)
async def docs_asset(asset: Annotated[str, Path()]) -> Response:
    """A file of the page."""
    package, name, media = _ASSETS.get(asset, ("", "", ""))
    # The package is only located: an import of it reads all of its files.
    found = find_spec(package) if package else None
    if not name or (package and (found is None or found.origin is None)):
        raise NotFound("there is no such file of the page /docs")
    folder = _OWN if found is None else FilePath(str(found.origin)).parent
    return file_answer(folder / name, media, _HOUR)


@_free("/openapi.json", hidden=True)
async def openapi_json(request: Request) -> Response:
    """The OpenAPI document."""
    return JsonBytes(_encoded(request.state.openapi))


@cache
def _encoded(document: Callable[[], dict[str, Any]]) -> bytes:
    """A document as JSON, once for all who ask: who does not read it holds it for a while."""
    return msgspec.json.encode(document())


@_free("/asyncapi.json", "The AsyncAPI document", AsyncApi)
async def asyncapi() -> Response:
    """The topics, for services that speak Kafka: AsyncAPI 3.0."""
    return JsonBytes(_bytes_of("asyncapi.json"))


@_free(
    "/schemas/{name}.json",
    "The JSON Schema of an event type",
    Answer(JsonSchema, media="application/schema+json"),
)
async def schema(name: Annotated[str, Path(example="message")]) -> Response:
    """The JSON Schema (2020-12) of an event type: `message` for the CloudEvent in the log,
    `message.flat` for the form to append over HTTP.
    """
    if f"{name}.json" not in texts() or name == "asyncapi":
        known = ", ".join(file.removesuffix(".json") for file in texts() if file != "asyncapi.json")
        raise UnknownSchema(f"there is no schema {name[:60]!r}: there are {known}")
    return Response(_bytes_of(f"{name}.json"), media_type="application/schema+json")


@cache
def _bytes_of(name: str) -> bytes:
    """A file of :func:`texts`, once for all who ask."""
    return texts()[name].encode()


async def _metrics_page(state: GatewayState) -> bytes:
    backend = state.connection.backend
    halted = {} if backend is None else backend.control.state.halted()
    server = None
    behind: dict[int, int] = {}
    set_aside: dict[int, int] = {}
    if backend is not None:
        with suppress(RedisUnavailable, TimeoutError):
            async with asyncio.timeout(METRICS_TIMEOUT):
                server = await backend.store.ping()
        with suppress(ThreadfoldError, ValueError, TimeoutError):
            async with asyncio.timeout(METRICS_TIMEOUT):
                set_aside = await backend.store.set_aside()
        with suppress(ThreadfoldError, TimeoutError):
            async with asyncio.timeout(METRICS_TIMEOUT):
                behind = await backend.behind()
    return state.metrics.show(halted, behind, set_aside, server)


async def _ready(connection: Connection) -> dict[str, object]:
    """The check's answer. One that takes longer than a probe waits goes on, and the next probe has
    its answer: where every check takes that long, no probe would have one otherwise.
    """
    connection.get()
    check, now = connection.check, asyncio.get_running_loop().time()
    if check is None or (check.done() and now - connection.check_began > LATE):
        check = connection.check = asyncio.create_task(_checked(connection), name="readiness")
        connection.check_began = now
        check.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
    if not (await asyncio.wait({check}, timeout=READY_TIMEOUT))[0]:
        if connection.ping is not None and not connection.ping.done():
            raise RedisUnavailable(f"Redis did not answer within {READY_TIMEOUT:g} s")
        raise KafkaUnavailable(f"Kafka did not answer within {READY_TIMEOUT:g} s")
    if connection.check is check:
        connection.check = None
    return check.result()


async def _checked(connection: Connection) -> dict[str, object]:
    backend = connection.get()
    backend.keys.check_followed()
    connection.ping = asyncio.create_task(backend.store.ping(), name="redis-ping")
    connection.ping.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
    state, server = await asyncio.gather(backend.control.sync(), connection.ping)
    generation = state.live_generation
    checkpoints = await backend.checkpoints()
    if not connection.was_ready:
        # Later on, a partition that heals must not take the whole gateway out of service: its reads
        # say so themselves.
        _check_readable(checkpoints)
        connection.was_ready = True
    # Nor may conversations that take long, ever: the others are served.
    restoring = sum(len(one.held_back) for one in checkpoints if one is not None)
    behind = await backend.behind(checkpoints)
    halted = list(state.halted())
    return {
        "status": "ready",
        "generation": generation.number,
        "partitions": generation.partitions,
        "behind": sum(behind.values()),
        **({"halted": halted} if halted else {}),
        **({"redis": server["refuses"]} if server["refuses"] else {}),
        **({"restoring": restoring} if restoring else {}),
    }


def _check_readable(checkpoints: Sequence[Checkpoint | None]) -> None:
    behind = sum(checkpoint is None or checkpoint.healing for checkpoint in checkpoints)
    if behind:
        raise Healing(
            f"the windows of {behind} of {len(checkpoints)} partitions are behind the log: check"
            " that a worker runs"
        )
