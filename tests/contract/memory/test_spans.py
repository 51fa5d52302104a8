"""What of a summary's span the memory learns from, over a log in memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import pytest

from projections.names import Position
from streams.compaction.compactor import Compactor
from streams.compaction.requests import request_for
from streams.memory import spans
from tests.support.compaction import SMALL
from tests.support.learning import KEY, SETTINGS, Learning, closed, opened, user
from tests.support.model_learning import BOAT, learning, teaches
from tests.support.model_server import fails

T = TypeVar("T")
FILLER = [user("the weather of this week and the garden " * 4) for _ in range(8)]


class SaysNotWhatStands:
    """A writer of summaries that does not say which of a span's events stand."""

    async def run(self, tenant: str, function: Callable[..., T], *args: Any) -> T:
        del args[1]["span"]["stands"]
        return function(*args)


async def summarise(world: Learning) -> Position:
    request = request_for(await world.window(), 1)
    assert request is not None
    found = await Compactor(SETTINGS, world.log, processor=SaysNotWhatStands()).answer(request)
    await world.fold()
    assert (await world.window()).meta.summary is not None
    return found


async def test_nothing_is_learnt_of_what_was_abandoned_before_a_summary_that_does_not_say_so() -> (
    None
):
    for by_id in (False, True):
        world = Learning({**SMALL, "memory_auto": "summaries"})
        start = await world.say(opened(), user("hello"), user("I have two kids"))
        await world.say({"type": "rollback", "to": "e1" if by_id else str(start[1])})
        await world.say(user("I live in Bergen."), *FILLER)
        await summarise(world)
        await world.learn()
        assert world.texts() == ["The user lives in Bergen."]


async def test_what_a_rollback_of_a_rollback_brought_back_within_the_span_is_learnt() -> None:
    world = Learning({**SMALL, "memory_auto": "summaries"})
    start = await world.say(opened(), user("I live in Oslo."), user("I have two kids"))
    await world.say({"type": "rollback", "to": str(start[0])}, user("I live in Bergen."))
    await world.say({"type": "rollback", "to": str(start[1])}, user("hello"), *FILLER)
    await summarise(world)
    await world.learn()
    assert world.texts() == ["The user lives in Oslo."]


ANSWERS = [{**flat, "role": "assistant"} for flat in FILLER]


async def two_summaries(world: Learning) -> None:
    """The first goes around the newest user's message, which the second covers."""
    await world.say(user("I live in Oslo."), *ANSWERS)
    await world.summarise()
    assert (await world.window()).tail[0].offset == 0
    await world.say(user("hello"), *ANSWERS)
    await world.summarise()


async def test_what_a_summary_went_around_is_learnt_with_the_next_one_though_the_model_fails() -> (
    None
):
    async with learning(fails(500), policy={**SMALL, "memory_auto": "summaries"}) as (world, _):
        await two_summaries(world)
        await world.learn()
        assert world.texts() == ["The user lives in Oslo."]


async def test_what_the_summary_before_covers_is_not_learnt_again_in_other_words() -> None:
    once = {**BOAT, "text": "The garden was talked about.", "positions": ["0-1"]}
    again = {**BOAT, "text": "They spoke of a garden.", "positions": ["0-1"]}
    both = {**BOAT, "text": "The user's garden is in Oslo.", "positions": ["0-0", "0-1"]}
    policy = {**SMALL, "memory_auto": "summaries"}
    async with learning(teaches(once), teaches(again, both), policy=policy) as (world, server):
        await two_summaries(world)
        await world.learn()
        sent = server.calls[1]["messages"][1]["content"]
        assert sent.index('"0-0"') < sent.index('"0-1"')
        assert world.texts() == [once["text"], both["text"]]


async def test_a_session_leaves_out_what_was_abandoned_under_such_a_summary() -> None:
    world = Learning({**SMALL, "memory_auto": "sessions"})
    start = await world.say(opened(), user("I have two kids"))
    await world.say({"type": "rollback", "to": str(start[0])}, user("I live in Bergen."), *FILLER)
    await summarise(world)
    await world.say(closed())
    await world.learn()
    assert world.texts() == ["The user lives in Bergen."]


async def test_a_rollback_to_a_message_that_the_summary_goes_around_abandons_what_came_after_it() -> (
    None
):
    world = Learning({**SMALL, "memory_auto": "summaries"})
    said = await world.say(opened(), user("I have two kids"), user("hello"))
    # The newest user's message stays in the window.
    answers = [{**flat, "role": "assistant"} for flat in FILLER]
    await world.say(*answers[:1], {"type": "rollback", "to": f"e{said[2].offset}"}, *answers)
    await summarise(world)
    await world.learn()
    assert world.texts() == ["The user has two kids."]


@pytest.mark.parametrize(
    ("learns", "latest"), [("sessions", "likes tea"), ("summaries", "has two kids")]
)
async def test_of_a_span_with_long_texts_the_latest_is_learnt_from(
    learns: str, latest: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = "The weather of this week. " * 40
    monkeypatch.setattr(spans, "MAX_CHARS", len(long))
    world = Learning({**SMALL, "memory_auto": learns})
    await world.say(
        opened(), user(f"I live in Oslo. {long}"), user(f"I have two kids. {long}"), *FILLER
    )
    await world.say(user("I work as a nurse."), user(f"I like tea. {long}"))
    if learns == "summaries":
        await summarise(world)
    else:
        await world.say(closed())
    await world.learn()
    assert world.texts() == [f"The user {latest}."]


async def test_of_a_held_range_with_long_texts_the_latest_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = Learning({})
    first, *_, last = await world.say(*(user(f"message {n} " + "x" * 90) for n in range(30)))
    monkeypatch.setattr(spans, "MAX_CHARS", 1_000)
    found = await spans.latest_between(world.log, KEY, 0, first.offset, last.offset)
    assert [offset for offset, _ in found] == list(range(last.offset - 9, last.offset + 1))
