"""Who holds a place at the MCP server over HTTP: nobody whom the gateway does not let in."""

from __future__ import annotations

import asyncio
import json
import signal
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

pytest.importorskip(
    "mcp.server.mcpserver", reason="the package mcp (extra mcp) is not installed: no MCP server"
)

from starlette.applications import Starlette
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from projections.errors import Overloaded, Unauthorized
from tests.support.commands import COMMAND, clean_env
from tests.support.mcp_world import World
from tests.support.ports import closed_port
from tests.support.serving import serving
from tests.support.worker import until
from threadfold.gateway.connections import RESERVED, Connections
from threadfold.gateway.request import MAX_BODY
from threadfold.mcp import callers as callers_module
from threadfold.mcp.address_turns import AT_ONCE, MOST, OF_ADDRESS
from threadfold.mcp.admission import AT_ONCE as MOST_ANSWERED
from threadfold.mcp.admission import MOST_VALUES, Admission
from threadfold.mcp.callers import CHECKS, Callers
from threadfold.mcp.http_transport import http_app
from threadfold.mcp.tools import mcp_server
from threadfold.service.append_body import LOOP_BYTES

ROOM = 20
ACCEPTED = "application/json, text/event-stream"
LISTEN = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "subscriptions/listen",
    "params": {
        "notifications": {"toolsListChanged": True},
        "_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
            "io.modelcontextprotocol/clientInfo": {"name": "c", "version": "1"},
        },
    },
}
MODERN = {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "subscriptions/listen"}


def calling(tool: str, **arguments: Any) -> dict[str, Any]:
    params = {"name": tool, "arguments": arguments}
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}


def bearing(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}", "Accept": ACCEPTED}


def is_refusal(answer: httpx.Response, status: int, *parts: str) -> None:
    """The answer has this status, and one line as an error of JSON-RPC that has all the parts."""
    assert answer.status_code == status, answer.text
    document = answer.json()
    assert (document["jsonrpc"], document["id"]) == ("2.0", None)
    line = document["error"]["message"]
    assert "\n" not in line and all(part in line for part in parts), line


@asynccontextmanager
async def served(
    gateway: str, connections: Connections | None = None
) -> AsyncIterator[httpx.AsyncClient]:
    """A client of an MCP server in this process."""
    callers = Callers(gateway)
    app = http_app(mcp_server(callers), callers, "127.0.0.1")
    async with serving(app, connections) as url, httpx.AsyncClient(base_url=url) as http:
        yield http
    await callers.close()


async def answered(http: httpx.AsyncClient, *lines: str) -> tuple[bytes, Callable[[], None]]:
    """What a connection of its own gets first for this head, and a function that closes it."""
    url = urlsplit(str(http.base_url))
    reader, writer = await asyncio.open_connection(url.hostname, url.port)
    writer.write("\r\n".join([*lines, f"Host: {url.netloc}", "", ""]).encode())
    return await asyncio.wait_for(reader.read(4_096), 30), writer.close


@pytest.mark.parametrize("method", ["GET", "POST", "DELETE", "HEAD"])
async def test_a_request_without_a_credential_is_401_and_its_connection_closes(
    world: World, method: str
) -> None:
    async with served(world.url) as http:
        for headers in ({}, {"Authorization": "Basic abc"}, {"MCP-Protocol-Version": "2026-07-28"}):
            answer = await http.request(method, "/mcp", headers={"Accept": ACCEPTED, **headers})
            assert answer.status_code == 401
            assert answer.headers["connection"] == "close"
            if method != "HEAD":
                is_refusal(answer, 401, "Authorization: Bearer KEY")


async def test_there_is_nothing_to_wait_for_with_a_valid_credential(world: World) -> None:
    async with served(world.url) as http:
        for method in ("GET", "DELETE", "PUT"):
            answer = await http.request(method, "/mcp", headers=bearing(world.keys["acme"]))
            is_refusal(answer, 405, "POST")
            assert answer.headers["allow"] == "POST"
        headers = {**bearing(world.keys["acme"]), **MODERN}
        answer = await http.post("/mcp", json=LISTEN, headers=headers)
        assert answer.headers["content-type"] == "application/json"
        assert answer.json()["error"]["message"] == "Method not found"


@pytest.mark.parametrize(
    ("host", "status"),
    [("localhost", 200), ("127.0.0.1", 200), ("[::1]:80", 200), ("localhost.example", 421)],
)
async def test_on_loopback_it_answers_to_loopback_names_with_and_without_a_port(
    world: World, host: str, status: int
) -> None:
    async with served(world.url) as http:
        headers = {**bearing(world.keys["acme"]), "Host": host}
        answer = await http.post("/mcp", json=calling("mem_context"), headers=headers)
        assert answer.status_code == status


