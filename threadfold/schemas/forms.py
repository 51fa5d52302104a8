"""The two forms of an event: the CloudEvent in the log, and the flat object of the HTTP API and the
commands.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from projections.events.codec import DATA_TYPES, MEMORY, full_type
from projections.events.known_fields import known_fields
from projections.events.validation import OWN, RESERVED
from projections.fold.handlers import TYPE_OF_KIND
from projections.names import LOG_PATTERN, NAME_PATTERN
from threadfold.schemas.closed import closed
from threadfold.schemas.policy import policy_schema
from threadfold.schemas.structs import (
    ABOUT,
    DATA,
    ID,
    NAME,
    POSITION,
    TIME,
    TRACEPARENT,
    Schema,
    fields_of,
)

SUMMARY_TOPIC = ("summary", "summary.voided", "conversation.erased")
"""The types on the topic of summaries."""
MEMORY_TOPIC = (*sorted(MEMORY), "memory.voided", "conversation.erased")
"""The types on the topic of memories."""
RENDER_TOPIC = ("model.called",)
LOG_TYPES = tuple(kind for kind in DATA if kind in DATA_TYPES)
"""The types in the log itself."""
APPENDED = tuple(kind for kind in LOG_TYPES if kind not in RESERVED and kind not in OWN)
"""The types a caller may append."""
WINDOW_TYPES = tuple(kind for kind in LOG_TYPES if kind in TYPE_OF_KIND.values())
"""The types whose data a window keeps."""
_NOT_KEPT = {
    "message": ("model", "status", "usage"),
    "tool.result": ("spill",),
    "resolution": ("content",),
}
"""The data that only the log has; a window's messages keep what a provider's format has."""
SOURCE: Schema = {
    "type": "string",
    "pattern": f"^/tenants/{NAME_PATTERN}/conversations/{LOG_PATTERN}$",
    "description": (
        "the conversation: `/tenants/T/conversations/C`; in a user's own log of memories C is `~`"
        " and 32 hex digits"
    ),
}
SEALED: Schema = {
    "type": "object",
    "description": (
        "Encrypted data of a tenant whose policy has `encryption`: AES-256-GCM with the key `kid`."
    ),
    "properties": {name: {"type": "string"} for name in ("kid", "nonce", "ciphertext")},
    "required": ["kid", "nonce", "ciphertext"],
}
_CONDITIONS: dict[str, Schema] = {
    "expect": {
        "type": ["string", "null"],
        "description": (
            "condition: the position or id of the previous event, empty for none; otherwise the"
            " fold rejects the event"
        ),
    },
    "fence": {
        "type": ["integer", "null"],
        "description": "condition: the fencing token of the turn that must be active",
    },
}
_MEMORY_POSITION: Schema = {
    **POSITION,
    "description": "on the topic of memories: where the event stands in its log",
}
_RECORDED: Schema = {
    **TIME,
    "description": "on the topic of memories: when the broker took the event into its log",
}
_SAID_OR_CALLED: list[Schema] = [
    {
        "properties": {
            "role": {"const": "assistant"},
            "tool_calls": {"type": "array", "minItems": 1},
        },
        "required": ["tool_calls"],
    },
    {
        "properties": {
            "content": {"type": ["string", "array"]},
            "tool_calls": {"type": ["array", "null"], "maxItems": 0},
        },
        "required": ["content"],
    },
]
"""A message has calls (an assistant's alone) or content; what :class:`projections.events.Message`
checks by itself.
"""
OTHER_TYPE = r"^[a-z][a-z0-9_-]*(\.[a-z][a-z0-9_-]*)+\.v[0-9]{1,3}$"


def envelope(kind: str, template: str) -> Schema:
    """The schema of a type's CloudEvent, as it stands in a record's value; fields a newer version
    adds are allowed.
    """
    data: Schema = {"$ref": template.format(name=DATA[kind].__name__)}
    if kind in LOG_TYPES:
        data = {"anyOf": [data, SEALED]}
    properties: dict[str, Any] = {
        "specversion": {"const": "1.0"},
        "id": ID,
        "type": {"const": full_type(kind)},
        "source": SOURCE,
        "time": {"anyOf": [TIME, {"type": "null"}]},
        "traceparent": TRACEPARENT,
        "data": data,
        **(_CONDITIONS if kind in LOG_TYPES else {}),
    }
    if kind in LOG_TYPES:
        properties["tokens"] = {
            "description": "the producer's count; the fold checks whether it is plausible",
            "anyOf": [{"$ref": template.format(name="Tokens")}, {"type": "null"}],
        }
    if kind in MEMORY_TOPIC:
        properties |= {"position": _MEMORY_POSITION, "recordedtime": _RECORDED}
    required = ["specversion", "id", "type", "source", "data"]
    return {
        "title": full_type(kind),
        "description": ABOUT[kind],
        "type": "object",
        "properties": properties,
        "required": required,
    }


def flat(kind: str, parts: Mapping[str, Schema]) -> Schema:
    """The schema of a type's flat form, as it is appended: no other field is taken, at no level."""
    fields, required = fields_of(kind, parts)
    known = known_fields(DATA[kind])
    fields = {name: closed(schema, known.get(name), parts) for name, schema in fields.items()}
    if kind == "tool.result":
        del fields["spill"]
    if kind == "conversation.opened":
        fields["policy"] = {"anyOf": [policy_schema("encryption"), {"type": "null"}]}
    properties: dict[str, Any] = {
        "type": {"const": kind},
        "id": ID,
        "time": TIME,
        "traceparent": TRACEPARENT,
        "conversation": NAME,
    }
    schema = {
        "title": kind,
        "description": ABOUT[kind],
        "type": "object",
        "properties": {**properties, **fields},
        "required": ["type", *required],
        "additionalProperties": False,
    }
    return {**schema, "anyOf": _SAID_OR_CALLED} if kind == "message" else schema


def logged(kind: str, parts: Mapping[str, Schema]) -> Schema:
    """The schema of a type's flat form, as history and streams give it: with its position, and
    whatever else the log holds.
    """
    fields, required = fields_of(kind, parts)
    # What another producer named like a field of the envelope stands under `data`; of the known
    # types only event.dropped has such a one.
    hidden = {name for name in fields if name in ("id", "time", "type", "position", "traceparent")}
    schema: Schema = {
        "title": kind,
        "type": "object",
        "properties": {
            "id": ID,
            "type": {"const": kind},
            "time": {"anyOf": [TIME, {"type": "null"}]},
            "position": POSITION,
            "traceparent": TRACEPARENT,
            **{name: value for name, value in fields.items() if name not in hidden},
        },
        "required": [
            "id",
            "type",
            "time",
            "position",
            *(name for name in required if name not in hidden),
        ],
    }
    if hidden:
        schema["properties"]["data"] = {
            "type": "object",
            "properties": {name: fields[name] for name in sorted(hidden)},
        }
    return schema


def of_window(kind: str, parts: Mapping[str, Schema]) -> Schema:
    """The schema of a type's flat form, as a window gives it: with its position, which is null for
    a rendered message of no single event.
    """
    fields, required = fields_of(kind, parts)
    for name in _NOT_KEPT.get(kind, ()):
        del fields[name]
    if kind == "message":
        fields["pinned"] = {"type": "boolean"}
        fields["reasoning"] = {
            "description": "the message's reasoning parts",
            "type": "array",
            "items": parts["ReasoningPart"],
        }
    place = {"anyOf": [POSITION, {"type": "null"}]}
    return {
        "title": kind,
        "type": "object",
        "properties": {"type": {"const": kind}, "position": place, **fields},
        "required": ["type", "position", *required],
    }


def other() -> Schema:
    """The schema of an event of an application's own type: the log keeps it, the fold skips it."""
    return {
        "title": "an event of your own",
        "description": (
            "A type of your own, like `acme.ticket.assigned.v1`. It is in the log and the history,"
            " and in no window."
        ),
        "type": "object",
        "properties": {
            "type": {
                "type": "string",
                "pattern": OTHER_TYPE,
                "not": {"enum": sorted(full_type(kind) for kind in LOG_TYPES)},
            },
            "id": ID,
            "time": TIME,
            "traceparent": TRACEPARENT,
            "conversation": NAME,
        },
        "required": ["type"],
        "additionalProperties": True,
    }
