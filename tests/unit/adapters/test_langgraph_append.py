"""LangGraph's hooks append all new messages of a state, in order, however many there are."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

pytest.importorskip("langgraph", reason="langgraph is not installed (the extra langgraph)")
from langchain_core.messages import BaseMessage, HumanMessage

from threadfold_client import AsyncClient, Call, Invalid, NotFound, ServerSent
from threadfold_client.adapters.langgraph import ThreadfoldMemory

BEGIN = "threadfold-client.langgraph.v1"
RECENT = 1024
"""A repeat of an older event is a new event."""


class Log:
    """A transport over one conversation's log: appends, and its history."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.sizes: list[int] = []

    @property
    def contents(self) -> list[str]:
        """Texts; a message's own id stands beside its text."""
        return [event["content"][0]["text"] for event in self.events if event["type"] == "message"]

    @property
    def begins(self) -> int:
        """How many states begin in it."""
        return [event["type"] for event in self.events].count(BEGIN)

    async def request(self, call: Call) -> bytes:
        if call.name == "append":
            return self._append(call.body)
        assert call.name == "history"
        if not self.events:
            raise NotFound("no such conversation", status=404)
        end = int(call.query.get("before", len(self.events)))
        begin = max(0, end - int(call.query["limit"]))
        page = {"events": self.events[begin:end][::-1], "next_before": str(begin)}
        return msgspec.json.encode(page | ({} if begin else {"next_before": None}))

    def _append(self, events: list[dict[str, Any]]) -> bytes:
        self.sizes.append(len(events))
        if len(events) > 500:
            raise Invalid("the list has too many events", status=422)
        for event in events:
            if event["id"] not in {known["id"] for known in self.events[-RECENT:]}:
                self.events.append({**event, "position": f"0-{len(self.events)}"})
        position = f"0-{len(self.events) - 1}"
        answers = [{"id": event["id"], "position": position} for event in events]
        return msgspec.json.encode({"events": answers, "position": position})

    def stream(self, call: Call) -> AsyncIterator[ServerSent]:
        raise NotImplementedError

    async def close(self) -> None:
        pass


def memory_of(log: Log) -> ThreadfoldMemory:
    return ThreadfoldMemory(AsyncClient.over(log))


def state(count: int) -> list[BaseMessage]:
    return [HumanMessage(f"m{i}", id=f"i{i}") for i in range(count)]


def texts(count: int) -> list[str]:
    return [f"m{i}" for i in range(count)]


async def test_a_new_thread_with_a_long_past_is_appended_whole() -> None:
    log = Log()
    memory = memory_of(log)
    assert await memory.append("t", state(1700)) == "0-1700"
    assert log.contents == texts(1700)
    assert log.sizes == [500, 500, 500, 201]
    assert log.begins == 1


async def test_many_new_messages_behind_a_known_one_are_appended_whole() -> None:
    log = Log()
    memory = memory_of(log)
    await memory.append("t", state(1))
    await memory.append("t", state(1201))
    assert log.contents == texts(1201)
    assert log.sizes == [2, 500, 500, 200]


async def test_another_process_appends_what_the_log_does_not_have_of_a_long_state() -> None:
    log = Log()
    await memory_of(log).append("t", state(1600))
    await memory_of(log).append("t", state(2200))
    assert log.contents == texts(2200)
    await memory_of(log).append("t", state(2200))
    assert log.contents == texts(2200)
    assert log.begins == 1


async def test_a_list_that_failed_is_appended_by_the_next_call() -> None:
    class Failing(Log):
        def _append(self, events: list[dict[str, Any]]) -> bytes:
            if len(self.sizes) == 1:
                self.sizes.append(0)
                raise Invalid("not now", status=422)
            return super()._append(events)

    log = Failing()
    memory = memory_of(log)
    with pytest.raises(Invalid):
        await memory.append("t", state(700))
    await memory.append("t", state(700))
    assert log.contents == texts(700)
    assert log.sizes == [500, 0, 201]


async def test_long_ids_that_begin_alike_stay_different() -> None:
    log = Log()
    alike = "x" * 300
    messages = [HumanMessage(end, id=alike + end) for end in "ab"]
    await memory_of(log).append("t", messages)
    await memory_of(log).append("t", messages)
    assert log.contents == ["a", "b"]
    assert all(len(event["id"]) <= 256 for event in log.events)


async def test_other_ids_stay_in_the_events_ids() -> None:
    log = Log()
    longest = "y" * 246
    await memory_of(log).append("t", [HumanMessage("a", id="1"), HumanMessage("b", id=longest)])
    assert [event["id"] for event in log.events[1:]] == ["langgraph-1", f"langgraph-{longest}"]


async def test_messages_without_ids_get_them_and_are_appended_once() -> None:
    log = Log()
    memory = memory_of(log)
    messages: list[BaseMessage] = [HumanMessage("a"), HumanMessage("a")]
    await memory.append("t", messages)
    messages.append(HumanMessage("b"))
    await memory.append("t", messages)
    await memory_of(log).append("t", messages)
    assert log.contents == ["a", "a", "b"]
