"""The JSON Schemas of messages as they are appended, in OpenAI's chat format and in Anthropic's:
what ``projections.window.bodies`` and ``projections.formats.anthropic_input`` take.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from projections.formats import anthropic_input
from projections.window import bodies
from threadfold.schemas.closed import closed
from threadfold.schemas.structs import ID, TIME, Schema

_TEXT: Schema = {"type": "string"}
_NULL: Schema = {"type": "null"}


def new_messages(parts: Mapping[str, Schema]) -> dict[str, Schema]:
    """The components ``NewOpenAIMessage`` and ``NewAnthropicMessage``; ``parts`` are those of the
    events (``threadfold.schemas.structs.components``).
    """
    message, call = parts["Message"]["properties"], parts["ToolCall"]["properties"]
    result = parts["ToolResult"]["properties"]
    openai, anthropic = _openai(message, call, result), _anthropic(message, call, result)
    return {
        "NewOpenAIMessage": closed(openai, bodies.MESSAGE_FIELDS, parts),
        "NewAnthropicMessage": closed(anthropic, anthropic_input.MESSAGE_FIELDS, parts),
    }


def _openai(message: Schema, call: Schema, result: Schema) -> Schema:
    said = {"anyOf": [one for one in message["content"]["anyOf"] if one != _NULL]}
    function = {"name": call["name"], "arguments": call["arguments"]}
    calls = _list(
        _object({"id": call["id"], "function": _object(function, *function)}, "id", "function")
    )
    named = {"name": message["name"], "model": _or_null(_TEXT)}
    none = {"tool_calls": {"type": ["array", "null"], "maxItems": 0}}
    speaker = {"role": {"enum": ["system", "developer", "user"]}}
    asks = {"tool_calls": {**calls, "minItems": 1, "maxItems": message["tool_calls"]["maxItems"]}}
    return _message(
        "A message in OpenAI's chat format.",
        _object({**speaker, "content": said, **named, **none}, "role", "content"),
        _object(
            {**_role("assistant"), "content": _or_null(said), **named, **asks}, "role", "tool_calls"
        ),
        _object(
            {
                **_role("assistant"),
                "content": _or_null(said),
                "refusal": _or_null(_TEXT),
                **named,
                **none,
            },
            "role",
        ),
        _object(
            {
                **_role("tool"),
                "tool_call_id": result["tool_call_id"],
                "content": _or_null(said),
                "name": result["name"],
                "model": _NULL,
                **none,
            },
            "role",
            "tool_call_id",
        ),
    )


def _anthropic(message: Schema, call: Schema, result: Schema) -> Schema:
    text = _block("text", text=_TEXT)
    media = _block("base64", media_type=_TEXT, data=_TEXT)
    address = _block("url", url=_TEXT)
    image = _block("image", source={"anyOf": [media, address]})
    inner = {**_list({"anyOf": [text, image]}), "minItems": 1}
    sources = [
        media,
        address,
        _block("text", data=_TEXT),
        _block("file", file_id=_TEXT),
        _block("content", content={"anyOf": [_TEXT, inner]}),
    ]
    document = _with(_block("document", source={"anyOf": sources}), title=_or_null(_TEXT))
    shown = [text, image, document]
    given = _with(
        _block("tool_result", tool_use_id=result["tool_call_id"]),
        content={"anyOf": [_TEXT, _list({"anyOf": shown}), _NULL]},
        is_error={"type": ["boolean", "null"]},
    )
    asked = _block("tool_use", id=call["id"], name=call["name"], input={"type": "object"})
    thought = _with(_block("thinking", thinking=_TEXT), signature=_or_null(_TEXT))
    hidden = _block("redacted_thinking", data=_TEXT)
    count = {"type": "integer", "minimum": 0, "maximum": 1 << 50}
    usage = {
        "type": "object",
        "additionalProperties": {"anyOf": [count, {"type": ["string", "null", "object"]}]},
    }
    named = {"model": _or_null(_TEXT)}

    def content(*blocks: Schema, least: int = 0) -> dict[str, Any]:
        several = {**_list({"anyOf": list(blocks)}), "minItems": least}
        return {"content": {"anyOf": [_TEXT, several]}}

    return _message(
        "A message in Anthropic's format. Send `system` as a first message with that role.",
        _object({**_role("system"), **content(text), **named}, "role", "content"),
        _object({**_role("user"), **content(*shown, given, least=1), **named}, "role", "content"),
        _object(
            {
                **_role("assistant"),
                **content(text, asked, thought, hidden),
                **named,
                "usage": usage,
            },
            "role",
            "content",
        ),
    )


def _message(about: str, *kinds: Schema) -> Schema:
    """A message of one of some kinds, with the fields of them all."""
    own = {"id": _or_null(ID), "time": _or_null(TIME)}
    return {"description": about, "anyOf": [_with(kind, **own) for kind in kinds]}


def _role(name: str) -> Schema:
    return {"role": {"const": name}}


def _object(properties: Schema, *required: str) -> Schema:
    return {"type": "object", "properties": properties, "required": list(required)}


def _block(kind: str, **properties: Schema) -> Schema:
    """An object with this ``type`` and fields, all required."""
    return _object({"type": {"const": kind}, **properties}, "type", *properties)


def _with(schema: Schema, **more: Schema) -> Schema:
    return {**schema, "properties": {**schema["properties"], **more}}


def _list(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def _or_null(schema: Schema) -> Schema:
    return {"anyOf": [schema, _NULL]}
