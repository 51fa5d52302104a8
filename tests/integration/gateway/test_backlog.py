"""A tenant's flood waits at the gateway and not in the log: others do not wait for its folds."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from streams.control.control_topic import Control
from streams.control.state import Generation
from streams.settings.quotas import DEFAULT_SCOPES
from streams.settings.settings import Settings
from tests.support.serving import serving
from tests.support.worker import running_worker, until
from threadfold.gateway import create_gateway
from threadfold.service import fold_progress, unfolded
from threadfold.service.append_body import AppendBody
from threadfold.service.spill import Drafts
from threadfold.service.unfolded import MOST

LISTS, CALLERS, EVENTS = 16, 4, 500


async def _headers(settings: Settings) -> dict[str, dict[str, str]]:
    control = await Control(settings).start()
    try:
        await control.write(
            {"generation/1": Generation(1, settings.partitions), "generation/live": 1}
        )
        found = {}
        for tenant in ("many", "other"):
            await control.ensure_tenant(tenant)
            key = await control.add_key(tenant, DEFAULT_SCOPES)
            found[tenant] = {"Authorization": f"Bearer {key}"}
        return found
    finally:
        await control.stop()


async def test_others_do_not_wait_behind_the_lists_of_a_tenant(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Gateway and worker share one event loop here: on a busy machine it stands still for seconds.
    for module, seconds in (
        (fold_progress, "STILL"),
        (fold_progress, "ASKING"),
        (unfolded, "PATIENCE"),
    ):
        monkeypatch.setattr(module, seconds, 60.0)
    headers = await _headers(settings)
    numbers = itertools.count()
    async with (
        running_worker(settings),
        serving(create_gateway(settings)) as url,
        httpx.AsyncClient(base_url=url, headers=headers["many"], timeout=60) as many,
        httpx.AsyncClient(base_url=url, headers=headers["other"], timeout=60) as other,
    ):

        async def say() -> None:
            answer = await other.post(
                "/v1/conversations/c/messages?wait=applied", json={"role": "user", "content": "hi"}
            )
            assert answer.status_code == 200, answer.text

        async def ready() -> bool:
            return (await other.get("/readyz")).status_code == 200

        async def send() -> None:
            for number in itertools.takewhile(lambda n: n < LISTS, numbers):
                events = [
                    {
                        "conversation": f"c{number}-{i}",
                        "type": "message",
                        "role": "user",
                        "content": "hello",
                    }
                    for i in range(EVENTS)
                ]
                answer = await many.post("/v1/events", json=events)
                assert answer.status_code == 202, answer.text

        await until(ready)
        await say()
        behind = []
        async with asyncio.TaskGroup() as group:
            senders = [group.create_task(send()) for _ in range(CALLERS)]
            while not all(sender.done() for sender in senders):
                behind.append((await other.get("/readyz")).json()["behind"])
                await say()
        # One list passes once no more than so many wait; another one is read meanwhile.
        assert 0 < max(behind) <= MOST + EVENTS + 1


async def test_a_body_is_read_once_there_is_room_for_its_events(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    go, waits, read = asyncio.Event(), list[int](), list[int]()
    room, drafts = unfolded.Unfolded.room, AppendBody.drafts

    @asynccontextmanager
    async def later(
        self: unfolded.Unfolded, tenant: str, events: int, **options: bool
    ) -> AsyncIterator[unfolded.Room]:
        waits.append(events)
        await go.wait()
        async with room(self, tenant, events, **options) as place:
            yield place

    def noted(body: AppendBody, *args: Any) -> Drafts:
        read.append(len(body.text))
        return drafts(body, *args)

    async def both_wait() -> bool:
        return len(waits) == 2

    monkeypatch.setattr(unfolded.Unfolded, "room", later)
    monkeypatch.setattr(AppendBody, "drafts", noted)
    headers, path = await _headers(settings), "/v1/conversations/c/messages"
    messages = [{"role": "user", "content": "hello"}] * 60
    async with (
        serving(create_gateway(settings)) as url,
        httpx.AsyncClient(base_url=url, headers=headers["many"], timeout=60) as many,
    ):

        async def connected() -> bool:
            return "is not connected" not in (await many.get("/v1/conversations/c/context")).text

        await until(connected)
        bodies = [messages, messages[:7]]
        answers = asyncio.gather(*(many.post(path, json=body) for body in bodies))
        await until(both_wait)
        assert read == []
        go.set()
        assert [answer.status_code for answer in await answers] == [202, 202]
    assert len(read) == 2
    assert sorted(waits) == [7, 60]
