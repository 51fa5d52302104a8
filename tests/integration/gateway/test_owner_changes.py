"""A conversation that is given to another user, while the windows do not know it yet."""

from __future__ import annotations

import asyncio

import pytest

from streams.settings.settings import Settings
from tests.support.end_users import Followed, follow, serving_end_users
from tests.support.gateway import is_problem, say
from tests.support.worker import running_worker


@pytest.mark.long
async def test_a_former_owner_gets_nothing_that_came_after_a_change_of_owner(
    settings: Settings,
) -> None:
    async with serving_end_users(settings) as world:
        async with running_worker(settings):
            await world.ready()
            mine = await world.begin("ann", "hello")
        # From here on the windows stay behind the log.
        token = await world.token("ann")
        opened = {"type": "conversation.opened", "user": "bob"}
        path = f"/conversations/{mine}"
        given = await world("POST", f"{path}/events", "acme", opened)
        said = await world("POST", f"{path}/events", "acme", say("for bob alone"))
        assert (given.status_code, said.status_code) == (202, 202)
        position, before = said.json()["position"], given.json()["position"]
        asked = [
            asyncio.create_task(world("GET", f"{path}/{what}", token))
            for what in (
                "stream",
                f"stream?after={before}",
                f"context?after={position}",
                f"history?after={position}",
                "history?wait=applied",
                f"events/{position}",
            )
        ]
        await asyncio.wait(asked, timeout=1)
        async with running_worker(settings):
            ended, _ = await asyncio.wait(asked, timeout=30)
            for task in asked:
                assert task in ended, "a stream was opened"
                is_problem(task.result(), 404)


@pytest.mark.long
async def test_a_stream_is_refused_while_it_cannot_be_known_whose_the_conversation_is(
    settings: Settings,
) -> None:
    async with serving_end_users(settings) as world:
        async with running_worker(settings):
            await world.ready()
            mine = await world.begin("ann", "hello")
        await world("POST", f"/conversations/{mine}/events", "acme", say("not folded yet"))
        answer = await world("GET", f"/conversations/{mine}/stream", await world.token("ann"))
        is_problem(answer, 503)
        assert answer.headers["retry-after"]


@pytest.mark.long
async def test_a_stream_goes_on_while_the_windows_stay_behind_up_to_a_change_of_owner(
    settings: Settings,
) -> None:
    async with serving_end_users(settings) as world:
        seen = Followed()
        async with running_worker(settings):
            await world.ready()
            mine = await world.begin("ann", "hello")
            path = f"/conversations/{mine}"
            token = await world.token("ann")
            task = asyncio.create_task(follow(world, f"{path}/stream?token={token}", {}, seen))
            await seen.has("event: state")
        await world("POST", f"{path}/events", "acme", say("not folded yet"))
        await seen.has("not folded yet")
        opened = {"type": "conversation.opened", "user": "bob"}
        await world("POST", f"{path}/events", "acme", [opened, say("for bob alone")])
        await asyncio.wait_for(seen.ended.wait(), 30)
        await task
        assert "bob" not in seen.text
