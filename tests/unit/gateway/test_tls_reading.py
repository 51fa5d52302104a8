"""What the gateway reads over TLS: when, how much of it, and that nothing of it stays."""

from __future__ import annotations

import asyncio
import gc
import socket
import ssl
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import cast

import httpx
import pytest
import uvloop
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from tests.support.certificates import Authority, first_message, trusting, unchecked
from tests.support.serving import serving
from tests.support.worker import until
from threadfold.gateway import handshakes
from threadfold.gateway.connections import Connections
from threadfold.gateway.tls import Certificate


async def greet(_: Request) -> PlainTextResponse:
    return PlainTextResponse("hello")


APP = Starlette(routes=[Route("/", greet)])


@contextmanager
def secured(place: httpx.URL) -> Iterator[ssl.SSLSocket]:
    """A client's connection whose handshake is done."""
    with (
        socket.create_connection((place.host, place.port), timeout=10) as plain,
        unchecked().wrap_socket(plain) as one,
    ):
        yield one


def served(files: tuple[Path, Path], talk: Callable[[httpx.URL], None]) -> None:
    """Let a client talk to a server of its own."""

    async def run() -> None:
        async with serving(APP, certificate=Certificate(*files)) as url:
            await asyncio.to_thread(talk, httpx.URL(url))

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run())


def tls_protocols() -> int:
    """How many connections TLS has begun with, and has not let go of."""
    return sum(type(one).__name__ == "SSLProtocol" for one in gc.get_objects())


@pytest.mark.parametrize("whole", [False, True], ids=["begun", "done"])
def test_nothing_of_a_handshake_stays_when_its_client_has_left(
    files: tuple[Path, Path], whole: bool, collector_off: None
) -> None:
    """The collector looks seldom where requests are answered: it must have nothing to find."""
    connections, message = Connections(1_000, 1_000), first_message()

    def come_and_go(place: httpx.URL, kind: int) -> None:
        with socket.create_connection((place.host, place.port)) as one:
            if whole:
                with unchecked().wrap_socket(one) as secure:
                    secure.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
                    assert secure.recv(100)
                return
            one.sendall(message[: 50 if kind % 3 == 2 else None])
            if kind % 3 == 1:
                one.recv(100)
            if kind % 2:
                one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    async def run() -> None:
        async with serving(APP, connections, Certificate(*files)) as url:
            place = httpx.URL(url)
            for kind in range(60):
                await asyncio.to_thread(come_and_go, place, kind)
            await until(lambda: asyncio.sleep(0, len(connections) == 0))
            await until(lambda: asyncio.sleep(0, tls_protocols() == 0), 5)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run())


@pytest.mark.parametrize("records", [1, 2])
def test_tls_begins_with_the_first_whole_message(files: tuple[Path, Path], records: int) -> None:
    """Each has buffers of 256 KiB: whoever sends half a message on many connections has none."""
    message = first_message()
    if records == 2:
        rest = message[9:]
        message = b"\x16\x03\x01\x00\x04" + message[5:9]
        message += b"\x16\x03\x01" + len(rest).to_bytes(2) + rest

    def talk(place: httpx.URL) -> None:
        before = tls_protocols()
        with socket.create_connection((place.host, place.port), timeout=10) as one:
            for piece in (message[:3], message[3:5], message[5:100], message[100:-1]):
                one.sendall(piece)
                time.sleep(0.02)  # so that it comes apart
                assert tls_protocols() == before
            one.sendall(message[-1:])
            assert one.recv(1) == b"\x16", "the server goes on with the handshake"
            assert tls_protocols() == before + 1

    served(files, talk)


