"""The OpenAI chat format: the JSON bytes of a message as tail entries keep it, and reading such
messages into events.

Tail entries hold these bytes, so that the common read joins them and parses nothing.
"""

from __future__ import annotations

from typing import Any

import msgspec

from projections.errors import InvalidEvent
from projections.events import types as events
from projections.events.known_fields import fields, known_fields
from projections.events.provider_limits import author_name, call_ids, function_name
from projections.events.token_cost import CALL_OVERHEAD
from projections.events.tokenizer import MESSAGE_OVERHEAD, count
from projections.events.type_errors import word_for
from projections.names import quoted

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.decode
_WORDS = {"image_url": "[an image]", "file": "[a file]"}


class _Function(msgspec.Struct):
    name: str
    arguments: str


class _Call(msgspec.Struct):
    id: str
    function: _Function
    type: str = "function"


class _Message(msgspec.Struct, omit_defaults=True):
    role: str
    content: Any = msgspec.UNSET
    name: str | None = None
    tool_calls: list[_Call] | None = None


class _Text(msgspec.Struct):
    role: str
    content: str


class _Result(msgspec.Struct, omit_defaults=True):
    tool_call_id: str
    content: Any
    name: str | None = None
    role: str = msgspec.field(default="")


def _parts(content: events.Content) -> Any:
    """Content as OpenAI takes it: a provider's reasoning never goes to another one."""
    if isinstance(content, list):
        return [part for part in content if not isinstance(part, events.ReasoningPart)]
    return content


def message_body(data: events.Message) -> bytes:
    """The JSON bytes of a message; reasoning parts are left out, ``content`` is null only beside
    tool calls.
    """
    calls = None
    if data.tool_calls:
        ids = call_ids([call.id for call in data.tool_calls])
        named = zip(ids, data.tool_calls, strict=True)
        calls = [
            _Call(id_, _Function(function_name(call.name), call.arguments)) for id_, call in named
        ]
    content = _parts(data.content)
    if content == []:
        content = None if calls else ""
    return _encode(
        _Message(data.role, content, author_name(data.name) if data.name else None, calls)
    )


def text_body(role: str, text: str) -> bytes:
    """What :func:`message_body` gives for a message of nothing but text; it never has attachments
    (JSON escapes the text's quotes).
    """
    return _encode(_Text(role, text))


def result_body(data: events.ToolResult, call_id: str = "") -> bytes:
    """The JSON bytes of a tool's answer; a null content becomes an empty text. ``call_id``: under
    which id its call is sent, if another.
    """
    content = _parts(data.content)
    name = function_name(data.name) if data.name else None
    return _encode(
        _Result(
            call_id or data.tool_call_id,
            "" if content is None or content == [] else content,
            name,
            "tool",
        )
    )


class _Named(msgspec.Struct):
    tool_call_id: str


_decode_named = msgspec.json.Decoder(_Named).decode


def result_call_id(body: bytes) -> str:
    """The call id in the body of a tool's answer."""
    return _decode_named(body).tool_call_id


def with_call_id(body: bytes, call_id: str) -> bytes:
    """The body of a tool's answer under another call id; empty where it is."""
    return _encode({**msgspec.json.decode(body), "tool_call_id": call_id}) if body else body


def has_attachments(body: bytes) -> bool:
    """Whether a message's body may hold an image or a file (its text may only look so)."""
    return b'"type":"image_url"' in body or b'"type":"file"' in body


def text_only(body: bytes) -> bytes:
    """A message's body with a word in place of each image and file: OpenAI takes those from the
    user alone.

    The tail keeps them, as other providers take them from tools, too.
    """
    if not has_attachments(body):
        return body
    message = msgspec.json.decode(body)
    message["content"] = [
        {"type": "text", "text": _WORDS[p["type"]]} if p["type"] in _WORDS else p
        for p in message["content"]
    ]
    return msgspec.json.encode(message)


