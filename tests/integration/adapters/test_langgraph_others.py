"""A graph whose messages change, and others in its conversation at the same time: other processes of
the graph, the application and its rollbacks, and what somebody saved in the memory.
"""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import uuid4

import pytest

pytest.importorskip("langgraph", reason="langgraph is not installed (the extra langgraph)")
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    RemoveMessage,
    ToolMessage,
)

from tests.support.graphs import CORRECTED, Thread, call, shown
from threadfold_client import AsyncClient, Conflict
from threadfold_client.adapters.langgraph import ThreadfoldMemory

pytestmark = pytest.mark.filterwarnings("ignore:create_react_agent")


async def test_several_processes_that_meet_a_change_at_once_follow_it_once(
    client: AsyncClient,
) -> None:
    thread = Thread(client, [call(4000)])
    await thread.say("refund 4711", "h1")
    result = ToolMessage("refunded 40", tool_call_id="c1", id="t1")
    state = {"messages": [HumanMessage("refund 4711", id="h1"), call(40), result]}
    memories = [ThreadfoldMemory(client) for _ in range(4)]
    windows = await asyncio.gather(*(m.before_model(state, thread.config) for m in memories))
    assert [shown(one["llm_input_messages"]) for one in windows] == [CORRECTED] * 4
    assert await thread.window() == CORRECTED
    state["messages"][2] = ToolMessage("refunded 39", tool_call_id="c1", id="t1")
    sent = await ThreadfoldMemory(client).before_model(state, thread.config)
    assert shown(sent["llm_input_messages"]) == [*CORRECTED[:2], "refunded 39"]


async def test_what_others_append_stays_and_a_change_before_it_is_an_error(
    client: AsyncClient,
) -> None:
    thread = Thread(client, [AIMessage(f"a{i}", id=f"ai{i}") for i in (1, 2)])
    await thread.say("h1", "h1")
    await client.append(thread.id, {"type": "message", "role": "user", "content": "from the shop"})
    await thread.say("h2", "h2")
    assert shown(thread.model.sent[-1]) == ["h1", "a1", "from the shop", "h2"]
    for _ in range(2):
        with pytest.raises(Conflict, match=r"message ai1 was changed.*others have appended.*back"):
            await thread.change(AIMessage("a1 is wrong", id="ai1"))
            await thread.say("h3", "h3")
    await thread.change(AIMessage("a1", id="ai1"), RemoveMessage(id="h3"))
    assert await thread.rollbacks() == 0