@pytest.mark.parametrize("sent", [b"G", b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\xff\xff"])
def test_what_begins_no_handshake_is_closed_at_once_without_tls(
    files: tuple[Path, Path], sent: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[object] = []
    monkeypatch.setattr(handshakes.HandshakeQueue, "add", lambda _, one: begun.append(one))

    def talk(place: httpx.URL) -> None:
        with socket.create_connection((place.host, place.port), timeout=10) as one:
            one.sendall(sent)
            with suppress(ConnectionResetError):
                while one.recv(100):
                    pass

    served(files, talk)
    assert begun == []


async def test_of_a_client_that_sends_much_before_its_turn_no_more_is_read(
    files: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handshakes.HandshakeQueue, "add", lambda *_: None)
    connections = Connections(20, 20)
    async with serving(APP, connections, Certificate(*files)) as url:
        place = httpx.URL(url)
        _, writer = await asyncio.open_connection(place.host, place.port)
        writer.write(first_message() + bytes(64 << 20))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(writer.drain(), 1)
        assert len(connections) == 1
        assert cast("asyncio.Transport", writer.transport).get_write_buffer_size() > 32 << 20
        writer.transport.abort()


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_large_body_that_is_taken_slowly_comes_whole(
    files: tuple[Path, Path], loop: Callable[[], asyncio.AbstractEventLoop], authority: Authority
) -> None:
    body = bytes(range(256)) * 20_000

    async def taking(request: Request) -> Response:
        took, pieces = bytearray(), 0
        async for piece in request.stream():
            took += piece
            pieces += 1
            if pieces % 10 == 0:
                await asyncio.sleep(0.005)
        return PlainTextResponse(str(bytes(took) == body))

    app = Starlette(routes=[Route("/", taking, methods=["POST"])])

    async def run() -> None:
        async with (
            serving(app, Connections(10), Certificate(*files)) as url,
            trusting(authority) as http,
        ):
            answers = [(await http.post(url, content=body)).text for _ in range(3)]
            assert answers == ["True"] * 3

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(run())


def test_large_bodies_right_behind_their_handshakes_are_read(files: tuple[Path, Path]) -> None:
    body = b"x" * 300_000
    head = b"POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"

    async def taking(request: Request) -> Response:
        return PlainTextResponse(str(len(await request.body())))

    app = Starlette(routes=[Route("/", taking, methods=["POST"])])

    def send(place: httpx.URL) -> bytes:
        with secured(place) as one:
            one.sendall(head % len(body) + body)
            answer = b""
            while piece := one.recv(1_000):
                answer += piece
            return answer

    async def run() -> None:
        async with serving(app, Connections(100), Certificate(*files)) as url:
            asked = (asyncio.to_thread(send, httpx.URL(url)) for _ in range(40))
            assert all(answer.endswith(b"300000") for answer in await asyncio.gather(*asked))

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run())


def test_who_writes_a_large_body_before_reading_is_told_why_it_is_refused(
    files: tuple[Path, Path],
) -> None:
    body = b"x" * 6_000_000
    head = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n"

    async def refusing(_: Request) -> Response:
        await asyncio.sleep(0.1)  # much of the body waits by now
        return PlainTextResponse("no", 401, {"Connection": "close"})

    app = Starlette(routes=[Route("/", refusing, methods=["POST"])])

    def send(place: httpx.URL) -> bytes:
        with secured(place) as one:
            one.sendall(head % len(body) + body)
            return one.recv(1_000)

    async def run() -> None:
        async with serving(app, Connections(100), Certificate(*files)) as url:
            for _ in range(3):
                answer = await asyncio.to_thread(send, httpx.URL(url))
                assert answer.startswith(b"HTTP/1.1 401 ")

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run())


@pytest.mark.parametrize("leaves", ["ends TLS", "resets"])
def test_a_client_that_leaves_behind_its_request_is_no_line_in_the_log(
    files: tuple[Path, Path], leaves: str, caplog: pytest.LogCaptureFixture
) -> None:
    connections = Connections(1_000, 1_000)

    def come_and_go(place: httpx.URL, number: int) -> None:
        with suppress(OSError), secured(place) as one:
            one.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n" * 3 + b"x" * (number * 100))
            if leaves == "ends TLS":
                one.unwrap()
                return
            time.sleep(0.001 * (number % 5))
            one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    async def run() -> None:
        asyncio.get_running_loop().set_exception_handler(handshakes.report)
        async with serving(APP, connections, Certificate(*files)) as url:
            for number in range(60):
                await asyncio.to_thread(come_and_go, httpx.URL(url), number)
            await until(lambda: asyncio.sleep(0, len(connections) == 0))

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run())
    assert not [one for one in caplog.records if one.name == "asyncio"]


async def test_what_else_fails_in_the_event_loop_is_reported(
    caplog: pytest.LogCaptureFixture,
) -> None:
    loop = asyncio.get_running_loop()
    handshakes.report(loop, {"message": "it failed", "exception": RuntimeError("for a reason")})
    handshakes.report(loop, {"message": "it says nothing else"})
    assert [one.message.splitlines()[0] for one in caplog.records] == [
        "it failed",
        "it says nothing else",
    ]
