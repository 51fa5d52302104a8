"""LangGraph: hooks that append a graph's messages and give its model the bounded window, beside
LangGraph's own checkpointer.

    from threadfold_client.adapters.langgraph import ThreadfoldMemory

    memory = ThreadfoldMemory(AsyncClient(url, key))
    hooks = {"pre_model_hook": memory.before_model, "post_model_hook": memory.after_model}
    agent = create_react_agent(model, tools, checkpointer=saver, **hooks)

docs/decisions/0017-langgraph.md says why this is no checkpointer.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from threadfold_client.adapters.extras import needs_asynchronous, require

require("langgraph", "langgraph")
require("langchain_core", "langgraph")

from langchain_core.messages import BaseMessage, RemoveMessage  # noqa: E402
from langgraph.graph.message import REMOVE_ALL_MESSAGES  # noqa: E402

from threadfold_client import NotFound  # noqa: E402
from threadfold_client.adapters.kept import shown_messages  # noqa: E402
from threadfold_client.adapters.langchain_messages import to_event, to_messages  # noqa: E402

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig

    from threadfold_client import AsyncClient

MAX_MESSAGES = 500
"""Messages in one list. If it is unknown which of a state's were appended, as many are appended
again: their ids make the repeats harmless. Of more, the log's newest one is looked up first, since
a window knows the ids of its last 1,024 events only.
"""
MAX_ID = 256
MAX_THREADS = 10_000


class ThreadfoldMemory:
    """Hooks for a graph whose state has ``messages`` (``MessagesState``, ``create_react_agent``).

    A thread's id is its conversation. Each message's event id is made of its own id, so a node that
    runs again (a retry, a resumed interrupt, another process) appends nothing twice. A fork from an
    earlier checkpoint is not a rollback: give it a thread of its own.

    Args:
        client: used in the loop the graph runs in.
        max_tokens: a limit of this reader's own.
        trim_state: replace the state's messages by the window as well, so that checkpoints stay
            bounded.
    """

    def __init__(
        self, client: AsyncClient, *, max_tokens: int | None = None, trim_state: bool = False
    ) -> None:
        needs_asynchronous(client, "ThreadfoldMemory")
        self._client = client
        self._max_tokens = max_tokens
        self._trim_state = trim_state
        self._last: OrderedDict[str, tuple[str, str | None]] = OrderedDict()

    async def before_model(self, state: Any, config: RunnableConfig) -> dict[str, Any]:
        """Append the state's new messages and give the window: as ``llm_input_messages``, or in
        place of the state's.
        """
        conversation = _thread(config)
        position = await self.append(conversation, state["messages"])
        window = await self.window(conversation, after=position)
        if not self._trim_state:
            return {"llm_input_messages": window}
        for i, message in enumerate(window):
            # A shortened or summarised message is none of the state's; an id of this kind is never
            # appended.
            message.id = message.id or f"{_WINDOW}{i}"
        return {"messages": [RemoveMessage(REMOVE_ALL_MESSAGES), *window]}

    async def after_model(self, state: Any, config: RunnableConfig) -> dict[str, Any]:
        """Append the model's answer; changes nothing of the state."""
        await self.append(_thread(config), state["messages"])
        return {}

    async def append(self, conversation: str, messages: Sequence[BaseMessage]) -> str | None:
        """Append a state's new messages, at most 500 in one list; returns the last known position,
        None without any. A message without an id gets one, as in a graph's ``add_messages``.
        """
        own = [m for m in messages if not (m.id or "").startswith(_WINDOW)]
        for message in own:
            message.id = message.id or str(uuid4())
        fresh = await self._unsent(conversation, own)
        for begin in range(0, len(fresh), MAX_MESSAGES):
            part = fresh[begin : begin + MAX_MESSAGES]
            answer = await self._client.append(conversation, [_with_id(m) for m in part])
            self._last[conversation] = part[-1].id or "", answer.position
            self._last.move_to_end(conversation)
            if len(self._last) > MAX_THREADS:
                self._last.popitem(last=False)
        return self._last.get(conversation, ("", None))[1]

    async def window(self, conversation: str, *, after: str | None = None) -> list[BaseMessage]:
        """The bounded window as LangChain's messages. It includes ``after``; by default what was
        appended here last.
        """
        if after is None:
            _, after = self._last.get(conversation, ("", None))
        return to_messages(
            await shown_messages(
                self._client, conversation, max_tokens=self._max_tokens, after=after
            )
        )

    async def _unsent(
        self, conversation: str, messages: Sequence[BaseMessage]
    ) -> Sequence[BaseMessage]:
        last, _ = self._last.get(conversation, ("", None))
        for i in range(len(messages) - 1, -1, -1):
            if last and messages[i].id == last:
                return messages[i + 1 :]
        if len(messages) <= MAX_MESSAGES:
            return messages
        return messages[await self._logged(conversation, messages) :]

    async def _logged(self, conversation: str, messages: Sequence[BaseMessage]) -> int:
        """How many of a state's messages are in the log: up to the one that is the newest there."""
        places = {_event_id(m.id): i for i, m in enumerate(messages) if m.id}
        types = ("message", "tool.result")
        try:
            async for event in self._client.iter_history(conversation, types=types):
                if event["id"] in places:
                    return places[event["id"]] + 1
        except NotFound:  # nothing was said in it yet
            return 0
        return 0


_WINDOW = "threadfold-window-"


def _thread(config: RunnableConfig) -> str:
    thread = (config.get("configurable") or {}).get("thread_id")
    if not thread:
        raise ValueError(
            'the graph runs without a thread: give config={"configurable": {"thread_id": …}}, which'
            " names the conversation"
        )
    return str(thread)


def _with_id(message: BaseMessage) -> dict[str, Any]:
    return {**to_event(message), "id": _event_id(message.id or "")}


def _event_id(message_id: str) -> str:
    """A message's event id; of a long one with a digest, so that no two become one."""
    plain = f"langgraph-{message_id}"
    if len(plain) <= MAX_ID:
        return plain
    return f"langgraph-{sha256(message_id.encode('utf-8', 'surrogatepass')).hexdigest()}"
