"""A background of recalled memories among the messages of a context.

It stands right before the newest user's message: everything before it is as it was in the last
call, so that a provider's cache of prompts goes on counting. It is a user's message, never part of
the system lane.
"""

from __future__ import annotations

from typing import Any


def with_background(messages: list[Any], text: str, fmt: str) -> tuple[list[Any], int | None]:
    """The messages with a background, and the place of the message that was added.

    Args:
        fmt: ``openai``: a message is added; ``anthropic``: users and assistants take turns, so the
            newest user's message begins with it, and the place is None.
    """
    at = next((i for i in reversed(range(len(messages))) if _asks(messages[i])), None)
    if fmt == "anthropic":
        return _in_anthropic(messages, text, at), None
    place = len(messages) if at is None else at
    return [*messages[:place], {"role": "user", "content": text}, *messages[place:]], place


def _asks(message: Any) -> bool:
    """Whether it is what a user said, and no tool's result."""
    if message["role"] != "user":
        return False
    content = message.get("content")
    return isinstance(content, str) or not any(
        part.get("type") == "tool_result" for part in content or ()
    )


def _in_anthropic(messages: list[Any], text: str, at: int | None) -> list[Any]:
    part = {"type": "text", "text": text}
    if at is None:
        if messages and messages[-1]["role"] == "user":
            last = messages[-1]
            return [*messages[:-1], {**last, "content": [*last["content"], part]}]
        return [*messages, {"role": "user", "content": [part]}]
    content = messages[at]["content"]
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
    return [*messages[:at], {**messages[at], "content": [part, *parts]}, *messages[at + 1 :]]
