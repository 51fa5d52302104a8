"""Connections that send nothing, or send it slowly, keep nobody else out."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import AsyncIterator
from typing import NamedTuple
from urllib.parse import urlsplit

import httpx
import msgspec
import pytest

from streams.settings.settings import Settings
from tests.support.platform import Platform, running_platform
from tests.support.serving import serving
from tests.support.worker import until
from threadfold.gateway import back_pressure, body_pace, create_gateway, protocol
from threadfold.gateway.admission import ANSWER_RATE
from threadfold.gateway.app import Gateway
from threadfold.gateway.concurrency import Limits
from threadfold.gateway.connections import Connections

ROOM = 40
PATH = "/v1/conversations/c/messages"


class Small(NamedTuple):
    """A gateway that holds few connections."""

    url: str
    connections: Connections
    app: Gateway


@pytest.fixture(scope="module")
async def platform(settings: Settings) -> AsyncIterator[Platform]:
    async with running_platform(settings) as running:
        yield running


@pytest.fixture
async def small(platform: Platform) -> AsyncIterator[Small]:
    connections = Connections(ROOM, ROOM)
    app = create_gateway(platform.settings)
    async with serving(app, connections) as url:
        async with httpx.AsyncClient(base_url=url) as http:
            await until(lambda: ok(http, "/readyz"))
        yield Small(url, connections, app)


def head(key: str, length: int = 1_000, path: str = PATH) -> bytes:
    return (
        f"POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
    ).encode()


class Dribble:
    """Connections that each send what they are given, then a byte now and then until they are
    closed.
    """

    def __init__(self, url: str, begin: bytes) -> None:
        parts = urlsplit(url)
        self._place = (str(parts.hostname), int(parts.port or 0))
        self._begin = begin
        self._tasks: list[asyncio.Task[bytes]] = []
        self.begun = 0

    async def begin(self, count: int) -> None:
        self._tasks += [asyncio.create_task(self._one()) for _ in range(count)]
        await until(lambda: asyncio.sleep(0, self.begun >= len(self._tasks)))

    async def answers(self) -> list[bytes]:
        return await asyncio.gather(*self._tasks)

    async def end(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _one(self) -> bytes:
        reader, writer = await asyncio.open_connection(*self._place)
        answer = b""
        sending = asyncio.create_task(self._send(writer))
        try:
            # On a busy machine its reset comes with the end: what was read before stays.
            with contextlib.suppress(ConnectionError):
                while part := await reader.read(1 << 16):
                    answer += part
            return answer
        finally:
            sending.cancel()
            writer.close()

    async def _send(self, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            writer.write(self._begin)
            await writer.drain()
            self.begun += 1
            while True:
                await asyncio.sleep(0.1)
                writer.write(b" ")
                await writer.drain()


async def ok(http: httpx.AsyncClient, path: str) -> bool:
    return (await http.get(path)).status_code == 200


async def asked(url: str, key: str) -> httpx.Response:
    """The answer to a valid request on a connection of its own."""
    async with httpx.AsyncClient(base_url=url, timeout=20) as http:
        return await http.post(
            PATH,
            headers={"Authorization": f"Bearer {key}"},
            json={"role": "user", "content": "hello"},
        )


async def served(url: str, key: str) -> None:
    """A valid request on a connection of its own is answered."""
    answer = await asked(url, key)
    assert answer.status_code == 202, answer.text


@pytest.mark.parametrize(
    "begin",
    [b"", b"POST /v1/events HTTP/1.1\r\nX: ", head("no-key")],
    ids=["nothing", "a-head-that-does-not-end", "a-body-without-a-key"],
)
async def test_valid_requests_are_answered_beside_more_slow_connections_than_there_is_room_for(
    platform: Platform, small: Small, begin: bytes
) -> None:
    url, connections, _ = small
    slow = Dribble(url, begin)
    try:
        for _ in range(3):
            await slow.begin(ROOM)
            await served(url, platform.key)
            assert len(connections) <= ROOM
    finally:
        await slow.end()


async def test_valid_requests_are_answered_beside_connections_that_read_no_answer(
    platform: Platform, small: Small
) -> None:
    url, connections, _ = small
    parts = urlsplit(url)
    ask = b"GET /docs/swagger-ui-bundle.js HTTP/1.1\r\nHost: x\r\n\r\n" * 8
    deaf: list[socket.socket] = []
    try:
        for _ in range(2):
            for _ in range(ROOM):
                one = socket.socket()
                one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2_048)
                one.connect((str(parts.hostname), int(parts.port or 0)))
                one.sendall(ask)
                deaf.append(one)
                await asyncio.sleep(0)

            async def answered() -> bool:  # as soon as they were answered what they do not read
                return (await asked(url, platform.key)).status_code == 202

            await until(answered)
            assert len(connections) <= ROOM
    finally:
        for one in deaf:
            one.close()


async def test_valid_requests_are_answered_beside_connections_that_ask_on_without_a_key(
    platform: Platform, small: Small
) -> None:
    url, connections, _ = small
    parts = urlsplit(url)
    place = (str(parts.hostname), int(parts.port or 0))

    async def ask_on() -> None:
        while True:
            with contextlib.suppress(ConnectionError):
                reader, writer = await asyncio.open_connection(*place)
                try:
                    writer.write(b"GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n" * 32)
                    while await reader.read(1 << 16):
                        writer.write(b"GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n")
                finally:
                    writer.close()
            await asyncio.sleep(0.2)

    tasks = [asyncio.create_task(ask_on()) for _ in range(ROOM + 4)]
    try:
        await until(lambda: asyncio.sleep(0, len(connections) >= ROOM))
        for _ in range(10):
            await served(url, platform.key)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_large_answers_are_sent_at_a_rate_and_count_for_their_tenant_until_they_are_read(
    platform: Platform, small: Small
) -> None:
    url, _, app = small
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * (7 << 20)}}
    headers = {"Authorization": f"Bearer {platform.key}"}
    context = "/v1/conversations/large/context"
    deaf = socket.socket()
    deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2_048)
    async with httpx.AsyncClient(base_url=url, timeout=30, headers=headers) as http:
        message = {"role": "user", "content": [image]}
        path = "/v1/conversations/large/messages?wait=applied"
        assert (await http.post(path, json=message)).status_code == 200
        size = len((await http.get(context)).content)
        assert size > 7 << 20
        app.concurrency.limits = Limits()
        began = time.monotonic()
        answers = await asyncio.gather(*(http.get(context) for _ in range(4)))
        assert [len(answer.content) for answer in answers] == [size] * 4
        assert time.monotonic() - began > 3 * size / ANSWER_RATE
        app.concurrency.limits = Limits(answer_bytes=40 << 20)
        parts = urlsplit(url)
        try:
            deaf.connect((str(parts.hostname), int(parts.port or 0)))
            deaf.sendall(
                f"GET {context} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {platform.key}"
                "\r\n\r\n".encode()
            )
            await until(lambda: asyncio.sleep(0, app.concurrency.all.answers > 7 << 20))
            refused = await http.get(context)
            assert refused.status_code == 429 and "answers that are not read yet" in refused.text
            assert (await http.get("/v1/conversations")).status_code == 200
        finally:
            deaf.close()
        await until(lambda: asyncio.sleep(0, app.concurrency.all.answers == 0))
        assert (await http.get(context)).status_code == 200


async def test_a_request_without_a_key_is_answered_401_and_its_connection_closed(
    small: Small,
) -> None:
    slow = Dribble(small.url, head("no-key"))
    await slow.begin(1)
    (answer,) = await slow.answers()
    assert answer.startswith(b"HTTP/1.1 401 ") and b"\r\nconnection: close\r\n" in answer.lower()


async def test_connections_whose_refusals_are_held_back_make_way(
    platform: Platform, small: Small, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(back_pressure, "LEAST", 60.0)
    url, connections, app = small
    app.concurrency.limits = Limits(streams=4)  # of one tenant: one
    parts = urlsplit(url)
    asking = (
        "GET /v1/conversations/c/stream HTTP/1.1\r\nHost: x\r\n"
        f"Authorization: Bearer {platform.key}\r\n\r\n"
    ).encode()
    await served(url, platform.key)
    writers = []
    for _ in range(ROOM):
        _, writer = await asyncio.open_connection(str(parts.hostname), int(parts.port or 0))
        writer.write(asking)
        writers.append(writer)
    await until(lambda: asyncio.sleep(0, len(connections) == ROOM))
    await until(lambda: asyncio.sleep(0, app.concurrency.all.streams == 1))
    for _ in range(5):
        await served(url, platform.key)
    for writer in writers:
        writer.close()
    await until(lambda: asyncio.sleep(0, app.concurrency.all.streams == 0))


async def test_one_end_user_does_not_take_all_requests_that_the_tenant_may_have_under_way(
    platform: Platform,
) -> None:
    app = create_gateway(msgspec.structs.replace(platform.settings, user_concurrent_requests=3))
    app.concurrency.limits = Limits(requests=32)
    headers = {"Authorization": f"Bearer {platform.key}"}
    async with serving(app) as url:
        async with httpx.AsyncClient(base_url=url, headers=headers) as http:
            await until(lambda: ok(http, "/readyz"))
            claims = {"user": "ann", "verbs": ["append"], "conversations": ["of-ann"]}
            token = str((await http.post("/v1/tokens", json=claims)).json()["token"])
        slow = Dribble(url, head(token, path="/v1/conversations/of-ann/messages"))
        try:
            await slow.begin(12)
            await until(lambda: asyncio.sleep(0, app.concurrency.all.requests >= 3))
            await served(url, platform.key)
            refused = await asked(url, token)
            assert refused.status_code == 429
            assert "you have 3 requests under way" in refused.text
        finally:
            await slow.end()


async def test_a_body_that_comes_too_slowly_is_answered_408(
    platform: Platform, small: Small, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(body_pace, "BODY_GRACE", 0.5)
    monkeypatch.setattr(protocol, "CHECK", 0.1)
    slow = Dribble(small.url, head(platform.key))
    await slow.begin(3)
    for answer in await slow.answers():
        assert answer.startswith(b"HTTP/1.1 408 ") and b"comes too slowly" in answer
    await served(small.url, platform.key)


async def test_a_body_at_the_least_rate_is_accepted(
    platform: Platform, small: Small, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(body_pace, "BODY_GRACE", 1.0)
    monkeypatch.setattr(protocol, "CHECK", 0.1)
    body = b'{"role":"user","content":"' + b"x" * 20_000 + b'"}'
    parts = urlsplit(small.url)
    reader, writer = await asyncio.open_connection(str(parts.hostname), int(parts.port or 0))
    writer.write(head(platform.key, len(body)))
    for at in range(0, len(body), 1_000):
        writer.write(body[at : at + 1_000])
        await writer.drain()
        await asyncio.sleep(0.1)  # 10,000 bytes a second
    assert (await reader.readline()).startswith(b"HTTP/1.1 202 ")
    writer.close()


async def test_a_gateway_full_of_requests_under_way_answers_503_and_says_why(
    platform: Platform, small: Small
) -> None:
    url, connections, app = small
    slow = Dribble(url, head(platform.key))
    try:
        await slow.begin(ROOM)
        await until(lambda: asyncio.sleep(0, app.concurrency.all.requests == ROOM))
        async with httpx.AsyncClient(base_url=url) as http:
            answer = await http.get("/healthz")
        assert answer.status_code == 503 and "as many connections" in answer.text
        assert len(connections) == ROOM
    finally:
        await slow.end()
    await until(lambda: asyncio.sleep(0, len(connections) == 0))
    await served(url, platform.key)


async def test_a_read_that_waits_ends_when_its_client_leaves(
    platform: Platform, small: Small, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "HALF_CLOSED", 0.2)
    url, _, app = small
    async with httpx.AsyncClient(base_url=url, timeout=20) as http:
        own = {"Authorization": f"Bearer {platform.key}"}
        message = {"role": "user", "content": "on"}
        done = await http.post(f"{PATH}?wait=applied", headers=own, json=message)
        partition, offset = done.json()["events"][0]["position"].split("-")
        ahead = f"/v1/conversations/c/context?after={partition}-{int(offset) + 1_000}"
        reading = asyncio.create_task(http.get(ahead, headers=own))
        await until(lambda: asyncio.sleep(0, app.concurrency.all.requests == 1))
        began = time.monotonic()
        reading.cancel()
        await until(lambda: asyncio.sleep(0, app.concurrency.all.requests == 0))
        assert time.monotonic() - began < 5  # of the 10 s that it would wait


@pytest.mark.parametrize("several", [False, True], ids=["of-one", "of-several"])
async def test_a_wait_for_appended_events_ends_when_its_client_leaves_and_they_stay(
    platform: Platform, small: Small, monkeypatch: pytest.MonkeyPatch, several: bool
) -> None:
    url, _, app = small
    conversation = f"left-{several}"
    message = {"type": "message", "role": "user", "content": "stays"}
    path = "/v1/events" if several else f"/v1/conversations/{conversation}/events"
    body = {"conversation": conversation, **message} if several else message
    waiting = asyncio.Event()

    async def behind(*_: object, **__: object) -> None:
        waiting.set()
        await asyncio.Event().wait()

    async with httpx.AsyncClient(base_url=url, timeout=20) as http:
        own = {"Authorization": f"Bearer {platform.key}"}
        with monkeypatch.context() as worker:
            worker.setattr(app.state.connection.get(), "wait_for", behind)
            sending = asyncio.create_task(http.post(f"{path}?wait=applied", headers=own, json=body))
            await until(lambda: asyncio.sleep(0, waiting.is_set() or sending.done()))
            assert not sending.done(), sending.result().text
            sending.cancel()
            await until(lambda: asyncio.sleep(0, app.concurrency.all.requests == 0))

        async def there() -> bool:
            read = await http.get(f"/v1/conversations/{conversation}/history", headers=own)
            return "stays" in read.text

        await until(there)
