"""What is pinned has a limit: one list that brings more is refused, with the sizes."""

from __future__ import annotations

import pytest

from projections.errors import InvalidEvent
from projections.policy.policy import Rules
from threadfold.service.drafts import Drafter

RULES = Rules({"profile": "sliding"})


def drafted(*flats: dict[str, object]) -> int:
    return len(
        Drafter("acme", RULES, 4, 8 << 20)
        .drafts([("c", flat) for flat in flats], "event", False, None)
        .records
    )


def test_system_text_over_the_lanes_limit_is_refused_with_the_sizes() -> None:
    with pytest.raises(
        InvalidEvent,
        match=r"event 2: its 40\d tokens .* may have 300 \(policy key pinned_max_tokens\)",
    ):
        drafted(
            {"type": "message", "role": "user", "content": "hello"},
            {"type": "message", "role": "system", "content": "word " * 400},
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
    assert drafted(opened, {"type": "message", "role": "system", "content": "word " * 400}) == 2
