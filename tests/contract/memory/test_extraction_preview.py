"""What the rules would find in the logs, compared with what was extracted before."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from projections.names import Key
from streams.maintenance.extraction_preview import extracted
from streams.memory.sqlite_store import SqliteMemories
from streams.memory.store_differences import extraction_differences
from tests.support.learning import KEY, Learning, closed, opened, user
from tests.support.memories import saved

SESSIONS = {"memory_auto": "sessions"}
OTHER = Key("acme", "other")


@pytest.fixture
def stores() -> Iterator[tuple[SqliteMemories, SqliteMemories]]:
    """The live one, and one for what the rules find."""
    made = SqliteMemories(), SqliteMemories()
    yield made
    for store in made:
        store.close()


async def differing(
    world: Learning, stores: tuple[SqliteMemories, SqliteMemories]
) -> list[tuple[str, str]]:
    live, preview = stores
    live.apply(list(world.memory.facts.values()), {})
    await extracted(world.log, world.rules, preview)
    found = extraction_differences(live, preview)
    return sorted((one.how, str(one.document()["text"])) for one in found)


async def test_rules_that_found_it_before_find_the_same(
    stores: tuple[SqliteMemories, SqliteMemories],
) -> None:
    world = Learning(SESSIONS)
    await world.say(opened(), user("I live in Oslo."), user("I'm vegetarian"), closed())
    await world.say(user("I have two kids"), closed())
    await world.learn()
    assert len(world.texts()) == 3
    assert await differing(world, stores) == []


async def test_what_was_not_extracted_yet_would_be_added_but_nothing_abandoned_or_erased(
    stores: tuple[SqliteMemories, SqliteMemories],
) -> None:
    world = Learning({})
    _, kept = await world.say(opened(), user("I live in Oslo."))
    await world.say(user("I'm vegetarian"), {"type": "rollback", "to": str(kept)})
    _, said = await world.say(user("I have two kids", id="mine"), user("My name is Ann."))
    await world.say({"type": "rollback", "to": "mine"})
    await world.say(opened(), user("I work as a nurse"), key=OTHER)
    await world.say({"type": "conversation.erased"}, key=OTHER)
    assert said and world.texts() == []
    assert await differing(world, stores) == [
        ("added", "The user has two kids."),
        ("added", "The user lives in Oslo."),
    ]


async def test_a_changed_finding_names_its_fields_and_explicit_records_are_left_out(
    stores: tuple[SqliteMemories, SqliteMemories],
) -> None:
    live, preview = stores
    world = Learning(SESSIONS)
    await world.say(opened(), user("I live in Oslo."), closed())
    await world.learn()
    (fact,) = world.memory.facts.values()
    data = fact.data
    live.apply([fact._replace(data=type(data)(**{**_fields(data), "memory_type": "event"}))], {})
    explicit = saved(KEY, "Likes gin.", user="ann", channel="web")
    live.apply([fact._replace(offset=99, data=explicit)], {})
    await extracted(world.log, world.rules, preview)
    (found,) = extraction_differences(live, preview)
    assert found.how == "changed"
    assert found.fields()["type"] == ["event", "fact"]


def _fields(data: object) -> dict[str, object]:
    return {name: getattr(data, name) for name in data.__struct_fields__}  # type: ignore[attr-defined]