async def test_connections_without_a_valid_key_do_not_shut_out_a_valid_call(world: World) -> None:
    connections = Connections(ROOM, ROOM)
    heads = (
        ["GET /mcp HTTP/1.1", "Accept: text/event-stream"],
        ["POST /mcp HTTP/1.1", f"Accept: {ACCEPTED}", "Content-Length: 100"],
        ["POST /mcp HTTP/1.1", "Authorization: Bearer tf_wrong", "Content-Length: 100"],
        ["GET /mcp HTTP/1.1", "Authorization: Bearer tf_wrong", "Accept: text/event-stream"],
        ["POST /mcp HTTP/1.1", "Authorization: Bearer a.b.c", "Transfer-Encoding: chunked"],
    )
    async with served(world.url, connections) as http:
        url, idle = urlsplit(str(http.base_url)), []
        refused = [await answered(http, *heads[n % len(heads)]) for n in range(3 * ROOM)]
        idle = [await asyncio.open_connection(url.hostname, url.port) for _ in range(2 * ROOM)]
        assert {said[9:12] for said, _ in refused} == {b"401", b"405"}
        answer = await http.post(
            "/mcp", json=calling("mem_context"), headers=bearing(world.keys["acme"])
        )
        assert answer.status_code == 200 and not answer.json()["result"]["isError"]
        for _, close in refused:
            close()
        for _, writer in idle:
            writer.close()


@pytest.mark.parametrize("keep", ["keep-alive", "close"])
async def test_a_body_that_is_too_large_is_413_and_its_answer_arrives(
    world: World, keep: str
) -> None:
    large = json.dumps(calling("mem_save", text="x" * (5 * MAX_BODY))).encode()

    async def pieces() -> AsyncIterator[bytes]:
        for at in range(0, len(large), 1 << 16):
            yield large[at : at + (1 << 16)]

    async with served(world.url) as http:
        headers = {**bearing(world.keys["acme"]), "Connection": keep}
        for body in (large, pieces()):
            answer = await http.post("/mcp", content=body, headers=headers, timeout=60)
            is_refusal(answer, 413, f"over the limit of {MAX_BODY} bytes")


async def test_a_key_that_the_gateway_refuses_is_401_before_its_body_is_read(world: World) -> None:
    async with served(world.url) as http:
        for key in ("tf_wrong", "a.b.c", "tfu_x", "tf_é"):
            said, close = await answered(
                http,
                "POST /mcp HTTP/1.1",
                f"Authorization: Bearer {key}",
                "Content-Length: 1000",
            )
            assert said.startswith(b"HTTP/1.1 401 "), said
            assert b"the header Authorization" in said
            close()


async def test_a_body_is_read_as_strictly_as_the_gateway_reads_one(world: World) -> None:
    call = json.dumps(calling("mem_search", query="tea"))
    twice = call.replace('"query": "tea"', '"query": "tea", "query": "coffee"')
    many = json.dumps(calling("mem_search", query=[[]] * (MOST_VALUES + 1)))
    long = twice.replace("coffee", "c" * (LOOP_BYTES + 1))
    refused = [
        (twice, 400, ("'query'", "twice")),
        (long, 400, ("'query'", "twice")),
        ("[" * 5_000, 400, ("levels deep",)),
        ("{", 400, ("is not JSON",)),
        ("", 400, ("is empty",)),
        (f"[{call}]", 400, ("no JSON object",)),
        ("null", 400, ("no JSON object",)),
        (call.replace('"2.0"', '"1.0"'), 400, ("jsonrpc",)),
        *((call.replace('"id": 1', f'"id": {id_}'), 400, ("id",)) for id_ in ("1.5", "{}", "null")),
        (json.dumps({"jsonrpc": "2.0", "id": 1, "method": "ping", "params": []}), 400, ("params",)),
        (many, 422, (f"more than {MOST_VALUES} JSON values",)),
    ]
    async with served(world.url) as http:
        headers = {**bearing(world.keys["acme"]), "Content-Type": "application/json"}
        for body, status, parts in refused:
            answer = await http.post("/mcp", content=body, headers=headers)
            is_refusal(answer, status, *parts)
        taken = await http.post("/mcp", content=call, headers=headers)
        assert taken.json()["result"]["isError"] is False


async def test_a_gateway_that_is_away_is_503_and_named(world: World) -> None:
    async with served(f"http://127.0.0.1:{closed_port()}") as http:
        headers = bearing(world.keys["acme"])
        answer = await http.post("/mcp", json=calling("mem_context"), headers=headers)
        is_refusal(answer, 503, "does not answer", "check that it runs there")


