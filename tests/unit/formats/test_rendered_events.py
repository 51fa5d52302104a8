"""The positions of a context's messages, and the render as flat events."""

from __future__ import annotations

import json

import pytest

from projections.events import types as events
from projections.fold.apply import apply
from projections.formats.context_document import context_document
from projections.render.fit_to_limit import DoesNotFit
from projections.render.render import render_openai
from projections.window.bodies import to_flat
from projections.window.window import Window
from tests.support.histories import KEY, PARTITION, RULES, make_event, random_log
from threadfold.service.documents import document


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("limit", [None, 300])
def test_each_message_has_the_position_of_its_event(seed: int, limit: int | None) -> None:
    window = random_log(seed, 80).window
    try:
        render = render_openai(window, limit)
    except DoesNotFit:
        return
    found = json.loads(context_document(window, render))
    assert len(found["positions"]) == len(found["messages"])
    texts = {window.position_of(e.offset): json.loads(e.body) for e in window.tail if e.body}
    shown = zip(found["positions"], found["messages"], strict=True)
    for position, message in shown:
        if limit is None and position in texts:
            assert message["role"] == texts[position]["role"]
    placed = [position for position in found["positions"] if position is not None]
    assert len(set(placed)) == len(placed)
    rendered = json.loads(document(window, "rendered", limit))
    assert rendered["positions"] == found["positions"]
    assert [event["position"] for event in rendered["messages"]] == found["positions"]
    for event, message in zip(rendered["messages"], found["messages"], strict=True):
        beside = ("position", "reasoning", "is_error")
        assert {k: v for k, v in event.items() if k not in beside} == to_flat(message, "it")
    rest = ("messages", "render_digest")
    assert {k: v for k, v in rendered.items() if k not in rest} == {
        k: v for k, v in found.items() if k not in rest
    }


def test_a_rendered_message_has_its_own_reasoning_though_others_say_the_same() -> None:
    window = Window(KEY, PARTITION, RULES)
    for i, note in enumerate(("first", "second")):
        parts = [events.TextPart("ok"), events.ReasoningPart(signature=note, provider="x")]
        apply(window, 2 * i, make_event(events.Message("user", parts), f"m{i}", 5))
        call = events.Message("assistant", None, tool_calls=[events.ToolCall(f"c{i}", "f", "{}")])
        apply(window, 2 * i + 1, make_event(call, f"a{i}", 5))
    result = events.ToolResult("c0", content="no", is_error=True)
    apply(window, 4, make_event(result, "r", 5))
    found = json.loads(document(window, "rendered"))["messages"]
    assert [event["position"] for event in found] == ["3-0", "3-1", "3-4", "3-2", "3-3", None]
    assert [event["reasoning"][0]["signature"] for event in (found[0], found[3])] == [
        "first",
        "second",
    ]
    assert [event.get("is_error") for event in found if event["type"] == "tool.result"] == [
        True,
        None,
    ]


@pytest.mark.parametrize("role", ["user", "system", "developer"])
def test_both_formats_of_events_give_a_messages_reasoning_also_a_system_messages(
    role: str,
) -> None:
    window = Window(KEY, PARTITION, RULES)
    parts = [events.TextPart("late"), events.ReasoningPart(signature="kept", provider="x")]
    apply(window, 0, make_event(events.Message("user", "q"), "m0", 5))
    apply(window, 1, make_event(events.Message(role, parts), "m1", 5))
    for fmt in ("events", "rendered"):
        found = json.loads(document(window, fmt))["messages"]
        (event,) = (event for event in found if event["position"] == "3-1")
        assert event["reasoning"][0]["signature"] == "kept", fmt
