"""Fields that a format does not have are named or left out, at every level."""

from __future__ import annotations

from typing import Any

import pytest

from projections.events import types as events
from projections.events.known_fields import known_fields, unknown_field, without_unknown
from projections.formats import anthropic_input
from projections.window import bodies

EVENT, OPENAI, ANTHROPIC = (
    known_fields(events.Message),
    bodies.MESSAGE_FIELDS,
    anthropic_input.MESSAGE_FIELDS,
)
CALL = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}


def content(**part: Any) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "text", "text": "x"}, part]}


IMAGE = {"url": "https://x/y.png"}


@pytest.mark.parametrize(
    ("known", "message", "field"),
    [
        (EVENT, {"role": "user", "content": "x", "colour": 1}, "colour"),
        (EVENT, content(type="text", text="x", colour=1), "content[1].colour"),
        (
            EVENT,
            content(type="image_url", image_url={**IMAGE, "colour": 1}),
            "content[1].image_url.colour",
        ),
        (EVENT, {"role": "assistant", "tool_calls": [{**CALL}]}, "tool_calls[0].type"),
        (OPENAI, content(type="text", text="x", colour=1), "content[1].colour"),
        (OPENAI, {"role": "assistant", "tool_calls": [CALL, {**CALL, "x": 1}]}, "tool_calls[1].x"),
        (ANTHROPIC, content(type="text", text="x", colour=1), "content[1].colour"),
        (
            ANTHROPIC,
            content(type="image", source={"type": "url", **IMAGE, "colour": 1}),
            "content[1].source.colour",
        ),
        (
            ANTHROPIC,
            content(type="tool_result", content=[{"type": "text", "text": "x", "colour": 1}]),
            "content[1].content[0].colour",
        ),
    ],
)
def test_an_unknown_field_is_named_and_can_be_left_out(
    known: Any, message: dict[str, Any], field: str
) -> None:
    assert unknown_field(message, known) == field
    assert unknown_field(without_unknown(message, known), known) is None


@pytest.mark.parametrize(
    ("known", "message"),
    [
        (EVENT, {"role": "assistant", "content": "x", "usage": {"input_tokens": 1, "cached": 1}}),
        (EVENT, content(type="file", file={"file_id": "f", "more": {"of": "it"}})),
        (OPENAI, {"role": "assistant", "content": None, "refusal": None, "tool_calls": [CALL]}),
        (ANTHROPIC, content(type="text", text="x", cache_control={"type": "ephemeral"})),
        (ANTHROPIC, content(type="tool_use", id="1", name="f", input={"any": [{"thing": 1}]})),
        (ANTHROPIC, {"role": "assistant", "content": [], "usage": {"service_tier": "x"}}),
        (OPENAI, content(type="a-type-there-is-not", colour=1)),
        (OPENAI, content(type=["no", "text"], colour=1)),
    ],
)
def test_what_a_format_has_and_what_is_free_is_kept(known: Any, message: dict[str, Any]) -> None:
    assert unknown_field(message, known) is None
    assert without_unknown(message, known) == message
