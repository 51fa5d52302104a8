"""Subscriptions and text in progress, with the client in all its forms, against real streams."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import pytest

from streams.settings.settings import Settings
from tests.support.clients import FORMS, client_of
from tests.support.platform import SUMMARIZING, Platform, running_platform
from threadfold_client import AsyncClient, StreamEvent


@pytest.fixture(scope="module")
async def platform(settings: Settings) -> AsyncIterator[Platform]:
    async with running_platform(settings, SUMMARIZING) as running:
        yield running


@pytest.fixture(scope="module", params=FORMS)
async def client(platform: Platform, request: pytest.FixtureRequest) -> AsyncIterator[Any]:
    made, close = client_of(request.param, *platform, "acme")
    yield made
    await close()


@pytest.fixture
async def writer(platform: Platform) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(platform.url, platform.key) as made:
        yield made


@pytest.fixture
def name() -> str:
    return f"c-{uuid4().hex[:12]}"


def say(text: str, role: str = "user") -> dict[str, Any]:
    return {"type": "message", "role": role, "content": text}


class Heard:
    """What a subscription gives, gathered by a task; ``until`` waits for something of it."""

    def __init__(self, source: Any) -> None:
        self.source = source
        self.events: list[StreamEvent] = []
        self.changed = asyncio.Condition()
        self.task = asyncio.create_task(self._gather())

    async def _gather(self) -> None:
        async for event in self.source:
            async with self.changed:
                self.events.append(event)
                self.changed.notify_all()

    async def until(self, wanted: Any) -> None:
        async with asyncio.timeout(20), self.changed:
            await self.changed.wait_for(lambda: self.task.done() or wanted(self.events))
        if self.task.done():
            self.task.result()

    async def __aenter__(self) -> Heard:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.task.cancel()
        close = self.source.close if hasattr(self.source, "inner") else self.source.aclose
        await asyncio.gather(self.task, return_exceptions=True)
        await close()


def said(events: list[StreamEvent]) -> list[str]:
    return [e.data["content"] for e in events if e.event == "event" and e.data["type"] == "message"]


async def test_a_subscriber_hears_what_comes_after_a_position(
    client: Any, writer: AsyncClient, name: str
) -> None:
    first = await writer.append(name, [say("before"), say("from here")], wait="applied")
    async with Heard(client.subscribe(name, after=first.events[0].position)) as heard:
        await heard.until(lambda events: said(events) == ["from here"])
        await writer.append(name, [say("a"), say("b")])
        await heard.until(lambda events: said(events) == ["from here", "a", "b"])
        assert all(e.id == e.data["position"] for e in heard.events if e.event == "event")


async def test_text_in_progress_reaches_the_subscriber_and_ends_with_its_message(
    client: Any, name: str
) -> None:
    await client.append(name, say("question"), wait="applied")
    async with Heard(client.subscribe(name)) as heard:
        await heard.until(lambda events: any(e.event == "state" for e in events))
        async with client.partial(name) as writing:
            for word in ("Some ", "wörds ", "🌍."):
                await writing.write(word)
            await writing.flush()
            await heard.until(lambda events: told(events, "delta") == "Some wörds 🌍.")
            await writing.finish(model="m1")
        await heard.until(
            lambda events: (
                said(events) == ["Some wörds 🌍."] and told(events, "ended") == "complete"
            )
        )


def told(events: list[StreamEvent], field: str) -> str:
    return "".join(e.data.get(field, "") for e in events if e.event == "partial")


async def test_summaries_reach_their_subscriber_once_and_from_the_beginning(
    client: Any, writer: AsyncClient, name: str
) -> None:
    async def talk(part: int) -> None:
        flats = [
            say(f"{part}.{i}: the harvest of the northern field was good this year, " * 3)
            for i in range(12)
        ]
        await writer.append(name, flats, wait="applied")

    def own(events: list[StreamEvent]) -> list[str]:
        return [
            e.data["summary_id"] for e in events if e.event == "summary" and name in str(e.data)
        ]

    await talk(0)
    async with Heard(client.summaries(from_beginning=True)) as heard:
        await heard.until(lambda events: len(own(events)) >= 1)
        await talk(1)
        await heard.until(lambda events: len(own(events)) >= 2)
        assert len(set(own(heard.events))) == len(own(heard.events))
        cursor = heard.events[0].id
    async with Heard(client.summaries(cursor)) as again:
        await again.until(lambda events: len(own(events)) >= 1)
        assert heard.events[0].data != again.events[0].data
