"""Nobody reaches a memory that is another tenant's, user's, channel's or conversation's."""

from __future__ import annotations

import asyncio

import pytest

from tests.support.gateway import is_problem
from tests.support.memory_routes import World


async def test_nothing_crosses_tenants_users_and_channels(world: World, user: str) -> None:
    other = f"{user}-other"
    (mine,) = await world.save({"text": "Keeps bees.", "user": user, "channel": "web"})
    await world.save(
        {"text": "Keeps bees.", "user": other}, {"text": "Keeps bees, too.", "user": user}
    )
    await world.save({"text": "Keeps bees.", "user": user}, key="rival")
    assert await world.search("bees", user=user, channel="web") == ["Keeps bees."]
    assert await world.search("bees", user=user, channel="mail") == []
    assert len(await world.search("bees", key="rival")) == 1
    for path in (f"/memories/{mine['id']}", f"/memories/{mine['id']}/timeline"):
        is_problem(await world("GET", path, key="rival"), 404)
    is_problem(await world("DELETE", f"/memories/{mine['id']}", key="rival"), 404)
    outcome = {"succeeded": True}
    is_problem(await world("POST", f"/memories/{mine['id']}/outcome", outcome, key="rival"), 404)


async def test_an_id_is_known_to_those_alone_whom_the_call_names(world: World, user: str) -> None:
    talk = await world.opened(user)
    (mine,) = await world.save({"text": "Keeps hens.", "user": user, "channel": "web"})
    (told,) = await world.save({"text": "Keeps ducks.", "conversation": talk})
    skill = {"intent": "Feed hens", "doc_markdown": "x", "user": user}
    (how,) = (await world.ok("POST", "/skills", skill))["memories"]
    at, succeeded = f"/memories/{mine['id']}", {"succeeded": True}
    for other in (f"user={user}-other", "channel=mail", f"conversation={talk}"):
        for path in (at, f"{at}/timeline"):
            is_problem(await world("GET", f"{path}?{other}"), 404)
        is_problem(await world("POST", f"{at}/outcome?{other}", succeeded), 404)
        is_problem(await world("DELETE", f"{at}?{other}"), 404)
        is_problem(await world("DELETE", f"/skills/{how['id']}?{other}"), 404)
    own = f"user={user}&channel=web"
    assert (await world.ok("GET", f"{at}?{own}"))["text"] == "Keeps hens."
    assert len((await world.ok("GET", f"{at}/timeline?{own}"))["memories"]) == 1
    assert (await world.ok("POST", f"{at}/outcome?{own}", succeeded))["use"]["succeeded"] == 1
    taught = f"/memories/{told['id']}?conversation={talk}"
    assert (await world.ok("GET", taught))["conversation"] == talk
    for path in (f"{at}?{own}", taught, f"/skills/{how['id']}?user={user}"):
        assert await world.ok("DELETE", path)
        is_problem(await world("DELETE", path), 404)


async def test_an_end_user_reaches_the_own_memory_alone(world: World, user: str) -> None:
    other = f"{user}-other"
    (theirs,) = await world.save({"text": "Keeps goats.", "user": other})
    verbs = {"verbs": ["read", "append"], "expires_in": 60}
    token = (await world.ok("POST", "/tokens", {"user": user, **verbs}))["token"]
    (own,) = await world.save({"text": "Keeps goats, small ones."}, key=token)
    assert await world.search("goats", key=token) == ["Keeps goats, small ones."]
    assert (await world.ok("GET", "/memories", key=token))["memories"][0]["user"] == user
    assert (await world.ok("GET", "/memories/stats", key=token))["records"] == 1
    is_problem(await world("GET", f"/memories/{theirs['id']}", key=token), 404)
    is_problem(await world("DELETE", f"/memories/{theirs['id']}", key=token), 404)
    named = {"query": "goats", "user": other}
    is_problem(await world("POST", "/memories/search", named, key=token), 403)
    is_problem(await world("GET", f"/memories?user={other}", key=token), 403)
    several = [{"text": "Mine."}, {"text": "Theirs.", "user": other}]
    is_problem(await world("POST", "/memories", several, key=token), 403, "memory 2: user")
    several[1] = {"text": "Nobody's.", "conversation": "no name"}
    is_problem(await world("POST", "/memories", several, key=token), 422, "memory 2: conv")
    talk, gone = await world.opened(other), await world.opened(other)
    assert (await world("DELETE", f"/conversations/{gone}")).status_code == 200
    for name in (talk, gone, "never-was"):
        for path, mine in (
            ("/memories", {"text": "Mine now."}),
            ("/skills", {"intent": "Mine now.", "doc_markdown": "x"}),
        ):
            stolen = await world("POST", path, {**mine, "conversation": name}, key=token)
            is_problem(stolen, 404, "it has no events")
    erased = {"text": "Mine now.", "conversation": gone}
    is_problem(await world("POST", "/memories", erased), 410)
    assert (await world.ok("DELETE", f"/memories/{own['id']}", key=token))["id"] == own["id"]
    narrow = await world.ok("POST", "/tokens", {"user": other, "conversations": [talk], **verbs})
    assert await world.search("goats", key=narrow["token"]) == []
    await world.save({"text": "Goats eat hats.", "conversation": talk}, key=narrow["token"])
    assert await world.search("goats", key=narrow["token"]) == ["Goats eat hats."]
    is_problem(await world("POST", "/memories", {"text": "x y"}, key=narrow["token"]), 403)


