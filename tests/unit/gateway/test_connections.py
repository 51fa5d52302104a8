"""Which connection makes way for a new one, and when none does."""

from __future__ import annotations

import asyncio
import resource
import socket
import threading
import time
from contextlib import ExitStack

import pytest
from starlette.types import Receive, Scope, Send

from tests.support.worker import until
from threadfold.gateway.connections import (
    DESCRIPTORS,
    LEAST,
    RESERVED,
    Connections,
    descriptors,
    most_connections,
    raise_descriptors,
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
