"""A background of recalled memories among the messages of a context.

It stands right before the newest user's message: everything before it is as it was in the last
call, so that a provider's cache of prompts goes on counting. It is a user's message, never part of
the system lane.
"""

from __future__ import annotations

from typing import Any

from msgspec import Raw, Struct, json


class _Message(Struct):
    role: str
    content: Raw = Raw(b"null")


class _Part(Struct):
    type: str = ""


def with_background(messages: list[Raw], text: str, fmt: str) -> tuple[list[Any], int | None]:
    """The messages with a background, and the place of the message that was added. Messages are
    JSON; only the one that changes is parsed.

    Args:
        fmt: ``openai``: a message is added; ``anthropic``: users and assistants take turns, so the
            newest user's message begins with it, and the place is None.
    """
    at = next((i for i in reversed(range(len(messages))) if _asks(messages[i])), None)
    if fmt == "anthropic":
        return _in_anthropic(messages, text, at), None
    place = len(messages) if at is None else at
    return [*messages[:place], {"role": "user", "content": text}, *messages[place:]], place


def _asks(raw: Raw) -> bool:
    """Whether it is what a user said, and no tool's result."""
    message = json.decode(raw, type=_Message)
    if message.role != "user":
        return False
    if not _is_list(message.content):
        return True
    parts = json.decode(message.content, type=list[_Part])
    return not any(part.type == "tool_result" for part in parts)


def _in_anthropic(messages: list[Raw], text: str, at: int | None) -> list[Any]:
    added = {"type": "text", "text": text}
    if at is None:
        if messages and json.decode(messages[-1], type=_Message).role == "user":
            return [*messages[:-1], _with_part(messages[-1], added, at_end=True)]
        return [*messages, {"role": "user", "content": [added]}]
    return [*messages[:at], _with_part(messages[at], added, at_end=False), *messages[at + 1 :]]


def _with_part(raw: Raw, added: dict[str, Any], *, at_end: bool) -> dict[str, Any]:
    """A message with one more part of its content, which may be a text alone."""
    message = json.decode(raw, type=dict[str, Raw])
    content = message["content"]
    parts: list[Any] = [{"type": "text", "text": content}]
    if _is_list(content):
        parts = json.decode(content, type=list[Raw])
    return {**message, "content": [*parts, added] if at_end else [added, *parts]}


def _is_list(raw: Raw) -> bool:
    return bytes(memoryview(raw)[:1]) == b"["
