"""Anthropic's Messages read into events: what becomes of each block, what is refused, and the way
there and back.
"""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest

from projections.errors import InvalidEvent
from projections.events import codec
from projections.events import types as events
from projections.events.validation import make_record
from projections.formats.anthropic import to_anthropic
from projections.formats.anthropic_input import from_anthropic
from projections.names import Key
from projections.window.bodies import message_body, result_body

PDF = {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="}


def use(id_: str, **arguments: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": id_, "name": "look", "input": arguments}


def answer(id_: str, content: Any, **fields: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": id_, "content": content, **fields}


def text(said: str) -> dict[str, Any]:
    return {"type": "text", "text": said}


def image(data: str) -> dict[str, Any]:
    return {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}}


def test_results_stand_before_what_else_the_user_says_each_with_an_id_of_its_own() -> None:
    message = {
        "id": "u1", "role": "user", "time": "2026-01-31T12:00:00Z",
        "content": [text("first"), answer("a", [text("one"), image("AA==")]), answer("b", "bad", is_error=True), text("second")],
    }  # fmt: skip
    data = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
    assert from_anthropic(message, "message 1") == [
        {
            "type": "tool.result",
            "tool_call_id": "a",
            "content": [text("one"), data],
            "id": "u1",
            "time": message["time"],
        },
        {
            "type": "tool.result",
            "tool_call_id": "b",
            "content": "bad",
            "is_error": True,
            "id": "u1-2",
            "time": message["time"],
        },
        {
            "type": "message",
            "role": "user",
            "content": [text("first"), text("second")],
            "id": "u1-3",
            "time": message["time"],
        },
    ]
    assert from_anthropic({"role": "user", "content": [answer("a", None)]}, "m") == [
        {"type": "tool.result", "tool_call_id": "a", "content": None}
    ]


def test_thinking_documents_and_calls_become_parts_and_calls() -> None:
    message = {
        "role": "assistant", "model": "claude", "stop_reason": "tool_use",
        "content": [
            {"type": "thinking", "thinking": "hm", "signature": "s1"}, {"type": "redacted_thinking", "data": "s2"}, text("I look."),
            use("a", city="Oslo", days=[1, 2]), use("b"),
        ],
    }  # fmt: skip
    assert from_anthropic(message, "message 1") == [
        {
            "type": "message", "role": "assistant", "model": "claude",
            "content": [
                {"type": "reasoning", "text": "hm", "signature": "s1", "provider": "anthropic"},
                {"type": "reasoning", "signature": "s2", "provider": "anthropic"}, text("I look."),
            ],
            "tool_calls": [
                {"id": "a", "name": "look", "arguments": '{"city":"Oslo","days":[1,2]}'}, {"id": "b", "name": "look", "arguments": "{}"},
            ],
        }
    ]  # fmt: skip
    sources = [
        {"type": "document", "source": PDF, "title": "a.pdf"},
        {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "ä"}},
        {"type": "document", "source": {"type": "url", "url": "https://example.org/a.pdf"}},
        {"type": "document", "source": {"type": "file", "file_id": "f1"}},
        {"type": "document", "source": {"type": "content", "content": [text("inside")]}},
        {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}},
    ]
    (flat,) = from_anthropic({"role": "user", "content": sources}, "message 1")
    assert flat["content"] == [
        {
            "type": "file",
            "file": {"file_data": "data:application/pdf;base64,JVBERi0=", "filename": "a.pdf"},
        },
        {"type": "file", "file": {"file_data": "data:text/plain;base64,w6Q="}},
        {"type": "file", "file": {"file_url": "https://example.org/a.pdf"}},
        {"type": "file", "file": {"file_id": "f1"}},
        text("inside"),
        {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}},
    ]


def test_plain_texts_and_the_system_prompt_stay_texts() -> None:
    assert from_anthropic({"role": "system", "content": [text("You help.")]}, "m") == [
        {"type": "message", "role": "system", "content": "You help."}
    ]
    assert from_anthropic({"role": "user", "content": "hi"}, "m") == [
        {"type": "message", "role": "user", "content": "hi"}
    ]
    assert from_anthropic({"role": "assistant", "content": []}, "m") == [
        {"type": "message", "role": "assistant", "content": ""}
    ]