def result_text(message: dict[str, Any]) -> str:
    """The text of a message's content, its parts joined by line ends; a word stands for an image or
    a file.
    """
    content = message.get("content")
    if content is None or isinstance(content, str):
        return content or ""
    return "\n".join(
        part["text"] if part["type"] == "text" else _WORDS.get(part["type"], "") for part in content
    )


def has_text(body: bytes) -> bool:
    """Whether a message's body has text, or a part that stands for itself."""
    return bool(result_text(_decode(body)))


def with_calls(body: bytes, places: list[int], *, keep_text: bool) -> bytes:
    """A message's body with only the calls at ``places`` of those it has, with its text or
    without.
    """
    message = _decode(body)
    calls = [call for i, call in enumerate(message.get("tool_calls") or ()) if i in places]
    kept = {name: value for name, value in message.items() if name != "tool_calls"}
    if calls:
        kept["tool_calls"] = calls
    if not keep_text:
        kept["content"] = None
    return _encode(kept)


def body_tokens(body: bytes, encoding: str) -> int:
    """The tokens of a body that holds text and calls alone, counted."""
    if not body:
        return 0
    message = _decode(body)
    texts = [message.get("name") or "", result_text(message)]
    total = MESSAGE_OVERHEAD + (bool(texts[0]) and message["role"] != "tool")
    for call in message.get("tool_calls") or ():
        total += CALL_OVERHEAD
        texts += (call["function"]["name"], call["function"]["arguments"])
    return total + sum(count(text, encoding) for text in texts if text)


MESSAGE_FIELDS = fields(
    "id time role name model tool_call_id refusal annotations audio function_call parsed reasoning"
    " reasoning_content",
    content=known_fields(events.Message)["content"],
    tool_calls=fields("id type index", function=fields("name arguments")),
)
"""What a message in OpenAI's format may have. Those from ``annotations`` on are left out of the
event, and ``refusal`` where there is content.
"""


def to_flat(message: object, where: str) -> dict[str, Any]:
    """Turn one OpenAI-format message into a flat event (see CONTRACT, Events); fields OpenAI adds
    beside these are left out.

    Args:
        message: a decoded JSON value.
        where: how to name it in an error, like ``message 3``.

    Raises:
        InvalidEvent: it is not an object, or its role is none of OpenAI's; other faults are found
            by the event's own check.
    """
    if not isinstance(message, dict):
        raise InvalidEvent(f"{where}: expected an object, got {word_for(message)}")
    role = message.get("role")
    kept = {
        name: message[name]
        for name in ("id", "time", "name", "content", "model")
        if message.get(name) is not None
    }
    calls = message.get("tool_calls")
    if role == "tool":
        if calls not in (None, []):
            raise InvalidEvent(
                f"{where}: field tool_calls: a message of role tool must not have them"
            )
        answered = {"tool_call_id": message["tool_call_id"]} if "tool_call_id" in message else {}
        return {"type": "tool.result", **kept, **answered}
    if role not in ("system", "developer", "user", "assistant"):
        raise InvalidEvent(
            f"{where}: field role: {quoted(role)} is not one of system, developer, user,"
            " assistant, tool"
        )
    flat: dict[str, Any] = {"type": "message", "role": role, **kept}
    if calls not in (None, []):
        flat["tool_calls"] = _calls_from(calls, where)
    if role == "assistant" and "content" not in flat and "tool_calls" not in flat:
        flat["content"] = message.get("refusal") or ""
    return flat


def _calls_from(calls: object, where: str) -> list[dict[str, Any]]:
    if not isinstance(calls, list):
        raise InvalidEvent(f"{where}: field tool_calls: expected a list, got {word_for(calls)}")
    flat = []
    for i, call in enumerate(calls):
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(function, dict):
            raise InvalidEvent(f"{where}: field tool_calls[{i}].function: expected an object")
        flat.append(
            {
                "id": call.get("id"),
                "name": function.get("name"),
                "arguments": function.get("arguments"),
            }
        )
    return flat
