"""openai-agents' session over a real gateway: what its own sessions promise, and its Runner on
top.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import pytest

from streams.settings.settings import Settings
from tests.support.parking import park
from tests.support.platform import Platform, running_platform
from tests.support.worker import until
from threadfold import AsyncClient
from threadfold_client import Invalid, Unavailable

POLICY = {
    "model_window": 4000,
    "reserve_tokens": 500,
    "working_budget": 600,
    "keep_recent_tokens": 200,
    "min_messages": 4,
    "summary_max_tokens": 120,
}


@pytest.fixture(scope="module", autouse=True)
def framework() -> None:
    """Import it here: that takes seconds, and every process of a run collects this file."""
    global Agent, Runner, Session, SessionSettings, ScriptedModel, ThreadfoldSession
    global assistant_message, function_call, function_tool, set_tracing_disabled
    pytest.importorskip("agents", reason="openai-agents is not installed (the extra openai-agents)")
    from agents import Agent, Runner, function_tool, set_tracing_disabled
    from agents.memory import Session, SessionSettings
    from agents.testing import ScriptedModel, assistant_message, function_call

    from threadfold_client.adapters.openai_agents import ThreadfoldSession


@pytest.fixture(scope="module")
async def platform(settings: Settings) -> AsyncIterator[Platform]:
    set_tracing_disabled(True)
    async with running_platform(settings, POLICY) as running:
        yield running


@pytest.fixture(params=["http", "direct"], scope="module")
async def client(platform: Platform, request: pytest.FixtureRequest) -> AsyncIterator[AsyncClient]:
    over_http = request.param == "http"
    async with (
        AsyncClient(platform.url, platform.key)
        if over_http
        else AsyncClient.direct(platform.settings, "acme")
    ) as made:
        yield made


@pytest.fixture
def session(client: AsyncClient) -> ThreadfoldSession:
    return ThreadfoldSession(f"s-{uuid4().hex[:12]}", client)


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def said(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def test_it_is_a_session_to_the_framework(session: ThreadfoldSession) -> None:
    assert isinstance(session, Session)


async def test_items_come_back_in_order_and_the_newest_by_limit(session: ThreadfoldSession) -> None:
    items = [user("1"), said("2"), user("3"), said("4")]
    await session.add_items(items[:2])
    await session.add_items(items[2:])
    assert await session.get_items() == items
    assert await session.get_items(limit=2) == items[2:]
    assert await session.get_items(limit=10) == items
    assert await session.get_items(limit=0) == []


@pytest.mark.parametrize("limit", ["x", 2.5, -1, True], ids=repr)
async def test_a_limit_that_is_no_whole_number_is_refused(
    session: ThreadfoldSession, limit: Any
) -> None:
    with pytest.raises(Invalid, match=f"^limit is {limit!r}: expected a whole number from 0 on"):
        await session.get_items(limit=limit)


async def test_what_is_no_item_is_refused_and_nothing_is_added(session: ThreadfoldSession) -> None:
    items: Any
    for items, named in (("abc", "items"), ([user("1"), None], "item 2"), ([5], "item 1")):
        with pytest.raises(Invalid, match=f"^{named}: expected "):
            await session.add_items(items)
    await session.add_items([])
    assert await session.get_items() == []


async def test_the_settings_limit_holds_unless_one_is_given(client: AsyncClient) -> None:
    session = ThreadfoldSession(
        f"s-{uuid4().hex[:12]}", client, session_settings=SessionSettings(limit=1)
    )
    await session.add_items([user("a"), said("b")])
    assert await session.get_items() == [said("b")]
    assert len(await session.get_items(limit=2)) == 2


async def test_settings_may_be_a_dictionary_and_unknown_ones_are_refused(
    client: AsyncClient,
) -> None:
    name = f"s-{uuid4().hex[:12]}"
    session = ThreadfoldSession(name, client, session_settings={"limit": 1})
    await session.add_items([user("a"), said("b")])
    assert await session.get_items() == [said("b")]
    assert session.session_settings == SessionSettings(limit=1)
    with pytest.raises(TypeError, match="limits"):
        ThreadfoldSession(name, client, session_settings={"limits": 1})
    with pytest.raises(TypeError, match="session_settings"):
        ThreadfoldSession(name, client, session_settings=5)
    for limit in (-1, 1.5):
        with pytest.raises(ValueError, match="limit"):
            ThreadfoldSession(name, client, session_settings={"limit": limit})
    changed: Any = {"limit": 2}
    session.session_settings = changed
    assert session.session_settings == SessionSettings(limit=2)
    assert len(await session.get_items()) == 2
    with pytest.raises(TypeError, match="limits"):
        session.session_settings = {"limits": 1}


async def test_outputs_of_parallel_calls_and_late_system_items_come_back_where_they_were(
    session: ThreadfoldSession,
) -> None:
    calls = [
        {"type": "function_call", "call_id": f"p{i}", "name": "look", "arguments": "{}"}
        for i in range(2)
    ]
    outputs = [
        {"type": "function_call_output", "call_id": f"p{i}", "output": str(i)} for i in (1, 0)
    ]
    late = {"type": "message", "role": "developer", "content": "now in French", "id": "msg_9"}
    items = [user("go"), *calls, *outputs, late, said("rien")]
    await session.add_items(items)
    assert await session.get_items() == items


async def test_an_output_that_nobody_gave_is_incomplete(session: ThreadfoldSession) -> None:
    call = {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"}
    await session.add_items([user("go"), call])
    *stored, invented = await session.get_items()
    assert stored == [user("go"), call]
    assert (invented["call_id"], invented["status"]) == ("c1", "incomplete")


async def test_a_new_session_is_empty_and_so_is_its_pop(session: ThreadfoldSession) -> None:
    assert await session.get_items() == []
    assert await session.pop_item() is None
    await session.clear_session()
    await session.add_items([])
    assert await session.get_items() == []


async def test_pop_takes_the_newest_item_until_none_is_left(session: ThreadfoldSession) -> None:
    items = [user("a"), said("b"), user("c")]
    await session.add_items(items)
    assert [await session.pop_item() for _ in range(4)] == [user("c"), said("b"), user("a"), None]
    assert await session.get_items() == []
    await session.add_items([user("again")])
    assert await session.get_items() == [user("again")]


async def test_of_a_parked_conversation_nothing_is_said_to_be_added_popped_or_cleared(
    session: ThreadfoldSession, platform: Platform
) -> None:
    await session.add_items([user("one"), said("two")])
    await park(platform.settings, session.session_id)

    async def is_parked() -> bool:
        try:
            await session.add_items([user("three")])
        except Unavailable as error:
            assert "is parked" in error.detail and error.unknown
            return True
        return False

    await until(is_parked)
    for change in (session.pop_item, session.clear_session):
        with pytest.raises(Unavailable, match="is parked"):
            await change()
    assert "two" in str(await session.get_items())


async def test_pop_brings_back_what_the_popped_item_left_no_room_for(
    session: ThreadfoldSession,
) -> None:
    items = [user("a"), said("b"), user("word " * 1_500)]
    await session.add_items(items)
    assert "earlier messages left out" in (await session.get_items())[0]["content"]
    assert await session.pop_item() == items[-1]
    assert await session.get_items() == items[:-1]


async def test_pop_takes_one_item_of_an_answer_of_several(session: ThreadfoldSession) -> None:
    reasoning = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "AA=="}
    spoken = assistant_message("done", item_id="m1").model_dump(exclude_unset=True)
    await session.add_items([user("q"), reasoning, spoken])
    assert await session.pop_item() == spoken
    assert await session.get_items() == [user("q"), reasoning]
    assert await session.pop_item() == reasoning
    assert await session.get_items() == [user("q")]


async def test_a_refused_item_is_named_by_its_number_and_earlier_lists_stay(
    session: ThreadfoldSession,
) -> None:
    wrong = {"role": "king", "content": "x"}
    with pytest.raises(Invalid, match=r"^item 2: field role: "):
        await session.add_items([user("a"), wrong])
    assert await session.get_items() == []
    with pytest.raises(Invalid, match=r"^item 601: field role: ") as raised:
        await session.add_items([*(user(str(i)) for i in range(600)), wrong])
    assert raised.value.detail == str(raised.value)
    assert (await session.get_items())[-1] == user("498")


async def test_an_item_between_outputs_of_parallel_calls_comes_back_after_them(
    session: ThreadfoldSession,
) -> None:
    calls = [
        {"type": "function_call", "call_id": f"b{i}", "name": "look", "arguments": "{}"}
        for i in range(2)
    ]
    first, second = (
        {"type": "function_call_output", "call_id": f"b{i}", "output": str(i)} for i in range(2)
    )
    await session.add_items([user("go"), *calls, first, user("wait"), second])
    assert await session.get_items() == [user("go"), *calls, first, second, user("wait")]


async def test_pop_gives_a_late_system_item_as_it_was_added(session: ThreadfoldSession) -> None:
    late = {"type": "message", "role": "system", "content": "late", "status": "completed"}
    await session.add_items([user("q"), late])
    assert (await session.get_items())[-1] == late
    assert await session.pop_item() == late
    assert await session.get_items() == [user("q")]


async def test_a_cleared_session_is_empty_also_for_others_and_begins_anew(
    session: ThreadfoldSession, client: AsyncClient
) -> None:
    await session.add_items([user("a"), said("b")])
    other = ThreadfoldSession(session.session_id, client)
    assert len(await other.get_items()) == 2
    await other.clear_session()
    assert await session.get_items() == []
    await session.add_items([user("new")])
    assert await other.get_items() == [user("new")]


async def test_sessions_of_other_names_do_not_meet(
    client: AsyncClient, session: ThreadfoldSession
) -> None:
    other = ThreadfoldSession(f"{session.session_id}.2", client)
    await asyncio.gather(session.add_items([user("one")]), other.add_items([user("two")]))
    assert await session.get_items() == [user("one")]
    assert await other.get_items() == [user("two")]


async def test_many_tasks_append_and_nothing_is_lost_or_mixed(session: ThreadfoldSession) -> None:
    await asyncio.gather(
        *(session.add_items([user(f"{i} asks"), said(f"{i} answers")]) for i in range(20))
    )
    items = await session.get_items()
    texts = [item["content"] for item in items]
    assert sorted(texts[::2]) == sorted(f"{i} asks" for i in range(20))
    assert all(texts[i].split()[0] == texts[i + 1].split()[0] for i in range(0, 40, 2))


async def test_unusual_text_comes_back_as_it_was(session: ThreadfoldSession) -> None:
    items = [
        user("O'Reilly; DROP TABLE x; --"),
        said('{"json": "in \\"text\\""}'),
        user("数据 🚀 ñ \u202e \n\t"),
    ]
    await session.add_items(items)
    assert await session.get_items() == items


async def test_calls_and_results_come_back_as_pairs(session: ThreadfoldSession) -> None:
    call = {
        "type": "function_call",
        "call_id": "c1",
        "name": "look",
        "arguments": "{}",
        "id": "fc_1",
        "status": "completed",
    }
    items = [
        user("go"),
        call,
        {"type": "function_call_output", "call_id": "c1", "output": "7"},
        said("It is 7."),
    ]
    await session.add_items(items)
    assert await session.get_items() == items


async def test_the_runner_remembers_over_turns_and_over_processes(
    session: ThreadfoldSession, client: AsyncClient
) -> None:
    model = ScriptedModel(
        [[assistant_message("San Francisco.")], [assistant_message("California.")]]
    )
    agent = Agent(name="guide", model=model)
    await Runner.run(agent, "Which city has the Golden Gate Bridge?", session=session)
    await Runner.run(agent, "Which state?", session=ThreadfoldSession(session.session_id, client))
    assert model.last_call is not None
    sent = model.last_call.input
    assert [item["role"] for item in sent] == ["user", "assistant", "user"]
    assert sent[1]["content"][0]["text"] == "San Francisco."
    assert len(await session.get_items()) == 4


async def test_the_runner_runs_tools_with_its_session(session: ThreadfoldSession) -> None:
    @function_tool
    def population(city: str) -> str:
        return f"{city}: 808,988"

    asks = function_call("population", {"city": "San Francisco"}, call_id="c9")
    model = ScriptedModel(
        [[asks], [assistant_message("About 809 thousand.")], [assistant_message("Yes.")]]
    )
    agent = Agent(name="guide", model=model, tools=[population])
    await Runner.run(agent, "How many people?", session=session)
    items = await session.get_items()
    assert [item.get("type", item.get("role")) for item in items] == [
        "user",
        "function_call",
        "function_call_output",
        "message",
    ]
    assert items[2]["output"] == "San Francisco: 808,988"
    await Runner.run(agent, "Sure?", session=session)
    assert [item.get("call_id") for item in model.last_call.input][:3] == [None, "c9", "c9"]
    model.assert_complete()


async def test_the_runner_streams_with_its_session(session: ThreadfoldSession) -> None:
    agent = Agent(name="guide", model=ScriptedModel([[assistant_message("Streamed.")]]))
    result = Runner.run_streamed(agent, "Go", session=session)
    async for _ in result.stream_events():
        pass
    assert [item["role"] for item in await session.get_items()] == ["user", "assistant"]


async def test_a_long_session_stays_bounded_and_keeps_a_summary(
    session: ThreadfoldSession, client: AsyncClient
) -> None:
    for i in range(30):
        await session.add_items(
            [
                user(f"Question {i}: " + "what about the harvest? " * 8),
                said(f"Answer {i}: " + "it grows well. " * 8),
            ]
        )

    async def summarised() -> bool:
        return (await client.context(session.session_id)).summary is not None

    await until(summarised)
    items = await session.get_items()
    assert len(items) < 60
    assert any(
        isinstance(item["content"], str) and item["content"].startswith("[Summary")
        for item in items
    )
    assert items[-1] == said("Answer 29: " + "it grows well. " * 8)
    popped = await session.pop_item()
    assert popped == items[-1]
