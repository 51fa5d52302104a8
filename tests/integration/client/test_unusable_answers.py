"""What the client does with an answer that it cannot use: it says no more than none would."""

from __future__ import annotations

import asyncio

import pytest

from tests.support.clients import DONE, QUICK
from tests.support.raw_server import answer, problem, raw_server
from threadfold_client import AsyncClient, Conflict, Unavailable

SAY = {"type": "message", "role": "user", "content": "hi"}

_HEAD = b"Connection: close\r\n\r\n"
UNUSABLE = {
    "cut": b"HTTP/1.1 202 X\r\n" + _HEAD + b'{"events": [{"id": "x", "posi',
    "empty": b"HTTP/1.1 202 X\r\nContent-Length: 0\r\n" + _HEAD,
    "a page": b"HTTP/1.1 200 X\r\nContent-Type: text/html\r\n" + _HEAD + b"<html>hi</html>",
    "no object": answer(200, []),
    "another form": answer(200, {"ok": True}),
    "a redirect": b"HTTP/1.1 302 X\r\nLocation: /login\r\nContent-Length: 0\r\n" + _HEAD,
}
"""Answers of something between the service and the client, which may hide that a call took effect."""


@pytest.mark.parametrize("spoilt", UNUSABLE.values(), ids=UNUSABLE)
async def test_an_answer_that_cannot_be_used_is_like_none(spoilt: bytes) -> None:
    async with (
        raw_server(spoilt, DONE) as server,
        AsyncClient(server.url, "k", retries=QUICK) as client,
    ):
        await client.append("c", SAY)
    assert [asked.body for asked in server.asked] == [server.asked[0].body] * 2
    async with raw_server(spoilt) as server, AsyncClient(server.url, "k", retries=QUICK) as client:
        for call in (client.append("c", SAY), client.save_memories({"text": "t"})):
            with pytest.raises(Unavailable) as caught:
                await call
            assert caught.value.unknown
        with pytest.raises(Unavailable) as caught:
            await client.history("c")
        assert not caught.value.unknown
    assert len(server.asked) == 3 * QUICK.attempts


@pytest.mark.parametrize("kind", ["a page", "a redirect"])
async def test_what_would_act_twice_is_not_repeated_after_an_answer_that_cannot_be_used(
    kind: str,
) -> None:
    spoilt = UNUSABLE[kind]
    async with raw_server(spoilt) as server, AsyncClient(server.url, "k", retries=QUICK) as client:
        with pytest.raises(Unavailable) as caught:
            await client.report_outcome("m", succeeded=True)
    assert caught.value.unknown and len(server.asked) == 1


async def test_a_conflict_after_an_answer_that_cannot_be_used_may_be_our_own() -> None:
    async with (
        raw_server(UNUSABLE["empty"], problem(409, "conflict")) as server,
        AsyncClient(server.url, "k", retries=QUICK) as client,
    ):
        with pytest.raises(Conflict) as caught:
            await client.append("c", SAY, expect="0-7")
    assert caught.value.unknown


async def test_text_in_progress_waits_after_an_answer_that_cannot_be_used() -> None:
    async def serve(writer: asyncio.StreamWriter) -> None:
        whole = isinstance(server.asked[-1].body, list)
        writer.write(DONE if whole else UNUSABLE["a page"])

    async with (
        raw_server(serve) as server,
        AsyncClient(server.url, "k", retries=1) as client,
        client.partial("c", "t") as writer,
    ):
        await writer.write("said all the same")
        async with asyncio.timeout(60):
            await writer.flush()
        assert isinstance(writer.trouble, Unavailable)
        await writer.finish()
    assert server.asked[-1].body[0]["content"] == "said all the same"
