"""A thread that goes on without any of its messages: from its empty checkpoint, or cleared at an
earlier one, its model is sent nothing of before. A thread that begins anew keeps its conversation.
"""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("langgraph", reason="langgraph is not installed (the extra langgraph)")
from langchain_core.messages import AIMessage, HumanMessage, RemoveMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph.message import REMOVE_ALL_MESSAGES

from tests.support.graphs import Thread, shown
from threadfold_client import AsyncClient, Conflict

pytestmark = pytest.mark.filterwarnings("ignore:create_react_agent")


async def test_an_edited_first_message_is_a_fork_that_shows_nothing_of_before(
    client: AsyncClient,
) -> None:
    thread = await _two_turns(client)
    left = (await thread.graph.aget_state(thread.config)).config
    for text in ("edited", "edited again"):
        await _say(thread, text, await _checkpoint(thread, 0))
        assert shown(thread.model.sent[-1]) == [text]
    await thread.say("and?")
    assert shown(thread.model.sent[-1]) == ["edited again", "a4", "and?"]
    await _say(thread, "back", left)
    assert shown(thread.model.sent[-1]) == ["my PIN is 4711", "a1", "h2", "a2", "back"]
    thread.another_process()
    await thread.say("more")
    expected = ["my PIN is 4711", "a1", "h2", "a2", "back", "a6", "more"]
    assert shown(thread.model.sent[-1]) == expected


@pytest.mark.parametrize("durability", ["async", "exit"])
async def test_a_chat_that_was_cleared_at_an_earlier_checkpoint_shows_nothing_of_before(
    client: AsyncClient, durability: str
) -> None:
    thread = await _two_turns(client, durability=durability)
    empty = {"messages": [RemoveMessage(id=REMOVE_ALL_MESSAGES)]}
    await thread.graph.aupdate_state(await _checkpoint(thread, 2), empty, as_node="tools")
    await _say(thread, "anew", thread.config, durability=durability)
    assert shown(thread.model.sent[-1]) == ["anew"]
    assert await thread.window() == ["anew", "a3"]


async def test_a_fork_without_messages_does_not_undo_what_others_appended(
    client: AsyncClient,
) -> None:
    thread = await _two_turns(client)
    await client.append(thread.id, {"type": "message", "role": "user", "content": "from the shop"})
    empty = await _checkpoint(thread, 0)
    with pytest.raises(Conflict, match=r"message h1 was changed.*others have appended"):
        await _say(thread, "edited", empty)
    assert await thread.window() == ["my PIN is 4711", "a1", "h2", "a2", "from the shop"]


@pytest.mark.parametrize("how", ["deleted", "another-store"])
async def test_a_thread_whose_data_was_deleted_keeps_its_conversation_in_the_same_process(
    client: AsyncClient, how: str
) -> None:
    thread = await _two_turns(client)
    if how == "deleted":
        await thread.saver.adelete_thread(thread.id)
    else:
        thread.graph.checkpointer = InMemorySaver()
    await thread.say("h3")
    assert shown(thread.model.sent[-1]) == ["my PIN is 4711", "a1", "h2", "a2", "h3"]
    assert await thread.rollbacks() == 0


async def _two_turns(client: AsyncClient, **options: Any) -> Thread:
    thread = Thread(client, [AIMessage(f"a{i}", id=f"ai{i}") for i in range(1, 9)])
    for id_, text in (("h1", "my PIN is 4711"), ("h2", "h2")):
        await _say(thread, text, thread.config, id_, **options)
    return thread


async def _say(
    thread: Thread, text: str, config: Any, id_: str | None = None, **options: Any
) -> None:
    await thread.graph.ainvoke({"messages": [HumanMessage(text, id=id_)]}, config, **options)


async def _checkpoint(thread: Thread, messages: int) -> Any:
    """The newest checkpoint with so many messages."""
    states = [one async for one in thread.graph.aget_state_history(thread.config)]
    return next(one.config for one in states if len(one.values.get("messages", [])) == messages)
