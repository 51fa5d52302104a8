"""LangChain's chat message history and LangGraph's hooks over a real gateway, with their
frameworks' own runnables and graphs on top.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import pytest

pytest.importorskip(
    "langchain_core", reason="langchain-core is not installed (the extra langchain)"
)
from langchain_core.chat_history import BaseChatMessageHistory
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    ChatMessage,
    HumanMessage,
    HumanMessageChunk,
    InvalidToolCall,
    SystemMessage,
    SystemMessageChunk,
    ToolMessage,
)
from langchain_core.messages.ai import UsageMetadata
from langchain_core.runnables.history import RunnableWithMessageHistory

from projections.events.validation import make_record
from projections.names import make_key
from streams.settings.settings import Settings
from tests.support.graphs import Scripted
from tests.support.platform import Platform, running_platform
from tests.support.worker import until
from threadfold_client import AsyncClient, Client
from threadfold_client.adapters.langchain import ThreadfoldChatMessageHistory
from threadfold_client.adapters.langchain_messages import to_event

POLICY = {
    "model_window": 4000,
    "reserve_tokens": 500,
    "working_budget": 600,
    "keep_recent_tokens": 200,
    "min_messages": 4,
    "summary_max_tokens": 120,
}
CALL = {
    "name": "look",
    "args": {"q": "ñ", "deep": {"n": [1, 2.5, None]}},
    "id": "c1",
    "type": "tool_call",
}
PICTURE = [
    {"type": "text", "text": "what is it?"},
    {"type": "image_url", "image_url": {"url": "https://x/y.png", "detail": "low"}},
]


@pytest.fixture(scope="module")
async def platform(settings: Settings) -> AsyncIterator[Platform]:
    async with running_platform(settings, POLICY) as running:
        yield running


@pytest.fixture(scope="module")
async def client(platform: Platform) -> AsyncIterator[Client]:
    made = Client(platform.url, platform.key)
    yield made
    await asyncio.to_thread(made.close)


@pytest.fixture
def history(client: Client) -> ThreadfoldChatMessageHistory:
    return ThreadfoldChatMessageHistory(f"l-{uuid4().hex[:12]}", client)


async def both(history: ThreadfoldChatMessageHistory) -> list[BaseMessage]:
    """The messages, read both ways."""
    found = await asyncio.to_thread(lambda: history.messages)
    assert await history.aget_messages() == found
    return found


async def test_messages_come_back_equal_from_both_halves_of_the_interface(
    history: ThreadfoldChatMessageHistory,
) -> None:
    assert isinstance(history, BaseChatMessageHistory)
    usage = UsageMetadata(input_tokens=12, output_tokens=5, total_tokens=17)
    messages: list[BaseMessage] = [
        SystemMessage("You help."),
        HumanMessage("Grüße 🌍", name="ann"),
        AIMessage(
            "",
            tool_calls=[CALL],
            id="run-1",
            usage_metadata=usage,
            response_metadata={"model_name": "m-1"},
        ),
        ToolMessage("nothing", tool_call_id="c1", name="look", status="error"),
        AIMessage("I see nothing."),
        HumanMessage(PICTURE, id="h-2"),
        AIMessage(
            [{"type": "text", "text": "A "}, {"type": "text", "text": "tree."}],
            additional_kwargs={"refusal": None},
        ),
        ChatMessage("from elsewhere", role="critic"),
    ]
    await asyncio.to_thread(history.add_messages, messages[:5])
    await history.aadd_messages(messages[5:])
    assert await both(history) == messages


async def test_an_image_that_a_model_made_or_a_system_message_shows_comes_back(
    history: ThreadfoldChatMessageHistory, client: Client
) -> None:
    messages: list[BaseMessage] = [
        SystemMessage(PICTURE, id="s-1"),
        HumanMessage("Draw it."),
        AIMessage(
            [PICTURE[1], "Here."],
            id="run-7",
            additional_kwargs={"k": 1},
            response_metadata={"finish_reason": "STOP"},
            invalid_tool_calls=[InvalidToolCall(name="bad", args="{oops", id="c1", error="e")],
        ),
        ToolMessage("no", tool_call_id="c1"),
    ]
    await history.aadd_messages(messages)
    assert await both(history) == messages
    context = await asyncio.to_thread(client.context, history.session_id)
    assert "[an image]" in str(context.messages[-2]["content"])


async def test_blocks_of_other_kinds_come_back_and_are_sent_in_every_format(
    history: ThreadfoldChatMessageHistory, client: Client
) -> None:
    image = {"type": "image", "base64": "iVBORw0KGgo=", "mime_type": "image/png"}
    data = {"type": "json", "json": {"price": 42}}
    messages: list[BaseMessage] = [
        HumanMessage([image, data]),
        AIMessage("", tool_calls=[CALL]),
        ToolMessage([data, image], tool_call_id="c1"),
    ]
    await history.aadd_messages(messages)
    found = await both(history)
    assert found[:2] == messages[:2]
    text = '{"type": "json", "json": {"price": 42}}'
    assert found[2].content == [
        {"type": "text", "text": text},
        {"type": "text", "text": "[an image]"},
    ]
    context = await asyncio.to_thread(client.context, history.session_id)
    said = context.messages[0]["content"]
    assert said[0]["image_url"]["url"] == "data:image/png;base64,iVBORw0KGgo="
    assert said[1] == {"type": "text", "text": text}


async def test_results_of_parallel_calls_and_late_system_messages_come_back_where_they_were(
    history: ThreadfoldChatMessageHistory,
) -> None:
    calls = [CALL | {"id": f"p{i}"} for i in range(3)]
    messages: list[BaseMessage] = [
        SystemMessage("You help.", id="s-1", additional_kwargs={"cache": True}),
        SystemMessage([{"type": "text", "text": "Be brief.", "cache_control": {"ttl": "5m"}}]),
        HumanMessage("look three times"),
        AIMessage("", tool_calls=calls),
        ToolMessage("second", tool_call_id="p1", name="look"),
        ToolMessage("third", tool_call_id="p2", name="look"),
        ToolMessage("first", tool_call_id="p0", name="look"),
        SystemMessage("From now on in French.", id="s-2"),
        AIMessage("Trois fois rien."),
        SystemMessage("And politely."),
    ]
    await history.aadd_messages(messages[:5])
    await history.aadd_messages(messages[5:])
    assert await both(history) == messages


async def test_a_result_that_nobody_gave_says_so_and_is_never_appended(
    history: ThreadfoldChatMessageHistory, client: Client
) -> None:
    calls = [CALL | {"id": "u0"}, CALL | {"id": "u1"}]
    given = ToolMessage("found", tool_call_id="u1", name="look")
    await history.aadd_messages([HumanMessage("go"), AIMessage("", tool_calls=calls), given])
    *stored, invented = await both(history)
    assert stored[-1] == given
    assert isinstance(invented, ToolMessage)
    assert invented.tool_call_id == "u0"
    assert invented.additional_kwargs == {"threadfold_stored": False}
    copy = ThreadfoldChatMessageHistory(f"l-{uuid4().hex[:12]}", client)
    await copy.aadd_messages([*stored, invented])
    page = await asyncio.to_thread(client.history, copy.session_id)
    assert [event["type"] for event in page.events].count("tool.result") == 1


async def test_the_message_that_reports_a_late_result_says_so_and_is_never_appended(
    history: ThreadfoldChatMessageHistory, client: Client
) -> None:
    first = [HumanMessage("refund"), AIMessage("", tool_calls=[CALL])]
    late = ToolMessage("refunded", tool_call_id="c1", name="look")
    await history.aadd_messages([*first, HumanMessage("when?"), AIMessage("Soon."), late])
    *stored, made = await both(history)
    assert stored == [*first, late, HumanMessage("when?"), AIMessage("Soon.")]
    assert made.additional_kwargs == {"threadfold_stored": False} and "has come" in made.content
    copy = ThreadfoldChatMessageHistory(f"l-{uuid4().hex[:12]}", client)
    await copy.aadd_messages([*stored, made])
    page = await asyncio.to_thread(client.history, copy.session_id)
    assert not any("has come" in str(event.get("content")) for event in page.events)


async def test_a_new_history_is_empty_and_a_cleared_one_begins_anew(
    history: ThreadfoldChatMessageHistory, client: Client
) -> None:
    assert await both(history) == []
    await history.aclear()
    await history.aadd_messages([HumanMessage("a"), AIMessage("b")])
    other = ThreadfoldChatMessageHistory(history.session_id, client)
    await asyncio.to_thread(other.clear)
    assert await both(history) == []
    await asyncio.to_thread(history.add_user_message, "c")
    await asyncio.to_thread(history.add_ai_message, "d")
    assert [m.content for m in await both(other)] == ["c", "d"]


async def test_an_asynchronous_client_serves_the_asynchronous_half(platform: Platform) -> None:
    async with AsyncClient(platform.url, platform.key) as client:
        history = ThreadfoldChatMessageHistory(f"l-{uuid4().hex[:12]}", client)
        await history.aadd_messages([HumanMessage("a")])
        assert await history.aget_messages() == [HumanMessage("a")]
        with pytest.raises(TypeError, match="AsyncClient"):
            history.clear()


@pytest.mark.filterwarnings("ignore:RunnableWithMessageHistory is deprecated")
async def test_a_runnable_with_message_history_remembers(client: Client) -> None:
    prompts: list[list[str]] = []

    class Model(GenericFakeChatModel):
        def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> Any:
            prompts.append([str(m.content) for m in messages])
            return super()._generate(messages, *args, **kwargs)

    model = Model(messages=iter([AIMessage("Ann, hello."), AIMessage("You are Ann.")]))
    chain = RunnableWithMessageHistory(
        model, lambda session_id: ThreadfoldChatMessageHistory(session_id, client)
    )
    config: Any = {"configurable": {"session_id": f"l-{uuid4().hex[:12]}"}}
    await asyncio.to_thread(chain.invoke, [HumanMessage("I am Ann.")], config)
    await chain.ainvoke([HumanMessage("Who am I?")], config)
    assert prompts == [["I am Ann."], ["I am Ann.", "Ann, hello.", "Who am I?"]]
    found = await ThreadfoldChatMessageHistory(
        config["configurable"]["session_id"], client
    ).aget_messages()
    assert [m.type for m in found] == ["human", "ai", "human", "ai"]


@pytest.mark.filterwarnings("ignore:RunnableWithMessageHistory is deprecated")
async def test_a_streamed_answer_is_the_assistants(client: Client) -> None:
    chain = RunnableWithMessageHistory(
        GenericFakeChatModel(messages=iter([AIMessage("Ann, hello.")])),
        lambda session_id: ThreadfoldChatMessageHistory(session_id, client),
    )
    config: Any = {"configurable": {"session_id": f"l-{uuid4().hex[:12]}"}}
    pieces = [piece async for piece in chain.astream([HumanMessage("I am Ann.")], config)]
    assert len(pieces) > 1
    context = await asyncio.to_thread(client.context, config["configurable"]["session_id"])
    assert [message["role"] for message in context.messages] == ["user", "assistant"]
    assert context.messages[1]["content"] == [{"type": "text", "text": "Ann, hello."}]


async def test_joined_pieces_of_an_answer_come_back_equal(
    history: ThreadfoldChatMessageHistory,
) -> None:
    messages = [
        SystemMessageChunk(content="Be brief."),
        HumanMessageChunk(content="look"),
        AIMessageChunk(content="", tool_calls=[CALL], id="run-7"),
        ToolMessage("found", tool_call_id="c1"),
    ]
    await history.aadd_messages(messages)
    assert await both(history) == messages


async def test_usage_and_model_are_the_events_own(
    history: ThreadfoldChatMessageHistory, client: Client
) -> None:
    usage = UsageMetadata(input_tokens=12, output_tokens=5, total_tokens=17)
    await history.aadd_messages(
        [AIMessage("x", usage_metadata=usage, response_metadata={"model_name": "m-1"})]
    )
    event, _ = (await asyncio.to_thread(client.history, history.session_id)).events
    assert (event["usage"], event["model"]) == (
        {"input_tokens": 12, "output_tokens": 5, "total_tokens": 17},
        "m-1",
    )


def test_what_no_json_holds_is_kept_as_its_text() -> None:
    event = to_event(AIMessage("x", additional_kwargs={"made": object}))
    make_record(make_key("t", "c"), event, where="event", now="2026-01-01T00:00:00Z", new_id="x")


# -- LangGraph
# ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("trim", [False, True], ids=["state-kept", "state-trimmed"])
@pytest.mark.filterwarnings("ignore:create_react_agent")
async def test_a_graph_sends_the_bounded_window_and_its_log_holds_everything_once(
    platform: Platform, trim: bool
) -> None:
    pytest.importorskip("langgraph", reason="langgraph is not installed (the extra langgraph)")
    from langchain_core.tools import tool
    from langgraph.checkpoint.memory import InMemorySaver
    from langgraph.prebuilt import create_react_agent

    from threadfold_client.adapters.langgraph import ThreadfoldMemory

    @tool
    def harvest(field: str) -> str:
        """What a field gave."""
        return f"{field}: " + "forty sacks of barley, " * 10

    turns = 12
    script: list[AIMessage] = []
    for i in range(turns):
        call = {
            "name": "harvest",
            "args": {"field": f"field {i}"},
            "id": f"call-{i}",
            "type": "tool_call",
        }
        script += [
            AIMessage("", tool_calls=[call]),
            AIMessage(f"Answer {i}: " + "it was a good year. " * 8),
        ]
    model = Scripted(messages=iter(script), sent=[])
    thread = f"g-{uuid4().hex[:12]}"
    config: Any = {"configurable": {"thread_id": thread}}
    async with AsyncClient(platform.url, platform.key) as client:

        def agent(saver: InMemorySaver) -> Any:
            memory = ThreadfoldMemory(client, trim_state=trim)
            hooks = {"pre_model_hook": memory.before_model, "post_model_hook": memory.after_model}
            return create_react_agent(model, [harvest], checkpointer=saver, **hooks)

        saver = InMemorySaver()
        graph = agent(saver)

        async def summarised() -> bool:
            return (await client.context(thread)).summary is not None

        for i in range(turns):
            if i == turns // 2:
                graph = agent(saver)  # another process: what was appended is known by its ids alone
            if i == turns - 1:
                await until(summarised)  # a busy compactor may be behind: the last turn sees it
            await graph.ainvoke({"messages": [HumanMessage(f"Question {i}")]}, config)

        context = await client.context(thread)
        assert all(len(sent) < 4 * turns for sent in model.sent[-4:])
        assert any(
            isinstance(m.content, str) and m.content.startswith("[Summary") for m in model.sent[-1]
        )
        assert context.tokens <= context.ceiling

        async def everything_once() -> bool:
            # An event that was acknowledged a moment ago may not be in the history yet.
            types = Counter([e["type"] async for e in client.iter_history(thread)])
            assert types["message"] <= 3 * turns and types["tool.result"] <= turns
            return (types["message"], types["tool.result"]) == (3 * turns, turns)

        await until(everything_once)
        state = (await graph.aget_state(config)).values["messages"]
        assert (len(state) < 4 * turns) == trim


async def test_a_graph_without_a_thread_says_what_it_lacks(platform: Platform) -> None:
    pytest.importorskip("langgraph", reason="langgraph is not installed (the extra langgraph)")
    from threadfold_client.adapters.langgraph import ThreadfoldMemory

    async with AsyncClient(platform.url, platform.key) as client:
        with pytest.raises(ValueError, match="thread_id"):
            await ThreadfoldMemory(client).before_model({"messages": []}, {})


@pytest.mark.parametrize("ids", [True, False])
async def test_the_window_of_a_graphs_own_node_includes_what_was_appended_before(
    platform: Platform, ids: bool
) -> None:
    pytest.importorskip("langgraph", reason="langgraph is not installed (the extra langgraph)")
    from threadfold_client.adapters.langgraph import ThreadfoldMemory

    async with AsyncClient(platform.url, platform.key) as client:
        memory = ThreadfoldMemory(client)
        for n in range(5):
            said = HumanMessage(f"message {n}", id=f"m{n}" if ids else None)
            await memory.append(f"own-{ids}", [said])
            assert (await memory.window(f"own-{ids}"))[-1].content == f"message {n}"
