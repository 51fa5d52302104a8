"""What the client does when the service fails, breaks off or says to wait, against a real server
that does so.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from typing import Any

import pytest

from tests.support.raw_server import STREAM, answer, problem, raw_server, sent
from threadfold_client import (
    AsyncClient,
    Client,
    Conflict,
    Fault,
    Invalid,
    NotFound,
    RateLimited,
    Retries,
    StreamEvent,
    Unavailable,
)

QUICK = Retries(attempts=5, total=5.0, base=0.01, most=0.02)
DONE = answer(202, {"events": [{"id": "x", "position": "0-1"}], "position": "0-1"})
SAY = {"type": "message", "role": "user", "content": "hi"}


async def take(client: AsyncClient, count: int, **kwargs: Any) -> list[StreamEvent]:
    async with client.subscribe("c", **kwargs) as events, asyncio.timeout(10):
        return [await anext(events) for _ in range(count)]


async def test_an_append_is_repeated_with_the_same_ids_until_it_lands() -> None:
    unavailable = problem(503, "kafka-unavailable", Retry_After="0.05")
    half = b"HTTP/1.1 202 X\r\nContent-Length: 500\r\n\r\n{"
    async with (
        raw_server(unavailable, b"", half, DONE) as server,
        AsyncClient(server.url, "k", retries=QUICK) as client,
    ):
        await client.append("c", [SAY, {**SAY, "id": "mine"}])
    assert len(server.asked) == 4
    bodies = [asked.body for asked in server.asked]
    assert all(body == bodies[0] for body in bodies)
    assert bodies[0][1]["id"] == "mine"
    assert len(bodies[0][0]["id"]) == 36


async def test_retry_after_is_waited_for_and_429_is_repeated() -> None:
    async with (
        raw_server(problem(429, "rate-limited", Retry_After="0.3"), DONE) as server,
        AsyncClient(server.url, "k", retries=QUICK) as client,
    ):
        begun = time.monotonic()
        await client.append("c", SAY)
    assert time.monotonic() - begun >= 0.3


async def test_what_would_take_longer_than_allowed_is_raised_at_once() -> None:
    async with (
        raw_server(problem(429, "rate-limited", Retry_After="60")) as server,
        AsyncClient(server.url, "k", retries=QUICK) as client,
    ):
        begun = time.monotonic()
        with pytest.raises(RateLimited) as caught:
            await client.append("c", SAY)
    assert (caught.value.retry_after, len(server.asked)) == (60.0, 1)
    assert time.monotonic() - begun < 2


@pytest.mark.parametrize(
    ("status", "kind"), [(404, NotFound), (422, Invalid), (409, Conflict), (500, Fault)]
)
async def test_what_a_repeat_cannot_help_is_never_repeated(
    status: int, kind: type[Exception]
) -> None:
    async with (
        raw_server(problem(status, "wrong")) as server,
        AsyncClient(server.url, "k", retries=QUICK) as client,
    ):
        with pytest.raises(kind, match="wrong it is"):
            await client.append("c", SAY)
    assert len(server.asked) == 1


async def test_attempts_are_bounded_and_the_outcome_is_told_as_unknown() -> None:
    async with (
        raw_server(problem(503, "kafka-unavailable")) as server,
        AsyncClient(server.url, "k", retries=QUICK) as client,
    ):
        with pytest.raises(Unavailable) as caught:
            await client.append("c", SAY)
    assert len(server.asked) == QUICK.attempts
    assert caught.value.unknown


async def test_a_conflict_after_an_attempt_without_an_answer_says_that_it_may_be_our_own() -> None:
    async with (
        raw_server(b"", problem(409, "conflict")) as server,
        AsyncClient(server.url, "k", retries=QUICK) as client,
    ):
        with pytest.raises(Conflict) as caught:
            await client.append("c", SAY, expect="0-7")
    assert caught.value.unknown
    assert server.asked[1].headers["if-match"] == '"0-7"'


async def test_a_ledger_entry_is_not_repeated_where_it_may_have_been_made() -> None:
    context = {
        "messages": [],
        "tokens": 1,
        "budget": 1,
        "ceiling": 9,
        "utilization": 0.1,
        "count": 1,
        "digest": "",
        "render_digest": "ab",
    }
    shown = answer(200, {**context, "state": "active", "position": "0-1"})
    async with (
        raw_server(shown, b"", DONE) as server,
        AsyncClient(server.url, "k", retries=QUICK) as client,
    ):
        with pytest.raises(Unavailable):
            await client.record_call("c", await client.context("c"), "m")
    assert len(server.asked) == 2


async def test_a_service_that_is_not_there_is_unavailable_and_nothing_was_done() -> None:
    async with AsyncClient("http://127.0.0.1:9", "k", retries=2) as client:
        with pytest.raises(Unavailable) as caught:
            await client.append("c", SAY)
    assert not caught.value.unknown


async def test_a_page_of_a_proxy_is_an_error_in_words() -> None:
    page = (
        b"HTTP/1.1 502 Bad Gateway\r\nContent-Type: text/html\r\nContent-Length: 6\r\nConnection:"
        b" close\r\n\r\n<html>"
    )
    async with raw_server(page) as server, AsyncClient(server.url, "k", retries=1) as client:
        with pytest.raises(Unavailable, match="502"):
            await client.append("c", SAY)


async def test_a_subscription_resumes_after_the_last_id_and_gives_nothing_twice() -> None:
    first = (
        STREAM
        + b"retry: 1000\n\n"
        + sent("event", {"n": 1}, "0-1")
        + sent("event", {"n": 2}, "0-2")
        + b"id: 0-3\nevent: event\ndata: {"
    )
    second = (
        STREAM
        + sent("event", {"n": 2}, "0-2")
        + sent("summary", {"n": 3}, "0-3")
        + b": heartbeat\n\n"
        + sent("event", {"n": 4}, "0-4")
    )
    async with (
        raw_server(first, problem(503, "healing"), second) as server,
        AsyncClient(server.url, "k", retries=QUICK) as client,
    ):
        events = await take(client, 4, after="0-0")
    assert [(e.event, e.id, e.data["n"]) for e in events] == [
        ("event", "0-1", 1),
        ("event", "0-2", 2),
        ("summary", "0-3", 3),
        ("event", "0-4", 4),
    ]
    assert [asked.headers.get("last-event-id") for asked in server.asked] == ["0-0", "0-2", "0-2"]


async def test_from_now_on_is_a_place_too_once_the_state_was_told() -> None:
    first = STREAM + sent("state", {"state": "active", "position": "0-9"})
    second = STREAM + sent("event", {"n": 10}, "0-10")
    async with (
        raw_server(first, second) as server,
        AsyncClient(server.url, "k", retries=QUICK) as client,
    ):
        events = await take(client, 2)
    assert [e.event for e in events] == ["state", "event"]
    assert [asked.headers.get("last-event-id") for asked in server.asked] == [None, "0-9"]


async def test_text_in_progress_is_told_as_far_as_it_is_new() -> None:
    def part(offset: int, delta: str) -> bytes:
        return sent("partial", {"turn_id": "t", "offset": offset, "delta": delta})

    end = sent("partial", {"turn_id": "t", "offset": 11, "ended": "complete"})
    first = STREAM + part(0, "Hel") + part(3, "lo ")
    second = STREAM + part(0, "Hello wor") + part(9, "ld") + end
    async with (
        raw_server(first, second) as server,
        AsyncClient(server.url, "k", retries=QUICK) as client,
    ):
        events = await take(client, 5, after="0-0")
    assert [e.data.get("delta") for e in events] == ["Hel", "lo ", "wor", "ld", None]
    assert [e.data["offset"] for e in events] == [0, 3, 6, 9, 11]


async def test_a_subscription_that_is_refused_raises() -> None:
    async with (
        raw_server(problem(404, "unknown-conversation")) as server,
        AsyncClient(server.url, "k", retries=QUICK) as client,
    ):
        with pytest.raises(NotFound):
            await take(client, 1)


async def test_what_is_no_stream_raises_instead_of_asking_for_ever() -> None:
    async with (
        raw_server(answer(200, {})) as server,
        AsyncClient(server.url, "k", retries=QUICK) as client,
    ):
        with pytest.raises(Fault, match="instead of a stream"):
            await take(client, 1)


async def test_summaries_that_are_delivered_twice_are_given_once() -> None:
    def summary(name: str, cursor: str) -> bytes:
        return sent("summary", {"summary_id": name, "text": "…"}, cursor)

    first = STREAM + b"id: c0\n\n"
    second = STREAM + summary("s1", "c1") + summary("s1", "c2") + summary("s2", "c3")
    async with (
        raw_server(first, second) as server,
        AsyncClient(server.url, "k", retries=QUICK) as client,
        client.summaries() as events,
    ):
        found = [await anext(events) for _ in range(2)]
        assert events.last_id == "c3"
    assert [e.data["summary_id"] for e in found] == ["s1", "s2"]
    assert server.asked[1].headers["last-event-id"] == "c0"


async def test_a_synchronous_subscription_ends_when_another_thread_closes_it() -> None:
    async def stays(writer: asyncio.StreamWriter) -> None:
        writer.write(STREAM + sent("event", {"n": 1}, "0-1"))
        await asyncio.Event().wait()

    async with raw_server(stays) as server:
        client = Client(server.url, "k", retries=QUICK)
        events = client.subscribe("c", after="0-0")
        assert (await asyncio.to_thread(next, events)).id == "0-1"
        waiting = asyncio.create_task(asyncio.to_thread(list, events))
        await asyncio.sleep(0.05)
        await asyncio.to_thread(events.close)
        assert await asyncio.wait_for(waiting, 5) == []
        await asyncio.to_thread(client.close)


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


async def test_a_writer_whose_turn_is_over_is_told_so() -> None:
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


async def test_a_service_that_lost_the_text_in_progress_is_told_it_from_the_beginning() -> None:
    service = Partials()

    async def serve(writer: asyncio.StreamWriter) -> None:
        body = server.asked[-1].body
        lost = isinstance(body, dict) and body["offset"] > len(service.held)
        writer.write(
            DONE
            if isinstance(body, list)
            else problem(409, "partial-conflict")
            if lost
            else await service.take(body)
        )

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


async def test_text_in_progress_goes_in_few_requests_and_its_end_waits_for_none() -> None:
    service = Partials()

    async def serve(writer: asyncio.StreamWriter) -> None:
        body = server.asked[-1].body
        writer.write(DONE if isinstance(body, list) else await service.take(body))

    async with (
        raw_server(serve) as server,
        AsyncClient(server.url, "k", retries=QUICK) as client,
        client.partial("c", "t", interval=0.2) as writer,
    ):
        begun = time.monotonic()
        for i in range(100):
            await writer.write(f"word {i} ")
            await asyncio.sleep(0.005)
        took = time.monotonic() - begun
        assert 2 <= len(server.asked) <= 2 + took / 0.2
        await writer.write("flushed")
        begun = time.monotonic()
        await writer.flush()
        assert service.held.endswith("flushed")
        await writer.finish()
        assert time.monotonic() - begun < 0.2, "neither flush nor the end waits for the interval"
    assert server.asked[-1].body[0]["content"] == writer.text


async def test_a_users_name_is_one_part_of_the_path() -> None:
    async with (
        raw_server(answer(200, {"user": "a/b c", "conversations": {}})) as server,
        AsyncClient(server.url, "k", retries=QUICK) as client,
    ):
        assert (await client.erase_user("a/b c"))["user"] == "a/b c"
    assert server.asked[0].line.startswith("DELETE /v1/users/a%2Fb%20c ")


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


async def test_a_turn_is_begun_waited_for_and_ended() -> None:
    queued = answer(
        202, {"turn_id": "t", "fencing_token": None, "status": "queued", "position": "0-1"}
    )
    started = answer(
        202, {"turn_id": "t", "fencing_token": 5, "status": "started", "position": "0-2"}
    )
    async with (
        raw_server(queued, started, answer(202, {})) as server,
        AsyncClient(server.url, "k", retries=QUICK) as client,
        client.turn("c", policy="queue", seconds=30) as turn,
    ):
        assert (turn.fencing_token, turn.status) == (5, "started")
    assert server.asked[0].body == {
        "turn_id": turn.turn_id,
        "policy": "queue",
        "seconds": 30,
        "wait": 10.0,
    }
    assert server.asked[1].body == server.asked[0].body
    assert server.asked[2].line.startswith(f"POST /v1/conversations/c/turns/{turn.turn_id}/end")
    assert server.asked[2].headers["fencing-token"] == "5"


async def test_lists_are_followed_page_by_page() -> None:
    pages = [
        answer(
            200,
            {"conversations": [{"conversation": "a"}, {"conversation": "b"}], "next_before": "x"},
        )
    ]
    pages.append(answer(200, {"conversations": [{"conversation": "c"}], "next_before": None}))
    async with raw_server(*pages) as server, AsyncClient(server.url, "k", retries=QUICK) as client:
        found = [item["conversation"] async for item in client.conversations(limit=2)]
    assert found == ["a", "b", "c"]
    assert "before=x" in server.asked[1].line
    assert "limit=2" in server.asked[1].line


def test_importing_threadfold_alone_loads_no_client() -> None:
    code = (
        "import sys, threadfold\nheavy = {'httpx', 'aiokafka', 'starlette', 'threadfold_client'} &"
        " set(sys.modules)\nassert not heavy, heavy\nfrom threadfold import Client, AsyncClient;"
        " assert 'aiokafka' not in sys.modules and 'starlette' not in sys.modules\nclient ="
        " Client('http://127.0.0.1:9', 'k'); client.close(); assert 'httpx' in sys.modules and"
        " 'aiokafka' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
