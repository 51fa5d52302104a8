"""Which connection makes way for a new one, and when none does."""

from __future__ import annotations

import asyncio
import resource
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.types import Receive, Scope, Send

from tests.support.worker import until
from tests.support.written import answer_empty, connected
from threadfold.gateway import connections as module
from threadfold.gateway.connections import (
    DESCRIPTORS,
    LEAST,
    RESERVED,
    Connections,
    address_of,
    descriptors,
    most_connections,
    raise_descriptors,
    tell_keyed,
)
from threadfold.gateway.server import Server, acceptors, http_protocol, listen, server_config


class Open:
    def __init__(self, address: str) -> None:
        self.address = address
        self.made_way = False

    def make_way(self) -> None:
        self.made_way = True


def opened(connections: Connections, *addresses: str) -> list[Open]:
    made = [Open(address) for address in addresses]
    assert all(connections.add(one) for one in made)
    return made


def test_the_connection_that_waits_longest_makes_way_for_a_new_one() -> None:
    connections = Connections(3, 3)
    first, second, third = opened(connections, "a", "b", "c")
    connections.is_answered(first)
    connections.waits(first)
    opened(connections, "d")
    assert [first.made_way, second.made_way, third.made_way] == [False, True, False]
    assert len(connections) == 3


def test_a_connection_whose_request_is_being_answered_never_makes_way() -> None:
    connections = Connections(2, 2)
    busy = opened(connections, "a", "b")
    for one in busy:
        connections.is_answered(one)
    assert not connections.add(Open("c"))
    assert not any(one.made_way for one in busy)
    connections.remove(busy[0])
    opened(connections, "c")
    assert len(connections) == 2


def test_of_too_many_with_large_heads_one_of_the_address_with_most_makes_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "LARGE_HEADS", 3)
    connections = Connections(20, 20)
    a, b, c, d, e = opened(connections, *"abbcd")
    for one in (a, b, c, c, d):
        connections.has_large_head(one)
    assert [one.made_way for one in (a, b, c, d)] == [False, True, False, False]
    connections.has_no_large_head(a)  # it has shown a key
    connections.remove(d)
    for one in (e, *opened(connections, "e")):
        connections.has_large_head(one)
    assert not any(one.made_way for one in (a, c, d, e))
    assert len(connections) == 4


async def test_a_large_head_without_a_key_makes_way_and_one_with_a_key_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "LARGE_HEADS", 2)
    connections = Connections(20, 20)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        tell_keyed(scope, "acme")
        await answer_empty(send)

    small = b"GET / HTTP/1.1\r\nHost: a\r\n"
    keyed, answer = connected(app, connections)
    keyed.data_received(small + b"\r\n")
    await until(lambda: asyncio.sleep(0, b"200" in answer.bytes))
    others = [connected(app, connections) for _ in range(3)]
    for one, _ in (*others, (keyed, answer)):
        for piece in (small, *(b"a: %s\r\n" % (b"x" * 1_000) for _ in range(12))):
            one.data_received(piece)
            await asyncio.sleep(0)
    await until(lambda: asyncio.sleep(0, b"503" in others[0][1].bytes))
    assert [b"503" in written.bytes for _, written in others] == [True, False, False]
    for one, written in (*others[1:], (keyed, answer)):
        one.data_received(b"\r\n")
        await until(lambda heard=written: asyncio.sleep(0, b"200" in heard.bytes))
    assert answer.bytes.count(b"200") == 2


def test_a_connection_that_asks_without_a_key_makes_way_before_one_that_waits() -> None:
    connections = Connections(3, 3)
    waits, asks, asked = opened(connections, "a", "b", "c")
    for one in (asked, asks):
        connections.needs_no_key(one)
    connections.needs_no_key(asked)
    opened(connections, "d", "e")
    assert [waits.made_way, asks.made_way, asked.made_way] == [False, True, True]
    opened(connections, "f")
    assert waits.made_way


def test_the_address_with_most_connections_makes_way_before_one_that_waits_longer() -> None:
    connections = Connections(6, 6)
    own = opened(connections, "a")[0]
    others = opened(connections, *"bbccc")
    opened(connections, "d")
    assert [one.made_way for one in others] == [False, False, True, False, False]
    opened(connections, "d", "e")
    assert sum(one.made_way for one in others) == 3
    assert not own.made_way


