"""Where recalled memories stand among the messages of a context."""

from __future__ import annotations

from typing import Any

import msgspec

from projections.formats.background_message import with_background

RULES = {"role": "system", "content": "Be kind."}
CALL = {"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]}
RESULT = {"role": "tool", "tool_call_id": "1", "content": "sunny"}


def said(role: str, content: Any) -> dict[str, Any]:
    return {"role": role, "content": content}


def joined(messages: list[Any], fmt: str) -> tuple[list[Any], int | None]:
    """The messages with the background ``B``, and the place of the one that was added."""
    raw = [msgspec.Raw(msgspec.json.encode(message)) for message in messages]
    found, place = with_background(raw, "B", fmt)
    return msgspec.json.decode(msgspec.json.encode(found)), place


def test_it_stands_before_the_newest_users_message_and_what_is_before_stays() -> None:
    messages = [RULES, said("user", "Hi"), said("assistant", "Hello"), said("user", "Weather?")]
    found, place = joined([*messages, CALL, RESULT], "openai")
    assert found == [*messages[:3], said("user", "B"), messages[3], CALL, RESULT]
    assert place == 3
    assert joined([RULES], "openai") == ([RULES, said("user", "B")], 1)


def test_anthropics_newest_users_message_begins_with_it() -> None:
    result = said("user", [{"type": "tool_result", "tool_use_id": "1", "content": "sunny"}])
    use = said("assistant", [{"type": "tool_use", "id": "1"}])
    part = {"type": "text", "text": "B"}
    asked = said("user", "Weather?")
    found, place = joined([asked, use, result], "anthropic")
    both = said("user", [part, {"type": "text", "text": "Weather?"}])
    assert (found, place) == ([both, use, result], None)
    parts = [said("user", [{"type": "text", "text": "Weather?"}])]
    assert joined(parts, "anthropic")[0] == [both]


def test_without_a_users_message_it_ends_anthropics_messages_in_turn() -> None:
    result = said("user", [{"type": "tool_result", "tool_use_id": "1", "content": "sunny"}])
    part = {"type": "text", "text": "B"}
    hello = said("assistant", [{"type": "text", "text": "Hello"}])
    found, _ = joined([hello], "anthropic")
    assert found == [hello, said("user", [part])]
    found, _ = joined([hello, result], "anthropic")
    assert found == [hello, said("user", [*result["content"], part])]
