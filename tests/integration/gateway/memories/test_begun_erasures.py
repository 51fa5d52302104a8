"""Once an erasure has begun, nothing that its log taught is read, although no store knows of it yet."""

from __future__ import annotations

from pathlib import Path

import pytest

from projections.events.times import present
from projections.names import Key, users_log
from streams.encryption.key_table import Erasure
from tests.support.commands import cli
from tests.support.gateway import is_problem, say
from tests.support.memory_routes import World
from tests.support.worker import until
from threadfold.cli.common import CONFIG_FILE
from threadfold.cli.configuration import write_config
from threadfold.service.conversations import ConversationService

SECRET = "zirconium"
HIDDEN = f"Hides marmalade behind the {SECRET} clock."
SKILL = {"intent": f"Find marmalade near {SECRET}", "doc_markdown": f"Look behind the {SECRET}."}
QUESTION = {"query": f"marmalade {SECRET}"}


async def begin_to_erase(world: World, log: Key, **whose: str) -> None:
    """Write the record of an erasure that dies before its event, and wait until the gateway refuses
    saves to the log, which is ``whose`` saves go to.
    """
    async with ConversationService(world.settings) as backend:
        begun = Erasure("begun", present(), "kept")
        await backend.keys.put_erasure(str(log).encode(), begun)

    async def refused() -> bool:
        return (await world("POST", "/memories", {"text": "More.", **whose})).status_code == 410

    await until(refused)


async def answers(world: World, key: str, user: str, gone: str, other: str) -> dict[str, str]:
    """What the routes that read memories answer to whoever may see the user's, as text."""
    whose = {"user": user} if key == "acme" else {}
    asked = f"?user={user}" if whose else "?"
    found = {
        str(more): await world.ok("POST", "/memories/search", QUESTION | whose | more, key)
        for more in ({}, {"kinds": ["turn"]}, {"kinds": ["skill"]}, {"conversation": gone})
    }
    for path in (
        f"/memories{asked}",
        f"/memories{asked}&conversation={gone}",
        f"/skills{asked}",
        f"/conversations/{other}/context?recall=on",
    ):
        found[path] = await world.ok("GET", path, key=key)
    return {what: str(one) for what, one in found.items()}


@pytest.fixture
async def token(world: World, user: str) -> str:
    made = await world.ok("POST", "/tokens", {"user": user, "verbs": ["read"], "expires_in": 600})
    found: str = made["token"]
    return found


async def two_talks(world: World, user: str) -> tuple[str, str]:
    """A conversation that tells a secret in all ways, and another one that asks for it."""
    gone, other = await world.opened(user), await world.opened(user)
    await world.ok("POST", f"/conversations/{gone}/events?wait=applied", [say(HIDDEN)])
    asks = [say("Where is the marmalade?")]
    await world.ok("POST", f"/conversations/{other}/events?wait=applied", asks)
    return gone, other


async def test_no_route_reads_what_a_conversation_taught_whose_erasure_has_begun(
    world: World, user: str, token: str, tmp_path: Path
) -> None:
    gone, other = await two_talks(world, user)
    (tea,) = await world.save({"text": "Likes tea.", "conversation": other})
    hidden, _ = await world.save(
        {"text": f"{HIDDEN} Always.", "conversation": gone},
        {"text": "likes TEA!", "conversation": gone},
    )
    (skill,) = (await world.ok("POST", "/skills?wait=applied", {**SKILL, "conversation": gone}))[
        "memories"
    ]
    for key in ("acme", token):
        for what, text in (await answers(world, key, user, gone, other)).items():
            assert SECRET in text, what
    shown = await world.ok("GET", f"/memories/{tea['id']}")
    assert (shown["text"], shown["conversation"]) == ("likes TEA!", gone)

    await begin_to_erase(world, Key("acme", gone), conversation=gone)
    for key in ("acme", token):
        for what, text in (await answers(world, key, user, gone, other)).items():
            assert SECRET not in text and "TEA" not in text, what
        for one in (hidden, skill):
            is_problem(await world("GET", f"/memories/{one['id']}", key=key), 404)
            is_problem(await world("GET", f"/memories/{one['id']}/timeline", key=key), 404)
        around = await world("GET", f"/memories/{tea['id']}/timeline", key=key)
        assert [one["text"] for one in around.json()["memories"]] == ["Likes tea."]
    for path in (f"/memories/{hidden['id']}", f"/skills/{skill['id']}"):
        is_problem(await world("DELETE", path), 404)
    shown = await world.ok("GET", f"/memories/{tea['id']}")
    assert (shown["text"], shown["conversation"]) == ("Likes tea.", other)
    assert (await world.ok("GET", f"/memories/stats?user={user}"))["records"] == 1

    write_config(tmp_path / CONFIG_FILE, world.settings)
    for command in (["list", "acme"], ["search", "acme", "tea marmalade"]):
        ran = await cli("memories", *command, "--user", user, "--data", str(tmp_path))
        assert ran.code == 0 and "Likes tea." in ran.out and SECRET not in ran.out

    await world.ok("DELETE", f"/conversations/{gone}")
    assert await world.search(SECRET, user=user) == []
    assert (await world.ok("GET", f"/memories/{tea['id']}"))["text"] == "Likes tea."


async def test_pages_go_on_behind_what_is_read_no_more(world: World, user: str) -> None:
    gone, other = await world.opened(user), await world.opened(user)
    both = [f"Fact {n}." for n in range(3)]
    for talk in (gone, other):
        await world.save(*({"text": text, "conversation": talk} for text in both))
    await world.save({"text": SECRET, "conversation": gone})
    await begin_to_erase(world, Key("acme", gone), conversation=gone)
    found, path = list[str](), f"/memories?user={user}&limit=1"
    while path:
        page = await world.ok("GET", path)
        found += [one["text"] for one in page["memories"]]
        before = page["next_before"]
        path = f"/memories?user={user}&limit=1&before={before}" if before else ""
    assert sorted(found) == both


async def test_no_route_reads_what_is_in_the_log_of_a_user_whose_erasure_has_begun(
    world: World, user: str, token: str
) -> None:
    gone, other = await two_talks(world, user)
    await begin_to_erase(world, Key("acme", gone), conversation=gone)
    (own,) = await world.save({"text": HIDDEN, "user": user})
    await world.ok("POST", "/skills?wait=applied", {**SKILL, "user": user})
    await world.save({"text": "Likes tea.", "conversation": other})
    assert HIDDEN in await world.search(SECRET, user=user)
    recalled = await world.ok("GET", f"/conversations/{other}/context?recall=on")
    assert SECRET in str(recalled)

    await begin_to_erase(world, users_log("acme", user), user=user)
    for key in ("acme", token):
        for what, text in (await answers(world, key, user, gone, other)).items():
            assert SECRET not in text, what
        is_problem(await world("GET", f"/memories/{own['id']}", key=key), 404)
    assert await world.search("tea", user=user, kinds=["record"]) == ["Likes tea."]
