"""What of a request is no body is bounded, in bytes and time, before any key is asked for; and what
is no HTTP is answered as a problem.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from streams.settings.settings import Settings
from tests.support.own_lines import own_lines
from tests.support.ports import closed_port
from tests.support.serving import serving
from tests.support.worker import until
from threadfold.gateway import create_gateway, protocol
from threadfold.gateway.connections import Connections

GET = b"GET /healthz HTTP/1.1\r\nHost: x\r\n"
POST = b"POST /healthz HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
PIECE = b"a" * 16_384
MOST = 8 << 20
"""Bytes after which the test gives up waiting to be refused; far more than the bound and what
sockets hold.
"""


@contextlib.asynccontextmanager
async def listening(**changes: str) -> AsyncIterator[tuple[str, int]]:
    """Where a gateway is that is not connected: it listens all the same."""
    redis = f"redis://127.0.0.1:{closed_port()}/0"
    away = Settings.load(env={}, kafka=f"127.0.0.1:{closed_port()}", redis=redis, **changes)
    async with serving(create_gateway(away)) as url:
        parts = urlsplit(url)
        yield str(parts.hostname), int(parts.port or 0)


@pytest.fixture
async def place() -> AsyncIterator[tuple[str, int]]:
    async with listening() as there:
        yield there


@pytest.fixture
async def place_without_keys() -> AsyncIterator[tuple[str, int]]:
    async with listening(auth="off") as there:
        yield there


async def flooded(place: tuple[str, int], begin: bytes, piece: bytes) -> tuple[int, bytes]:
    """How many bytes of pieces could be sent after ``begin``, and what was answered."""
    reader, writer = await asyncio.open_connection(*place)
    sent, answer = 0, b""
    try:
        async with asyncio.timeout(20):
            with contextlib.suppress(ConnectionError):
                writer.write(begin)
                while sent < MOST:
                    writer.write(piece)
                    await writer.drain()
                    sent += len(piece)
                answer = await reader.read()
    finally:
        writer.close()
    return sent, answer


@pytest.mark.parametrize(
    ("begin", "piece"),
    [(GET + b"X: ", PIECE), (GET, b"X: a\r\n" * 3_000), (b"GET /", PIECE)],
    ids=["one header", "many headers", "the path"],
)
async def test_a_head_that_does_not_end_is_cut_off_long_before_it_fills_the_memory(
    place: tuple[str, int], begin: bytes, piece: bytes
) -> None:
    sent, _ = await flooded(place, begin, piece)
    assert sent < MOST


@pytest.mark.parametrize(
    "begin", [POST + b"0\r\nX: ", POST + b"1;x="], ids=["a trailer", "a chunk's extension"]
)
async def test_what_follows_a_body_is_bounded_as_well(place: tuple[str, int], begin: bytes) -> None:
    sent, _ = await flooded(place, begin, PIECE)
    assert sent < MOST


async def asked(place: tuple[str, int], *pieces: bytes) -> bytes:
    """The whole answer to what is sent piece by piece, until the server closes."""
    reader, writer = await asyncio.open_connection(*place)
    try:
        async with asyncio.timeout(20):
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0.02)
            return await reader.read()
    finally:
        writer.close()


def problem_of(answer: bytes) -> dict[str, object]:
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"application/problem+json" in head
    assert b"connection: close" in head.lower()
    found: dict[str, object] = json.loads(body)
    return found


async def test_too_long_a_head_and_what_is_no_http_are_answered_with_problem_documents(
    place: tuple[str, int],
) -> None:
    long = problem_of(await asked(place, GET + b"X: ", *[PIECE] * 4, b"a"))
    assert (long["status"], long["title"]) == (431, "Request header fields too large")
    assert problem_of(await asked(place, b"nonsense\r\n\r\n"))["status"] == 400


async def test_a_head_that_comes_too_slowly_ends_its_connection(
    place: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "HEAD_SECONDS", 0.2)
    assert problem_of(await asked(place, b"GET /healthz HTTP/1.1\r\n"))["status"] == 408
    assert await asked(place) == b"", "one that says nothing is closed without a word"


async def test_long_bodies_and_requests_one_behind_the_other_are_not_taken_for_heads(
    place: tuple[str, int],
) -> None:
    body = b"b" * (1 << 20)
    first = b"POST /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body)
    last = GET + b"Connection: close\r\n"
    answer = await asked(
        place, first + body + GET + b"\r\n" + last + b"X: " + PIECE, PIECE + b"\r\n\r\n"
    )
    assert answer.count(b"HTTP/1.1 200 OK") == 2
    assert answer.count(b"HTTP/1.1 405") == 1


@pytest.mark.parametrize("coding", [b"gzip", b"gzip, chunked", b"wuff"])
async def test_a_transfer_coding_that_nobody_decodes_is_named(
    place: tuple[str, int], coding: bytes
) -> None:
    head = b"POST /healthz HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: " + coding + b"\r\n\r\n"
    refused = problem_of(await asked(place, head, b"3\r\nabc\r\n0\r\n\r\n"))
    assert refused["status"] == 501 and coding.decode() in str(refused["detail"])


CODED = b"POST /healthz HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: wuff\r\n\r\n"


@pytest.mark.parametrize(
    ("behind", "status"),
    [
        (b"nonsense and more of it\r\n\r\n", 400),
        (POST + b"no length\r\n", 400),
        (GET + b"X: " + PIECE * 5, 431),
        (CODED + GET + b"\r\n", 501),
    ],
    ids=["garbage", "a broken body", "too long a head", "an unknown coding"],
)
async def test_whole_requests_before_what_is_refused_are_answered_first(
    behind: bytes, status: int
) -> None:
    async def slow(request: Request) -> Response:
        paths.append(request.url.path)
        await asyncio.sleep(0.02)
        return Response(b"whole")

    paths: list[str] = []
    app = Starlette(routes=[Route("/slow", slow), Route("/healthz", slow, methods=["POST"])])
    whole = b"GET /slow HTTP/1.1\r\nHost: x\r\n\r\n"
    async with serving(app) as url:
        parts = urlsplit(url)
        there = str(parts.hostname), int(parts.port or 0)
        answer = await asked(there, whole * 3 + behind[:20], behind[20:])
    *answers, last = answer.split(b"HTTP/1.1 ")[1:]
    assert len(answers) == 3 and all(one.startswith(b"200") for one in answers)
    assert problem_of(last)["status"] == status
    assert paths == ["/slow"] * 3, "what stands behind it is not done"


async def test_an_unknown_coding_on_a_kept_connection_is_named(place: tuple[str, int]) -> None:
    answer = await asked(place, GET + b"\r\n", CODED)
    assert problem_of(answer.split(b"HTTP/1.1 ")[2])["status"] == 501


async def test_an_old_version_of_http_has_no_transfer_coding(place: tuple[str, int]) -> None:
    head = b"POST /v1/events HTTP/1.0\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    refused = problem_of(await asked(place, head + b"2\r\n{}\r\n0\r\n\r\n"))
    assert refused["status"] == 400 and "send Content-Length" in str(refused["detail"])


@pytest.mark.parametrize(
    "head",
    [
        b"GET /healthz HTTP/1.1\r\n",
        GET + b"Host: x\r\n",
        b"GET /healthz HTTP/1.0\r\nHost: x\r\nhost: y\r\n",
    ],
    ids=["none", "two", "two of an old client"],
)
async def test_a_request_names_one_host(place: tuple[str, int], head: bytes) -> None:
    refused = problem_of(await asked(place, head + b"\r\n"))
    assert refused["status"] == 400 and "Host" in str(refused["detail"])


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (b"Origin: http://127.0.0.1", b"Origin: http://evil.example"),
        (b"Origin: http://127.0.0.1", b"origin: http://127.0.0.1"),
        (b"Content-Type: application/json", b"content-type: text/plain"),
        (b"Idempotency-Key: a", b"Idempotency-Key: b"),
        (b"Fencing-Token: 1", b"fencing-token: 2"),
        (b'If-Match: "0-1"', b'If-Match: "0-2"'),
        (b"Content-Length: 2", b"Content-Length: 3"),
        (b"Content-Length: 2", b"Content-Length: 2"),
        (b"Content-Length: 2", b"Transfer-Encoding: chunked"),
    ],
)
async def test_what_decides_who_may_call_and_where_a_body_ends_comes_once(
    place: tuple[str, int], place_without_keys: tuple[str, int], first: bytes, second: bytes
) -> None:
    begin = b"POST /v1/conversations/c/events HTTP/1.1\r\nHost: 127.0.0.1\r\n"
    for there in (place, place_without_keys):
        for one, other in ((first, second), (second, first)):
            head = begin + one + b"\r\nX: y\r\n" + other + b"\r\n\r\n"
            refused = problem_of(await asked(there, head))
            assert refused["status"] == 400
            name = first.partition(b":")[0].decode()
            if name != "Content-Length":
                assert refused["detail"] == f"the request has 2 {name} headers: send at most one"


async def test_an_old_client_need_not_name_the_host(place: tuple[str, int]) -> None:
    answer = await asked(place, b"GET /healthz HTTP/1.0\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200 OK")


def get(address: str, host: str, more: str = "") -> bytes:
    return f"GET {address} HTTP/1.1\r\nHost: {host}\r\n{more}Connection: close\r\n\r\n".encode()


UPGRADE = "Upgrade: h2c\r\n"


@pytest.mark.parametrize("more", ["", UPGRADE + "Connection: upgrade\r\n"])
async def test_without_keys_a_foreign_host_in_the_address_is_refused_whatever_host_says(
    place_without_keys: tuple[str, int], more: str
) -> None:
    own = f"127.0.0.1:{place_without_keys[1]}"
    for path in ("/healthz", "/v1/conversations", "/metrics", "?x=/healthz", ""):
        for scheme in ("http", "HTTPS"):
            head = get(f"{scheme}://evil.example{path}", own, more)
            answer = await asked(place_without_keys, head)
            assert answer.startswith(b"HTTP/1.1 403") and b"evil.example" in answer
    old = b"GET http://evil.example/healthz HTTP/1.0\r\n\r\n"
    assert (await asked(place_without_keys, old)).startswith(b"HTTP/1.1 403")
    page = f"{more}Origin: http://evil.example\r\n"
    answer = await asked(place_without_keys, get(f"http://{own}/healthz", "evil.example", page))
    assert answer.startswith(b"HTTP/1.1 403") and b"no other page" in answer


async def test_an_address_with_its_host_is_answered_as_the_path_and_that_host(
    place: tuple[str, int], place_without_keys: tuple[str, int]
) -> None:
    for there, host in ((place, "any.example"), (place_without_keys, "localhost")):
        for more in ("", UPGRADE + "Connection: upgrade\r\n"):
            for scheme in ("http", "HTTP", "https"):
                healthy = await asked(there, get(f"{scheme}://{host}/healthz", "other", more))
                assert healthy.startswith(b"HTTP/1.1 200")
        assert (await asked(there, get(f"http://{host}", host))).startswith(b"HTTP/1.1 307")
        for address in (f"http://{host}?next=x", "/?next=http://evil.example/"):
            read = await asked(there, get(address, host))
            assert read.startswith(b"HTTP/1.1 422") and b"'next'" in read, "a query stays one"


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("GET *", "OPTIONS"),
        ("POST *", "OPTIONS"),
        ("GET ftp://127.0.0.1/healthz", "scheme"),
        ("GET http://127.0.0.1@evil.example/healthz", "no user"),
        ("GET http:///healthz", "needs a host"),
    ],
)
async def test_an_address_that_no_server_can_be_meant_by_is_refused(
    place: tuple[str, int], place_without_keys: tuple[str, int], line: str, why: str
) -> None:
    for there in (place, place_without_keys):
        head = f"{line} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
        refused = problem_of(await asked(there, head.encode()))
        assert refused["status"] == 400 and why in str(refused["detail"])


async def test_options_may_ask_about_the_whole_server(place: tuple[str, int]) -> None:
    head = b"OPTIONS * HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    assert (await asked(place, head)).startswith(b"HTTP/1.1 405")


async def test_requests_one_behind_the_other_leave_no_error_behind(
    place: tuple[str, int], caplog: pytest.LogCaptureFixture
) -> None:
    no_key = b"GET /v1/conversations HTTP/1.1\r\nHost: x\r\n\r\n"
    post = b"POST /v1/events HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nabcde"
    head = b"HEAD /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
    upgrade = GET + b"Connection: Upgrade\r\nUpgrade: h2c\r\n\r\n"
    kinds = [GET + b"\r\n", no_key, post, head, upgrade, b"nonsense\r\n\r\n"]
    with caplog.at_level("ERROR"):
        for three in itertools.product(kinds, repeat=3):
            for aborted in (False, True):
                _, writer = await asyncio.open_connection(*place)
                writer.write(b"".join(three))
                await asyncio.sleep(0.002)
                if aborted:
                    writer.transport.abort()
                else:
                    writer.close()
        assert (await asked(place, kinds[0] * 20 + no_key)).count(b"HTTP/1.1 200 OK") == 20
    assert own_lines(caplog) == []


def headers_of(head: bytes) -> dict[bytes, bytes]:
    """The status line, as ``status``, and the headers that are the same for the same answer."""
    status, *lines = head.lower().split(b"\r\n")
    headers = dict(line.split(b": ", 1) for line in lines)
    return {
        b"status": status,
        **{name: headers.get(name, b"") for name in (b"content-type", b"content-length", b"allow")},
    }


@pytest.mark.parametrize("path", [b"/healthz", b"/readyz"])
async def test_a_probe_by_head_is_answered_as_one_by_get_without_the_body(
    place: tuple[str, int], path: bytes
) -> None:
    rest = path + b" HTTP/1.1\r\nHost: x\r\n"
    closing = rest + b"Connection: close\r\n\r\n"

    async def is_settled() -> bool:  # /readyz says something else before the first try has failed
        return path == b"/healthz" or b"reading topic" in await asked(place, b"GET " + closing)

    await until(is_settled)
    by_get, _, body = (await asked(place, b"GET " + closing)).partition(b"\r\n\r\n")
    by_head, _, none = (await asked(place, b"HEAD " + closing)).partition(b"\r\n\r\n")
    assert headers_of(by_head) == headers_of(by_get)
    assert len(body) == int(headers_of(by_head)[b"content-length"]) and not none
    several = await asked(place, (b"HEAD " + rest + b"\r\n") * 3 + b"GET " + closing)
    assert several.count(b"HTTP/1.1 ") == 4 and several.endswith(body[-20:])


@pytest.mark.parametrize(
    ("begin", "allowed"), [(b"POST /healthz", b"get, head"), (b"HEAD /metrics", b"get")]
)
async def test_a_method_that_a_route_lacks_is_answered_with_those_it_has(
    place: tuple[str, int], begin: bytes, allowed: bytes
) -> None:
    answer = await asked(place, begin + b" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    headers = headers_of(answer.partition(b"\r\n\r\n")[0])
    assert headers[b"status"].startswith(b"http/1.1 405")
    assert headers[b"allow"] == allowed


async def test_two_authorization_headers_are_refused_as_two(place: tuple[str, int]) -> None:
    key = b"Authorization: Bearer tf_a\r\n"
    head = b"GET /v1/conversations HTTP/1.1\r\nHost: x\r\n" + key * 2 + b"\r\n"
    refused = problem_of(await asked(place, head))
    assert refused["status"] == 401 and "several Authorization headers" in str(refused["detail"])


async def echo(request: Request) -> Response:
    return Response(await request.body())


ECHO = Starlette(routes=[Route("/echo", echo, methods=["POST"])])
INNER = GET + b"\r\n"
"""A body that reads like a request."""


def upgrade(protocol: bytes, framing: bytes, more: bytes = b"Connection: Upgrade\r\n") -> bytes:
    return b"POST /echo HTTP/1.1\r\nHost: x\r\n%sUpgrade: %s\r\n%s\r\n\r\n" % (
        more,
        protocol,
        framing,
    )


@pytest.mark.parametrize("offered", [b"h2c", b"websocket"])
@pytest.mark.parametrize(
    ("framing", "body"),
    [
        (b"Content-Length: %d" % len(INNER), INNER),
        (b"Transfer-Encoding: chunked", b"%x\r\n%s\r\n0\r\n\r\n" % (len(INNER), INNER)),
    ],
    ids=["length", "chunked"],
)
async def test_an_upgrade_is_ignored_and_its_request_s_body_is_a_body(
    offered: bytes, framing: bytes, body: bytes
) -> None:
    head = upgrade(offered, framing)
    last = b"POST /echo HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 3\r\n\r\nend"
    whole = head + body + head + body + last
    async with serving(ECHO) as url:
        parts = urlsplit(url)
        place = str(parts.hostname), int(parts.port or 0)
        cut = [len(head) // 2, len(head), len(head) + 9, len(head + body) + 5, len(whole) - 1]
        pieces = [whole[a:b] for a, b in itertools.pairwise([0, *cut, len(whole)])]
        for sent in ([whole], [head, body, head, body, last], pieces):
            answer = await asked(place, *sent)
            assert answer.count(b"HTTP/1.1 ") == answer.count(b"HTTP/1.1 200 OK") == 3
            assert answer.count(INNER) == 2 and answer.endswith(b"\r\n\r\nend")


async def test_a_request_behind_an_upgrade_without_a_body_is_answered(
    place: tuple[str, int],
) -> None:
    ignored = GET + b"Connection: Upgrade\r\nUpgrade: h2c\r\n\r\n"
    last = GET + b"Connection: close, Upgrade\r\nUpgrade: h2c\r\n\r\n"
    old = last.replace(b"1.1", b"1.0").replace(b"close, ", b"")
    for end in (last, old):
        assert (await asked(place, ignored * 3 + end)).count(b"HTTP/1.1 200 OK") == 4


async def test_a_tunnel_is_refused(place: tuple[str, int]) -> None:
    connect = b"CONNECT x:443 HTTP/1.1\r\nHost: x\r\n\r\n"
    answer = await asked(place, connect + INNER)
    assert answer.count(b"HTTP/1.1 ") == 1
    assert problem_of(answer)["status"] == 501


async def test_an_upgrade_to_websockets_is_ignored_on_a_kept_connection_and_does_not_break_the_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level("WARNING"):
        async with serving(ECHO) as url:
            parts = urlsplit(url)
            reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
            async with asyncio.timeout(10):
                writer.write(INNER)
                await reader.readuntil(b"Not Found")
                writer.write(upgrade(b"websocket", b"Content-Length: 5") + b"12345")
                await reader.readuntil(b"\r\n\r\n12345")
        writer.close()
    assert own_lines(caplog) == []


async def test_a_request_with_another_behind_it_notices_that_its_client_has_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(protocol, "HALF_CLOSED", 0.2)
    begun, left = asyncio.Event(), asyncio.Event()

    async def slow(request: Request) -> Response:
        await request.body()
        begun.set()
        while (await request.receive())["type"] != "http.disconnect":
            pass
        left.set()
        return Response()

    connections = Connections(10, 10)
    app = Starlette(routes=[Route("/slow", slow)])
    async with serving(app, connections) as url, asyncio.timeout(10):
        parts = urlsplit(url)
        _, writer = await asyncio.open_connection(parts.hostname, parts.port)
        writer.write(b"GET /slow HTTP/1.1\r\nHost: x\r\n\r\n" + INNER)
        await begun.wait()
        writer.close()
        await until(lambda: asyncio.sleep(0, len(connections) == 0))
        await left.wait()


SLOW = b"POST /slow HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\n"


async def answered_after_shutting(sent: bytes) -> tuple[bytes, list[bytes]]:
    """The answer to a client that shuts its side while its first request is under way, and the
    bodies that came to the application.
    """
    asked, answers = asyncio.Event(), asyncio.Event()
    taken: list[bytes] = []

    async def slow(request: Request) -> Response:
        asked.set()
        await answers.wait()
        taken.append(await request.body())
        return Response(taken[-1])

    app = Starlette(routes=[Route("/slow", slow, methods=["POST"])])
    async with serving(app) as url, asyncio.timeout(10):
        parts = urlsplit(url)
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
        writer.write(sent)
        await asked.wait()
        writer.write_eof()
        await asyncio.sleep(0.1)  # the server sees the end
        answers.set()
        answer = await reader.read()
        writer.close()
        return answer, taken


async def test_a_client_that_shuts_its_side_after_its_requests_is_answered() -> None:
    answer, _ = await answered_after_shutting(SLOW + b"one" + SLOW + b"two")
    assert answer.count(b"HTTP/1.1 200") == 2
    assert answer.index(b"\r\n\r\none") < answer.index(b"\r\n\r\ntwo")


async def test_half_a_request_is_not_answered_when_its_client_shuts_its_side() -> None:
    async def whole(request: Request) -> Response:
        return Response(await request.body())

    app = Starlette(routes=[Route("/whole", whole, methods=["POST"])])
    async with serving(app) as url, asyncio.timeout(10):
        parts = urlsplit(url)
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
        writer.write(b"POST /whole HTTP/1.1\r\nHost: x\r\nContent-Length: 30\r\n\r\nhalf")
        writer.write_eof()
        assert await reader.read() == b""
        writer.close()


@pytest.mark.parametrize("half", [b"POST /slow HTT", b"POST /slow HTTP/1.1\r\nHost: x\r\n", None])
async def test_a_whole_request_before_half_a_one_is_answered_when_its_client_shuts_its_side(
    half: bytes | None,
) -> None:
    answer, taken = await answered_after_shutting(
        SLOW + b"one" + (SLOW + b"tw" if half is None else half)
    )
    assert answer.startswith(b"HTTP/1.1 200") and answer.count(b"HTTP/1.1 ") == 1
    assert answer.endswith(b"\r\n\r\none") and taken == [b"one"]
