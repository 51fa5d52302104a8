"""JSON Schemas of the event types' data, as msgspec derives them from the structs, put into the
words of a reader.

What decodes an event and what describes it is one struct, so the two cannot differ. What a struct's
own check refuses beyond its types (``tool_calls`` of a user's message) stands in the description.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from typing import Any

import msgspec

from projections.events import codec
from projections.events import types as events
from projections.events.size_limits import MAX_CALLS, MAX_NAME
from projections.events.validation import MAX_ID
from projections.fold.memory_acceptance import MAX_TEXT
from projections.names import NAME_PATTERN, POSITION_PATTERN
from threadfold.service.model_call import ModelCalled

Schema = dict[str, Any]


class SummaryVoided(msgspec.Struct):
    """A rollback took a summary back. On the topic of summaries only."""

    summary_id: str
    by: str


DATA: dict[str, type[msgspec.Struct]] = {
    **codec.DATA_TYPES,
    "summary.voided": SummaryVoided,
    "memory.voided": events.MemoryVoided,
    "model.called": ModelCalled,
}
"""Every type's short name and the struct of its data, those of the topics summaries, memories and
renders included.
"""


def plain_text(docstring: str) -> str:
    """A docstring on one line, with code quoted as Markdown does."""
    return re.sub(r"\s+", " ", inspect.cleandoc(docstring)).replace("``", "`")


ABOUT = {kind: plain_text((struct.__doc__ or "").split("\n\n")[0]) for kind, struct in DATA.items()}
"""What each type is for: the first paragraph of its struct's docstring."""

_MOST_NAME: Schema = {"maxLength": MAX_NAME}
_NAME_OF: Schema = {"minLength": 1, **_MOST_NAME}
_PLACE: Schema = {"pattern": f"^{POSITION_PATTERN}$"}
_MEMORY: Mapping[str, Schema] = {
    "memory_id": {"pattern": "^[0-9a-f]{64}$"},
    "memory_type": {"enum": list(events.MEMORY_TYPES)},
    "text": {"maxLength": MAX_TEXT},
    "confidence": {"minimum": 0, "maximum": 1},
    "rollback": _PLACE,
}
_CONSTRAINTS: Mapping[tuple[str, str], Schema] = {
    ("ToolCall", "id"): _NAME_OF,
    ("ToolCall", "name"): _NAME_OF,
    ("Message", "name"): _MOST_NAME,
    ("Message", "tool_calls"): {"maxItems": MAX_CALLS},
    ("ToolResult", "tool_call_id"): _NAME_OF,
    ("ToolResult", "name"): _MOST_NAME,
    ("ToolResultChunk", "spill_id"): _MOST_NAME,
    ("Suspension", "suspension_id"): _MOST_NAME,
    ("Suspension", "expires_at"): {"format": "date-time"},
    ("Resolution", "suspension_id"): _MOST_NAME,
    ("SessionClosed", "after"): _PLACE,
    ("EventDropped", "position"): _PLACE,
    ("Span", "from"): _PLACE,
    ("Span", "to"): _PLACE,
    ("Summary", "summary_id"): _MOST_NAME,
    ("Summary", "previous"): _MOST_NAME,
    ("Summary", "summarizer"): _MOST_NAME,
    ("Summary", "previous_position"): _PLACE,
    ("Summary", "rollback"): _PLACE,
    **{
        (struct.__name__, field.encode_name): limit
        for kind in sorted(codec.MEMORY)
        for struct in (codec.DATA_TYPES[kind],)
        for field in msgspec.structs.fields(struct)
        if (limit := _MEMORY.get(field.encode_name)) is not None
    },
    ("MemoryVoided", "by"): _PLACE,
    ("MemoryVoided", "to"): _PLACE,
    ("MemoryVoided", "position"): _PLACE,
    ("Span", "stands"): {"pattern": "^[01]*$"},
    ("ModelCalled", "render_digest"): {"pattern": "^[0-9a-f]{64}$"},
    ("ModelCalled", "tokens"): {"minimum": 0},
    ("ModelCalled", "latency_ms"): {"minimum": 0},
    ("ModelCalled", "max_tokens"): {"minimum": 1},
    ("ModelCalled", "position"): _PLACE,
    ("ModelCalled", "model"): _NAME_OF,
    ("ModelCalled", "summary_id"): _NAME_OF,
    ("ModelCalled", "policy"): _NAME_OF,
}
"""What validation checks beyond the types, as far as JSON Schema can express it. Each holds for
values of its own type: for null it says nothing.
"""

