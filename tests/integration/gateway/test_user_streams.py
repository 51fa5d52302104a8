"""Streams of end users: where a token may stand, and when a stream ends."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import pytest

from projections.names import make_key
from streams.settings.settings import Settings
from tests.support.end_users import Followed, World, follow
from tests.support.gateway import is_problem, is_problem_401, say
from tests.support.worker import until
from threadfold.gateway import end_users, protocol
from threadfold.gateway.routes import event_streams
from threadfold.streaming.sse_event import SseEvent


@pytest.mark.parametrize("carried", ["query", "cookie", "header"])
async def test_a_stream_takes_its_token_where_a_browser_can_put_it_and_logs_it_nowhere(
    world: World, carried: str, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    mine = await world.begin("ann", "hello")
    token = await world.token("ann", verbs=["stream"])
    query = f"?token={token}" if carried == "query" else ""
    headers = {
        "cookie": {"Cookie": f"theme=dark; threadfold_token={token}"},
        "header": {"Authorization": f"Bearer {token}"},
        "query": {},
    }[carried]
    seen = Followed()
    task = asyncio.create_task(follow(world, f"/conversations/{mine}/stream{query}", headers, seen))
    await seen.has("event: state")
    await world("POST", f"/conversations/{mine}/events", "acme", say("to the page"))
    await seen.has("to the page")
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    shown = "".join(
        record.getMessage() for record in caplog.records if not record.name.startswith("http")
    )
    out, error = capfd.readouterr()
    metrics = (await world.http.get("/metrics")).text
    for text in (shown, out, error, metrics, seen.text):
        assert token not in text
        assert token.rpartition(".")[2] not in text


async def test_a_token_in_an_address_is_for_streams_alone_and_a_key_never_goes_there(
    world: World,
) -> None:
    mine = await world.begin("ann", "hello")
    token, key = await world.token("ann"), world.keys["acme"]
    for path in ("context", "history"):
        for query, cookie in ((f"?token={token}", ""), ("", f"threadfold_token={token}")):
            answer = await world.http.get(
                f"/v1/conversations/{mine}/{path}{query}", headers={"Cookie": cookie}
            )
            is_problem_401(answer)
            assert token not in answer.text
    stream = f"/v1/conversations/{mine}/stream"
    for query in (f"?token={key}", f"?token={token}&token={token}", "?token="):
        answer = await world.http.get(stream + query)
        is_problem_401(answer, "query parameter token")
        assert key not in answer.text and token not in answer.text
    headers = {"Cookie": f"threadfold_token={token}", "Origin": "https://elsewhere.example"}
    is_problem_401(await world.http.get(stream, headers=headers))


async def test_a_page_that_is_loaded_again_has_its_streams_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A browser that leaves sends the end of its stream: nobody reads on behind that."""
    monkeypatch.setattr(protocol, "HALF_CLOSED", 600.0)
    mine = await world.begin("ann", "hello")
    token, place = await world.token("ann", verbs=["stream"]), world.http.base_url
    ask = f"GET /v1/conversations/{mine}/stream?token={token} HTTP/1.1\r\nHost: x\r\n\r\n"
    held: list[asyncio.StreamWriter] = []

    async def stream() -> tuple[bytes, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection(place.host, place.port)
        writer.write(ask.encode())
        begin = await reader.readuntil(b"\r\n\r\n")
        if b" 200 " in begin[:20]:
            await reader.readuntil(b"event: state")
        return begin[9:12], writer

    async def all_open() -> bool:
        opened = await asyncio.gather(*(stream() for _ in range(Settings().user_streams)))
        for _, writer in opened:
            writer.write_eof()
            held.append(writer)
        return {status for status, _ in opened} == {b"200"}

    assert await all_open()
    await until(all_open)
    for writer in held:
        writer.close()


async def test_a_cookie_that_is_hard_to_read_costs_nothing(world: World) -> None:
    mine = await world.begin("ann", "hello")
    token = await world.token("ann", verbs=["stream"])
    stream = f"/v1/conversations/{mine}/stream"
    began = time.thread_time()
    for value in ('"' + "\\a" * 16_000 + '"', f"x; threadfold_token=;; {token}", f"{token}x!"):
        answer = await world.http.get(stream, headers={"Cookie": f"threadfold_token={value}"})
        is_problem_401(answer)
    assert time.thread_time() - began < 0.5  # 3 s, with the standard library's parser
    for value in (token, f'"{token}"', f"{token} ; threadfold_token=another"):
        headers = {"Cookie": f"a=b;threadfold_token={value};c=d"}
        async with world.http.stream("GET", stream, headers=headers) as answer:
            assert answer.status_code == 200


async def test_a_stream_ends_with_its_token_and_with_the_conversations_owner(world: World) -> None:
    mine = await world.begin("ann", "hello")
    short = await world.token("ann", expires_in=2)
    token = await world.token("ann")
    until_expired, until_lost = Followed(), Followed()
    path = f"/conversations/{mine}/stream?token="
    tasks = [
        asyncio.create_task(follow(world, path + short, {}, until_expired)),
        asyncio.create_task(follow(world, path + token, {}, until_lost)),
    ]
    await until_lost.has("event: state")
    await asyncio.wait_for(until_expired.ended.wait(), 10)
    assert "not valid any more" in until_expired.text
    await world("POST", f"/conversations/{mine}/events", "acme", say("still mine"))
    await until_lost.has("still mine")
    await world.begin("bob", "for bob alone", name=mine)
    await asyncio.wait_for(until_lost.ended.wait(), 10)
    await asyncio.gather(*tasks)
    assert "not yours any more" in until_lost.text
    assert "bob" not in until_lost.text


async def test_who_lost_a_conversation_gets_no_more_of_its_past(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(end_users, "LOOK_EVERY", 0.0)
    mine = await world.begin("ann", "hello")
    events = f"/conversations/{mine}/events?wait=applied"
    first = (await world("POST", events, "acme", say("first"))).json()["position"]
    for n in range(30):
        answer = await world("POST", events, "acme", say(f"{n} " + "x " * 400_000))
        assert answer.status_code == 200, answer.text
    path = f"/v1/conversations/{mine}/stream?after={first}&token={await world.token('ann')}"
    got = bytearray()
    async with asyncio.timeout(30), world.http.stream("GET", path) as answer:
        async for piece in answer.aiter_bytes():
            if not got:  # what is not read stays in the gateway, but for what sockets hold
                await world.begin("bob", "for bob alone", name=mine)
            got += piece
    assert b"not yours any more" in got[-200:]
    assert len(got) < 16_000_000
    assert b"for bob alone" not in got


async def test_an_erased_conversations_stream_ends_with_its_erasure_and_holds_nothing_else_of_late(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, seen = await world.begin("ann", "hello"), Followed()
    path = f"/conversations/{mine}/stream?token={await world.token('ann')}"
    owned, begun = end_users.own_batches, asyncio.Event()

    async def later(caller: Any, *args: Any) -> Any:
        """What was made before the erasure is looked at after it."""
        *others, batches = args

        async def held() -> AsyncIterator[list[SseEvent]]:
            begun.set()
            await until(lambda: asyncio.sleep(0, erased()))
            yield [
                SseEvent("event", "0-90", b'{"type":"conversation.opened","user":"bob"}'),
                SseEvent("event", "0-91", b'{"type":"message","content":"for bob alone"}'),
            ]
            async for batch in batches:
                yield batch

        key = str(make_key("acme", mine)).encode()
        erased = lambda: caller.backend.keys.is_erased(key)  # noqa: E731
        return await owned(caller, *others, held())

    monkeypatch.setattr(event_streams, "own_batches", later)
    task = asyncio.create_task(follow(world, path, {}, seen))
    await begun.wait()
    erasure = await world("DELETE", f"/conversations/{mine}", "eraser")
    assert erasure.status_code == 200, erasure.text
    await asyncio.wait_for(seen.ended.wait(), 10)
    await task
    assert [line for line in seen.text.splitlines() if line.startswith("event: ")] == [
        "event: event"
    ]
    assert '"type":"conversation.erased"' in seen.text
    assert "bob" not in seen.text
    assert seen.text.rstrip().endswith(": the conversation is erased")


async def test_a_conversation_whose_opening_is_rolled_back_is_nobodys(world: World) -> None:
    name = f"back-{uuid4().hex[:12]}"
    path = f"/conversations/{name}/events?wait=applied"
    first = (await world("POST", path, "acme", say("before"))).json()["position"]
    await world.begin("ann", "secret", name=name)
    token, seen = await world.token("ann"), Followed()
    stream = f"/conversations/{name}/stream?token={token}"
    task = asyncio.create_task(follow(world, stream, {}, seen))
    await seen.has("event: state")
    await world("POST", path, "acme", {"type": "rollback", "to": first})
    await asyncio.wait_for(seen.ended.wait(), 10)
    await task
    assert "not yours any more" in seen.text
    is_problem(await world("GET", f"/conversations/{name}/context", token), 404)
