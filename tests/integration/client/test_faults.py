"""What the client does when the service fails, breaks off or says to wait, against a real server
that does so.
"""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from tests.support.clients import DONE, QUICK
from tests.support.raw_server import answer, problem, raw_server
from threadfold_client import (
    AsyncClient,
    ClientError,
    Conflict,
    Fault,
    Invalid,
    NotFound,
    RateLimited,
    Unavailable,
)

SAY = {"type": "message", "role": "user", "content": "hi"}


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
    assert time.monotonic() - begun < 30


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


async def test_attempts_are_bounded_and_the_outcome_is_reported_as_unknown() -> None:
    async with (
        raw_server(problem(503, "kafka-unavailable")) as server,
        AsyncClient(server.url, "k", retries=QUICK) as client,
    ):
        with pytest.raises(Unavailable) as caught:
            await client.append("c", SAY)
    assert len(server.asked) == QUICK.attempts
    assert caught.value.unknown


@pytest.mark.parametrize("lost", [b"", problem(503, "kafka-unavailable")])
async def test_a_read_that_fails_has_no_effect(lost: bytes) -> None:
    async with (
        raw_server(lost) as server,
        AsyncClient(server.url, "k", retries=1) as client,
    ):
        with pytest.raises(Unavailable) as caught:
            await client.context("c")
    assert not caught.value.unknown and "took effect" not in str(caught.value)


@pytest.mark.parametrize(
    ("status", "kind"), [(409, "conflict"), (401, "unauthorized"), (503, "overloaded")]
)
async def test_a_refusal_after_an_attempt_without_an_answer_says_that_it_may_have_taken_effect(
    status: int, kind: str
) -> None:
    async with (
        raw_server(b"", problem(status, kind)) as server,
        AsyncClient(server.url, "k", retries=QUICK) as client,
    ):
        with pytest.raises(ClientError) as caught:
            await client.append("c", SAY, expect="0-7")
        assert caught.value.status == status and caught.value.unknown
        assert server.asked[1].headers["if-match"] == '"0-7"'
        with pytest.raises(ClientError) as refused:
            await client.append("c", SAY)
    assert refused.value.status == status and not refused.value.unknown


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


async def test_a_token_is_minted_for_an_end_user() -> None:
    minted = answer(200, {"token": "tfu_x.y", "expires_at": "2026-01-31T12:15:00Z"})
    async with raw_server(minted) as server, AsyncClient(server.url, "k") as client:
        token = await client.mint_token("u-7", ["read"])
        await client.mint_token("u-7", ["read"], conversations=["c"], expires_in=60)
    assert (token.token, token.expires_at) == ("tfu_x.y", "2026-01-31T12:15:00Z")
    assert server.asked[0].line.startswith("POST /v1/tokens ")
    assert [asked.body for asked in server.asked] == [
        {"user": "u-7", "verbs": ["read"]},
        {"user": "u-7", "verbs": ["read"], "conversations": ["c"], "expires_in": 60},
    ]


async def test_a_users_name_is_one_part_of_the_path() -> None:
    async with (
        raw_server(answer(200, {"user": "a/b c", "conversations": {}})) as server,
        AsyncClient(server.url, "k", retries=QUICK) as client,
    ):
        assert (await client.erase_user("a/b c"))["user"] == "a/b c"
    assert server.asked[0].line.startswith("DELETE /v1/users/a%2Fb%20c ")


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
