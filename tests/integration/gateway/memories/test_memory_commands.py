"""The commands of memories do what the routes do, with each of their options."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

from tests.support.commands import cli, ok
from tests.support.memory_routes import World
from tests.support.worker import until
from threadfold.cli.common import CONFIG_FILE
from threadfold.cli.configuration import write_config

MOMENT = timedelta(milliseconds=2)
"""Times are shown in milliseconds."""


async def just_after(time: str) -> str:
    """A time behind that one, once it has come."""
    at = datetime.fromisoformat(time) + MOMENT

    async def has_come() -> bool:
        return datetime.now(UTC) > at

    await until(has_come)
    return at.isoformat()


async def test_the_commands_do_what_the_routes_do(world: World, user: str, tmp_path: Path) -> None:
    write_config(tmp_path / CONFIG_FILE, world.settings)
    at, whose = ("--data", tmp_path), ("--user", user)
    done = await ok("memories", "save", "acme", "Sings in a choir.", *whose, *at)
    saved = json.loads(done.out)
    assert saved["status"] == "created" and done.err == ""
    other = await ok("memories", "save", f"new-{user}", "Sings in a choir.", *whose, *at)
    assert other.said == f"tenant new-{user} does not exist yet: it is created"
    assert await world.search("choirs", user=user) == ["Sings in a choir."]
    (hit,) = (await ok("memories", "search", "acme", "choirs", *whose, *at)).lines
    assert json.loads(hit)["id"] == saved["id"]
    found = await ok("memories", "show", "acme", saved["id"], *at)
    assert json.loads(found.out) == await world.ok("GET", f"/memories/{saved['id']}")
    for command in ("list", "timeline"):
        of = whose if command == "list" else (saved["id"],)
        assert len((await ok("memories", command, "acme", *of, *at)).lines) == 1
    await ok("memories", "delete", "acme", saved["id"], *at)
    assert json.loads((await ok("memories", "stats", "acme", *whose, *at)).out)["records"] == 0
    missing = await cli("memories", "show", "acme", saved["id"], *at)
    assert (missing.code, missing.said) == (1, f"threadfold: memory {saved['id']} is not known")
    assert (await cli("memories", "search", "acme", "x", "--as-of", "noon", *at)).code == 2
    nobody = await cli("memories", "list", f"nobody-{user}", *at)
    assert nobody.code == 1 and f"tenant nobody-{user} is not known" in nobody.said


async def test_save_takes_type_topic_and_conversation_and_search_what_was_known(
    world: World, user: str, tmp_path: Path
) -> None:
    write_config(tmp_path / CONFIG_FILE, world.settings)
    talk, at = await world.opened(user), ("--data", tmp_path)
    kept = ("--type", "preference", "--topic", "tea", "--conversation", talk)
    first = json.loads((await ok("memories", "save", "acme", "Likes oolong tea.", *kept, *at)).out)
    record = await world.ok("GET", f"/memories/{first['id']}")
    assert (record["type"], record["topic"], record["conversation"], record["user"]) == (
        "preference",
        "tea",
        talk,
        user,
    )
    then = await just_after(record["created"])
    again = json.loads((await ok("memories", "save", "acme", "Likes sencha tea.", *kept, *at)).out)
    assert again == {"id": first["id"], "status": "revised"}

    async def found(*more: str) -> list[str]:
        hits = (await ok("memories", "search", "acme", "tea", "--user", user, *more, *at)).lines
        return [json.loads(hit)["text"] for hit in hits]

    assert await found() == ["Likes sencha tea."]
    assert await found("--as-of", then) == ["Likes oolong tea."]
    shown = await ok("memories", "show", "acme", first["id"], "--as-of", then, *at)
    assert json.loads(shown.out)["text"] == "Likes oolong tea."
    long = await cli("memories", "save", "acme", "x" * 8_193, "--user", user, *at)
    assert long.code == 2 and "8193 characters: a text has at most 8192" in long.said
    wrong = await cli("memories", "save", "acme", "x", "--type", "guess", *at)
    assert wrong.code == 2 and "guess" in wrong.said


async def test_a_hard_deletion_leaves_no_text_and_a_soft_one_what_was_known(
    world: World, user: str, tmp_path: Path
) -> None:
    write_config(tmp_path / CONFIG_FILE, world.settings)
    at = ("--data", tmp_path)
    soft, hard = await world.save(
        {"text": "Rides a tandem.", "user": user}, {"text": "Rides a unicycle.", "user": user}
    )
    created = (await world.ok("GET", f"/memories/{hard['id']}"))["created"]
    known = await just_after(created)
    for saved, more in ((soft, ()), (hard, ("--hard",))):
        gone = json.loads((await ok("memories", "delete", "acme", saved["id"], *more, *at)).out)
        assert gone["id"] == saved["id"]
    assert await world.search("rides", user=user, kinds=["record"]) == []
    asked = {"user": user, "kinds": ["record"], "as_of": known}
    assert await world.search("rides", **asked) == ["Rides a tandem."]
    again = await cli("memories", "delete", "acme", hard["id"], "--hard", *at)
    assert again.code == 1
    assert again.said == f"threadfold: memory {hard['id']} is not known"
