"""What is appended is JSON values alone: what JSON does not have is refused by the name of its item
and field, and is never text or null in its place.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from typing import Any
from uuid import UUID

import msgspec
import pytest

from threadfold_client import AsyncClient, Call, Client, Invalid, PartialWriter, ServerSent

DONE = b'{"events": [{"id": "x", "position": "0-1"}], "position": "0-1"}'
SAY = {"type": "message", "role": "user", "content": "hi"}
NO_JSON = [
    b"x",
    bytearray(b"x"),
    memoryview(b"x"),
    Decimal("1.5"),
    datetime(2026, 1, 1, tzinfo=UTC),
    date(2026, 1, 1),
    timedelta(1),
    UUID(int=1),
    float("nan"),
    float("inf"),
    Fraction(1, 2),
    object(),
]


class Color(Enum):
    RED = "red"


@dataclass
class Part:
    text: Any
    type: str = "text"


class Recorded:
    """A transport that keeps the calls, and answers what an append is answered."""

    def __init__(self) -> None:
        self.calls: list[Call] = []

    async def request(self, call: Call) -> bytes:
        self.calls.append(call)
        return DONE

    def stream(self, call: Call) -> AsyncIterator[ServerSent]:
        raise NotImplementedError

    async def close(self) -> None:
        pass


def client_on(transport: Recorded) -> AsyncClient:
    return AsyncClient.over(transport)


async def refusal(given: Any, call: str = "append") -> str:
    """What the error says with which that is refused; nothing was sent."""
    transport = Recorded()
    arguments = [given] if call == "append_many" else ["c", given]
    with pytest.raises(Invalid) as refused:
        await getattr(client_on(transport), call)(*arguments)
    assert transport.calls == []
    assert (refused.value.status, refused.value.type) == (422, "invalid-event")
    return str(refused.value)


@pytest.mark.parametrize("value", NO_JSON, ids=lambda value: type(value).__name__)
async def test_what_json_does_not_have_is_refused_by_its_field(value: Any) -> None:
    got = repr(value) if isinstance(value, float) else type(value).__name__
    expected = f"expected a JSON value, got {got}"
    assert await refusal({**SAY, "content": value}) == f"event 1: field content: {expected}"
    part = {"type": "text", "text": value}
    assert await refusal([SAY, {**SAY, "content": [part]}]) == (
        f"event 2: field content[0].text: {expected}"
    )
    deep = {**SAY, "metadata": {"a": {"b": (1, [value])}}}
    assert await refusal(deep) == f"event 1: field metadata.a.b[1][0]: {expected}"


@pytest.mark.parametrize("value", [b"x", Decimal(1), float("inf")], ids=repr)
async def test_what_json_does_not_have_is_refused_in_an_object_with_fields(value: Any) -> None:
    told = await refusal({**SAY, "content": [Part(value)]})
    assert told.startswith("event 1: field content[0].text: expected a JSON value, got ")


async def test_each_way_to_append_names_the_item_as_the_service_does() -> None:
    wrong = {**SAY, "content": b"x"}
    assert (await refusal([SAY, wrong], "append_messages")).startswith("message 2: field content:")
    assert (await refusal([SAY, SAY, wrong], "append_many")).startswith("event 3: field content:")
    writer = client_on(Recorded()).partial("c")
    with pytest.raises(Invalid, match=r"^event 1: field usage\.cost: expected a JSON value, got"):
        await writer.finish(usage={"cost": Decimal(1)})
    assert (await refusal([SAY, b"x"])) == "event 2: expected a JSON value, got bytes"
    with Client.of(client_on(Recorded())) as client, pytest.raises(Invalid, match=r"^event 1: "):
        client.append("c", wrong)


async def test_a_key_that_is_no_text_or_number_is_refused() -> None:
    for key in (b"k", UUID(int=1), date(2026, 1, 1), float("nan"), None, (1,)):
        told = await refusal({**SAY, "metadata": {"a": {key: 1}}})
        assert told == (
            f"event 1: field metadata.a: expected text as a key, got {type(key).__name__}"
        )


async def test_an_item_that_contains_itself_is_refused() -> None:
    loop: dict[str, Any] = {}
    loop["loop"] = loop
    assert await refusal({**SAY, "metadata": loop}) == "event 1: it is nested too deep"


async def test_json_values_of_every_form_are_appended_as_before() -> None:
    transport = Recorded()
    metadata: dict[Any, Any] = {
        "n": None,
        "i": 2**60,
        "f": 1.5,
        "b": True,
        "list": [1, (2, 3)],
        "enum": Color.RED,
        "set": {1},
        7: "number",
        "raw": msgspec.Raw(b"{}"),
    }
    event = {"id": "e", **SAY, "content": [Part("hi")], "metadata": metadata}
    await client_on(transport).append("c", event)
    await client_on(transport).append("c", event, idempotency_key="k")
    for call in transport.calls:
        (sent,) = msgspec.json.decode(msgspec.json.encode(call.body))
        assert sent["content"] == [{"type": "text", "text": "hi"}]
        assert sent["metadata"]["enum"] == "red" and sent["metadata"]["7"] == "number"
    await client_on(transport).append("c", (item for item in [SAY]))  # type: ignore[arg-type]
    assert transport.calls[-1].body[0]["content"] == "hi"


@pytest.mark.parametrize(
    "given", [5, None, 1.5, "text", b"text", object()], ids=lambda one: type(one).__name__
)
async def test_what_is_neither_an_item_nor_a_list_is_refused(given: Any) -> None:
    got = type(given).__name__
    assert await refusal(given) == f"expected an event (a dictionary) or a list of them, got {got}"
    told = await refusal(given, "append_messages")
    assert told == f"expected a message (a dictionary) or a list of them, got {got}"


@pytest.mark.parametrize("delta", [None, 5, b"x", ["x"]], ids=repr)
async def test_a_delta_that_is_no_text_is_refused(delta: Any) -> None:
    writer = client_on(Recorded()).partial("c")
    with pytest.raises(Invalid, match=f"^delta: expected text, got {type(delta).__name__}$"):
        await writer.write(delta)
    assert writer.text == ""


async def finished(writer: PartialWriter) -> None:
    await writer.write("all of it")
    await writer.finish()


async def interrupted(writer: PartialWriter) -> None:
    await writer.write("some of it")
    await writer.interrupt()


@pytest.mark.parametrize("end", [finished, interrupted])
async def test_text_after_the_end_of_its_message_is_refused(end: Any) -> None:
    transport = Recorded()
    writer = client_on(transport).partial("c", "t")
    await end(writer)
    said = writer.text
    with pytest.raises(Invalid, match=r"^the message of turn t is ended: no text can be added"):
        await writer.write(" and more")
    assert writer.text == said
    async with asyncio.timeout(10):
        await writer.flush()
    assert (await writer.finish()).position == "0-1"
    assert sum(isinstance(call.body, list) for call in transport.calls) == 1
