"""Anthropic's and the neutral format of windows: valid for the provider over random histories, and
nothing lost on the way.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from projections.formats.anthropic import BEGIN, to_anthropic
from projections.formats.events import window_events
from projections.render.fit_to_limit import DoesNotFit
from projections.render.read_header import SUMMARY_MARK
from projections.render.render import render_openai
from tests.support.histories import random_log


def call(id_: str, name: str = "f", arguments: str = "{}") -> dict[str, Any]:
    return {"id": id_, "type": "function", "function": {"name": name, "arguments": arguments}}


def result(id_: str, text: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": id_, "content": text}


def assert_valid(messages: list[dict[str, Any]]) -> None:
    """What Anthropic's API refuses otherwise."""
    assert [m["role"] for m in messages] == [
        ("user", "assistant")[i % 2] for i in range(len(messages))
    ]
    seen: set[str] = set()
    asked: list[str] = []
    for message in messages:
        blocks = message["content"]
        assert blocks
        assert all(block["text"].strip() for block in blocks if block["type"] == "text")
        answered = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        assert sorted(answered) == sorted(asked)
        assert all(block["type"] == "tool_result" for block in blocks[: len(answered)])
        asked = [block["id"] for block in blocks if block["type"] == "tool_use"]
        assert not seen & set(asked)
        assert len(set(asked)) == len(asked)
        seen |= set(asked)
    assert not asked


@pytest.mark.parametrize("seed", range(60))
def test_random_windows_are_valid_for_anthropic(seed: int) -> None:
    window = random_log(seed, 80).window
    try:
        bodies = [json.loads(body) for body in render_openai(window).bodies]
    except DoesNotFit:
        pytest.skip("this history's newest message alone is over the ceiling")
    system, messages = to_anthropic(bodies)
    assert_valid(messages)
    assert (system, messages) == to_anthropic(bodies)
    for body in bodies:
        if body["role"] == "system":
            assert body["content"] in system


def test_reused_ids_get_new_names_and_keep_their_results() -> None:
    two = {"role": "assistant", "content": None, "tool_calls": [call("a", "f"), call("a", "g")]}
    one = {"role": "assistant", "content": "again", "tool_calls": [call("a", "h", '{"x": 1}')]}
    _, messages = to_anthropic(
        [
            {"role": "user", "content": "go"},
            two,
            result("a", "1"),
            result("a", "2"),
            one,
            result("a", "3"),
        ]
    )
    assert_valid(messages)
    names = {
        block["id"]: block["name"]
        for m in messages
        for block in m["content"]
        if block["type"] == "tool_use"
    }
    texts = {
        b["tool_use_id"]: b["content"][0]["text"]
        for m in messages
        for b in m["content"]
        if b["type"] == "tool_result"
    }
    assert names == {"a": "f", "a-2": "g", "a-3": "h"}
    assert texts == {"a": "1", "a-2": "2", "a-3": "3"}


def test_system_lane_and_summary_stand_apart_and_a_user_begins() -> None:
    summary = {"role": "assistant", "content": SUMMARY_MARK + "earlier"}
    system, messages = to_anthropic(
        [{"role": "system", "content": "rules"}, summary, {"role": "assistant", "content": "hello"}]
    )
    assert system == f"rules\n\n{SUMMARY_MARK}earlier"
    assert messages[0] == {"role": "user", "content": [{"type": "text", "text": BEGIN}]}
    assert_valid(messages)


def test_arguments_that_are_no_object_are_kept_as_text() -> None:
    calls = [call("a", arguments="not json"), call("b", arguments="[1]"), call("c", arguments="")]
    _, messages = to_anthropic(
        [
            {"role": "assistant", "content": None, "tool_calls": calls},
            *(result(i, "x") for i in "abc"),
        ]
    )
    assert [block["input"] for block in messages[1]["content"]] == [
        {"arguments": "not json"},
        {"arguments": [1]},
        {},
    ]


@pytest.mark.parametrize("seed", range(20))
def test_a_window_in_events_has_every_message_of_its_render(seed: int) -> None:
    window = random_log(seed, 80).window
    events = window_events(window)
    offsets = [
        int(event["position"].split("-")[1]) for event in events if event["type"] != "summary"
    ]
    assert len(set(offsets)) == len(offsets)
    texts = [event.get("content") for event in events]
    for entry in window.tail:
        body = json.loads(entry.body) if entry.body and entry.kind <= 4 else None
        assert body is None or body.get("content") in texts
