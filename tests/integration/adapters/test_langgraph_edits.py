"""What a graph's state says is what its model is sent, also where the graph changed or removed a
message, or went on from an earlier checkpoint: over a real gateway, with LangGraph's own graphs.
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
    SystemMessage,
    ToolMessage,
)
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph.message import REMOVE_ALL_MESSAGES

from tests.support.graphs import CORRECTED, Thread, call, shown
from tests.support.worker import until
from threadfold_client import AsyncClient, Conflict, Unavailable
from threadfold_client.adapters.langchain_messages import to_event
from threadfold_client.adapters.langgraph import ThreadfoldMemory

pytestmark = pytest.mark.filterwarnings("ignore:create_react_agent")


@pytest.mark.parametrize("trim", [False, True], ids=["state-kept", "state-trimmed"])
@pytest.mark.parametrize("another", [False, True], ids=["same-process", "another-process"])
async def test_the_model_is_sent_a_call_as_a_person_corrected_it(
    client: AsyncClient, another: bool, trim: bool
) -> None:
    script = [call(4000), AIMessage("done", id="ai2"), AIMessage("bye", id="ai3")]
    thread = Thread(client, script, trim_state=trim)
    await thread.say("refund 4711")
    if another:
        thread.another_process()
    await thread.change(call(40))
    await thread.go_on()
    assert shown(thread.model.sent[-1]) == CORRECTED
    if another:
        thread.another_process()
    await thread.say("thanks")
    assert shown(thread.model.sent[-1]) == [*CORRECTED, "done", "thanks"]
    assert await thread.window() == [*CORRECTED, "done", "thanks", "bye"]


async def test_a_message_that_was_changed_and_changed_back_is_shown_as_it_is(
    client: AsyncClient,
) -> None:
    thread = Thread(client, [call(4000)])
    await thread.say("refund 4711")
    memories = [ThreadfoldMemory(client), ThreadfoldMemory(client)]
    human = (await thread.graph.aget_state(thread.config)).values["messages"][0]
    for eur, memory in zip((40, 4000, 40, 4000), memories * 2, strict=True):
        state = {"messages": [human, call(eur)]}
        for _ in range(2):
            sent = await memory.before_model(state, thread.config)
            assert shown(sent["llm_input_messages"])[:2] == ["refund 4711", f"{{'eur': {eur}}}"]
    assert await thread.rollbacks() == 4


@pytest.mark.parametrize("another", [False, True], ids=["same-process", "another-process"])
async def test_a_changed_first_message_is_shown_as_it_is(
    client: AsyncClient, another: bool
) -> None:
    thread = Thread(client, [AIMessage("a1", id="ai1"), AIMessage("a2", id="ai2")])
    await thread.say("my PIN is 1234", "h1")
    if another:
        thread.another_process()
    await thread.change(HumanMessage("my PIN is secret", id="h1"))
    await thread.say("and?", "h2")
    assert shown(thread.model.sent[-1]) == ["my PIN is secret", "a1", "and?"]


@pytest.mark.parametrize("another", [False, True], ids=["same-process", "another-process"])
@pytest.mark.parametrize(
    ("removed", "rest"),
    [
        (["h1", "ai1"], ["h2", "a2"]),
        (["h2"], ["h1", "a1", "a2"]),
        (["h2", "ai2"], ["h1", "a1"]),
        (["h1", "ai2"], ["a1", "h2"]),
    ],
    ids=["first", "middle", "last", "several"],
)
async def test_removed_messages_are_not_shown(
    client: AsyncClient, removed: list[str], rest: list[str], another: bool
) -> None:
    thread = Thread(client, [AIMessage(f"a{i}", id=f"ai{i}") for i in (1, 2, 3)])
    await thread.say("h1", "h1")
    await thread.say("h2", "h2")
    if another:
        thread.another_process()
    await thread.change(*(RemoveMessage(id=id_) for id_ in removed))
    await thread.say("h3", "h3")
    assert shown(thread.model.sent[-1]) == [*rest, "h3"]
    assert await thread.window() == [*rest, "h3", "a3"]


async def test_a_state_that_was_made_anew_from_some_of_its_messages_is_shown_so(
    client: AsyncClient,
) -> None:
    thread = Thread(client, [AIMessage(f"a{i}", id=f"ai{i}") for i in (1, 2)])
    await thread.say("h1", "h1")
    values = (await thread.graph.aget_state(thread.config)).values["messages"]
    note = SystemMessage("they said h1", id="s1")
    await thread.change(RemoveMessage(id=REMOVE_ALL_MESSAGES), note, values[-1])
    await thread.say("h2", "h2")
    assert shown(thread.model.sent[-1]) == ["they said h1", "a1", "h2"]


async def test_a_fork_goes_on_from_its_checkpoint_and_so_does_the_branch_it_left(
    client: AsyncClient,
) -> None:
    thread = Thread(client, [AIMessage(f"a{i}", id=f"ai{i}") for i in (1, 2, 3, 4)])
    await thread.say("h1", "h1")
    await thread.say("h2", "h2")
    left = (await thread.graph.aget_state(thread.config)).config
    states = [one async for one in thread.graph.aget_state_history(thread.config)]
    first = next(one for one in states if len(one.values["messages"]) == 2 and not one.next)
    await thread.graph.ainvoke({"messages": [HumanMessage("other", id="h3")]}, first.config)
    assert shown(thread.model.sent[-1]) == ["h1", "a1", "other"]
    await thread.graph.ainvoke({"messages": [HumanMessage("h4", id="h4")]}, left)
    assert shown(thread.model.sent[-1]) == ["h1", "a1", "h2", "a2", "h4"]


async def test_a_changed_message_that_is_summarised_is_shown_as_it_is(client: AsyncClient) -> None:
    count = 14
    thread = Thread(client, [AIMessage(f"a{i} " + "barley " * 40) for i in range(count)])
    for i in range(count - 1):
        await thread.say(f"h{i}", f"h{i}")

    async def summarised() -> bool:
        return (await client.context(thread.id)).summary is not None

    await until(summarised)
    await thread.change(HumanMessage("h1 was wrong", id="h1"))
    await thread.say("last", "last")
    history = (await client.history(thread.id, limit=500, wait="applied")).events
    (at,) = (i for i, event in enumerate(history) if event["type"] == "rollback")
    again = [event for event in history[:at] if event["type"] == "message"]
    assert len(again) == 2 * count - 2
    assert "h1 was wrong" in str(again[-1])


async def test_the_same_state_again_changes_nothing_in_any_process(client: AsyncClient) -> None:
    thread = f"e-{uuid4().hex[:12]}"
    config: Any = {"configurable": {"thread_id": thread}}
    picture = [
        {"type": "text", "text": ""},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}},
        {"type": "audio", "data": "x"},
    ]
    state = {
        "messages": [
            SystemMessage("Be brief.", id="s1"),
            HumanMessage(picture, id="h1", name="ann b"),
            AIMessage(
                [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "Look: "}],
                id="x" * 300,
                tool_calls=[
                    {"name": "look.at", "args": {"é": [1.5, None]}, "id": "call 1"},
                    {"name": "look.at", "args": {}, "id": "call 2"},
                ],
                usage_metadata={"input_tokens": 1, "output_tokens": 2, "total_tokens": 3},
            ),
            ToolMessage("b " * 60_000, tool_call_id="call 2", id="t2", status="error"),
            ToolMessage(picture[:2], tool_call_id="call 1", id="t1", name="look.at"),
            AIMessage("", id="ai2"),
        ]
    }
    memory = ThreadfoldMemory(client)
    for one in (memory, ThreadfoldMemory(client), memory, ThreadfoldMemory(client)):
        await one.after_model(state, config)
        await one.before_model(state, config)
    found = (await client.history(thread, limit=500, wait="applied")).events
    types = [event["type"] for event in found if event["type"] != "summary"]
    assert sorted(types) == sorted(
        ["threadfold-client.langgraph.v1", *["message"] * 4, *["tool.result"] * 2]
    )


async def test_a_thread_that_an_earlier_release_began_follows_changes_and_says_where_it_cannot(
    client: AsyncClient,
) -> None:
    thread = f"e-{uuid4().hex[:12]}"
    config: Any = {"configurable": {"thread_id": thread}}
    said = [HumanMessage("h1", id="h1"), AIMessage("a1", id="ai1"), HumanMessage("h2", id="h2")]
    await client.append(thread, [{**to_event(m), "id": f"langgraph-{m.id}"} for m in said])
    memory = ThreadfoldMemory(client)
    sent = await memory.before_model({"messages": said}, config)
    assert shown(sent["llm_input_messages"]) == ["h1", "a1", "h2"]
    said[1] = AIMessage("better", id="ai1")
    sent = await memory.before_model({"messages": said}, config)
    assert shown(sent["llm_input_messages"]) == ["h1", "better", "h2"]
    said[0] = HumanMessage("changed", id="h1")
    with pytest.raises(Conflict, match=r"message h1 was changed.*no event before it"):
        await memory.before_model({"messages": said}, config)


async def test_a_state_that_has_only_what_is_new_keeps_the_conversation(
    client: AsyncClient,
) -> None:
    thread = Thread(client, [AIMessage(f"a{i}", id=f"ai{i}") for i in (1, 2, 3)])
    for i in (1, 2, 3):
        thread.saver = InMemorySaver()  # nothing of the state is left
        thread.another_process()
        await thread.say(f"h{i}", f"h{i}")
    assert shown(thread.model.sent[-1]) == ["h1", "a1", "h2", "a2", "h3"]
    assert await thread.rollbacks() == 0


async def test_a_graphs_own_node_may_append_parts_again_and_changes_are_followed(
    client: AsyncClient,
) -> None:
    thread = f"e-{uuid4().hex[:12]}"
    first, second = HumanMessage("m1", id="m1"), AIMessage("m2", id="m2")
    memory = ThreadfoldMemory(client)
    for one in (memory, ThreadfoldMemory(client), memory):
        await one.append(thread, [first])
        await one.append(thread, [second])
        await one.append(thread, [first])
    assert shown(await memory.window(thread)) == ["m1", "m2"]
    await memory.append(thread, [first, AIMessage("m2 is right", id="m2")])
    assert shown(await memory.window(thread)) == ["m1", "m2 is right"]
    with pytest.raises(Conflict, match=r"message m1 was changed.*the state lacks"):
        await memory.append(thread, [HumanMessage("m1 is right", id="m1")])


async def test_a_changed_result_in_a_trimmed_state_is_an_error(client: AsyncClient) -> None:
    script = [call(40), AIMessage("done", id="ai2"), AIMessage("never", id="ai3")]
    thread = Thread(client, script, trim_state=True)
    await thread.say("refund 4711")
    await thread.go_on()
    values = (await thread.graph.aget_state(thread.config)).values["messages"]
    (result,) = (m for m in values if isinstance(m, ToolMessage))
    await thread.change(ToolMessage("refunded 4", tool_call_id="c1", id=result.id))
    with pytest.raises(Conflict, match=r"message threadfold-window-2.*trim_state"):
        await thread.say("thanks")


async def test_a_trimmed_state_with_calls_that_the_window_renames_changes_nothing(
    client: AsyncClient,
) -> None:
    thread = f"e-{uuid4().hex[:12]}"
    config: Any = {"configurable": {"thread_id": thread}}
    calls = [{"name": "look.at", "args": {"q": 1}, "id": "call 1"}]
    state: list[BaseMessage] = [
        HumanMessage("look", id="h1"),
        AIMessage("", id="ai1", tool_calls=calls),
        ToolMessage("a tree", tool_call_id="call 1", id="t1"),
    ]
    same = ThreadfoldMemory(client, trim_state=True)
    for n in range(4):
        memory = same if n % 2 else ThreadfoldMemory(client, trim_state=True)
        changes = await memory.before_model({"messages": state}, config)
        state = [*changes["messages"][1:], AIMessage(f"a{n}", id=f"a{n}")]
        await memory.after_model({"messages": state}, config)
        state.append(HumanMessage(f"h{n}", id=f"n{n}"))
    assert shown(state) == [
        "look",
        "{'q': 1}",
        "a tree",
        "a0",
        "h0",
        "a1",
        "h1",
        "a2",
        "h2",
        "a3",
        "h3",
    ]
    found = await client.history(thread, limit=500, wait="applied")
    assert "rollback" not in [event["type"] for event in found.events]


@pytest.mark.parametrize("trim", [False, True], ids=["state-kept", "state-trimmed"])
@pytest.mark.parametrize("another", [False, True], ids=["same-process", "another-process"])
async def test_the_result_of_a_call_whose_id_was_changed_is_shown(
    client: AsyncClient, another: bool, trim: bool
) -> None:
    thread = Thread(client, [call(40), AIMessage("done", id="ai2")], trim_state=trim)
    await thread.say("refund 4711")
    if another:
        thread.another_process()
    renamed = call(40)
    renamed.tool_calls[0]["id"] = "c2"
    await thread.change(renamed)
    await thread.go_on()
    assert shown(thread.model.sent[-1]) == CORRECTED
    assert [m.tool_call_id for m in thread.model.sent[-1] if isinstance(m, ToolMessage)] == ["c2"]
    assert await thread.rollbacks() == 1


@pytest.mark.parametrize("trim", [False, True], ids=["state-kept", "state-trimmed"])
async def test_a_call_of_another_tool_is_shown_as_a_person_corrected_it(
    client: AsyncClient, trim: bool
) -> None:
    thread = f"e-{uuid4().hex[:12]}"
    config: Any = {"configurable": {"thread_id": thread}}
    memory = ThreadfoldMemory(client, trim_state=trim)
    human, result = HumanMessage("refund", id="h1"), ToolMessage("x", tool_call_id="c1", id="t1")
    await memory.after_model({"messages": [human, call(40)]}, config)
    other = call(40)
    other.tool_calls[0]["name"] = "cancel.all"
    for one in (memory, ThreadfoldMemory(client, trim_state=trim)):
        await one.before_model({"messages": [human, other, result]}, config)
        (said,) = (m for m in await one.window(thread) if isinstance(m, AIMessage))
        assert said.tool_calls[0]["name"] == "cancel_all"
    types = [event["type"] for event in (await client.history(thread, wait="applied")).events]
    assert types.count("rollback") == 1


async def test_a_trimmed_state_with_long_and_repeated_ids_of_calls_changes_nothing(
    client: AsyncClient,
) -> None:
    thread = f"e-{uuid4().hex[:12]}"
    config: Any = {"configurable": {"thread_id": thread}}
    ids = ["x" * 60, "c-1", "c-1", "y-1-" + "2" * 50]
    calls = [
        {"name": "look at " + "z" * 70, "args": {"n": n}, "id": id_} for n, id_ in enumerate(ids)
    ]
    state: list[BaseMessage] = [
        HumanMessage("look", id="h1"),
        AIMessage("", id="ai1", tool_calls=calls),
        *(ToolMessage("seen", tool_call_id=id_, id=f"t{n}") for n, id_ in enumerate(ids)),
    ]
    for n in range(3):
        memory = ThreadfoldMemory(client, trim_state=True)
        state = (await memory.before_model({"messages": state}, config))["messages"][1:]
        state += [AIMessage(f"a{n}", id=f"a{n}"), HumanMessage(f"h{n}", id=f"n{n}")]
    found = await client.history(thread, limit=500, wait="applied")
    assert "rollback" not in [event["type"] for event in found.events]


async def test_a_cleared_chat_shows_nothing_of_before_and_a_fork_to_before_it_does(
    client: AsyncClient,
) -> None:
    thread = Thread(client, [AIMessage(f"a{i}", id=f"ai{i}") for i in (1, 2, 3, 4, 5)])
    await thread.say("secret", "h1")
    before = (await thread.graph.aget_state(thread.config)).config
    fresh = {"messages": [RemoveMessage(id=REMOVE_ALL_MESSAGES), HumanMessage("fresh", id="h2")]}
    await thread.graph.ainvoke(fresh, thread.config)
    assert shown(thread.model.sent[-1]) == ["fresh"]
    fork = {"messages": [HumanMessage("fork", id="h3")]}
    await thread.graph.ainvoke(fork, before)
    assert shown(thread.model.sent[-1]) == ["secret", "a1", "fork"]
    thread.another_process()
    await thread.say("and?", "h4")
    assert shown(thread.model.sent[-1]) == ["secret", "a1", "fork", "a3", "and?"]
    empty = {"messages": [RemoveMessage(id=REMOVE_ALL_MESSAGES)]}
    await thread.graph.ainvoke(empty, thread.config)
    assert shown(thread.model.sent[-1]) == []


async def test_a_graph_without_a_checkpointer_keeps_its_conversation_in_one_process(
    client: AsyncClient,
) -> None:
    thread = Thread(client, [AIMessage(f"a{i}", id=f"ai{i}") for i in (1, 2)])
    thread.graph.checkpointer = None
    await thread.say("h1", "h1")
    await thread.say("h2", "h2")
    assert shown(thread.model.sent[-1]) == ["h1", "a1", "h2"]


@pytest.mark.parametrize(
    "error", [Unavailable("no answer", unknown=True), asyncio.CancelledError()], ids=repr
)
@pytest.mark.parametrize("removed", [True, False], ids=["removed", "edited"])
async def test_what_was_appended_without_an_answer_is_not_shown_once_the_state_lacks_it(
    client: AsyncClient, error: BaseException, removed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    thread, append = (
        Thread(client, [AIMessage("a1", id="ai1"), AIMessage("a2", id="ai2")]),
        client.append,
    )
    await thread.say("h1", "h1")

    async def without_an_answer(*args: Any, **more: Any) -> None:
        await append(*args, **more)
        raise error

    failed = pytest.raises(Exception, match=r"no answer|CancelledError")
    with monkeypatch.context() as patched, failed:
        patched.setattr(client, "append", without_an_answer)
        await thread.say("a secret draft", "h2")
    change = RemoveMessage(id="h2") if removed else HumanMessage("edited", id="h2")
    await thread.change(change)
    await thread.say("h3", "h3")
    rest = ["h3"] if removed else ["edited", "h3"]
    assert shown(thread.model.sent[-1]) == ["h1", "a1", *rest]
    assert await thread.window() == ["h1", "a1", *rest, "a2"]