async def test_what_others_append_while_the_conversation_goes_back_stays(
    client: AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    thread = Thread(client, [AIMessage("a1", id="ai1")])
    await thread.say("h1", "h1")
    append, shop = client.append, {"type": "message", "role": "user", "content": "from the shop"}

    async def late(conversation: str, events: Any, **options: Any) -> Any:
        monkeypatch.undo()
        await append(conversation, shop, wait="applied")
        return await append(conversation, events, **options)

    state = {"messages": [HumanMessage("h1", id="h1"), AIMessage("a1 is wrong", id="ai1")]}
    monkeypatch.setattr(client, "append", late)
    memory = ThreadfoldMemory(client)
    with pytest.raises(Conflict, match="other events came"):
        await memory.before_model(state, thread.config)
    for one in (memory, ThreadfoldMemory(client)):
        with pytest.raises(Conflict, match="message ai1 was changed"):
            await one.before_model(state, thread.config)
    assert await thread.window() == ["h1", "a1", "from the shop"]


async def test_a_rollback_by_the_application_stays(client: AsyncClient) -> None:
    thread = Thread(client, [AIMessage(f"a{i}", id=f"ai{i}") for i in (1, 2, 3, 4)])
    await thread.say("h1", "h1")
    await thread.say("h2", "h2")
    await client.rollback(thread.id, "langgraph-ai1")
    for text in ("h3", "h4"):
        thread.another_process()
        await thread.say(text, text)
    assert shown(thread.model.sent[-1]) == ["h1", "a1", "h3", "a3", "h4"]


async def test_a_rollback_by_the_application_stays_after_an_edit_of_what_was_before_it(
    client: AsyncClient,
) -> None:
    thread = Thread(client, [AIMessage(f"a{i}", id=f"ai{i}") for i in range(1, 6)])
    await thread.say("h1", "h1")
    await thread.say("h2", "h2")
    await client.rollback(thread.id, "langgraph-ai1")
    await thread.say("h3", "h3")
    await thread.change(HumanMessage("h1 changed", id="h1"))
    for text in ("h4", "h5"):
        thread.another_process()
        await thread.say(text, text)
    expected = ["h1 changed", "a1", "h3", "a3", "h4", "a4", "h5"]
    assert shown(thread.model.sent[-1]) == expected


async def test_a_process_that_another_one_overtook_while_its_model_ran_shows_its_own_state(
    client: AsyncClient,
) -> None:
    thread = f"e-{uuid4().hex[:12]}"
    config: Any = {"configurable": {"thread_id": thread}}
    mine, other = ThreadfoldMemory(client), ThreadfoldMemory(client)
    said, changed = HumanMessage("refund 40", id="h1"), HumanMessage("refund 41", id="h1")
    result = ToolMessage("refunded 40", tool_call_id="c1", id="t1")
    await mine.before_model({"messages": [said]}, config)
    await other.before_model({"messages": [changed]}, config)
    await other.after_model({"messages": [changed, AIMessage("b1", id="b1")]}, config)
    await mine.after_model({"messages": [said, call(40)]}, config)
    assert shown(await mine.window(thread))[:2] == ["refund 40", "{'eur': 40}"]
    sent = await mine.before_model({"messages": [said, call(40), result]}, config)
    assert shown(sent["llm_input_messages"]) == ["refund 40", "{'eur': 40}", "refunded 40"]


async def test_a_process_that_another_one_overtakes_as_it_appends_shows_its_own_state(
    client: AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    thread = f"e-{uuid4().hex[:12]}"
    config: Any = {"configurable": {"thread_id": thread}}
    memory, append = ThreadfoldMemory(client), client.append
    said, changed = HumanMessage("refund 40", id="h1"), HumanMessage("refund 41", id="h1")
    await memory.before_model({"messages": [said]}, config)

    async def late(conversation: str, events: Any, **options: Any) -> Any:
        monkeypatch.undo()
        await ThreadfoldMemory(client).before_model({"messages": [changed]}, config)
        return await append(conversation, events, **options)

    monkeypatch.setattr(client, "append", late)
    state: list[BaseMessage] = [said, call(40)]
    await memory.after_model({"messages": state}, config)
    state.append(ToolMessage("refunded 40", tool_call_id="c1", id="t1"))
    sent = await memory.before_model({"messages": state}, config)
    assert shown(sent["llm_input_messages"]) == ["refund 40", "{'eur': 40}", "refunded 40"]


@pytest.mark.parametrize("why", ["unknown-id", "unknown-position", "condition", "fence"])
async def test_a_rejected_rollback_hides_nothing_of_the_log(client: AsyncClient, why: str) -> None:
    thread = f"e-{uuid4().hex[:12]}"
    config: Any = {"configurable": {"thread_id": thread}}
    memory = ThreadfoldMemory(client)
    said: list[BaseMessage] = [HumanMessage("h1", id="h1"), AIMessage("a1", id="ai1")]
    await memory.after_model({"messages": said}, config)
    found = (await client.history(thread, wait="applied")).events
    partition, _, offset = found[-1]["position"].partition("-")
    options: dict[str, Any] = {}
    to = "langgraph-h1"
    if why == "unknown-id":
        to = "typo"
    elif why == "unknown-position":
        to = f"{partition}-{int(offset) - 1 if int(offset) else 999_999}"
    elif why == "condition":
        options["expect"] = found[-1]["position"]
    else:
        async with client.turn(thread) as turn:
            options["fence"] = turn.fencing_token
    if why in ("condition", "fence"):
        with pytest.raises(Conflict):
            await client.rollback(thread, to, **options)
    else:
        answer = await client.rollback(thread, to)
        assert answer.events[0].status == "rejected"
    said = [HumanMessage("h1 is right", id="h1"), *said[1:], HumanMessage("h2", id="h2")]
    for one in (memory, ThreadfoldMemory(client)):
        sent = await one.before_model({"messages": said}, config)
        assert shown(sent["llm_input_messages"]) == ["h1 is right", "a1", "h2"]
    types = [event["type"] for event in (await client.history(thread, wait="applied")).events]
    assert types.count("rollback") == 2
    assert types.count("message") == 5


async def test_a_memory_that_others_saved_stays_and_a_change_before_it_is_an_error(
    client: AsyncClient,
) -> None:
    thread = Thread(client, [AIMessage(f"a{i}", id=f"ai{i}") for i in (1, 2)])
    await thread.say("h1", "h1")
    text = f"The parcel {thread.id} is late"
    saved = (await client.save_memories([{"text": text, "conversation": thread.id}]))[0]
    await thread.say("h2", "h2")
    with pytest.raises(Conflict, match=r"message ai1 was changed.*saved memories"):
        await thread.change(AIMessage("a1 is wrong", id="ai1"))
        await thread.say("h3", "h3")
    assert (await client.memory(saved["id"]))["text"] == text


async def test_an_event_of_a_type_of_ones_own_hinders_no_change(client: AsyncClient) -> None:
    thread = Thread(client, [AIMessage(f"a{i}", id=f"ai{i}") for i in (1, 2)])
    await thread.say("h1", "h1")
    await client.append(thread.id, {"type": "acme.reaction.v1", "id": "r1"})
    await thread.change(AIMessage("a1 is right", id="ai1"))
    await thread.say("h2", "h2")
    assert shown(thread.model.sent[-1]) == ["h1", "a1 is right", "h2"]
    found = (await client.history(thread.id, wait="applied")).events
    assert "acme.reaction.v1" in [event["type"] for event in found]
