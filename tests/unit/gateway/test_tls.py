"""TLS at the gateway: who trusts its authority reads it, and a renewed certificate is taken up."""

from __future__ import annotations

import asyncio
import shutil
import socket
import ssl
import struct
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
import uvloop
from cryptography.hazmat.primitives import serialization
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from projections.errors import InvalidSettings
from streams.runtime.keyed_limit import KeyedLimit
from streams.settings.settings import Settings
from tests.support.certificates import Authority, first_message, trusting
from tests.support.serving import serving
from tests.support.worker import until
from threadfold.gateway import handshakes
from threadfold.gateway.admission import until_read
from threadfold.gateway.connections import Connections
from threadfold.gateway.tls import Certificate, certificate_of


async def scheme(request: Request) -> PlainTextResponse:
    return PlainTextResponse(request.url.scheme)


APP = Starlette(routes=[Route("/", scheme)])


async def shown_by(url: str, authority: Authority) -> str:
    """The name in the certificate that a new connection is shown."""
    async with trusting(authority) as http, http.stream("GET", url) as answer:
        connection = answer.extensions["network_stream"].get_extra_info("ssl_object")
        subject = dict(pair for entry in connection.getpeercert()["subject"] for pair in entry)
        return str(subject["commonName"])


async def test_who_trusts_the_authority_reads_it_and_nobody_else(
    authority: Authority, files: tuple[Path, Path], tmp_path: Path
) -> None:
    async with serving(APP, certificate=Certificate(*files)) as url:
        async with trusting(authority) as http:
            assert (await http.get(url)).text == "https"
        async with trusting(Authority(tmp_path / "other", "other")) as http:
            with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
                await http.get(url)
        async with httpx.AsyncClient(trust_env=False) as http:
            with pytest.raises(httpx.HTTPError):
                await http.get(url.replace("https", "http"))


async def test_a_renewed_certificate_is_shown_to_new_connections(
    authority: Authority, files: tuple[Path, Path]
) -> None:
    certificate = Certificate(*files)
    second = authority.issue("second")
    async with serving(APP, certificate=certificate) as url:
        assert certificate.renew() is False
        shutil.copy(second[0], files[0])
        with pytest.raises(InvalidSettings, match="do not load"):
            certificate.renew()  # the key has not come yet
        assert await shown_by(url, authority) == "first"
        shutil.copy(second[1], files[1])
        assert certificate.renew() is True
        assert await shown_by(url, authority) == "second"


