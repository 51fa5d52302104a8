"""Checks that OpenAI's chat completions accept messages. Written from the API's reference; it
imports nothing of the code that makes renders, so that it can judge them.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Any

ROLES = {"system", "developer", "user", "assistant", "tool"}
FIELDS = {
    "system": {"role", "content", "name"},
    "developer": {"role", "content", "name"},
    "user": {"role", "content", "name"},
    "assistant": {"role", "content", "name", "tool_calls"},
    "tool": {"role", "content", "name", "tool_call_id"},
}
PARTS = {"user": {"text", "image_url", "file"}}
CALL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
AUTHOR = re.compile(r"[^\s<|\\/>]+")


def problems(messages: bytes | list[Any]) -> list[str]:
    """The faults of the messages, one sentence each; empty for valid messages.

    Exactly one tool message answers each call, before any other message follows; answers may come
    in any order. Ids differ within one message's calls; another message may use them again.
    """
    parsed = json.loads(messages) if isinstance(messages, bytes) else messages
    if not isinstance(parsed, list):
        return ["it is not a list"]
    wrong: list[str] = []
    waiting: Counter[str] = Counter()
    for i, message in enumerate(parsed):
        if not isinstance(message, dict) or message.get("role") not in ROLES:
            wrong.append(f"{i}: not a message of a known role")
            continue
        wrong += [f"{i}: {text}" for text in _own(message)]
        if message["role"] == "tool":
            if not waiting[str(message.get("tool_call_id"))]:
                wrong.append(
                    f"{i}: a result of {message.get('tool_call_id')!r}, which nobody waits for here"
                )
            else:
                waiting[message["tool_call_id"]] -= 1
            continue
        if +waiting:
            wrong.append(
                f"{i}: calls {sorted(+waiting)} have no result directly after their message"
            )
        calls = message.get("tool_calls")
        waiting = Counter(
            call["id"]
            for call in (calls if isinstance(calls, list) else ())
            if isinstance(call, dict) and isinstance(call.get("id"), str)
        )
        wrong += [
            f"{i}: two calls of one message have the id {id_!r}"
            for id_, n in waiting.items()
            if n > 1
        ]
    if +waiting:
        wrong.append(f"end: calls {sorted(+waiting)} have no result")
    return wrong


def _own(message: dict[str, Any]) -> list[str]:
    """What is wrong with one message by itself."""
    role = message["role"]
    wrong = [
        f"field {name} is not one of a {role} message"
        for name in sorted(message.keys() - FIELDS[role])
    ]
    wrong += _content(message, role)
    if "name" in message and not (
        isinstance(message["name"], str) and AUTHOR.fullmatch(message["name"])
    ):
        wrong.append(f"a name that is not one: {message['name']!r}")
    if role == "tool" and not (
        isinstance(message.get("tool_call_id"), str) and message["tool_call_id"]
    ):
        wrong.append("an empty tool_call_id")
    if "tool_calls" in message:
        calls = message["tool_calls"]
        if not isinstance(calls, list) or not calls:
            return [*wrong, "tool_calls is not a filled list"]
        wrong += [text for call in calls for text in _call(call)]
    return wrong


def _content(message: dict[str, Any], role: str) -> list[str]:
    content = message.get("content")
    if content is None:
        return [] if role == "assistant" and message.get("tool_calls") else ["no content"]
    if isinstance(content, str):
        return []
    if not isinstance(content, list) or not content:
        return ["content is neither text nor a filled list of parts"]
    allowed = PARTS.get(role, {"text"})
    wrong = []
    for part in content:
        kind = part.get("type") if isinstance(part, dict) else None
        if kind not in allowed:
            wrong.append(f"a part of type {kind!r} in a {role} message")
        elif kind == "text" and not isinstance(part.get("text"), str):
            wrong.append("a text part without text")
        elif kind == "image_url" and not (
            isinstance(part.get("image_url"), dict)
            and isinstance(part["image_url"].get("url"), str)
        ):
            wrong.append("an image part without a url")
        elif kind == "file" and not isinstance(part.get("file"), dict):
            wrong.append("a file part without a file")
    return wrong


def _call(call: object) -> list[str]:
    if (
        not isinstance(call, dict)
        or call.get("type") != "function"
        or not isinstance(call.get("function"), dict)
    ):
        return ["a call that is not a function's"]
    wrong = [] if isinstance(call.get("id"), str) and call["id"] else ["a call without an id"]
    function = call["function"]
    if not (isinstance(function.get("name"), str) and CALL_NAME.fullmatch(function["name"])):
        wrong.append(f"a call of {function.get('name')!r}, which no function can be named")
    if not isinstance(function.get("arguments"), str):
        wrong.append("arguments that are not a string")
    return wrong
