"""A closed session is learnt from, on real Kafka and Redis: what was learnt is found by search, and
workers that die lose and double nothing.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from projections.events.validation import make_record
from projections.memory.news import Fact, log_of, read_news
from projections.memory.resolution import Record
from streams.log.topics import create_topics
from streams.settings.settings import Settings
from tests.conftest import fresh_settings
from tests.support.generations import open_generation
from tests.support.grep import raw_records
from tests.support.learning import closed, opened, user
from tests.support.platform import requests_to, running_platform
from tests.support.summary_workers import World
from tests.support.worker import until
from threadfold.embedded.stack import EmbeddedStack
from threadfold.testing.plain_memories import PlainMemories


async def test_what_a_closed_session_taught_is_found_and_a_later_value_takes_its_place(
    settings: Settings,
) -> None:
    async with (
        running_platform(settings, {"memory_auto": "sessions"}) as platform,
        requests_to(platform) as http,
    ):

        async def teach(conversation: str, *said: str) -> str:
            events = [
                {"type": "conversation.opened", "user": "ann"},
                *({"type": "message", "role": "user", "content": text} for text in said),
            ]
            path = f"/conversations/{conversation}"
            answer = await http.post(f"{path}/events?wait=applied", json=events)
            answer.raise_for_status()
            (await http.post(f"{path}/close")).raise_for_status()
            opened: str = answer.json()["events"][0]["position"]
            return opened

        async def found(query: str) -> list[str]:
            body = {"query": query, "user": "ann", "kinds": ["record"]}
            answer = await http.post("/memories/search", json=body)
            return [one["text"] for one in answer.json().get("results", [])]

        async def lives_in(place: str) -> bool:
            return await found("Oslo Bergen") == [f"The user {place}."]

        await teach("c0", "I never fly at night.")
        await teach("c0b", "I don't fly at night or on Sundays.")
        flies = "does the user fly at night"

        async def all_say_so() -> list[str]:
            said = await found(flies)
            return said if len(said) == 3 else []

        await until(all_say_so, 60, "records of two conversations and their composite")
        listed = (await http.get("/memories?user=ann")).json()["memories"]
        never = next(one for one in listed if one["text"] == "The user never flies at night.")
        (await http.delete(f"/memories/{never['id']}")).raise_for_status()
        assert await found(flies) == ["The user does not fly at night or on Sundays."]

        await teach("c1", "Hi! I live in Oslo.", "Can you help me?")
        await until(lambda: lives_in("lives in Oslo"), 60, "the first session is learnt from")
        opened = await teach("c2", "We moved to Bergen.")
        await until(lambda: lives_in("moved to Bergen"), 60, "the second one")
        back = await http.post("/conversations/c2/rollback", json={"to": opened})
        back.raise_for_status()
        await until(lambda: lives_in("lives in Oslo"), 60, "what it taught is taken back")


async def test_a_corrected_record_says_by_what_and_since_when_and_what_was_known_before(
    settings: Settings,
) -> None:
    async with (
        running_platform(settings, {"memory_auto": "sessions"}) as platform,
        requests_to(platform) as http,
    ):
        # Eve's alone: the tests of this file share their topics.
        async def teach(conversation: str, time: str, text: str) -> None:
            opens = {"type": "conversation.opened", "user": "eve"}
            said = {"type": "message", "role": "user", "content": text, "time": time}
            path = f"/conversations/{conversation}"
            answer = await http.post(f"{path}/events?wait=applied", json=[opens, said])
            answer.raise_for_status()
            (await http.post(f"{path}/close")).raise_for_status()

        async def listed() -> list[str]:
            found = (await http.get("/memories?user=eve")).json().get("memories", [])
            return [one["text"] for one in found]

        async def record(memory_id: str, **more: str) -> dict[str, Any]:
            answer = await http.get(f"/memories/{memory_id}", params=more)
            found: dict[str, Any] = answer.raise_for_status().json()
            return found

        async def only(text: str) -> str:
            async def it_is() -> bool:
                return await listed() == [text]

            await until(it_is, 60, text)
            (found,) = (await http.get("/memories?user=eve")).json()["memories"]
            memory_id: str = found["id"]
            return memory_id

        before, between = "2026-01-05T10:00:00Z", "2026-02-01T00:00:00Z"
        await teach("e1", before, "I'm vegetarian.")
        former = await only("The user is vegetarian.")
        await teach("e2", "2026-03-05T10:00:00Z", "I'm not vegetarian any more.")
        later = await only("The user is not vegetarian any more.")
        found = await record(former)
        assert (found["superseded_by"], found["expired_reason"]) == (later, "conflict")
        assert found["expired_at"].startswith("2026-03-05T10:00:00")
        then = await record(former, as_of=between)
        assert (then["superseded_by"], then["expired_at"]) == (None, None)
        assert (await http.get(f"/memories/{later}", params={"as_of": between})).status_code == 404
        body = {"query": "vegetarian", "user": "eve", "kinds": ["record"]}
        for as_of, text in ((None, later), (between, former)):
            answer = await http.post("/memories/search", json={**body, "as_of": as_of})
            assert [one["id"] for one in answer.json()["results"]] == [text]


@pytest.mark.long
async def test_workers_that_are_killed_while_they_learn_lose_and_double_nothing(
    stack: EmbeddedStack, tmp_path: Path
) -> None:
    settings = fresh_settings(stack, session_timeout=6.0)
    await create_topics(settings)
    await open_generation(settings, {"memory_auto": "sessions"})
    world = World(settings, tmp_path)
    said = ("I have two kids", "I'm vegetarian", "My name is Ann.")

    async def learnt() -> list[Record]:
        memory = PlainMemories()
        for _, value in await raw_records(settings, "memories"):
            log = log_of(value) if value is not None else None
            news = read_news(log, value) if log is not None and value is not None else None
            memory.take([news] if isinstance(news, Fact) else [])
        return memory.records()

    async def at_least(count: int) -> bool:
        return len(await learnt()) >= count

    async with world:
        world.start("http://127.0.0.1:9", "--only", "projector")
        for _ in range(2):
            world.start("http://127.0.0.1:9", "--only", "compactor")
        await world.log.append(
            [
                make_record(key, flat, where="e", now="2026-01-01T00:00:00Z", new_id=f"{key}-{i}")
                for key in world.keys
                for i, flat in enumerate(
                    [{**opened(), "user": str(key)}, *map(user, said), closed()]
                )
            ]
        )
        await until(lambda: at_least(10), 60, "the first are learnt from")
        world.kill(1)
        await until(lambda: at_least(len(said) * len(world.keys)), 90, "all are learnt from")
        found = await learnt()
        assert len(found) == len(said) * len(world.keys)
        assert {one.scope.user for one in found} == set(map(str, world.keys))
        assert all((one.duplicates, one.revision) == (0, 1) for one in found)