@pytest.mark.parametrize(("before", "after"), [(0, 2048), (2048, 0)])
async def test_a_renewed_certificate_may_have_a_key_of_another_type(
    authority: Authority, before: int, after: int
) -> None:
    files = authority.issue("first", rsa_bits=before)
    certificate = Certificate(*files)
    second = authority.issue("second", rsa_bits=after)
    # Clients that understand only one type of key are shown the new certificate or none.
    only_before = ssl.create_default_context(cafile=str(authority.ca))
    only_before.maximum_version = ssl.TLSVersion.TLSv1_2
    only_before.set_ciphers("ECDHE+aRSA" if before else "ECDHE+aECDSA")
    async with serving(APP, certificate=certificate) as url:
        assert await shown_by(url, authority) == "first"
        for new, old in zip(second, files, strict=True):
            shutil.copy(new, old)
        assert certificate.renew() is True
        assert await shown_by(url, authority) == "second"
        async with httpx.AsyncClient(verify=only_before, trust_env=False) as http:
            with pytest.raises(httpx.ConnectError):
                await http.get(url)


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_connections_that_end_no_handshake_make_way(
    authority: Authority, files: tuple[Path, Path], loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    connections = Connections(20, 20)

    async def run() -> None:
        async with (
            serving(APP, connections, Certificate(*files)) as url,
            trusting(authority) as http,
        ):
            place = httpx.URL(url)
            silent = [await asyncio.open_connection(place.host, place.port) for _ in range(60)]
            assert (await http.get(url)).text == "https"
            await until(lambda: asyncio.sleep(0, sum(one.at_eof() for one, _ in silent) >= 40))
            assert len(connections) <= 20
            for _, writer in silent:
                writer.close()
            await until(lambda: asyncio.sleep(0, len(connections) <= 1))

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(run())


@pytest.mark.usefixtures("collector_off")  # a collection in so large a process is a stall
@pytest.mark.parametrize(
    "loop",
    [pytest.param(asyncio.new_event_loop, marks=pytest.mark.long), uvloop.new_event_loop],
)
def test_handshakes_leave_the_event_loop_to_other_requests(
    authority: Authority, loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    files, message = authority.issue("slow", rsa_bits=4096), first_message()
    stalls: list[float] = []

    async def watch() -> None:
        before = time.thread_time()  # a busy machine stalls this thread, too
        while True:
            await asyncio.sleep(0.001)
            now = time.thread_time()
            stalls.append(now - before)
            before = now

    async def run() -> None:
        async with serving(APP, certificate=Certificate(*files)) as url:
            place = httpx.URL(url)
            clients = [await asyncio.open_connection(place.host, place.port) for _ in range(120)]
            watching = asyncio.create_task(watch())
            await asyncio.sleep(0.01)
            for _, writer in clients:
                writer.write(message)
            for reader, writer in clients:
                assert (await asyncio.wait_for(reader.read(5), 20)).startswith(b"\x16\x03")
                writer.close()
            await asyncio.sleep(0.01)  # a stall is measured when it is over
            watching.cancel()

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(run())
    assert max(stalls) < 0.1


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_nothing_is_done_for_handshakes_whose_clients_have_left(
    files: tuple[Path, Path],
    loop: Callable[[], asyncio.AbstractEventLoop],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    connections, message, steps = Connections(100, 100), first_message(), 0
    step = handshakes.Handshake.step

    def slow_step(handshake: handshakes.Handshake) -> None:
        nonlocal steps
        steps += 1
        time.sleep(0.02)
        step(handshake)

    monkeypatch.setattr(handshakes.Handshake, "step", slow_step)

    async def run() -> None:
        async with serving(APP, connections, Certificate(*files)) as url:
            place = httpx.URL(url)
            clients = [socket.create_connection((place.host, place.port)) for _ in range(40)]
            await until(lambda: asyncio.sleep(0, len(connections) == 40))
            for one in clients:
                one.sendall(message)
            await until(lambda: asyncio.sleep(0, steps > 0))
            for one in clients:
                one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                one.close()  # a reset
            await until(lambda: asyncio.sleep(0, len(connections) == 0))

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(run())
    assert steps < 10


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_many_clients_at_once_are_all_answered(
    authority: Authority,
    files: tuple[Path, Path],
    loop: Callable[[], asyncio.AbstractEventLoop],
    version: ssl.TLSVersion,
) -> None:
    trusted = ssl.create_default_context(cafile=str(authority.ca))
    trusted.maximum_version = version

    async def ask(url: str) -> str:
        place = httpx.URL(url)
        reader, writer = await asyncio.open_connection(place.host, place.port, ssl=trusted)
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        answer = await asyncio.wait_for(reader.read(), 20)
        writer.close()
        return answer.decode().rpartition("\r\n")[2]

    async def run() -> None:
        connections = Connections(400, 400)
        async with serving(APP, connections, Certificate(*files)) as url:
            assert set(await asyncio.gather(*(ask(url) for _ in range(150)))) == {"https"}
            await until(lambda: asyncio.sleep(0, len(connections) == 0))

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(run())


async def test_a_handshake_that_takes_too_long_ends(
    files: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handshakes, "SECONDS", 0.1)
    connections = Connections(20, 20)
    async with serving(APP, connections, Certificate(*files)) as url:
        place = httpx.URL(url)
        reader, writer = await asyncio.open_connection(place.host, place.port)
        assert await asyncio.wait_for(reader.read(), 10) == b""
        await until(lambda: asyncio.sleep(0, len(connections) == 0))
        writer.close()


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_client_whose_first_message_is_there_when_it_is_accepted_is_answered(
    authority: Authority, files: tuple[Path, Path], loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    async def run() -> None:
        async with serving(APP, certificate=Certificate(*files)) as url:
            place, to_send = httpx.URL(url), ssl.MemoryBIO()
            context = ssl.create_default_context(cafile=str(authority.ca))
            client = context.wrap_bio(ssl.MemoryBIO(), to_send, server_hostname=place.host)
            with pytest.raises(ssl.SSLWantReadError):
                client.do_handshake()
            # The server's loop is this one: it accepts once both are there.
            with socket.create_connection((place.host, place.port)) as one:
                one.sendall(to_send.read())
                one.setblocking(False)
                answer = asyncio.get_running_loop().sock_recv(one, 5)
                assert (await asyncio.wait_for(answer, 5)).startswith(b"\x16\x03")

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(run())


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_large_answer_is_under_way_until_it_is_read(
    authority: Authority, files: tuple[Path, Path], loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    size, sent, done = 32 << 20, 0, False

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await APP(scope, receive, send)
            return

        async def counted(message: Message) -> None:
            nonlocal sent
            await send(message)
            sent += len(message.get("body", b""))

        nonlocal done
        answer = Response(b"x" * size)
        await answer(scope, receive, until_read(counted, KeyedLimit(1), None, over_tls=True))
        done = True

    async def run() -> None:
        trusted = ssl.create_default_context(cafile=str(authority.ca))
        async with serving(app, certificate=Certificate(*files)) as url:
            place = httpx.URL(url)
            reader, writer = await asyncio.open_connection(
                place.host, place.port, ssl=trusted, limit=1 << 16
            )
            writer.write(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            before = -1
            while sent != before:  # as much goes out as all buffers on the way take
                before = sent
                await asyncio.sleep(0.2)
            assert 0 < sent < size and not done
            answer = await asyncio.wait_for(reader.read(), 20)
            assert len(answer.partition(b"\r\n\r\n")[2]) == size
            await until(lambda: asyncio.sleep(0, done))
            writer.close()

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(run())


async def test_a_request_that_comes_with_the_last_message_of_the_handshake_is_answered(
    authority: Authority, files: tuple[Path, Path]
) -> None:
    request = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    async with serving(APP, certificate=Certificate(*files)) as url:
        place = httpx.URL(url)
        reader, writer = await asyncio.open_connection(place.host, place.port)
        came, to_send = ssl.MemoryBIO(), ssl.MemoryBIO()
        context = ssl.create_default_context(cafile=str(authority.ca))
        client = context.wrap_bio(came, to_send, server_hostname=place.host)
        while True:
            try:
                client.do_handshake()
                break
            except ssl.SSLWantReadError:
                writer.write(to_send.read())
                came.write(await reader.read(1 << 16))
        client.write(request)
        writer.write(to_send.read())  # the handshake's end and the request in one
        answer = b""
        while not answer.endswith(b"https"):
            try:
                answer += client.read(1 << 16)
            except ssl.SSLWantReadError:
                part = await asyncio.wait_for(reader.read(1 << 16), 10)
                assert part, answer
                came.write(part)
        assert answer.startswith(b"HTTP/1.1 200 ")
        writer.close()


def test_files_that_do_not_do_are_named(
    authority: Authority, files: tuple[Path, Path], tmp_path: Path
) -> None:
    certificate, key = files
    with pytest.raises(InvalidSettings, match=r"missing\.pem cannot be read: No such file"):
        Certificate(tmp_path / "missing.pem", key)
    _, other = authority.issue("other")
    with pytest.raises(InvalidSettings, match=r"other\.key do not load \(key values mismatch\)"):
        Certificate(certificate, other)
    loaded = serialization.load_pem_private_key(key.read_bytes(), None)
    key.write_bytes(
        loaded.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"secret"),
        )
    )
    with pytest.raises(InvalidSettings, match="gateway_private_key has a password"):
        Certificate(certificate, key)


def test_certificate_and_key_are_set_together(files: tuple[Path, Path]) -> None:
    certificate, key = map(str, files)
    with pytest.raises(InvalidSettings, match="'gateway_private_key' is missing"):
        Settings.load({}, gateway_certificate=certificate)
    assert certificate_of(Settings.load({})) is None
    both = Settings.load({}, gateway_certificate=certificate, gateway_private_key=key)
    assert certificate_of(both) is not None
