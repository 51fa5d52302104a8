"""Text in progress of the client: few requests, and the message at its end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.support.clients import DONE, QUICK
from tests.support.raw_server import answer, problem, raw_server
from threadfold_client import (
    AsyncClient,
    Conflict,
    Invalid,
    PartialWriter,
    Unavailable,
)


class Partials:
    """A service that holds text in progress, as the contract says, behind the client's ``call``."""

    def __init__(self) -> None:
        self.held = ""
        self.requests = 0

    async def take(self, body: dict[str, Any]) -> bytes:
        self.requests += 1
        offset = body.get("offset", len(self.held))
        self.held = self.held[:offset] + body["delta"]
        await asyncio.sleep(0.01)
        return answer(202, {"turn_id": body["turn_id"], "offset": len(self.held)})

    async def answer_to(self, body: Any) -> bytes:
        """What a piece of text is answered, or the append of the whole message."""
        return DONE if isinstance(body, list) else await self.take(body)


@asynccontextmanager
async def writing_to(
    service: Partials, **options: float
) -> AsyncIterator[tuple[Any, PartialWriter]]:
    """A server on which that service answers, and a writer of turn t of conversation c there."""

    async def serve(writer: asyncio.StreamWriter) -> None:
        writer.write(await service.answer_to(server.asked[-1].body))

    async with (
        raw_server(serve) as server,
        AsyncClient(server.url, "k", retries=QUICK) as client,
        client.partial("c", "t", **options) as writer,
    ):
        yield server, writer


async def test_a_writer_sends_everything_in_few_requests_and_ends_with_its_message() -> None:
    service = Partials()
    appended: list[Any] = []

    async def serve(writer: asyncio.StreamWriter) -> None:
        asked = server.asked[-1]
        if asked.line.startswith("POST /v1/conversations/c/partial"):
            writer.write(await service.take(asked.body))
        else:
            appended.append(asked.body)
            writer.write(DONE)

    words = [f"wörd{i} " for i in range(200)]
    async with (
        raw_server(serve) as server,
        AsyncClient(server.url, "k", retries=QUICK) as client,
        client.partial("c", "t1", fence=7) as writer,
    ):
        for word in words:
            await writer.write(word)
        await writer.flush()
        assert service.held == "".join(words)
        await writer.finish(model="m1")
    assert service.requests < 60
    (event,) = appended[0]
    assert (event["content"], event["model"]) == ("".join(words), "m1")
    assert all(asked.headers["fencing-token"] == "7" for asked in server.asked)


async def test_a_writer_that_fails_midway_keeps_what_was_said_as_interrupted() -> None:
    async def serve(writer: asyncio.StreamWriter) -> None:
        body = server.asked[-1].body
        writer.write(
            DONE
            if isinstance(body, list)
            else answer(202, {"turn_id": "t", "offset": body["offset"] + len(body["delta"])})
        )

    async with raw_server(serve) as server, AsyncClient(server.url, "k", retries=QUICK) as client:
        with pytest.raises(ZeroDivisionError):
            async with client.partial("c", "t") as writer:
                await writer.write("half a sen")
                raise ZeroDivisionError
    (event,) = server.asked[-1].body
    assert (event["content"], event["status"]) == ("half a sen", "interrupted")


async def test_a_writer_whose_turn_is_over_is_reported_so() -> None:
    async with (
        raw_server(problem(409, "fenced")) as server,
        AsyncClient(server.url, "k", retries=QUICK) as client,
    ):
        writer = client.partial("c", "t", fence=1)
        await writer.write("text")
        with pytest.raises(Conflict):
            await writer.flush()
        with pytest.raises(Conflict):
            await writer.write("more")


async def test_a_service_that_lost_the_text_in_progress_is_reported_it_from_the_beginning() -> None:
    service = Partials()

    async def serve(writer: asyncio.StreamWriter) -> None:
        body = server.asked[-1].body
        lost = isinstance(body, dict) and body["offset"] > len(service.held)
        writer.write(problem(409, "partial-conflict") if lost else await service.answer_to(body))

    async with (
        raw_server(serve) as server,
        AsyncClient(server.url, "k", retries=QUICK) as client,
        client.partial("c", "t") as writer,
    ):
        await writer.write("Once upon ")
        await writer.flush()
        service.held = ""
        await writer.write("a time")
        await writer.flush()
        assert service.held == "Once upon a time"
        await writer.finish()


