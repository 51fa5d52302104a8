"""The encoder over a log in memory: what it learns from, when, and that a span teaches once,
whatever is delivered how often and whatever rollbacks come in between.
"""

from __future__ import annotations

import asyncio
import random
import time
from typing import Any

import msgspec
import pytest

from projections.errors import Healing, KafkaUnavailable
from projections.events.validation import Record, make_record
from projections.fold.extraction_due import Extraction
from projections.names import Key, Position
from streams.memory import folded_windows
from streams.memory.encoder import APPENDED_AT_ONCE, EVENT_SECONDS
from streams.memory.extraction_requests import ExtractionRequest, request_of
from streams.runtime.keyed_limit import SHARE
from tests.support.compaction import SMALL
from tests.support.learning import KEY, Learning, closed, opened, user

SESSIONS = {"memory_auto": "sessions"}
SUMMARIES = {**SMALL, "memory_auto": "summaries"}
FILLER = [user("the weather of this week and the garden " * 4) for _ in range(8)]


async def test_a_closed_session_teaches_what_was_said_in_it() -> None:
    world = Learning(SESSIONS)
    (_, first, last) = await world.say(opened(), user("I live in Oslo."), user("I'm vegetarian"))
    await world.say(closed(last))
    assert await world.learn() != [None]
    assert world.texts() == ["The user is vegetarian.", "The user lives in Oslo."]
    record = world.known()[1]
    assert (record.scope.user, record.scope.channel, record.conversation) == ("ann", "web", "talk")
    assert (record.positions, record.trust, record.origin) == ([str(first)], "user", "rules")
    assert world.counted("memory_extractions_total") == {("made", "session", "rules"): 1}
    assert world.counted("memory_records_extracted_total") == {("fact",): 1, ("constraint",): 1}


