"""What arrives on connections without a valid key is read in turns, and nothing of it stays."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from tests.support.worker import until
from tests.support.written import Written, answer_empty, connected
from threadfold.gateway import arrivals, counted, unread_answers
from threadfold.gateway.arrivals import BODY_PIECE, PIECE, SMALL_PIECE, Arrivals, ReadingTurns
from threadfold.gateway.connections import (
    MANY_WAITING,
    MAX_WAITING,
    RESERVED,
    Connections,
    on_left,
    tell_keyed,
)
from threadfold.gateway.loop_turns import Turns

GET = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
POST = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n"


KEYED = GET.replace(b"/ ", b"/keyed ")
TENANTS = {"/keyed": "acme", "/rival": "rival"}


class Server:
    """An application whose requests have a valid key if their path is one of ``TENANTS``. It keeps
    the paths in the order in which they came.
    """

    def __init__(self) -> None:
        self.came: list[str] = []
        self.go_on = asyncio.Event()
        self.go_on.set()
        self.connections = Connections(1_000, 1_000)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.came.append(scope["path"])
        tell_keyed(scope, TENANTS.get(scope["path"]))
        await self.go_on.wait()
        await answer_empty(send)

    def connect(self) -> tuple[Any, Written]:
        return connected(self, self.connections)


def one_in_a_step(server: Server) -> None:
    server.connections.reading = ReadingTurns(1e-9)  # less time than anything takes


async def steps(many: int) -> None:
    for _ in range(many):
        await asyncio.sleep(0)


async def keyed(server: Server, many: int) -> list[tuple[Any, Written]]:
    """So many connections that have shown a valid key, each with one request answered."""
    ends = [server.connect() for _ in range(many)]
    for connection, _ in ends:
        connection.data_received(KEYED)
        await steps(20)
    return ends


async def test_what_comes_at_once_is_read_in_steps_and_meanwhile_no_more_comes() -> None:
    server = Server()
    one_in_a_step(server)
    ends = [server.connect() for _ in range(20)]
    for connection, _ in ends:
        connection.data_received(GET)
    assert [transport.paused for _, transport in ends] == [False] + [True] * 19
    await steps(8)
    assert 2 <= len(server.came) <= 10
    await steps(40)
    assert len(server.came) == 20
    assert not any(transport.paused for _, transport in ends)
    assert all(transport.bytes.startswith(b"HTTP/1.1 200 ") for _, transport in ends)


async def test_a_connection_that_has_shown_a_valid_key_waits_for_nobody() -> None:
    server = Server()
    one_in_a_step(server)
    valid, heard = server.connect()
    valid.data_received(KEYED)
    await steps(5)
    assert heard.bytes.count(b"HTTP/1.1 200 ") == 1
    for connection, _ in [server.connect() for _ in range(20)]:
        connection.data_received(GET)
    valid.data_received(KEYED)
    await steps(5)
    assert heard.bytes.count(b"HTTP/1.1 200 ") == 2
    assert len(server.came) < 15


CHUNKED = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"


async def test_much_that_came_at_once_is_read_piece_by_piece_between_others() -> None:
    server = Server()
    one_in_a_step(server)
    large, _ = server.connect()
    large.data_received(CHUNKED + b"1\r\na\r\n" * (30 * PIECE // 6) + b"0\r\n\r\n")
    small, heard = server.connect()
    small.address = "10.0.0.9"
    small.data_received(GET)
    await steps(6)
    assert heard.bytes.startswith(b"HTTP/1.1 200 ")
    assert server.came == ["/", "/"] and large.cycle.more_body, "the large one is under way"


async def test_of_clients_with_a_key_none_is_read_at_once_either() -> None:
    server = Server()
    one_in_a_step(server)
    ends = await keyed(server, 20)
    assert all(connection.has_key() for connection, _ in ends)
    for connection, _ in ends:
        connection.data_received(KEYED)
    assert [transport.paused for _, transport in ends] == [False] + [True] * 19
    await steps(60)
    assert all(transport.bytes.count(b"HTTP/1.1 200 ") == 2 for _, transport in ends)


async def test_of_tenants_behind_one_address_none_waits_for_all_that_arrives_for_another() -> None:
    server = Server()
    one_in_a_step(server)
    ends = [server.connect() for _ in range(21)]
    gets = [KEYED] * 20 + [GET.replace(b"/ ", b"/rival ")]
    for (connection, _), get in zip(ends, gets, strict=True):
        connection.data_received(get)
        await steps(5)
    server.came.clear()
    for (connection, _), get in zip(ends, gets, strict=True):
        connection.data_received(get)
    await steps(5)
    assert "/rival" in server.came and len(server.came) < 15


async def test_who_reads_slowly_what_arrives_pauses_it_and_nothing_is_lost() -> None:
    took, go_on = bytearray(), asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        more = True
        while more:
            await go_on.wait()
            message = await receive()
            took.extend(message["body"])
            more = message.get("more_body", False)
        await answer_empty(send)

    connection, transport = connected(app)
    body = bytes(range(256)) * 2_000
    head = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % len(body)
    whole, at = head + body, 0
    for _ in range(200):
        if not transport.paused and at < len(whole):
            connection.data_received(whole[at : at + 200_000])
            at += 200_000
        await steps(3)
    assert transport.paused and at == 200_000, "no more comes while nobody takes what came"
    go_on.set()
    async with asyncio.timeout(30):
        while not transport.bytes:
            if not transport.paused and at < len(whole):
                connection.data_received(whole[at : at + 200_000])
                at += 200_000
            await asyncio.sleep(0)
    assert bytes(took) == body
    assert transport.bytes.startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize(
    ("length", "tls", "most"),
    [(300_000, False, BODY_PIECE), (0, False, PIECE), (300_000, True, PIECE)],
)
async def test_a_body_of_known_length_is_read_in_large_pieces_and_what_follows_it_in_small_ones(
    length: int, tls: bool, most: int
) -> None:
    read: list[int] = []
    transport = Written()
    arrivals = Arrivals(
        ReadingTurns(1e-9),
        "10.0.0.1",
        transport,
        lambda: "acme",
        lambda piece: read.append(len(piece)),
    )
    if tls:
        arrivals.go_through(transport, lambda piece: read.append(len(piece)))
    arrivals.expect(length)  # 0: it is not known
    arrivals.add(b"x" * 200_000)
    await steps(200)
    arrivals.add(b"x" * 200_000)
    await steps(200)
    assert sum(read) == 400_000 and max(read) == most
    assert max(read[-10:]) == PIECE, "requests may follow the body"


async def test_a_body_in_tiny_chunks_is_read_in_small_pieces() -> None:
    read: list[int] = []

    def parse(piece: memoryview) -> None:
        read.append(len(piece))
        body.came_in(len(piece) // 6, len(piece) // 6)

    body = Arrivals(ReadingTurns(1e-9), "10.0.0.1", Written(), lambda: "acme", parse)
    body.add(b"x" * 100_000)
    await steps(500)
    assert sum(read) == 100_000
    assert read[0] == PIECE and max(read[1:]) == SMALL_PIECE


async def test_nobody_waits_for_bodies_in_tiny_chunks_but_others_like_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(arrivals, "CRUMBS_REST", 1_000.0)
    server = Server()
    one_in_a_step(server)
    ends = await keyed(server, 5)
    chunks = CHUNKED.replace(b"/ ", b"/keyed ") + b"1\r\na\r\n" * 3_000 + b"0\r\n\r\n"
    for connection, _ in ends[:4]:
        connection.data_received(chunks)
    await steps(20)
    for _ in range(3):
        ends[4][0].data_received(KEYED)
        await steps(5)
    assert ends[4][1].bytes.count(b"HTTP/1.1 200 ") == 4
    assert all(transport.paused for _, transport in ends[:4]), "their bodies are not read yet"


async def test_who_has_shown_a_key_takes_no_turn_of_new_clients_of_its_address() -> None:
    turns, read, shown = ReadingTurns(1e-9), list[bytes](), [""]

    def arrivals(whose: Callable[[], str]) -> Arrivals:
        reader = lambda piece: read.append(bytes(piece))  # noqa: E731
        return Arrivals(turns, "10.0.0.1", Written(), whose, reader)

    for _ in range(5):
        arrivals(lambda: shown[0]).add(b"x" * 3_000)
    shown[0] = "acme"
    arrivals(str).add(b"new")
    await steps(2)
    assert b"new" in read, "five others of the address came before"
    await steps(20)
    assert sum(map(len, read)) == 5 * 3_000 + 3


async def test_what_cannot_be_read_ends_its_own_connection_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(_: memoryview) -> None:
        raise ValueError("this cannot be read")

    turns, read = ReadingTurns(1e-9), list[bytes]()
    ends = [Written() for _ in range(4)]
    readers = [lambda piece: read.append(bytes(piece)), fail] * 2
    for number, (transport, reader) in enumerate(zip(ends, readers, strict=True)):
        Arrivals(turns, "10.0.0.1", transport, str, reader).add(b"%d" % number)
    await steps(10)
    assert [transport.aborted for transport in ends] == [False, True] * 2
    assert read == [b"0", b"2"] and len(caplog.records) == 2


async def test_requests_behind_a_body_that_nobody_took_are_answered_one_by_one() -> None:
    under_way, most, go_on = 0, 0, asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await go_on.wait()
        await asyncio.sleep(0)
        await answer_empty(send)
        under_way -= 1

    connection, transport = connected(app)
    body = b"x" * 70_000
    head = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % len(body)
    connection.data_received(head + body + GET * 5)
    await steps(300)
    assert transport.paused
    go_on.set()
    await steps(300)
    assert transport.bytes.count(b"HTTP/1.1 200 ") == 6 and most == 1


async def test_what_waits_is_read_in_order_with_what_comes_after_it() -> None:
    server = Server()
    one_in_a_step(server)
    first, _ = server.connect()
    first.data_received(GET)
    second, heard = server.connect()
    whole = POST + b"0123456789" + GET.replace(b"/ ", b"/next ")
    for i in range(0, len(whole), 7):
        second.data_received(whole[i : i + 7])
    await steps(20)
    assert server.came == ["/", "/", "/next"]
    assert heard.bytes.count(b"HTTP/1.1 200 ") == 2


async def test_what_waits_is_answered_although_its_client_sends_no_more() -> None:
    server = Server()
    one_in_a_step(server)
    first, _ = server.connect()
    first.data_received(GET)
    second, heard = server.connect()
    second.data_received(GET)
    assert second.eof_received()
    await steps(5)
    assert heard.bytes.startswith(b"HTTP/1.1 200 ")


async def test_what_waits_for_a_turn_gives_up_soon_when_its_client_sends_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(counted, "STAYS", 0.0)
    turns, gave_up = Turns(1e-9), list[bool]()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        gave_up.append(not await turns.take("acme", partial(on_left, scope)))
        await answer_empty(send)

    ends = [connected(app) for _ in range(3)]
    for connection, _ in ends:
        connection.data_received(GET)
    turns.charge(1.0)
    await steps(2)
    second, heard = ends[1]
    assert second.eof_received() and not heard.closed, "its turn may come at once"
    await steps(20)
    assert heard.closed
    assert gave_up == [False, True, False]
    assert not heard.bytes
    assert all(transport.bytes.startswith(b"HTTP/1.1 200 ") for _, transport in ends[::2])


async def test_what_a_client_does_not_read_ends_with_its_connection_when_it_sends_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(unread_answers, "SECONDS", 0.01)
    monkeypatch.setattr(Written, "get_write_buffer_size", lambda _: 1_000)
    left, stays = [connected(Server()) for _ in range(2)]
    for connection, _ in (left, stays):
        connection.data_received(GET)
        await steps(2)
    assert not left[0].eof_received(), "its transport is closed once all of it is sent"

    async def ends() -> bool:
        return left[1].aborted

    await until(ends)
    assert not stays[1].aborted


async def test_of_a_client_that_has_left_nothing_is_read() -> None:
    server = Server()
    one_in_a_step(server)
    for connection, transport in [server.connect() for _ in range(5)]:
        connection.data_received(GET)
        transport.close()
        connection.connection_lost(None)
    await steps(20)
    assert server.came == ["/"]  # was read at once


async def test_where_many_requests_wait_one_connection_without_a_key_adds_few() -> None:
    server = Server()
    server.go_on.clear()
    most = MANY_WAITING // MAX_WAITING
    ends = [server.connect() for _ in range(most + 20)]
    valid, _ = server.connect()
    valid.data_received(KEYED)
    await steps(3)
    for connection, _ in ends:
        connection.data_received(GET * (MAX_WAITING + 1))
    await steps(200)
    assert MANY_WAITING <= server.connections.requests_waiting <= MANY_WAITING + 20
    valid.data_received(GET * MAX_WAITING)
    assert server.connections.requests_waiting >= MANY_WAITING + MAX_WAITING
    server.go_on.set()
    await steps(200)
    assert server.connections.requests_waiting == 0
    refused = [transport for _, transport in ends if b"HTTP/1.1 503 " in transport.bytes]
    assert len(refused) == 20


async def test_who_makes_way_goes_at_once_where_many_still_go() -> None:
    connections = Connections(1_000, 1_000)
    ends = [connected(answer_empty, connections) for _ in range(RESERVED)]
    for connection, _ in ends:
        connections.remove(connection)
        connection.make_way()
    gone = [transport for _, transport in ends if transport.aborted]
    assert len(gone) == RESERVED - RESERVED // 2 and connections.explaining == RESERVED // 2
    for connection, _ in ends:
        connection.connection_lost(None)
    assert connections.explaining == 0


@pytest.mark.usefixtures("collector_off")
@pytest.mark.parametrize("error", [None, ConnectionResetError()], ids=["closed", "reset"])
@pytest.mark.parametrize(
    "sent",
    [b"", b"GET", GET, GET * 40, POST, b"\0\1\r\n\r\n", KEYED * 3],
    ids=["nothing", "half a head", "one", "many", "half a body", "garbage", "keyed"],
)
async def test_nothing_of_a_connection_stays(sent: bytes, error: Exception | None) -> None:
    """The collector looks seldom where requests are answered: it must have nothing to find."""
    server = Server()
    connection, transport = server.connect()
    if sent:
        connection.data_received(sent)
    await steps(10)
    transport.close()
    connection.connection_lost(error)
    left = weakref.ref(connection)
    del connection
    await steps(10)
    assert left() is None
