"""Anthropic's Messages read into flat events: the way in beside
``projections.window.bodies.to_flat``.

One message may become several events: results stand in a user's message there, and are events of
their own here.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from typing import Any

import msgspec

from projections.errors import InvalidEvent
from projections.events.known_fields import ByType, Known, fields
from projections.events.type_errors import word_for
from projections.formats.anthropic import PROVIDER
from projections.names import quoted

_SOURCE = "type media_type data url file_id"
_TEXT = fields("type cache_control text citations")
_IMAGE = fields("type cache_control", source=fields(_SOURCE))
_DOCUMENT = fields(
    "type cache_control title context citations",
    source=fields(_SOURCE, content=ByType({"text": _TEXT, "image": _IMAGE})),
)
_INNER: dict[str, Known] = {"text": _TEXT, "image": _IMAGE, "document": _DOCUMENT}
_BLOCKS = ByType(
    {
        **_INNER,
        "tool_use": fields("type cache_control id name input caller"),
        "tool_result": fields("type cache_control tool_use_id is_error", content=ByType(_INNER)),
        "thinking": fields("type cache_control thinking signature"),
        "redacted_thinking": fields("type cache_control data"),
    }
)
MESSAGE_FIELDS = fields(
    "id time role model usage type stop_reason stop_sequence stop_details container"
    " context_management",
    content=_BLOCKS,
)
"""What a message of Anthropic's may have, a response's included. Those from ``type`` on are left
out of the events, and of a block ``cache_control``, ``citations``, ``context`` and ``caller``.
"""


def from_anthropic(message: object, where: str) -> list[dict[str, Any]]:
    """Turn one message of Anthropic's format into flat events, in order; fields it has beside these
    are left out.

    ``tool_result`` blocks of a user's message become ``tool.result`` events in front of what else
    the user says. ``tool_use`` blocks become ``tool_calls``, whose place among the texts is not
    kept. ``thinking`` becomes ``reasoning`` with its signature, ``redacted_thinking`` one with a
    signature and no text. The top-level ``system`` is given as a message ``{"role": "system",
    "content"}``. Where the message has an ``id``, the events have it, ``ID-2``, ``ID-3`` and so on.

    Args:
        message: a decoded JSON value.
        where: how to name it in an error, like ``message 3``.

    Raises:
        InvalidEvent: it is not an object, its role is none of Anthropic's, or a block is of a kind
            or form that is not taken; other faults are found by the event's own check.
    """
    if not isinstance(message, dict):
        raise InvalidEvent(f"{where}: expected an object, got {type(message).__name__}")
    role, content = message.get("role"), message.get("content")
    if role not in ("user", "assistant", "system"):
        raise InvalidEvent(
            f"{where}: field role: {quoted(role)} is not one of user, assistant, system"
        )
    if isinstance(content, str):
        found: list[dict[str, Any]] = [{"type": "message", "role": role, "content": content}]
    else:
        found = _from_blocks(role, _blocks(content, f"{where}: field content"), where)
    kept = {name: message[name] for name in ("time", "model") if message.get(name) is not None}
    for i, flat in enumerate(found, 1):
        flat.update(
            (name, value)
            for name, value in kept.items()
            if name == "time" or flat["type"] == "message"
        )
        if message.get("id") is not None:
            flat["id"] = _derived(message["id"], i)
    if role == "assistant" and isinstance(message.get("usage"), dict):
        found[-1]["usage"] = _usage(message["usage"])
    return found


def _usage(reported: dict[str, Any]) -> dict[str, int]:
    """What a response reports of its call; tokens read from or written into a cache were sent as
    well.
    """
    counts = {
        name: n for name, n in reported.items() if isinstance(n, int) and not isinstance(n, bool)
    }
    sent = sum(
        counts.get(name, 0)
        for name in ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
    )
    return {"input_tokens": sent, "output_tokens": counts.get("output_tokens", 0)}


def _derived(given: object, number: int) -> object:
    return f"{given}-{number}" if number > 1 and isinstance(given, str) else given


def _blocks(value: object, field: str) -> list[dict[str, Any]]:
    """Content as a list of blocks, each an object."""
    if not isinstance(value, list):
        raise InvalidEvent(
            f"{field}: " + ("missing" if value is None else "expected text or a list of blocks")
        )
    for i, block in enumerate(value):
        if not isinstance(block, dict):
            raise InvalidEvent(f"{field}[{i}]: expected an object, got {type(block).__name__}")
    return value


def _from_blocks(role: str, blocks: list[dict[str, Any]], where: str) -> list[dict[str, Any]]:
    results: list[dict[str, Any]] = []
    parts: list[dict[str, Any]] = []
    calls: list[dict[str, Any]] = []
    for i, block in enumerate(blocks):
        field, kind = f"{where}: field content[{i}]", block.get("type")
        if kind == "tool_result" and role == "user":
            results.append(_result(block, field))
        elif kind == "tool_use" and role == "assistant":
            calls.append(_call(block, field))
        else:
            parts += _parts(block, field, _TAKEN[role])
    if not parts and not calls and (results or role == "user"):
        if not results:
            raise InvalidEvent(f"{where}: field content: expected 1 or more blocks")
        return results
    flat: dict[str, Any] = {"type": "message", "role": role, "content": _joined(parts)}
    if calls:
        flat["tool_calls"] = calls
    elif flat["content"] is None:
        flat["content"] = ""
    return [*results, flat]


def _joined(parts: list[dict[str, Any]]) -> Any:
    """Parts as content: one text alone is a string, and nothing is null."""
    if len(parts) == 1 and parts[0]["type"] == "text":
        return parts[0]["text"]
    return parts or None


def _result(block: dict[str, Any], field: str) -> dict[str, Any]:
    content = block.get("content")
    if content is not None and not isinstance(content, str):
        blocks = _blocks(content, f"{field}.content")
        content = _joined(
            [
                p
                for i, b in enumerate(blocks)
                for p in _parts(b, f"{field}.content[{i}]", _IN_RESULT)
            ]
        )
    flat = {
        "type": "tool.result",
        "tool_call_id": _text_of(block, "tool_use_id", field),
        "content": content,
    }
    if block.get("is_error"):
        flat["is_error"] = block["is_error"]
    return flat


def _call(block: dict[str, Any], field: str) -> dict[str, Any]:
    given = block.get("input")
    if not isinstance(given, dict):
        raise InvalidEvent(
            f"{field}.input: " + ("missing" if given is None else "expected an object")
        )
    try:
        arguments = msgspec.json.encode(given).decode()
    except (OverflowError, UnicodeEncodeError, RecursionError) as error:
        raise InvalidEvent(f"{field}.input: it cannot be written as JSON: {error}") from None
    return {
        "id": _text_of(block, "id", field),
        "name": _text_of(block, "name", field),
        "arguments": arguments,
    }


def _parts(block: dict[str, Any], field: str, taken: frozenset[str]) -> list[dict[str, Any]]:
    """The parts of one block; a document may hold several."""
    kind = block.get("type")
    if not isinstance(kind, str) or kind not in taken:
        raise InvalidEvent(
            f"{field}.type: {quoted(kind)} is not one of {', '.join(sorted(taken))} here"
        )
    return _PARTS[kind](block, field)


def _text(block: dict[str, Any], field: str) -> list[dict[str, Any]]:
    return [{"type": "text", "text": _text_of(block, "text", field)}]


def _image(block: dict[str, Any], field: str) -> list[dict[str, Any]]:
    source, kind = _source(block, field)
    if kind == "base64":
        return [{"type": "image_url", "image_url": {"url": _data_url(source, f"{field}.source")}}]
    if kind == "url":
        return [
            {"type": "image_url", "image_url": {"url": _text_of(source, "url", f"{field}.source")}}
        ]
    raise InvalidEvent(f"{field}.source.type: {quoted(kind)} is not one of base64, url")


def _document(block: dict[str, Any], field: str) -> list[dict[str, Any]]:
    source, kind = _source(block, field)
    inner = f"{field}.source"
    if kind == "content":
        content = source.get("content")
        if isinstance(content, str):
            return [{"type": "text", "text": content}]
        return [
            p
            for i, b in enumerate(_blocks(content, f"{inner}.content"))
            for p in _parts(b, f"{inner}.content[{i}]", _IN_DOCUMENT)
        ]
    if kind == "base64":
        file = {"file_data": _data_url(source, inner)}
    elif kind == "text":
        text = _text_of(source, "data", inner)
        file = {
            "file_data": (
                f"data:text/plain;base64,{b64encode(text.encode('utf-8', 'replace')).decode()}"
            )
        }
    elif kind == "url":
        file = {"file_url": _text_of(source, "url", inner)}
    elif kind == "file":
        file = {"file_id": _text_of(source, "file_id", inner)}
    else:
        raise InvalidEvent(
            f"{inner}.type: {quoted(kind)} is not one of base64, content, file, text, url"
        )
    if block.get("title") is not None:
        file["filename"] = _text_of(block, "title", field)
    return [{"type": "file", "file": file}]


def _thinking(block: dict[str, Any], field: str) -> list[dict[str, Any]]:
    part = {"type": "reasoning", "text": _text_of(block, "thinking", field), "provider": PROVIDER}
    if block.get("signature") is not None:
        part["signature"] = _text_of(block, "signature", field)
    return [part]


def _redacted(block: dict[str, Any], field: str) -> list[dict[str, Any]]:
    return [
        {"type": "reasoning", "signature": _text_of(block, "data", field), "provider": PROVIDER}
    ]


_PARTS: dict[str, Callable[[dict[str, Any], str], list[dict[str, Any]]]] = {
    "text": _text,
    "image": _image,
    "document": _document,
    "thinking": _thinking,
    "redacted_thinking": _redacted,
}
_TAKEN = {
    "user": frozenset({"text", "image", "document"}),
    "assistant": frozenset({"text", "thinking", "redacted_thinking"}),
    "system": frozenset({"text"}),
}
_IN_RESULT = frozenset({"text", "image", "document"})
_IN_DOCUMENT = frozenset({"text", "image"})


def _source(block: dict[str, Any], field: str) -> tuple[dict[str, Any], object]:
    source = block.get("source")
    if not isinstance(source, dict):
        raise InvalidEvent(
            f"{field}.source: " + ("missing" if source is None else "expected an object")
        )
    return source, source.get("type")


def _data_url(source: dict[str, Any], field: str) -> str:
    return f"data:{_text_of(source, 'media_type', field)};base64,{_text_of(source, 'data', field)}"


def _text_of(block: dict[str, Any], name: str, field: str) -> str:
    value = block.get(name)
    if not isinstance(value, str):
        raise InvalidEvent(
            f"{field}.{name}: "
            + ("missing" if value is None else f"expected text, got {word_for(value)}")
        )
    return value