async def test_what_is_saved_after_a_conversation_was_given_away_is_its_new_users(
    world: World, user: str
) -> None:
    talks = [await world.opened(f"{user}-former") for _ in range(10)]
    for talk in talks:
        opened = {"type": "conversation.opened", "user": user}
        assert (await world("POST", f"/conversations/{talk}/events", opened)).status_code == 202
        await world.ok("POST", "/memories", {"text": f"Likes {talk}.", "conversation": talk})
    await world.save({"text": "Likes all.", "conversation": talks[-1]})
    found = (await world.ok("GET", f"/memories?user={user}"))["memories"]
    assert {one["text"] for one in found} >= {f"Likes {talk}." for talk in talks}


async def test_what_was_saved_before_a_conversation_had_a_user_can_be_rated_and_deleted(
    world: World, user: str
) -> None:
    talk = await world.opened(None)
    saved = await world.save(
        {"text": "Keeps swans.", "conversation": talk},
        {"text": "Keeps newts.", "conversation": talk},
    )
    opened = {"type": "conversation.opened", "user": user, "channel": "web"}
    await world.ok("POST", f"/conversations/{talk}/events?wait=applied", opened)
    outcome = f"/memories/{saved[0]['id']}/outcome?conversation={talk}"
    rated = await world.ok("POST", outcome, {"succeeded": True})
    assert rated["use"]["succeeded"] == 1
    for one, hard in zip(saved, ("", "&hard=true"), strict=True):
        path = f"/memories/{one['id']}?conversation={talk}"
        assert await world.ok("DELETE", path + hard)
        is_problem(await world("GET", path), 404)
    assert await world.search("swans newts", conversation=talk) == []


async def test_a_conversation_that_has_taught_sixteen_users_says_that_it_teaches_no_other(
    world: World, user: str
) -> None:
    talk = await world.opened(f"{user}-0")
    memory = {"text": "Keeps frogs.", "conversation": talk}
    for number in range(1, 17):
        await world.ok("POST", "/memories", memory)
        opened = {"type": "conversation.opened", "user": f"{user}-{number}"}
        await world.ok("POST", f"/conversations/{talk}/events", opened)
    refused = await world("POST", "/memories", memory)
    is_problem(refused, 422, "memory 1: field conversation", "16 users")
    await world.ok("POST", f"/conversations/{talk}/events", {**opened, "user": f"{user}-3"})
    await world.ok("POST", "/memories", memory)


@pytest.mark.parametrize("wait", ["", "?wait=applied"])
async def test_no_save_is_lost_while_its_conversation_goes_from_user_to_user(
    world: World, user: str, wait: str
) -> None:
    talk = await world.opened(f"{user}-0")
    saving = asyncio.Event()

    async def give_back_and_forth() -> None:
        number = 0
        while not saving.is_set():
            number += 1
            opened = {"type": "conversation.opened", "user": f"{user}-{number % 2}"}
            await world.ok("POST", f"/conversations/{talk}/events", opened)
            await asyncio.sleep(0.02)

    async def save(number: int) -> str | None:
        memory = {"text": f"Note {number}.", "conversation": talk}
        answer = await world("POST", f"/memories{wait}", memory)
        if answer.status_code == 409 or "rejected" in answer.text:
            return None  # it says so
        assert answer.status_code in (200, 202), answer.text
        return str(answer.json()["memories"][0]["id"])

    async with asyncio.TaskGroup() as group:
        group.create_task(give_back_and_forth())
        ids = [await save(number) for number in range(40)]
        saving.set()
    saved = [one for one in ids if one is not None]
    await world.save({"text": "The last.", "conversation": talk})
    for one in saved:
        assert (await world("GET", f"/memories/{one}")).status_code == 200
    assert len(saved) >= 20
