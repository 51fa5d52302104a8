"""Clients that leave before their request has come whole: nothing begins for them."""

from __future__ import annotations

import asyncio
import socket
import struct
import sys
from functools import partial
from urllib.parse import urlsplit

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tests.support.serving import serving
from tests.support.worker import until
from threadfold.gateway.connections import Connections, on_left
from threadfold.gateway.loop_turns import end_wait

BODY = b"x" * 200_000
RESET = struct.pack("ii", 1, 0)
"""SO_LINGER: closing the socket resets the connection."""


def client(url: str, path: str, body: bytes) -> socket.socket:
    """A client that has sent a request; the server's event loop has not run meanwhile."""
    parts = urlsplit(url)
    sends = socket.create_connection((parts.hostname, parts.port))
    sends.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(BODY)}\r\n\r\n"
    sends.sendall(head.encode() + body)
    return sends


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux says that a client has left")
async def test_no_request_begins_whose_client_has_left_before_its_body_came() -> None:
    begun: list[str] = []

    async def whole(request: Request) -> Response:
        begun.append(request.url.path)
        return Response(str(len(await request.body())))

    connections = Connections(100, 100)
    app = Starlette(routes=[Route("/{name}", whole, methods=["POST"])])
    async with serving(app, connections) as url, asyncio.timeout(20):
        for _ in range(5):
            client(url, "/ended", BODY[:50_000]).close()
            client(url, "/nothing", b"").close()
            reset = client(url, "/reset", BODY[:50_000])
            reset.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            reset.close()
        stays = client(url, "/stays", BODY[:50_000])
        await until(lambda: asyncio.sleep(0, begun and len(connections) == 1))
        stays.close()
        await until(lambda: asyncio.sleep(0, len(connections) == 0))
    assert begun == ["/stays"]


async def test_a_client_that_shuts_its_side_once_it_has_sent_all_is_answered() -> None:
    async def whole(request: Request) -> Response:
        return Response(str(len(await request.body())))

    app = Starlette(routes=[Route("/whole", whole, methods=["POST"])])
    async with serving(app) as url, asyncio.timeout(20):
        parts = urlsplit(url)
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
        head = f"POST /whole HTTP/1.1\r\nHost: x\r\nContent-Length: {len(BODY)}\r\n\r\n"
        writer.write(head.encode() + BODY)
        writer.write_eof()
        answer = await reader.read()
        writer.close()
    assert answer.startswith(b"HTTP/1.1 200") and answer.endswith(b"\r\n\r\n200000")


@pytest.mark.parametrize(("waits", "answered"), [(0.01, True), (30.0, False)])
async def test_a_whole_request_whose_client_shuts_its_side_may_wait_for_its_turn_but_not_long(
    waits: float, answered: bool
) -> None:
    async def in_turn(request: Request) -> Response:
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[bool] = loop.create_future()
        on_left(request.scope, partial(end_wait, turn, False))
        loop.call_later(waits, end_wait, turn, True)
        await turn
        return Response()

    app = Starlette(routes=[Route("/", in_turn)])
    async with serving(app) as url, asyncio.timeout(20):
        parts = urlsplit(url)
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        writer.write_eof()
        answer = await reader.read()
        writer.close()
    assert answer.startswith(b"HTTP/1.1 200") == answered