ID: Schema = {
    "type": "string",
    "minLength": 1,
    "maxLength": MAX_ID,
    "description": "unique in its conversation; a repeat is a duplicate",
}
TIME: Schema = {"type": "string", "format": "date-time", "description": "RFC 3339, with its zone"}
TRACEPARENT: Schema = {
    "type": "string",
    "pattern": "^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$",
    "description": "W3C trace context",
}
NAME: Schema = {"type": "string", "pattern": f"^{NAME_PATTERN}$"}
POSITION: Schema = {
    "type": "string",
    **_PLACE,
    "description": "where an event stands in the log; opaque",
}


def components(template: str, *, discriminators: bool = False) -> dict[str, Schema]:
    """The schemas of all structs by name; references follow ``template`` (``#/$defs/{name}``).

    ``discriminators`` are OpenAPI's and no JSON Schema's: they are left out unless asked for.
    """
    _, found = msgspec.json.schema_components(
        [*DATA.values(), events.Tokens], ref_template=template
    )
    docs = _own_docs([*DATA.values(), events.Tokens])
    made = {}
    for name, schema in found.items():
        schema.pop("description", None)
        if name in docs:
            schema["description"] = docs[name]
        for (owner, field), more in _CONSTRAINTS.items():
            if owner == name:
                schema["properties"][field] |= more
        made[name] = _plain(schema, discriminators)
    for kind, struct in DATA.items():
        made[struct.__name__]["description"] = ABOUT[kind]
    return made


def fields_of(kind: str, parts: Mapping[str, Schema]) -> tuple[dict[str, Schema], list[str]]:
    """The properties of a type's data and the names of those that must be there, out of
    :func:`components`.
    """
    schema = parts[DATA[kind].__name__]
    return dict(schema["properties"]), list(schema.get("required", ()))


def used(schema: Any, parts: Mapping[str, Schema], prefix: str) -> dict[str, Schema]:
    """Those of ``parts`` that a schema refers to, directly or through each other, by name in
    order.
    """
    found: dict[str, Schema] = {}
    waiting = [schema]
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict):
            ref = item.get("$ref")
            if isinstance(ref, str) and ref.startswith(prefix):
                name = ref.removeprefix(prefix)
                if name not in found and name in parts:
                    found[name] = parts[name]
                    waiting.append(parts[name])
            waiting += item.values()
        elif isinstance(item, list):
            waiting += item
    return dict(sorted(found.items()))


def _plain(schema: Any, discriminators: bool) -> Any:
    """A schema without what says nothing: empty lists of required fields, and defaults of null."""
    if isinstance(schema, list):
        return [_plain(item, discriminators) for item in schema]
    if not isinstance(schema, dict):
        return schema
    left_out = {"required"} if schema.get("required") == [] else set()
    if "default" in schema and schema["default"] is None:
        left_out.add("default")
    if (
        not discriminators
        and isinstance(schema.get("discriminator"), dict)
        and "mapping" in schema["discriminator"]
    ):
        left_out.add("discriminator")
    return {
        name: _plain(value, discriminators)
        for name, value in schema.items()
        if name not in left_out
    }


def _own_docs(structs: list[type[msgspec.Struct]]) -> dict[str, str]:
    """The docstrings of the structs of content, by name."""
    named: list[type] = [*structs, *vars(events).values()]
    return {
        struct.__name__: plain_text(struct.__doc__)
        for struct in named
        if isinstance(struct, type)
        and issubclass(struct, msgspec.Struct)
        and "__doc__" in vars(struct)
        and struct.__doc__
    }
