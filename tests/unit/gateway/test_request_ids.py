"""Each request has an id: of its caller or a new one, in its answer and in its log lines."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterator

import httpx
import pytest
from starlette.types import Receive, Scope, Send

from streams.runtime.current_request import request_of
from streams.runtime.json_logs import JsonLines
from streams.settings.settings import Settings
from threadfold.gateway import create_gateway
from threadfold.gateway.metrics import GatewayMetrics, Measured

TRACE = "0af7651916cd43dd8448eb211c80319c"
TRACEPARENT = f"00-{TRACE}-b7ad6b7169203331-01"


class Lines(logging.Handler):
    """The log lines of a process, as JSON."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[dict[str, object]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(json.loads(JsonLines().format(record)))


@pytest.fixture
def lines() -> Iterator[list[dict[str, object]]]:
    handler = Lines()
    logging.root.addHandler(handler)
    yield handler.lines
    logging.root.removeHandler(handler)


def client_of(app: object) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)  # type: ignore[arg-type]
    return httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1")


@pytest.mark.parametrize(
    ("headers", "taken"),
    [
        ({"x-request-id": "order-17:a/b"}, "order-17:a/b"),
        ({"x-request-id": "order-17", "traceparent": TRACEPARENT}, "order-17"),
        ({"traceparent": TRACEPARENT}, TRACE),
        ({"x-request-id": "two words", "traceparent": TRACEPARENT}, TRACE),
        ({"x-request-id": "x" * 129}, None),
        ({"x-request-id": "a\r\nset-cookie: b"}, None),
        ({"x-request-id": ""}, None),
        ({"traceparent": TRACEPARENT.replace(TRACE, "0" * 32)}, None),
        ({"traceparent": TRACEPARENT.upper()}, None),
        ({}, None),
    ],
)
def test_a_callers_id_is_taken_if_it_is_well_formed(
    headers: dict[str, str], taken: str | None
) -> None:
    given = [(name.encode(), value.encode()) for name, value in headers.items()]
    found = request_of(given).id
    assert found == taken if taken else found not in headers.values() and found
    if taken is None:
        assert request_of(given).id[:6] != found[:6], "nobody can count them"


async def test_one_id_leads_from_the_request_to_its_answer_and_its_log_line(
    lines: list[dict[str, object]],
) -> None:
    gateway = create_gateway(Settings(kafka="127.0.0.1:1", redis="redis://127.0.0.1:1", auth="off"))
    async with client_of(gateway) as http:
        answer = await http.get(
            "/v1/conversations/c1/context", headers={"X-Request-Id": "order-17"}
        )
        other = await http.get("/healthz")
    assert answer.status_code == 503 and answer.headers["x-request-id"] == "order-17"
    (line,) = [line for line in lines if "NotConnected" in str(line["message"])]
    assert line["request_id"] == "order-17"
    assert other.headers["x-request-id"] not in ("", "order-17")


async def test_an_unforeseen_error_names_the_request_under_which_the_log_has_it(
    lines: list[dict[str, object]],
) -> None:
    async def broken(scope: Scope, receive: Receive, send: Send) -> None:
        raise OverflowError("the-inside-of-it")

    async with client_of(Measured(broken, GatewayMetrics())) as http:
        answer = await http.get("/v1/conversations", headers={"traceparent": TRACEPARENT})
    assert answer.headers["x-request-id"] == TRACE
    assert f"the gateway's log has it, request {TRACE}" in answer.json()["detail"]
    (line,) = [line for line in lines if line.get("error") == "OverflowError"]
    assert line["request_id"] == TRACE


async def test_work_that_outlives_its_request_does_not_log_under_its_id(
    lines: list[dict[str, object]],
) -> None:
    goes_on = asyncio.Event()
    tasks = []

    async def follow() -> None:
        logging.getLogger("tests").warning("within")
        await goes_on.wait()
        logging.getLogger("tests").warning("after")

    async def starts(scope: Scope, receive: Receive, send: Send) -> None:
        tasks.append(asyncio.create_task(follow()))
        await asyncio.sleep(0)
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async with client_of(Measured(starts, GatewayMetrics())) as http:
        await http.get("/", headers={"x-request-id": "order-17"})
    goes_on.set()
    await tasks[0]
    own = [line for line in lines if line["logger"] == "tests"]  # not of clients that others left
    found = {line["message"]: line.get("request_id") for line in own}
    assert found == {"within": "order-17", "after": None}
