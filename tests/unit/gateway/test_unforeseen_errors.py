"""What goes wrong before the routes are reached is answered like what goes wrong in them."""

from __future__ import annotations

import asyncio
import re

import httpx
import pytest
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from projections.errors import KafkaUnavailable, RedisUnavailable, ThreadfoldError
from streams.runtime.keyed_limit import KeyedLimit
from tests.support.gateway import is_problem
from tests.support.serving import serving
from threadfold.gateway.admission import until_read
from threadfold.gateway.metrics import GatewayMetrics, Measured
from threadfold.gateway.problems import problem_of


async def broken(scope: Scope, receive: Receive, send: Send) -> None:
    """An application that fails, after it began to answer where the path asks for that."""
    if scope["path"] == "/late":
        await send({"type": "http.response.start", "status": 200, "headers": []})
    raise OverflowError("the-inside-of-it")


async def test_an_error_before_the_routes_is_answered_with_a_problem_that_says_nothing_of_the_inside() -> (
    None
):
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(Measured(broken, GatewayMetrics())), base_url="http://x"
    ) as client:
        response = await client.get("/v1/conversations")
        is_problem(response, 500, "OverflowError", "the gateway's log has it")
        assert "the-inside-of-it" not in response.text
        with pytest.raises(OverflowError):
            await client.get("/late")


async def large(scope: Scope, receive: Receive, send: Send) -> None:
    """An application whose answer counts until it is read."""
    if scope["type"] == "http":
        await Response(b"x" * (32 << 20))(scope, receive, until_read(send, KeyedLimit(1), None))
    else:
        await Starlette()(scope, receive, send)


async def test_a_server_that_stops_cuts_an_answer_off_that_is_not_read_without_a_traceback(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with serving(Measured(large, GatewayMetrics(), ending=lambda: True)) as url:
        place = httpx.URL(url)
        reader, writer = await asyncio.open_connection(place.host, place.port)
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert await reader.readline() == b"HTTP/1.1 200 OK\r\n"
    writer.close()
    said = capsys.readouterr().err
    assert "Cancel 1 running task" in said and "Traceback" not in said


@pytest.mark.parametrize(
    "error",
    [
        RedisUnavailable(
            "Redis at rediss://10.1.2.3:6380/0 does not answer (Error 111 connecting to"
            " 10.1.2.3:6380.): check that it runs"
        ),
        RedisUnavailable("Redis at redis+sentinel://inner.host:1,other:2/main does not answer"),
        RedisUnavailable("Redis at unix:///run/inner.host.sock does not answer"),
        KafkaUnavailable("append: Kafka at inner.host:9092,other:9092 did not answer within 5 s"),
    ],
)
def test_a_problem_does_not_say_where_the_deployments_servers_are(error: ThreadfoldError) -> None:
    detail = problem_of(error).body.decode()
    assert not re.search(r"inner\.host|10\.1\.2\.3|:\d{4}|other", detail), detail
    assert "Redis does not answer" in detail or "Kafka did not answer within 5 s" in detail
