"""What is pinned has a limit: one list that brings more is refused, with the sizes."""

from __future__ import annotations

import json

import pytest

from projections.errors import InvalidEvent
from projections.policy.policy import Rules
from threadfold.service.append_body import AppendBody, Form
from threadfold.service.drafts import Drafter

RULES = Rules({"profile": "sliding"})


SYSTEM: dict[str, object] = {"type": "message", "role": "system", "content": "word " * 400}
LIMIT = RULES.for_conversation("acme", None).pinned_limit


def drafted(*flats: dict[str, object], limit: int = LIMIT) -> int:
    """How many drafts are made of a list for a conversation that may pin ``limit`` tokens."""
    items = [("c", flat) for flat in flats]
    drafts = Drafter("acme", RULES, 4, 8 << 20).drafts(items, "event", False, None)
    for excess in drafts.pinned_excess:
        excess.check(limit)
    return len(drafts.records)


def test_system_text_over_the_lanes_limit_is_refused_with_the_sizes() -> None:
    with pytest.raises(
        InvalidEvent,
        match=r"event 2: its 40\d tokens .* may have 300 \(policy key pinned_max_tokens\)",
    ):
        drafted(
            {"type": "message", "role": "user", "content": "hello"},
            SYSTEM,
        )


def test_the_parts_of_one_list_count_together() -> None:
    part: dict[str, object] = {"type": "message", "role": "developer", "content": "word " * 200}
    assert drafted(part) == 1
    with pytest.raises(InvalidEvent, match=r"event 2: .* to 41"):
        drafted(part, part)


def test_pinned_results_count_and_others_do_not() -> None:
    result: dict[str, object] = {
        "type": "tool.result",
        "tool_call_id": "a",
        "content": "word " * 400,
    }
    assert drafted(result) == 1
    with pytest.raises(InvalidEvent, match="pinned_max_tokens"):
        drafted({**result, "pinned": True})


def test_a_conversation_that_opens_with_a_limit_of_its_own_is_held_to_it() -> None:
    opened: dict[str, object] = {
        "type": "conversation.opened",
        "policy": {"pinned_max_tokens": 1000},
    }
    assert drafted(opened, SYSTEM) == 2
    with pytest.raises(InvalidEvent, match=r"event 3: .* may have 1000 "):
        drafted(opened, SYSTEM, {**SYSTEM, "content": "word " * 700}, limit=5_000)


def test_what_comes_before_a_conversation_is_opened_is_held_to_the_limit_before() -> None:
    opened: dict[str, object] = {
        "type": "conversation.opened",
        "policy": {"pinned_max_tokens": 1000},
    }
    with pytest.raises(InvalidEvent, match=r"event 1: .* may have 300 "):
        drafted(SYSTEM, opened)


def test_a_conversation_that_was_opened_with_a_larger_limit_is_held_to_that_one() -> None:
    assert drafted(SYSTEM, limit=500) == 1
    with pytest.raises(InvalidEvent, match=r"event 2: .* may have 500 "):
        drafted(SYSTEM, SYSTEM, limit=500)


def test_what_an_anthropic_message_pins_is_named_by_the_message() -> None:
    result = {"type": "tool_result", "tool_use_id": "a", "content": "word"}
    messages = [
        {"role": "user", "content": [result, {"type": "text", "text": "word"}]},
        {"role": "system", "content": "word " * 400},
    ]
    made = AppendBody(json.dumps(messages).encode(), Form.ANTHROPIC, "c")
    drafts = made.drafts(Drafter("acme", RULES, 4, 8 << 20), None)
    assert len(drafts.records) == 3
    assert [excess.where for excess in drafts.pinned_excess] == ["message 2"]