async def test_a_request_beyond_the_end_of_the_log_is_skipped(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(folded_windows, "PATIENCE", 0.05)
    world = Learning(SESSIONS)
    await world.say(opened(), user("I live in Oslo."), closed())
    (request,) = world.requests
    made_up = msgspec.structs.replace(request, at=10**6)
    assert await world.learn(made_up) == [None]
    assert f"the log has no {request.partition}-1000000" in caplog.text
    assert await world.learn(request) != [None]


async def test_what_was_said_and_is_not_folded_yet_is_not_said_again_by_a_repeat(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A conversation that goes back to an old event waits, and each repeat would make it wait
    longer.
    """
    monkeypatch.setattr(folded_windows, "PATIENCE", 0.05)
    world = Learning(SESSIONS)
    await world.say(opened(), user("I live in Oslo."), user("I'm vegetarian"), closed())
    (request,) = world.requests
    for _ in range(3):
        with pytest.raises(Healing):
            await world.encoder.answer_if_due(request)
        assert len(world.saved()) == 2
    assert await world.learn(request) != [None]
    assert len(world.saved()) == 2
    assert world.texts() == ["The user is vegetarian.", "The user lives in Oslo."]


async def test_only_the_session_that_was_closed_is_read() -> None:
    world = Learning(SESSIONS)
    await world.say(opened(), user("I live in Oslo."), closed())
    world.requests.clear()
    (last,) = await world.say(user("I work as a nurse"))
    await world.say({"type": "turn.started", "turn_id": "t"}, closed(last))
    (other,) = await world.say(user("I have two kids"))
    await world.say(closed(last))  # void: another message came after the one it names
    await world.say(user("My name is Ann."), closed())
    assert len(world.requests) == 2
    await world.learn(world.requests[0])
    assert world.texts() == ["The user works as a nurse."]
    await world.learn(world.requests[1])
    assert world.texts() == [
        "The user has two kids.",
        "The user works as a nurse.",
        "The user's name is Ann.",
    ]
    assert other


async def test_a_session_teaches_also_what_summaries_cover_by_now() -> None:
    world = Learning({**SMALL, **SESSIONS})
    await world.say(opened(), user("I live in Oslo."), *FILLER)
    await world.summarise()
    await world.say(user("I have two kids"), *FILLER)
    await world.summarise()
    await world.say(user("I work as a nurse"), closed())
    await world.learn()
    assert world.texts() == [
        "The user has two kids.",
        "The user lives in Oslo.",
        "The user works as a nurse.",
    ]


async def test_an_accepted_summary_teaches_what_it_covers() -> None:
    world = Learning(SUMMARIES)
    await world.say(opened(), user("I live in Oslo."), *FILLER, user("I have two kids"))
    at = await world.summarise()
    assert [(one.reason, one.at) for one in world.requests] == [("summary", at.offset)]
    await world.learn()
    assert world.texts() == ["The user lives in Oslo."]
    await world.say(closed())
    reasons = [one.reason for one in world.requests]
    await world.learn()
    if (await world.window()).meta.due is not None:
        await world.summarise()
        await world.learn()
    else:
        assert reasons == ["tail"]
    assert "The user has two kids." in world.texts()


async def test_a_close_teaches_what_a_summary_that_is_under_way_leaves() -> None:
    world = Learning(SUMMARIES)
    await world.say(opened(), user("I live in Oslo."), *FILLER, user("I have two kids"))
    due = (await world.window()).meta.due
    assert due is not None
    await world.say(closed())
    assert [one.reason for one in world.requests] == ["tail"]
    await world.learn()
    # What the summary is asked for is learnt from with it.
    assert world.texts() == ["The user has two kids."]
    await world.summarise()
    await world.learn()
    assert world.texts() == ["The user has two kids.", "The user lives in Oslo."]
    assert len(world.saved()) == 2


async def test_a_close_asks_for_nothing_where_a_summary_is_asked_for_all() -> None:
    policy = {"profile": "sliding", "memory_auto": "summaries", "close_summarizer": "extractive"}
    world = Learning(policy)
    await world.say(opened(), user("I live in Oslo."), *FILLER, user("I have two kids"), closed())
    assert (await world.window()).meta.due is not None and world.requests == []
    # Here one is under way of what left before.
    world = Learning(policy)
    await world.say(opened(), user("I live in Oslo."), *FILLER, *FILLER)
    before = (await world.window()).meta.due
    assert before is not None
    await world.say(user("I have two kids"), closed())
    assert (await world.window()).meta.due == before and world.requests == []
    while (await world.window()).meta.due is not None:
        await world.summarise()
    await world.learn()
    assert world.texts() == ["The user has two kids.", "The user lives in Oslo."]


@pytest.mark.parametrize("policy", [SESSIONS, {"memory_auto": "summaries"}])
async def test_what_a_rollback_brings_back_is_learnt_also_if_nobody_had_read_it(
    policy: dict[str, Any],
) -> None:
    world = Learning(policy)
    (_, kept, _, close) = await world.say(
        opened(), user("hello there"), user("I live in Oslo."), closed()
    )
    await world.say({"type": "rollback", "to": str(kept)})
    assert await world.learn() == [None] and world.texts() == []
    await world.say({"type": "rollback", "to": str(close)})
    await world.learn()
    assert world.texts() == ["The user lives in Oslo."]
    # Learnt in time, it is said once more, and counts once.
    await world.say({"type": "rollback", "to": str(kept)})
    assert world.texts() == [] and world.requests == []
    await world.say({"type": "rollback", "to": str(close)})
    await world.learn()
    assert [(one.duplicates, one.revision) for one in world.known()] == [(0, 1)]


async def test_a_summary_that_a_rollback_brings_back_is_learnt_from() -> None:
    world = Learning(SUMMARIES)
    said = await world.say(opened(), user("I live in Oslo."), *FILLER, user("I have two kids"))
    await world.summarise()
    (last,) = await world.say(user("ok"))
    await world.say({"type": "rollback", "to": str(said[0])})
    assert await world.learn() == [None] and world.texts() == []
    await world.say({"type": "rollback", "to": str(last)})
    await world.learn()
    assert world.texts() == ["The user lives in Oslo."]


async def test_a_rollback_that_brings_nothing_back_asks_for_nothing() -> None:
    world = Learning({**SMALL, **SESSIONS})
    said = await world.say(opened(), user("I live in Oslo."), closed(), *FILLER)
    await world.summarise()
    world.requests.clear()
    await world.say({"type": "rollback", "to": str(said[4])})
    assert world.requests == []


async def test_what_leaves_a_sliding_window_leaves_its_gist() -> None:
    policy = {"profile": "sliding", "memory_auto": "summaries", "close_summarizer": "extractive"}
    world = Learning(policy)
    said = "The committee rejected the second proposal about harbour lights"
    await world.say(opened(), user(said), user("ok thanks"), *FILLER, *FILLER)
    await world.summarise()
    assert [one.gists for one in world.requests] == [True]
    await world.learn()
    assert f'The user said: "{said}".' in world.texts()


@pytest.mark.parametrize("policy", [{}, {"memory_auto": "off"}, {"memory_auto": "summaries"}])
async def test_nothing_is_learnt_that_the_policy_does_not_say(policy: dict[str, Any]) -> None:
    world = Learning(policy)
    await world.say(opened(), user("I live in Oslo."), closed())
    reasons = [one.reason for one in world.requests]
    assert reasons == (["tail"] if policy.get("memory_auto") == "summaries" else [])
    (await world.say({"type": "conversation.erased"}))
    assert await world.learn() in ([], [None])
    assert world.texts() == []


async def test_a_request_that_is_delivered_again_doubles_nothing() -> None:
    world = Learning(SESSIONS)
    await world.say(opened(), user("I live in Oslo."), user("I have two kids"), closed())
    (request,) = world.requests
    await world.learn(request, request)
    once = world.known()
    assert [(one.duplicates, one.revision) for one in once] == [(0, 1), (0, 1)]
    world.encoder = world.new_encoder()
    await world.learn(request)
    assert len(world.saved()) == 2, "the window knows their ids"
    # Far later it does not any more: another worker says the same once more, and it was said once.
    for i in range(1_100):
        await world.log.append([record(user("ok"), f"filler{i}")])
    await world.fold()
    await world.learn(request)
    rows = world.saved()
    assert len(rows) == 4 and len({row.id for row in rows}) == 2
    assert world.known() == once


async def test_what_a_text_says_several_times_is_one_event() -> None:
    world = Learning(SESSIONS)
    await world.say(opened(), user("I live in Oslo. " * 3), closed())
    await world.learn()
    assert len(world.saved()) == 1 and world.texts() == ["The user lives in Oslo."]


async def test_after_many_rollbacks_what_stands_is_said_once() -> None:
    """Each of them asks to learn again from all that it brought back."""
    world, rng = Learning(SUMMARIES), random.Random(5)
    places = await world.say(opened(), *FILLER)
    for turn in range(30):
        back = {"type": "rollback", "to": str(rng.choice(places[-12:]))}
        (_, *said) = await world.say(back, user(f"I live in Town{turn}."), *FILLER[:1])
        places += said
        if (await world.window()).meta.due is not None:
            await world.summarise()
    assert sum(one.again is not None for one in world.requests) >= 5
    await world.learn()
    ids = [one.id for one in world.saved()]
    assert len(ids) == len(set(ids)) >= 3


def record(flat: dict[str, Any], new_id: str) -> Record:
    return make_record(KEY, flat, where="e", now="2024-05-15T10:00:00Z", new_id=new_id)


async def test_an_append_that_failed_half_way_is_made_good_by_the_next_delivery() -> None:
    world = Learning(SESSIONS)
    await world.say(opened(), user("I live in Oslo."), user("I have two kids"), closed())
    (request,) = world.requests
    append, calls = world.log.append, 0

    async def fails(records: Any) -> list[Position]:
        nonlocal calls
        calls += 1
        await append(records[:1])
        raise KafkaUnavailable("the broker went away")

    world.log.append = fails  # type: ignore[method-assign]
    with pytest.raises(KafkaUnavailable):
        await world.learn(request)
    world.log.append = append  # type: ignore[method-assign]
    await world.learn(request)
    assert world.texts() == ["The user has two kids.", "The user lives in Oslo."]
    assert all(one.duplicates == 0 for one in world.known()) and calls == 1


async def test_a_rollback_that_comes_in_between_loses_nothing_that_still_stands() -> None:
    world = Learning(SESSIONS)
    (_, stays, _) = await world.say(opened(), user("I live in Oslo."), user("I have two kids"))
    await world.say(closed())
    append, raced = world.log.append, False

    async def races(records: Any) -> list[Position]:
        nonlocal raced
        if not raced:
            raced = True
            await append([record({"type": "rollback", "to": str(stays)}, "back")])
        return await append(records)

    world.log.append = races  # type: ignore[method-assign]
    await world.learn()
    assert world.texts() == ["The user lives in Oslo."]
    rejected = [one for one in world.saved() if one.data.rollback is None]
    assert len(rejected) == 2  # what did not know the rollback counts nowhere


async def test_what_a_rollback_in_between_abandoned_is_not_learnt_though_a_summary_covers_it() -> (
    None
):
    world = Learning({**SMALL, **SESSIONS})
    (_, stays, _) = await world.say(opened(), user("I live in Oslo."), user("I have two kids"))
    await world.say(closed())
    append = world.log.append

    async def races(records: Any) -> list[Position]:
        world.log.append = append  # type: ignore[method-assign]
        await world.say({"type": "rollback", "to": str(stays)}, *FILLER)
        await world.summarise()
        return await append(records)

    world.log.append = races  # type: ignore[method-assign]
    await world.learn()
    assert world.texts() == ["The user lives in Oslo."]


async def test_what_an_operator_takes_out_in_between_is_not_known() -> None:
    world = Learning(SESSIONS)
    (_, out, _) = await world.say(opened(), user("I live in Oslo."), user("I have two kids"))
    await world.say(closed())
    append = world.log.append

    async def races(records: Any) -> list[Position]:
        world.log.append = append  # type: ignore[method-assign]
        await world.say({"type": "event.dropped", "position": str(out), "reason": "private"})
        return await append(records)

    world.log.append = races  # type: ignore[method-assign]
    await world.learn()
    assert world.texts() == ["The user has two kids."]


async def test_a_rollback_hides_what_the_abandoned_branch_taught_and_another_brings_it_back() -> (
    None
):
    world = Learning(SESSIONS)
    (_, stays, _) = await world.say(opened(), user("I live in Oslo."), user("I have two kids"))
    (close,) = await world.say(closed())
    await world.learn()
    await world.say({"type": "rollback", "to": str(stays)})
    assert world.texts() == ["The user lives in Oslo."]
    await world.say({"type": "rollback", "to": str(close)})
    assert world.texts() == ["The user has two kids.", "The user lives in Oslo."]


async def test_a_later_value_takes_the_place_of_the_former_whatever_is_extracted_first() -> None:
    order = []
    for turn in (1, -1):
        world = Learning(SESSIONS)
        for n, text in enumerate(("I live in Oslo.", "I moved to Bergen.")):
            key = Key("acme", f"talk{n}")
            said = user(text, time=f"2024-05-{10 + n}T10:00:00Z")
            await world.say(opened(), said, closed(), key=key)
        requests, world.requests = world.requests[::turn], []
        await world.learn(*requests)
        assert world.texts() == ["The user moved to Bergen."]
        (one,) = world.known()
        assert one.revision == 2
        between = one.created + 3_600_000_000
        assert [r.text for r in world.known(between)] == ["The user lives in Oslo."]
        order.append(one.id)
    assert order[0] == order[1]


async def test_spans_that_are_learnt_from_at_once_come_out_alike() -> None:
    world = Learning(SESSIONS)
    await world.say(opened(), user("I live in Oslo."), closed())
    request = request_of(KEY, 0, Extraction(2, "session", False))
    assert request is not None
    async with world.folding():
        await asyncio.gather(*(world.encoder.answer_if_due(request) for _ in range(4)))
    assert [(one.text, one.duplicates) for one in world.known()] == [("The user lives in Oslo.", 0)]


async def test_what_is_private_reaches_no_event() -> None:
    world = Learning(SESSIONS)
    await world.say(opened(), user("I live in Oslo. <private>I have asthma.</private>"), closed())
    await world.learn()
    assert world.texts() == ["The user lives in Oslo."]
    assert all("asthma" not in row.data.text for row in world.saved())


async def test_what_was_said_before_a_conversation_was_given_away_teaches_its_new_user_nothing() -> (
    None
):
    world = Learning(SESSIONS)
    (_, _, last) = await world.say(opened(), user("I live in Oslo."), user("I'm vegetarian"))
    await world.say(closed(last), {"type": "conversation.opened", "user": "bob"})
    assert await world.learn() == [None]
    (_, own) = await world.say(user("I work as a nurse"), user("I have two kids"))
    await world.say(closed(own))
    assert await world.learn() != [None]
    known = [(one.scope.user, one.text) for one in world.known()]
    assert known == [("bob", "The user has two kids."), ("bob", "The user works as a nurse.")]


async def test_who_begins_without_a_name_and_gives_it_later_is_the_same_user() -> None:
    world = Learning(SESSIONS)
    (_, _, last) = await world.say(user("I live in Oslo."), opened(), user("I'm vegetarian"))
    await world.say(closed(last))
    await world.learn()
    assert world.texts() == ["The user is vegetarian.", "The user lives in Oslo."]


async def test_a_long_list_teaches_its_end_at_a_pace_that_leaves_others_their_turn() -> None:
    world, other = Learning(SESSIONS), Key("rival", "talk")
    lists = [
        user(" ".join(f"My favourite thing{n} is Stuff{n}." for n in range(at, at + 100)))
        for at in range(0, 300, 100)
    ]
    await world.say(opened(), *lists, closed())
    await world.say(opened(), user("I live in Oslo."), closed(), key=other)
    long, short = world.requests
    ended: list[str] = []

    async def learn(request: ExtractionRequest) -> None:
        await world.encoder.answer_if_due(request)
        ended.append(request.tenant)

    async with world.folding():
        began = time.monotonic()
        await asyncio.gather(learn(long), learn(short))
    assert ended == ["rival", "acme"]
    assert time.monotonic() - began > 3 * APPENDED_AT_ONCE * EVENT_SECONDS * (SHARE - 1)
    texts = {one.text for one in world.known() if one.scope.tenant == "acme"}
    assert texts == {f"The user's favourite thing{n} is Stuff{n}." for n in range(100, 300)}