def test_idle_connections_with_a_key_make_way_while_they_are_more_than_those_without() -> None:
    connections = Connections(8, 8)
    keyed = opened(connections, *"aaaaa")
    for one in keyed:
        connections.is_answered(one)
        connections.waits(one, "acme")
    new = opened(connections, *"bcde")
    assert [one.made_way for one in keyed] == [True, False, False, False, False]
    assert not any(one.made_way for one in new), "half of the places"
    opened(connections, *"ghijkl")
    assert sum(one.made_way for one in keyed) == 1
    assert all(one.made_way for one in new), "the next ones take their places"


@pytest.mark.parametrize("address", ["", "z"], ids=["of-all", "of-one-address"])
def test_while_many_are_busy_idle_connections_with_a_key_keep_half_of_the_other_places(
    address: str,
) -> None:
    connections = Connections(16, 16 if not address else 12)
    busy = opened(connections, *(address or c for c in "abcdefgh"))
    for one in busy:
        connections.is_answered(one)
    keyed = opened(connections, *(address or c for c in "ijkl"))
    for one in keyed:
        connections.is_answered(one)
        connections.waits(one, "acme")
    opened(connections, *(address or c for c in "mnopqrstuvwxyz"))
    assert sum(not one.made_way for one in keyed) == (2 if address else 4)
    assert not any(one.made_way for one in busy)


def test_a_client_that_opens_a_few_connections_at_once_is_no_worse_off_than_many_with_one() -> None:
    connections = Connections(512, 512)
    strangers = opened(connections, *(f"s{i}" for i in range(506)))
    mine = opened(connections, *"m" * 6)
    opened(connections, *(f"t{i}" for i in range(506)))
    assert all(one.made_way for one in strangers) and not any(one.made_way for one in mine)
    many = opened(connections, *"n" * 9)
    opened(connections, "u")
    assert many[0].made_way and not any(one.made_way for one in many[1:])


@pytest.mark.parametrize(
    ("most", "theirs", "more"), [(8, "bcdef", "gh"), (99, "aaaaa", "aa")], ids=["many", "one"]
)
def test_of_those_with_a_key_one_of_the_tenant_with_most_makes_way(
    most: int, theirs: str, more: str
) -> None:
    """A tenant that calls from many addresses takes no place of another's; nor one behind the same
    address.
    """
    connections = Connections(most, 8)
    good, hostile = opened(connections, *"aaa"), opened(connections, *theirs)
    for one in (*good, *hostile):
        connections.is_answered(one)
        connections.waits(one, "good" if one in good else "hostile")
    opened(connections, *more)
    assert [one.made_way for one in (*good, *hostile)] == [False] * 3 + [True] * 2 + [False] * 3


def test_one_that_goes_on_without_a_key_is_the_last_of_them_to_make_way() -> None:
    connections = Connections(3, 3)
    first, second, _ = opened(connections, "a", "b", "c")
    connections.goes_on(first)
    opened(connections, "d")
    assert [first.made_way, second.made_way] == [False, True]


def test_which_addresses_have_shown_a_valid_key_lately_is_known_of_the_latest_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MOST_SHOWN", 2)
    now = 100.0
    monkeypatch.setattr(module.time, "monotonic", lambda: now)
    connections = Connections(9)
    for address in "abac":
        connections.shows_key(address, "acme")
    assert [connections.key_shown(each) for each in "abcd"] == ["acme", "", "acme", ""]
    now += module.SHOWN_FOR - 1
    connections.shows_key("a", "beta")
    now += 2
    assert [connections.key_shown(each) for each in "ac"] == ["beta", ""]


