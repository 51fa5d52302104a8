"""Where the body of a route that takes an object is decoded."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from msgspec import Struct

from projections.errors import InvalidRequest
from streams.settings.settings import Settings
from threadfold.gateway.access import PRINCIPAL, Connection, GatewayState
from threadfold.gateway.request import Body, Request
from threadfold.gateway.tokens import Principal


class Note(Struct, forbid_unknown_fields=True):
    """A body with one text."""

    text: str


NOTE = Body(Note, {"one": {"text": "a"}})


@pytest.fixture
def state() -> GatewayState:
    return GatewayState(Connection(Settings(kafka="127.0.0.1:1", redis="redis://127.0.0.1:1")))


def request_of(state: GatewayState, body: object, tenant: str = "acme") -> Request:
    """A request whose whole body is there already: nothing waits for the network."""
    text = json.dumps(body).encode()

    async def receive() -> Any:
        return {"type": "http.request", "body": text, "more_body": False}

    scope: Any = {"type": "http", "headers": [], PRINCIPAL: Principal(tenant, frozenset())}
    return Request(scope, receive, state)


async def turns_of_others(reading: asyncio.Task[Any]) -> int:
    """How often the event loop served somebody else while a body was read."""
    turns = 0
    while not reading.done():
        await asyncio.sleep(0)
        turns += 1
    return turns


async def test_others_are_served_while_a_large_body_is_decoded(state: GatewayState) -> None:
    small = asyncio.create_task(request_of(state, {"text": "a" * 100}).read(NOTE))
    assert await turns_of_others(small) == 1
    large = asyncio.create_task(request_of(state, {"text": "a" * 200_000}).read(NOTE))
    assert await turns_of_others(large) > 1
    assert large.result() == Note("a" * 200_000)


async def test_large_bodies_of_one_tenant_are_decoded_one_after_the_other(
    state: GatewayState,
) -> None:
    async with state.turns_to_decode.of("acme"):
        waiting = asyncio.create_task(request_of(state, {"text": "a" * 50_000}).read(NOTE))
        await asyncio.sleep(0)
        await request_of(state, {"text": "b" * 50_000}, tenant="rival").read(NOTE)
        await request_of(state, {"text": "short"}).read(NOTE)
        assert not waiting.done()
    assert (await waiting).text == "a" * 50_000


async def test_a_large_body_of_a_wrong_type_is_refused_by_name(state: GatewayState) -> None:
    with pytest.raises(InvalidRequest, match="text"):
        await request_of(state, {"text": ["a" * 50_000]}).read(NOTE)
