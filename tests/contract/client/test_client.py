"""One suite for the client in all its forms: over HTTP and straight to Kafka and Redis,
asynchronous and synchronous.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import pytest

from streams.settings.settings import Settings
from tests.support.clients import FORMS, client_of
from tests.support.platform import Platform, running_platform
from tests.support.worker import until
from threadfold_client import (
    Client,
    ClientClosed,
    ClientError,
    Conflict,
    Gone,
    Invalid,
    NotFound,
    TooLarge,
)


@pytest.fixture(scope="module")
async def platform(settings: Settings) -> AsyncIterator[Platform]:
    async with running_platform(settings, {"min_messages": 4}) as running:
        yield running


@pytest.fixture(scope="module", params=FORMS)
async def client(platform: Platform, request: pytest.FixtureRequest) -> AsyncIterator[Any]:
    made, close = client_of(request.param, *platform, "acme")
    yield made
    await close()


@pytest.fixture
def name() -> str:
    return f"c-{uuid4().hex[:12]}"


def say(text: str, role: str = "user") -> dict[str, Any]:
    return {"type": "message", "role": role, "content": text}


async def test_what_is_appended_is_in_the_context_after_its_position(
    client: Any, name: str
) -> None:
    answer = await client.append(
        name, [say("You help.", "system"), say("Grüße 🌍"), say("hello", "assistant")]
    )
    assert [event.position for event in answer.events][-1] == answer.position
    context = await client.context(name, after=answer.position)
    assert [m["content"] for m in context.messages] == ["You help.", "Grüße 🌍", "hello"]
    assert (context.position, context.count, context.state) == (answer.position, 3, "active")
    assert 0 < context.tokens <= context.ceiling
    assert context.render_digest.encode() in context.raw


async def test_one_event_alone_is_answered_with_its_status_when_waited_for(
    client: Any, name: str
) -> None:
    (event,) = (await client.append(name, say("one"), wait="applied")).events
    assert event.status == "applied"
    (again,) = (await client.append(name, {"id": event.id, **say("one")}, wait="applied")).events
    assert (again.status, again.position) == ("duplicate", event.position)
    assert (await client.context(name)).count == 1


async def test_the_callers_events_are_not_changed(client: Any, name: str) -> None:
    event = say("mine")
    await client.append(name, event)
    assert event == say("mine")


async def test_an_idempotency_key_makes_two_calls_one(client: Any, name: str) -> None:
    first = await client.append(name, [say("a"), say("b")], idempotency_key="once", wait="applied")
    second = await client.append(name, [say("a"), say("b")], idempotency_key="once", wait="applied")
    assert [e.id for e in first.events] == [e.id for e in second.events]
    assert {e.status for e in second.events} == {"duplicate"}


async def test_messages_of_both_providers_are_taken(client: Any, name: str) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    await client.append_messages(
        name, [{"role": "user", "content": "look"}, {"role": "assistant", "tool_calls": [call]}]
    )
    result = {"type": "tool_result", "tool_use_id": "c1", "content": "found"}
    answer = await client.append_messages(
        name, {"role": "user", "content": [result, {"type": "text", "text": "and?"}]}, "anthropic"
    )
    assert len(answer.events) == 2
    context = await client.context(name, format="anthropic", after=answer.position)
    assert [m["role"] for m in context.messages] == ["user", "assistant", "user"]
    assert context.messages[2]["content"][0]["tool_use_id"] == "c1"


async def test_events_of_several_conversations_go_in_one_call(client: Any, name: str) -> None:
    events = [{"conversation": f"{name}.{i % 2}", **say(str(i))} for i in range(6)]
    answer = await client.append_many(events)
    assert [e.conversation for e in answer.events] == [f"{name}.{i % 2}" for i in range(6)]
    context = await client.context(f"{name}.1", after=answer.positions[f"{name}.1"])
    assert [m["content"] for m in context.messages] == ["1", "3", "5"]


async def test_history_comes_newest_first_by_pages_and_whole(client: Any, name: str) -> None:
    answer = await client.append(name, [say(str(i)) for i in range(25)], wait="applied")
    page = await client.history(name, limit=10)
    assert [e["content"] for e in page.events] == [str(i) for i in range(24, 14, -1)]
    older = await client.history(name, before=page.next_before, limit=10)
    assert older.events[0]["content"] == "14"
    assert [e["id"] async for e in client.iter_history(name, page=7)] == [
        e.id for e in reversed(answer.events)
    ]


@pytest.mark.parametrize("types", ["message", ["message"], [], ()], ids=repr)
async def test_one_type_of_history_may_be_a_text_and_no_type_is_no_filter(
    client: Any, name: str, types: Any
) -> None:
    await client.append(
        name, [say("a"), {"type": "session.closed", "reason": "explicit"}], wait="applied"
    )
    found = [event["type"] for event in (await client.history(name, types=types)).events]
    assert found == (["message"] if types else ["session.closed", "message"])
    assert [event["type"] async for event in client.iter_history(name, types=types)] == found


async def test_one_event_is_read_whole_or_by_a_page_of_its_text(client: Any, name: str) -> None:
    answer = await client.append(name, say("0123456789"), wait="applied")
    assert (await client.event(name, answer.position))["content"] == "0123456789"
    assert (await client.event(name, answer.position, offset=3, limit=4))["content"] == "3456"


async def test_a_rollback_and_a_closed_session_are_reported(client: Any, name: str) -> None:
    answer = await client.append(name, [say("stays"), say("goes")], wait="applied")
    (event,) = (await client.rollback(name, answer.events[0].position)).events
    assert event.status == "applied"
    assert [m["content"] for m in (await client.context(name)).messages] == ["stays"]
    closed = await client.close_session(name)
    assert (await client.context(name, after=closed.position)).state == "closed"


async def test_a_model_call_is_recorded_for_what_its_context_was(client: Any, name: str) -> None:
    answer = await client.append(name, say("hi"), wait="applied")
    context = await client.context(name, after=answer.position, max_tokens=5000)
    render = await client.record_call(
        name, context, "small-1", reported_usage={"prompt_tokens": 9}, latency_ms=12.5
    )
    assert isinstance(render, str)


async def test_a_conversation_nobody_knows_is_not_found(client: Any, name: str) -> None:
    with pytest.raises(NotFound, match=name) as caught:
        await client.context(name)
    assert (caught.value.status, caught.value.type) == (404, "unknown-conversation")


@pytest.mark.parametrize(
    ("events", "kind", "words"),
    [
        (
            [say("good"), {"type": "message", "role": "king", "content": "x"}],
            Invalid,
            "event 2: field role",
        ),
        ([], Invalid, "the list is empty"),
        ([say(str(i)) for i in range(501)], Invalid, "at most 500"),
        (
            [{"type": "tool.result", "tool_call_id": "c", "content": "x" * (9 << 20)}],
            TooLarge,
            "event 1",
        ),
        (["text"], Invalid, "expected an object"),
    ],
)
async def test_what_is_wrong_is_named_and_nothing_of_the_list_lands(
    client: Any, name: str, events: list[Any], kind: type[ClientError], words: str
) -> None:
    with pytest.raises(kind, match=words):
        await client.append(name, events)
    with pytest.raises(NotFound):
        await client.context(name)


@pytest.mark.parametrize("conversation", ["", "a/b", "..", "x" * 129, "a?b=c", "ü"])
async def test_a_name_that_is_none_never_reaches_a_route(client: Any, conversation: str) -> None:
    with pytest.raises(Invalid):
        await client.append(conversation, say("x"))


async def test_parameters_out_of_bounds_are_invalid_in_every_form(client: Any, name: str) -> None:
    await client.append(name, say("x"), wait="applied")
    for work in (
        client.history(name, limit=0),
        client.context(name, max_tokens=0),
        client.context(name, after="not-a-position"),
    ):
        with pytest.raises(Invalid):
            await work


@pytest.mark.parametrize("part", ["verbs", "conversations"])
async def test_a_text_in_the_place_of_a_list_mints_no_token(client: Any, part: str) -> None:
    wanted = {"verbs": ["read"], part: "c1"}
    with pytest.raises(Invalid, match=f"^{part} is a text: expected a list$"):
        await client.mint_token("u", **wanted)


async def test_many_threads_and_tasks_share_one_client(client: Any, name: str) -> None:
    answers = await asyncio.gather(*(client.append(name, say(str(i))) for i in range(40)))
    assert len({answer.position for answer in answers}) == 40
    last = max(answers, key=lambda answer: int(answer.position.rpartition("-")[2]))
    context = await client.context(name, after=last.position)
    assert {m["content"] for m in context.messages} == {str(i) for i in range(40)}


async def test_an_expected_position_that_is_passed_is_a_conflict(client: Any, name: str) -> None:
    first = await client.append(name, say("one"), wait="applied")
    await client.append(name, say("two"), wait="applied", expect=first.position)
    with pytest.raises(Conflict) as caught:
        await client.append(name, say("late"), wait="applied", expect=first.position)
    assert not caught.value.unknown
    assert [m["content"] for m in (await client.context(name)).messages] == ["one", "two"]


async def test_only_the_first_append_finds_a_conversation_new(client: Any, name: str) -> None:
    await client.append(name, say("one"), wait="applied", only_if_new=True)
    with pytest.raises(Conflict):
        await client.append_messages(name, {"role": "user", "content": "two"}, only_if_new=True)
    with pytest.raises(Invalid, match="expect or only_if_new"):
        await client.append(name, say("three"), expect="0-1", only_if_new=True)
    assert [m["content"] for m in (await client.context(name)).messages] == ["one"]


async def test_a_turn_tells_how_it_stands(client: Any, name: str) -> None:
    async with client.turn(name, turn_id="first") as turn:
        assert await turn.check() == "active"
        stands = await client.turns(name)
        assert stands.live.turn_id == "first" and stands.waiting == []
        assert stands.status_of("second") == "over"
    assert await turn.check() == "over"


async def test_a_turn_holds_the_conversation_until_it_is_left(client: Any, name: str) -> None:
    async with client.turn(name, seconds=30) as turn:
        assert isinstance(turn.fencing_token, int)
        await client.append(name, say("in the turn"), wait="applied", fence=turn.fencing_token)
        with pytest.raises(Conflict):
            async with client.turn(name):
                raise AssertionError("two turns at once")
        await turn.renew()
    with pytest.raises(Conflict):
        await client.append(name, say("after it"), wait="applied", fence=turn.fencing_token)


async def test_a_queued_turn_begins_when_the_one_before_it_ends(client: Any, name: str) -> None:
    order: list[str] = []

    async def run(label: str) -> None:
        async with client.turn(name, policy="queue", seconds=30, wait=20.0):
            order.append(f"{label} in")
            await client.append(name, say(label), wait="applied")
            order.append(f"{label} out")

    await asyncio.gather(*(run(label) for label in "abc"))
    assert [entry.partition(" ")[2] for entry in order] == ["in", "out"] * 3
    assert all(order[i][0] == order[i + 1][0] for i in range(0, 6, 2))


@pytest.mark.parametrize("form", ["http-async", "direct-async"])
async def test_a_turn_whose_entering_is_cancelled_is_not_in_the_queue(
    platform: Platform, form: str, name: str
) -> None:
    client, close = client_of(form, *platform, "acme")
    async with client.turn(name, seconds=60):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(client.turn(name, policy="queue", wait=30).begin(), 0.5)
        assert (await client.turns(name)).waiting == []
    assert (await client.turns(name)).live is None
    await close()


async def test_lists_name_conversations_suspensions_and_summaries(client: Any, name: str) -> None:
    question = {
        "type": "suspension",
        "suspension_id": f"q-{name}",
        "kind": "approval",
        "prompt": "pay?",
    }
    opened = {"type": "conversation.opened", "user": f"of-{name}", "channel": "web"}
    said = [opened, *(say(str(i) * 40) for i in range(12)), question]
    position = (await client.append(name, said)).position
    page = await client.history(name, types=["suspension", "conversation.opened"], after=position)
    assert [event["type"] for event in page.events] == ["suspension", "conversation.opened"]
    assert name in [item["conversation"] async for item in client.conversations(limit=20)]
    (mine,) = [item async for item in client.conversations(user=f"of-{name}", channel="web")]
    assert (mine["conversation"], mine["state"]) == (name, "awaiting_approval")
    assert f"q-{name}" in [item["suspension_id"] async for item in client.suspensions(limit=20)]
    await client.compact(name)

    async def summarised() -> bool:
        return [item async for item in client.summaries_of(name)] != []

    await until(summarised)


@pytest.mark.parametrize("form", FORMS)
async def test_a_closed_client_says_so_and_closes_twice(platform: Platform, form: str) -> None:
    made, close = client_of(form, *platform, "acme")
    await made.append("closing", say("x"))
    await close()
    await close()
    with pytest.raises(ClientClosed):
        await made.append("closing", say("x"))


async def test_a_key_nobody_gave_out_is_refused(platform: Platform) -> None:
    made, close = client_of("http-async", platform.url, "wrong", platform.settings, "acme")
    with pytest.raises(ClientError) as caught:
        await made.context("any")
    assert caught.value.status == 401
    await close()


async def test_the_synchronous_client_works_beside_a_running_loop_and_ends_its_thread(
    platform: Platform,
) -> None:
    before = set(threading.enumerate())
    with Client(platform.url, platform.key) as client:
        (thread,) = set(threading.enumerate()) - before
        answer = await asyncio.to_thread(client.append, "beside", say("x"))
        assert answer.position
    assert not thread.is_alive()


def test_gone_is_what_an_erased_conversation_raises() -> None:
    from threadfold_client.errors import of_response

    body = (
        b'{"type":"urn:threadfold:problem:erased","title":"Erased","status":410,"detail":"conversation'
        b' x was erased"}'
    )
    error = of_response(410, body, None)
    assert isinstance(error, Gone)
    assert (error.type, str(error), error.unknown) == ("erased", "conversation x was erased", False)
