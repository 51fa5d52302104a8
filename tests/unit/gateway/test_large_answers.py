"""Answers that are large are encoded beside others' requests, and do not fill the memory."""

from __future__ import annotations

import asyncio

import httpx
import msgspec
import pytest
from starlette.types import Message, Receive, Scope, Send

from streams.runtime.keyed_limit import LARGE, KeyedLimit
from streams.settings.settings import Settings
from threadfold.gateway import create_gateway
from threadfold.gateway.admission import PIECE
from threadfold.gateway.routes.common import answer_beside

TEXT = "A" * (LARGE + 1)


@pytest.mark.parametrize(
    ("document", "large"),
    [
        ({"content": "short", "count": 3, "none": None}, False),
        ({"content": TEXT}, True),
        ({"events": [{"content": [{"type": "text", "text": TEXT}]}]}, True),
        ({"events": [{"content": "A" * 1_000}] * 500}, True),
        ({"messages": msgspec.Raw(msgspec.json.encode(TEXT))}, True),
    ],
)
async def test_others_are_served_while_a_large_answer_is_encoded(
    document: object, large: bool
) -> None:
    turns = KeyedLimit(1)
    encoding = asyncio.create_task(answer_beside(turns, "acme", document, 200))
    passes = 0
    while not encoding.done():
        await asyncio.sleep(0)
        passes += 1
    assert (passes > 1) == large
    assert encoding.result().body == msgspec.json.encode(document)


async def test_the_next_large_answer_of_its_tenant_waits_and_anothers_does_not() -> None:
    turns = KeyedLimit(1)
    await answer_beside(turns, "acme", {"content": TEXT}, 200)
    assert len(turns) == 1  # it rests
    other = asyncio.create_task(answer_beside(turns, "globex", {"content": TEXT}, 200))
    same = asyncio.create_task(answer_beside(turns, "acme", {"content": TEXT}, 200))
    done, _ = await asyncio.wait([other, same], return_when=asyncio.FIRST_COMPLETED)
    assert other in done
    await same


@pytest.mark.parametrize("path", ["/openapi.json", "/console", "/healthz"])
async def test_what_needs_no_key_is_sent_in_pieces_where_an_encrypted_copy_waits_for_its_client(
    path: str,
) -> None:
    gateway = create_gateway(
        Settings.load(env={}, kafka="127.0.0.1:1", redis="redis://127.0.0.1:1/0")
    )
    pieces: list[int] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        async def counted(message: Message) -> None:
            pieces.append(len(message.get("body", b"")))
            await send(message)

        await gateway(scope, receive, counted)

    answers = []
    for scheme in ("http", "https"):
        pieces.clear()
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url=f"{scheme}://a") as client:
            answers.append(await client.get(path))
        if scheme == "https":
            assert max(pieces) <= PIECE
    assert answers[0].content == answers[1].content and answers[0].status_code == 200
