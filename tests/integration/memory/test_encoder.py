"""A closed session is learnt from, on real Kafka and Redis, and what was learnt is found by search."""

from __future__ import annotations

import httpx

from streams.settings.settings import Settings
from tests.support.platform import running_platform
from tests.support.worker import until


async def test_what_a_closed_session_taught_is_found_and_a_later_value_takes_its_place(
    settings: Settings,
) -> None:
    async with (
        running_platform(settings, {"memory_auto": "sessions"}) as platform,
        httpx.AsyncClient(
            base_url=f"{platform.url}/v1",
            headers={"Authorization": f"Bearer {platform.key}"},
            timeout=60,
        ) as http,
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

        await teach("c0", "I never fly at night.", "I don't fly at night or on Sundays.")
        flies = "does the user fly at night"

        async def all_say_so() -> list[str]:
            said = await found(flies)
            return said if len(said) == 3 else []

        await until(all_say_so, 60, "two records and their composite")
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