@given(st.lists(st.tuples(st.sampled_from("wknarx"), st.integers(0, 8)), max_size=80))
def test_whoever_makes_way_is_the_first_of_its_kind_of_an_address_with_most_of_them(
    steps: list[tuple[str, int]],
) -> None:
    connections = Connections(5, 5)
    held: dict[int, Open] = {}
    since: dict[Open, tuple[str, int]] = {}
    kinds: dict[str, Callable[[Open], None]] = {
        "w": connections.waits,
        "k": partial(connections.waits, tenant="acme"),
        "n": connections.needs_no_key,
        "a": connections.is_answered,
    }
    for at, (step, number) in enumerate(steps):
        one = held.get(number)
        if one is None:
            one = Open("abc"[number % 3])
            count = Counter(since[x][0] for x in held.values())
            order = "nwk" if count["w"] >= count["k"] else "nkw"
            of_kind = [k for k in order if any(since[x][0] == k for x in held.values())]
            full = len(held) == 5
            assert connections.add(one) == (not full or bool(of_kind))
            if full and of_kind:
                (gone,) = [n for n, x in held.items() if x.made_way]
                victim = held.pop(gone)
                mine = [x for x in [victim, *held.values()] if since[x][0] == of_kind[0]]
                assert victim in mine
                own = [x for x in mine if of_kind[0] == "k" or x.address == victim.address]
                whose = Counter(of_kind[0] == "k" or x.address for x in mine)
                assert len(own) == max(whose.values())
                assert victim is min(own, key=since.__getitem__)
            if not full or of_kind:
                held[number], since[one] = one, ("w", at)
        elif step == "x":
            connections.remove(held.pop(number))
        elif step in kinds:
            kinds[step](one)
            since[one] = (step, since[one][1] if since[one][0] == step else at)
        assert len(connections) == len(held)
        assert not any(x.made_way for x in held.values())


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("10.1.2.3", "10.1.2.3"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("::ffff:10.1.2.3", "10.1.2.3"),
        ("::1", "::/64"),
        ("fe80::1%lo", "fe80::/64"),
        ("10.1.2.3:8080", "10.1.2.3:8080"),
    ],
)
def test_an_ipv6_network_counts_as_one_address(host: str, address: str) -> None:
    assert address_of(host) == address


def test_an_address_with_its_share_makes_way_for_itself() -> None:
    connections = Connections(10)
    own = opened(connections, *"aaaaa")
    other = opened(connections, "b")[0]
    for one in own[1:]:
        connections.is_answered(one)
    opened(connections, "a")
    assert own[0].made_way and not other.made_way
    assert len(connections) == 6


def test_connections_are_bounded_by_the_descriptors_there_are() -> None:
    assert most_connections(1_024) == 1_024 - RESERVED
    assert most_connections(10) == LEAST
    assert most_connections(None) == DESCRIPTORS


def test_the_limit_of_descriptors_is_raised_as_far_as_it_may_be() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 512), hard))
        raised = raise_descriptors()
        assert raised == descriptors() == (DESCRIPTORS if hard < 0 else min(hard, DESCRIPTORS))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_many_connections_are_accepted_in_one_turn_of_the_event_loop() -> None:
    uvloop = pytest.importorskip("uvloop", reason="asyncio's own loop accepts all at once")
    connections, turns = Connections(1_000, 1_000), 0
    listening = listen("127.0.0.1", 0)
    server = Server(server_config(_nothing, http_protocol(connections), "warning", 1))
    started, waiting = threading.Event(), threading.Event()

    async def busy() -> None:
        """The loop stands still until all clients wait, and then takes long turns."""
        nonlocal turns
        serving = asyncio.create_task(server.serve(acceptors(listening)))
        await until(lambda: asyncio.sleep(0, server.started))
        started.set()
        waiting.wait(30)
        while len(connections) < 200 and turns < 1_000:
            turns += 1
            _stand_still(0.001)
            await asyncio.sleep(0)
        server.should_exit = True
        await serving

    def run() -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(busy())

    thread = threading.Thread(target=run)
    thread.start()
    started.wait(30)
    with ExitStack() as clients:
        for _ in range(200):
            clients.enter_context(socket.create_connection(listening.getsockname()))
        waiting.set()
        thread.join(30)
    assert 0 < turns < 100


def _stand_still(seconds: float) -> None:
    time.sleep(seconds)


async def _nothing(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "lifespan":
        await receive()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await send({"type": "lifespan.shutdown.complete"})