async def test_text_in_progress_goes_in_few_requests() -> None:
    service = Partials()
    async with writing_to(service, interval=0.2) as (server, writer):
        begun = time.monotonic()
        for i in range(100):
            await writer.write(f"word {i} ")
            await asyncio.sleep(0.005)
        took = time.monotonic() - begun
        assert 2 <= len(server.asked) <= 2 + took / 0.2
        await writer.finish()
    assert server.asked[-1].body[0]["content"] == writer.text


@pytest.mark.parametrize("interval", [-1, float("nan"), float("inf"), "x", True, None])
async def test_an_interval_that_is_no_number_of_seconds_is_refused(interval: Any) -> None:
    async with AsyncClient("http://127.0.0.1:1", "key") as client:
        with pytest.raises(Invalid, match="interval is"):
            client.partial("c", interval=interval)


async def test_neither_a_flush_nor_the_end_of_text_in_progress_waits_for_the_interval() -> None:
    service = Partials()
    async with writing_to(service, interval=60) as (server, writer):
        begun = time.monotonic()
        await writer.write("first")
        await writer.write(" flushed")
        await writer.flush()
        assert service.held == "first flushed"
        await writer.write(" and the end")
        await writer.finish()
        assert time.monotonic() - begun < 30
    assert server.asked[-1].body[0]["content"] == "first flushed and the end"


async def test_text_in_progress_that_cannot_be_sent_now_does_not_fail_the_answer() -> None:
    async def serve(writer: asyncio.StreamWriter) -> None:
        writer.write(
            DONE if isinstance(server.asked[-1].body, list) else problem(503, "overloaded")
        )

    async with (
        raw_server(serve) as server,
        AsyncClient(server.url, "k", retries=1) as client,
        client.partial("c", "t") as writer,
    ):
        await writer.write("said all the same")
        await writer.flush()
        assert isinstance(writer.trouble, Unavailable)
        await writer.finish()
    assert server.asked[-1].body[0]["content"] == "said all the same"


async def test_an_end_that_failed_is_repeated_as_the_same_message() -> None:
    async with (
        raw_server(b"", DONE) as server,
        AsyncClient(server.url, "k", retries=1) as client,
    ):
        writer = client.partial("c", "t1")
        with pytest.raises(Unavailable):
            await writer.finish({"type": "message", "role": "assistant", "content": "whole"})
        await writer.finish({"type": "message", "role": "assistant", "content": "whole"})
    first, second = (asked.body[0]["id"] for asked in server.asked)
    assert first == second


@pytest.mark.parametrize("given", ["msg_1", None])
async def test_an_interruption_after_an_end_that_failed_is_of_the_same_message(
    given: str | None,
) -> None:
    said = answer(202, {"turn_id": "t1", "offset": 4})
    event = {"type": "message", "role": "assistant", "content": "said"}
    async with (
        raw_server(said, b"", DONE) as server,
        AsyncClient(server.url, "k", retries=1) as client,
    ):
        writer = client.partial("c", "t1")
        await writer.write("said")
        await writer.flush()
        with pytest.raises(Unavailable):  # it may have landed
            await writer.finish(event | ({} if given is None else {"id": given}))
        await writer.interrupt()
    whole, interrupted = (asked.body[0] for asked in server.asked if isinstance(asked.body, list))
    assert whole["id"] == interrupted["id"] == (given or whole["id"])
    assert interrupted["status"] == "interrupted"


async def test_a_character_that_is_cut_in_two_goes_out_whole() -> None:
    service = Partials()
    async with writing_to(service, interval=0) as (server, writer):
        for half, sent in (("a\ud83d", "a"), ("\ude00", "a😀"), ("b", "a😀b")):
            await writer.write(half)
            await writer.flush()
            assert service.held == sent
        await writer.finish()
    assert server.asked[-1].body[0]["content"] == "a😀b"


async def test_half_a_character_that_stays_alone_does_not_cost_the_text() -> None:
    service = Partials()

    async def serve(writer: asyncio.StreamWriter) -> None:
        writer.write(await service.answer_to(server.asked[-1].body))

    async with raw_server(serve) as server, AsyncClient(server.url, "k", retries=QUICK) as client:
        for number, end in enumerate(("finish", "interrupt")):
            async with client.partial("c", f"t{number}", interval=0) as writer:
                for part in ("a\ud83d", "b\ude00", "c\ud83d"):
                    await writer.write(part)
                await writer.flush()
                assert service.held == "a\ufffdb\ufffdc"
                await getattr(writer, end)()
            assert server.asked[-1].body[0]["content"] == writer.text == "a\ufffdb\ufffdc\ufffd"
        async with client.partial("c", "t", interval=0) as writer:
            await writer.write("\ud83d")
        assert server.asked[-1].body[0]["content"] == "\ufffd"
