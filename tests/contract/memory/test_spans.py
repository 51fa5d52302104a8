"""What of a summary's span the memory learns from, over a log in memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from projections.names import Position
from streams.compaction.compactor import Compactor
from streams.compaction.requests import request_for
from tests.support.compaction import SMALL
from tests.support.learning import SETTINGS, Learning, closed, opened, user

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
