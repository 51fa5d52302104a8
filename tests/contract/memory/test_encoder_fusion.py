"""The encoder over a log in memory: what spans of one user say alike is fused, and a later word takes
the place of a former, also across conversations.
"""

from __future__ import annotations

import pytest

from projections.errors import Healing
from projections.names import Key, Position
from tests.support.embeddings import Fixed, WordVectors
from tests.support.learning import KEY, Learning, closed, opened, user

SESSIONS = {"memory_auto": "sessions"}
OTHER = Key("acme", "elsewhere")
NEVER, NOR = "I never fly at night.", "I don't fly at night or on Sundays."
BOTH = "The user never flies at night. The user does not fly at night or on Sundays."


async def test_what_is_much_the_same_is_fused_and_goes_with_its_last_source() -> None:
    world = Learning(SESSIONS)
    (_, first, second) = await world.say(opened(), user(NEVER), user(NOR))
    (close,) = await world.say(closed())
    await world.learn(*world.requests, *world.requests)
    found = {one.kind: one for one in world.known()}
    assert (found["composite"].text, found["composite"].positions) == (
        BOTH,
        [str(first), str(second)],
    )
    records = [one.id for one in world.known() if one.kind == "record"]
    assert sorted(found["composite"].sources) == sorted(records) and len(records) == 2
    assert all(one.duplicates == 0 for one in world.known())
    await world.say({"type": "rollback", "to": str(first)})
    assert world.texts() == ["The user never flies at night."]
    await world.say({"type": "rollback", "to": str(close)})
    assert BOTH in world.texts()


async def in_two(one: str, other: str) -> tuple[Learning, Position]:
    """A user says one thing in a conversation, and later another in another; returns where."""
    world = Learning(SESSIONS)
    await world.say(opened(), user(one, time="2024-05-10T10:00:00Z"), closed())
    said = user(other, time="2024-05-11T10:00:00Z")
    (_, at, _) = await world.say(opened(), said, closed(), key=OTHER)
    await world.learn()
    return world, at


async def test_what_two_conversations_say_is_fused_and_goes_with_either() -> None:
    for erased in (KEY, OTHER):
        world, _ = await in_two(NEVER, NOR)
        (whole,) = [one for one in world.known() if one.kind == "composite"]
        assert (whole.text, whole.conversation, whole.positions) == (BOTH, None, [])
        await world.say({"type": "conversation.erased"}, key=erased)
        assert len(world.texts()) == 1
    rows = [row.value or b"" for row in world.log.rows(0)]
    fused = [value for value in rows if b"memory.fused" in value]
    assert len(fused) == 1 and b"night" not in fused[0], "no log has another one's text"


async def test_a_composite_of_two_conversations_goes_with_a_rollback_and_comes_back() -> None:
    world, at = await in_two(NEVER, NOR)
    first = Position(at.partition, at.offset - 1)
    (back,) = await world.say({"type": "rollback", "to": str(first)}, key=OTHER)
    assert world.texts() == ["The user never flies at night."]
    before = Position(back.partition, back.offset - 1)
    await world.say({"type": "rollback", "to": str(before)}, key=OTHER)
    assert BOTH in world.texts()


async def test_a_composite_takes_in_a_composite_and_a_request_that_comes_again_adds_none() -> None:
    world, _ = await in_two(NEVER, NOR)
    third = Key("acme", "third")
    await world.say(opened(), user("I never fly at night on Sundays."), closed(), key=third)
    (request,) = world.requests
    await world.learn(request, request)
    small, large = sorted(
        (one for one in world.known() if one.kind == "composite"), key=lambda one: len(one.sources)
    )
    assert (len(small.sources), len(large.sources)) == (2, 3)
    assert large.children == [small.id] and small.text in large.text


async def test_with_vectors_their_cosine_says_what_is_alike_and_without_them_words_do() -> None:
    said = (user("I never drink tea at night."), user("I never drink a beverage at night."))
    alike = WordVectors(synonyms={"tea": "drink", "beverage": "drink"})
    away = WordVectors()
    away.away = True
    for embeddings, kinds in ((None, 2), (Fixed(alike), 3), (Fixed(away), 2)):
        world = Learning(SESSIONS, embeddings)
        for n, text in enumerate(said):
            await world.say(opened(), text, closed(), key=Key("acme", f"talk{n}"))
        await world.learn()
        assert len(world.known()) == kinds


async def test_a_memory_that_is_not_up_to_date_lets_the_request_wait() -> None:
    world = Learning(SESSIONS)
    await world.say(opened(), user(NEVER), user(NOR), closed())
    (request,), world.late = world.requests, True
    with pytest.raises(Healing):
        await world.learn(request)
    world.late = False
    await world.learn(request)
    assert BOTH in world.texts() and all(one.duplicates == 0 for one in world.known())


async def test_nothing_is_fused_with_what_a_conversation_said_whose_erasure_has_begun() -> None:
    for erasing, kinds in ((set[Key](), 3), ({KEY}, 2)):
        world = Learning(SESSIONS)
        for key, text in ((KEY, NEVER), (OTHER, NOR)):
            await world.say(opened(), user(text), closed(), key=key)
            await world.learn()
            world.erasing |= erasing
        assert len(world.known()) == kinds


async def test_nothing_is_fused_across_users_and_channels() -> None:
    world = Learning(SESSIONS)
    for n, (whose, text) in enumerate(((opened(), NEVER), ({**opened(), "user": "bob"}, NOR))):
        await world.say(whose, user(text), closed(), key=Key("acme", f"talk{n}"))
    other = {**opened(), "channel": "mail"}
    await world.say(other, user(NOR), closed(), key=OTHER)
    await world.learn()
    assert [one.kind for one in world.known()] == ["record"] * 3


@pytest.mark.parametrize(
    ("former", "later", "stays"),
    [
        ("I live in Lyon.", "I have moved to Oslo.", "The user has moved to Oslo."),
        ("I'm vegetarian.", "I'm not vegetarian anymore.", "The user is not vegetarian anymore."),
        ("I like jazz.", "I no longer like jazz.", "The user no longer likes jazz."),
    ],
)
async def test_a_later_word_in_another_conversation_supersedes_and_both_can_be_read(
    former: str, later: str, stays: str
) -> None:
    world, at = await in_two(former, later)
    assert world.texts() == [stays]
    (now,) = world.known()
    (then,) = world.known(now.confirmed_at - 1)
    assert then.text != stays
    before = Position(at.partition, at.offset - 1)
    await world.say({"type": "rollback", "to": str(before)}, key=OTHER)
    assert world.texts() == [then.text], "who takes the later word back has said the former"


async def test_an_older_word_that_is_learnt_late_supersedes_nothing() -> None:
    world = Learning(SESSIONS)
    for key, day, text in (
        (KEY, 20, "I'm not vegetarian anymore."),
        (OTHER, 10, "I'm vegetarian."),
    ):
        said = user(text, time=f"2024-05-{day}T10:00:00Z")
        await world.say(opened(), said, closed(), key=key)
        await world.learn()
    assert world.texts() == ["The user is not vegetarian anymore."]
