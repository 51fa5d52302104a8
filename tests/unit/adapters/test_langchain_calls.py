"""A model's calls come back with the ids and names that their results have in the window."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip(
    "langchain_core", reason="langchain-core is not installed (the extra langchain)"
)
from langchain_core.messages import AIMessage, AIMessageChunk

from tests.support.adapted import in_the_window
from threadfold_client.adapters.langchain_messages import to_event, to_message


def call(id_: str | None, name: str = "my tool") -> dict[str, Any]:
    return {"name": name, "args": {"a": 1}, "id": id_, "type": "tool_call"}


@pytest.mark.parametrize(
    "fields",
    [{}, {"id": "run-1"}, {"additional_kwargs": {"x": 1}}, {"response_metadata": {"model": "m"}}],
)
def test_renamed_calls_come_back_as_their_results_name_them(fields: dict[str, Any]) -> None:
    said = AIMessage(content="", tool_calls=[call("c1"), call("c1"), call("c2", "f")], **fields)
    (flat,) = in_the_window([to_event(said)])
    flat["tool_calls"][0]["name"] = flat["tool_calls"][1]["name"] = "my_tool"
    flat["tool_calls"][1]["id"] = "c1-2"
    back = to_message(flat)
    assert isinstance(back, AIMessage)
    assert [(one["id"], one["name"]) for one in back.tool_calls] == [
        ("c1", "my_tool"),
        ("c1-2", "my_tool"),
        ("c2", "f"),
    ]
    assert [one["args"] for one in back.tool_calls] == [{"a": 1}] * 3
    assert (back.id, back.additional_kwargs) == (said.id, said.additional_kwargs)


def test_what_a_provider_wrote_of_a_renamed_call_is_renamed_with_it() -> None:
    blocks: list[str | dict[str, Any]] = [
        {"type": "text", "text": "I look.", "id": "t"},
        {"type": "tool_use", "id": "c1", "name": "look", "input": {"a": 1}},
        {"type": "function_call", "call_id": "c1", "id": "fc", "name": "look"},
    ]
    raw = [{"id": "c1", "function": {"name": "look", "arguments": "{}"}, "type": "function"}] * 2
    said = AIMessage(
        content=blocks,
        tool_calls=[call("c1", "look"), call("c1", "look")],
        additional_kwargs={"tool_calls": raw, "refusal": None},
    )
    (flat,) = in_the_window([to_event(said)])
    flat["tool_calls"][0]["id"], flat["tool_calls"][1]["id"] = "c1-3", "c1-4"
    back = to_message(flat)
    assert isinstance(back, AIMessage) and isinstance(back.content, list)
    assert [one["id"] for one in back.tool_calls] == ["c1-3", "c1-4"]
    assert back.content[0] == blocks[0]
    assert back.content[1] == {"type": "tool_use", "id": "c1-3", "name": "look", "input": {"a": 1}}
    assert back.content[2] == {
        "type": "function_call",
        "call_id": "c1-4",
        "id": "fc",
        "name": "look",
    }
    assert [one["id"] for one in back.additional_kwargs["tool_calls"]] == ["c1-3", "c1-4"]


def test_calls_that_kept_their_ids_and_names_come_back_equal() -> None:
    said = AIMessage(content="", id="run-1", tool_calls=[call("c1"), call("c2"), call("c1")])
    (flat,) = in_the_window([to_event(said)])
    assert to_message(flat) == said


@pytest.mark.parametrize("fields", [{}, {"id": "run-1"}])
def test_a_call_without_an_id_comes_back_with_that_of_its_result(fields: dict[str, Any]) -> None:
    said = AIMessage(
        content="", tool_calls=[call("c1"), call(None, "f"), call(""), call(None, "f")], **fields
    )
    (flat,) = in_the_window([to_event(said)])
    flat["tool_calls"][3]["id"] = "call-3-2"
    back = to_message(flat)
    assert isinstance(back, AIMessage)
    assert [(one["id"], one["name"]) for one in back.tool_calls] == [
        ("c1", "my tool"),
        ("call-1", "f"),
        ("call-2", "my tool"),
        ("call-3-2", "f"),
    ]
    bad = {"name": None, "args": "{", "id": None, "error": None, "type": "invalid_tool_call"}
    (flat,) = in_the_window([to_event(AIMessage(content="", invalid_tool_calls=[bad], **fields))])
    back = to_message(flat)
    assert isinstance(back, AIMessage)
    assert [one["id"] for one in (*back.tool_calls, *back.invalid_tool_calls)] == ["call-0"]


def test_what_a_provider_wrote_of_a_call_without_an_id_has_that_of_its_result() -> None:
    blocks: list[str | dict[str, Any]] = [
        {"type": "text", "text": "I look."},
        {"type": "citation", "name": "a page"},
        {"type": "tool_use", "id": None, "name": "look", "input": {"a": 1}},
    ]
    raw = [{"id": None, "function": {"name": "look", "arguments": "{}"}, "type": "function"}]
    said = AIMessage(
        content=blocks, tool_calls=[call(None, "look")], additional_kwargs={"tool_calls": raw}
    )
    (flat,) = in_the_window([to_event(said)])
    back = to_message(flat)
    assert isinstance(back, AIMessage) and isinstance(back.content, list)
    assert [one["id"] for one in back.tool_calls] == ["call-0"]
    assert back.content[:2] == blocks[:2]
    assert back.content[2] == {**blocks[2], "id": "call-0"}  # type: ignore[dict-item]
    assert back.additional_kwargs["tool_calls"][0]["id"] == "call-0"


def test_a_call_whose_arguments_are_no_json_is_a_call_with_a_result() -> None:
    bad = {"name": "t", "args": "{bad", "id": "i1", "error": None, "type": "invalid_tool_call"}
    said = AIMessage(content="", tool_calls=[call("c1", "t")], invalid_tool_calls=[bad])
    (flat,) = in_the_window([to_event(said)])
    assert [(one["id"], one["arguments"]) for one in flat["tool_calls"]] == [
        ("c1", '{"a": 1}'),
        ("i1", "{bad"),
    ]
    assert to_message(flat) == said
    flat["tool_calls"][1]["id"] = "i1-2"
    back = to_message(flat)
    assert isinstance(back, AIMessage) and back.invalid_tool_calls[0]["id"] == "i1-2"


@pytest.mark.parametrize("id_", ["a", None])
def test_a_streamed_answers_pieces_are_renamed_with_its_calls(id_: str | None) -> None:
    said = AIMessageChunk(
        content="",
        id="run-1",
        tool_call_chunks=[
            {"name": "my tool", "args": "{}", "id": id_, "index": 0, "type": "tool_call_chunk"}
        ],
    )
    (flat,) = in_the_window([to_event(said)])
    flat["tool_calls"][0] |= {"name": "my_tool", "id": "a-2"}
    back = to_message(flat)
    assert isinstance(back, AIMessageChunk)
    again = back + AIMessageChunk(content="")
    for message in (back, again):
        (made,) = message.tool_calls
        assert (made["name"], made["id"]) == ("my_tool", "a-2")
