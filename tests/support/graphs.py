"""A thread of a LangGraph graph whose memory is a gateway's, with a model that follows a script."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import uuid4

from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.prebuilt import create_react_agent

from threadfold_client import AsyncClient
from threadfold_client.adapters.langgraph import ThreadfoldMemory


class Scripted(GenericFakeChatModel):
    """A chat model that follows a script, and remembers what it was sent."""

    sent: Any = None

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> Any:
        self.sent.append(list(messages))
        return super()._generate(messages, *args, **kwargs)

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self


@tool
def refund(eur: int) -> str:
    """Pay it back."""
    return f"refunded {eur}"


def call(eur: int, id_: str = "ai1") -> AIMessage:
    return AIMessage("", id=id_, tool_calls=[{"name": "refund", "args": {"eur": eur}, "id": "c1"}])


class Thread:
    """A thread of a graph that asks before it calls tools; each of its processes has a memory of
    its own.
    """

    def __init__(self, client: AsyncClient, script: Sequence[AIMessage], **options: Any) -> None:
        self.id = f"e-{uuid4().hex[:12]}"
        self.client = client
        self.model = Scripted(messages=iter(script), sent=[])
        self.saver = InMemorySaver()
        self._options = options
        self.config: Any = {"configurable": {"thread_id": self.id}}
        self.graph = self.another_process()

    def another_process(self) -> Any:
        memory = ThreadfoldMemory(self.client, **self._options)
        self.graph = create_react_agent(
            self.model,
            [refund],
            checkpointer=self.saver,
            pre_model_hook=memory.before_model,
            post_model_hook=memory.after_model,
            interrupt_before=["tools"],
        )
        return self.graph

    async def say(self, text: str, id_: str | None = None) -> None:
        await self.graph.ainvoke({"messages": [HumanMessage(text, id=id_)]}, self.config)

    async def go_on(self) -> None:
        while (await self.graph.aget_state(self.config)).next:
            await self.graph.ainvoke(None, self.config)

    async def change(self, *messages: BaseMessage) -> None:
        await self.graph.aupdate_state(self.config, {"messages": list(messages)}, as_node="agent")

    async def window(self) -> list[str]:
        last = (await self.client.history(self.id, limit=1, wait="applied")).events[0]
        return shown(await ThreadfoldMemory(self.client).window(self.id, after=last["position"]))

    async def rollbacks(self) -> int:
        found = await self.client.history(self.id, limit=500, wait="applied")
        return [event["type"] for event in found.events].count("rollback")


def shown(messages: Sequence[BaseMessage]) -> list[str]:
    """Texts; of calls their arguments."""
    return [
        str(m.tool_calls[0]["args"]) if isinstance(m, AIMessage) and m.tool_calls else str(m.text)
        for m in messages
    ]


CORRECTED = ["refund 4711", "{'eur': 40}", "refunded 40"]
"""What a model is sent of a call that a person corrected."""