@pytest.mark.long
async def test_a_burst_of_more_connections_than_descriptors_does_not_end_the_server(
    world: World,
) -> None:
    started = ["mcp", "--http", "--port", "0", "--url", world.url]
    process = await asyncio.create_subprocess_exec(
        "sh", "-c", 'ulimit -n 320; exec "$@"', "sh", *COMMAND, *started,
        env=clean_env(), stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    url = (await process.stdout.readline()).decode().removeprefix("ready: ").strip()
    at = urlsplit(url)
    process.send_signal(signal.SIGSTOP)  # they all wait in the queue of the socket
    opened = [await asyncio.open_connection(at.hostname, at.port) for _ in range(600)]
    process.send_signal(signal.SIGCONT)

    async def valid() -> bool:
        with suppress(httpx.TransportError):
            async with httpx.AsyncClient(headers=bearing(world.keys["acme"])) as http:
                answer = await http.post(url, json=calling("mem_context"))
                return answer.status_code == 200
        return False

    await until(valid)
    assert process.returncode is None
    for _, writer in opened:
        writer.close()
    process.terminate()
    assert await asyncio.wait_for(process.wait(), 30) == 0


async def test_a_valid_credential_is_asked_about_once_in_a_while(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    callers, asked = Callers(world.url), 0
    send = httpx.AsyncClient.send

    async def counted(*args: Any, **options: Any) -> httpx.Response:
        nonlocal asked
        asked += 1
        return await send(*args, **options)

    monkeypatch.setattr(httpx.AsyncClient, "send", counted)
    for _ in range(3):
        await callers.check(world.keys["acme"])
    assert asked == 1
    await callers.close()


async def test_a_flood_of_unknown_keys_takes_few_places_and_valid_keys_go_on(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    callers, under_way, most = Callers(world.url), 0, 0
    send = httpx.AsyncClient.send

    async def counted(*args: Any, **options: Any) -> httpx.Response:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        try:
            return await send(*args, **options)
        finally:
            under_way -= 1

    monkeypatch.setattr(httpx.AsyncClient, "send", counted)
    monkeypatch.setattr(callers_module, "KNOWN_FOR", 0.0)
    await callers.check(world.keys["acme"])
    flood = [callers.check(f"tf_wrong-{n}", "10.0.0.1") for n in range(2 * MOST)]
    *outcomes, valid, new = await asyncio.gather(
        *flood,
        callers.check(world.keys["acme"], "10.0.0.1"),
        callers.check(world.keys["rival"], "10.0.0.2"),
        return_exceptions=True,
    )
    asked = AT_ONCE + OF_ADDRESS
    assert Counter(map(type, outcomes)) == {Unauthorized: asked, Overloaded: 2 * MOST - asked}
    assert (valid, new) == ("acme", "rival")
    every = [callers.check(f"tf_wrong-{n}", f"10.0.1.{n}") for n in range(2 * MOST)]
    outcomes = await asyncio.gather(*every, return_exceptions=True)
    asked = AT_ONCE + MOST
    assert Counter(map(type, outcomes)) == {Unauthorized: asked, Overloaded: 2 * MOST - asked}
    assert most <= AT_ONCE + 1 and CHECKS + AT_ONCE < RESERVED
    await callers.close()


async def test_of_a_tenant_few_requests_are_answered_at_a_time_and_others_go_on(
    world: World,
) -> None:
    answering, most, may_go_on = Counter[bytes](), Counter[bytes](), asyncio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await Starlette()(scope, receive, send)
            return
        key = dict(scope["headers"])[b"authorization"]
        answering[key] += 1
        most[key] = max(most[key], answering[key])
        await may_go_on.wait()
        answering[key] -= 1
        await Response("{}")(scope, receive, send)

    acme, rival = bearing(world.keys["acme"]), bearing(world.keys["rival"])

    async def all_that_may() -> bool:
        return answering.total() == MOST_ANSWERED

    async def two_tenants() -> bool:
        return answering[rival["Authorization"].encode()] == 1

    callers, call = Callers(world.url), calling("mem_context")
    async with (
        serving(Admission(app, callers), None) as url,
        httpx.AsyncClient(base_url=url, timeout=60) as http,
    ):
        asked = [asyncio.create_task(http.post("/mcp", json=call, headers=acme)) for _ in range(12)]
        await until(all_that_may)
        asked.append(asyncio.create_task(http.post("/mcp", json=call, headers=rival)))
        await until(two_tenants)
        may_go_on.set()
        answers = await asyncio.gather(*asked)
    await callers.close()
    assert [answer.status_code for answer in answers] == [200] * 13
    assert most[acme["Authorization"].encode()] == MOST_ANSWERED
