"""Subscriptions of the client: resumed, given once, ended."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.support.clients import QUICK
from tests.support.raw_server import STREAM, answer, problem, raw_server, sent
from threadfold_client import (
    AsyncClient,
    Client,
    Fault,
    NotFound,
    StreamEvent,
)


async def take(client: AsyncClient, count: int, **kwargs: Any) -> list[StreamEvent]:
    async with client.subscribe("c", **kwargs) as events, asyncio.timeout(10):
        return [await anext(events) for _ in range(count)]


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


async def test_from_now_on_is_a_place_too_once_the_state_was_sent() -> None:
    first = STREAM + sent("state", {"state": "active", "position": "0-9"})
    second = STREAM + sent("event", {"n": 10}, "0-10")
    async with (
        raw_server(first, second) as server,
        AsyncClient(server.url, "k", retries=QUICK) as client,
    ):
        events = await take(client, 2)
    assert [e.event for e in events] == ["state", "event"]
    assert [asked.headers.get("last-event-id") for asked in server.asked] == [None, "0-9"]


async def test_text_in_progress_is_reported_as_far_as_it_is_new() -> None:
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


async def test_what_the_topic_of_summaries_has_lost_is_given_and_the_stream_goes_on_behind_it() -> (
    None
):
    def lost(partition: int, cursor: str) -> bytes:
        return sent("missing", {"partition": partition, "first": 12, "last": 39}, cursor)

    first, second = STREAM + lost(3, "c1"), STREAM + lost(4, "c2")
    async with (
        raw_server(first, second) as server,
        AsyncClient(server.url, "k", retries=QUICK) as client,
        client.summaries("c0") as events,
    ):
        found = [await anext(events) for _ in range(2)]
    assert [(e.event, e.id, e.data["partition"]) for e in found] == [
        ("missing", "c1", 3),
        ("missing", "c2", 4),
    ]
    assert server.asked[1].headers["last-event-id"] == "c1"


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