@pytest.mark.parametrize(
    ("message", "part"),
    [
        ("hi", "expected an object"),
        ({"role": "tool", "content": "x"}, "field role: 'tool'"),
        ({"role": "user"}, "field content: missing"),
        ({"role": "user", "content": []}, "field content: expected 1 or more"),
        ({"role": "user", "content": 5}, "field content: expected text or a list"),
        ({"role": "user", "content": ["x"]}, "field content[0]: expected an object"),
        (
            {"role": "user", "content": [text("a"), {"type": "text"}]},
            "field content[1].text: missing",
        ),
        (
            {"role": "user", "content": [use("a")]},
            "field content[0].type: 'tool_use' is not one of document, image, text",
        ),
        ({"role": "user", "content": [{"type": ["text"]}]}, "field content[0].type"),
        (
            {"role": "assistant", "content": [answer("a", "x")]},
            "field content[0].type: 'tool_result'",
        ),
        (
            {"role": "assistant", "content": [{**use("a"), "input": "x"}]},
            "field content[0].input: expected an object",
        ),
        (
            {"role": "assistant", "content": [{**use("a"), "id": None}]},
            "field content[0].id: missing",
        ),
        ({"role": "user", "content": [{"type": "image"}]}, "field content[0].source: missing"),
        (
            {"role": "user", "content": [{"type": "image", "source": {"type": "file"}}]},
            "field content[0].source.type: 'file'",
        ),
        (
            {
                "role": "user",
                "content": [{"type": "image", "source": {"type": "base64", "data": 1}}],
            },
            "source.media_type: missing",
        ),
        (
            {"role": "user", "content": [answer("a", [{"type": "video"}])]},
            "field content[0].content[0].type: 'video'",
        ),
        (
            {"role": "user", "content": [{"type": "document", "source": {"type": "x"}}]},
            "field content[0].source.type: 'x'",
        ),
    ],
)
def test_what_is_wrong_is_named_by_message_and_field(message: Any, part: str) -> None:
    with pytest.raises(InvalidEvent) as caught:
        from_anthropic(message, "message 3")
    assert str(caught.value).startswith("message 3: ")
    assert part in str(caught.value)


def chat(seed: int) -> list[dict[str, Any]]:
    """A chat that is already as the converter writes one: texts as blocks, in turns, results first
    and whole.
    """
    rnd = random.Random(seed)
    messages: list[dict[str, Any]] = []
    asked: list[str] = []
    for turn in range(rnd.randint(1, 8)):
        said = [
            text(f"u{turn}.{i}") if rnd.random() < 0.7 else image(f"A{turn}{i}A")
            for i in range(rnd.randint(0 if asked else 1, 3))
        ]
        messages.append(
            {"role": "user", "content": [answer(id_, [text(f"r {id_}")]) for id_ in asked] + said}
        )
        asked = [f"call-{turn}-{i}" for i in range(rnd.randint(0, 3))]
        spoken = [text(f"a{turn}.{i}") for i in range(rnd.randint(0 if asked else 1, 2))]
        messages.append(
            {
                "role": "assistant",
                "content": spoken + [use(id_, n=turn, deep={"x": [None, 1.5]}) for id_ in asked],
            }
        )
    return messages[:-1] if asked else messages


@pytest.mark.parametrize("seed", range(50))
def test_there_and_back_again_is_the_same_up_to_merging(seed: int) -> None:
    messages = [{"role": "system", "content": "You help."}, *chat(seed)]
    bodies = []
    for i, message in enumerate(messages, 1):
        for flat in from_anthropic(message, f"message {i}"):
            make_record(
                Key("t", "c"), flat, where="event 1", now="2026-01-31T12:00:00Z", new_id="x"
            )
            fields = {name: value for name, value in flat.items() if name != "type"}
            data = msgspec.convert(fields, codec.DATA_TYPES[flat["type"]])
            bodies.append(
                result_body(data) if isinstance(data, events.ToolResult) else message_body(data)
            )
    system, back = to_anthropic([msgspec.json.decode(body) for body in bodies])
    assert system == "You help."
    assert back == messages[1:]


def test_the_usage_of_a_response_counts_what_a_cache_gave() -> None:
    usage = {
        "input_tokens": 10,
        "cache_read_input_tokens": 2000,
        "cache_creation_input_tokens": 5,
        "output_tokens": 7,
        "service_tier": "x",
    }
    (flat,) = from_anthropic({"role": "assistant", "content": "yes", "usage": usage}, "message 1")
    assert flat["usage"] == {"input_tokens": 2015, "output_tokens": 7}
