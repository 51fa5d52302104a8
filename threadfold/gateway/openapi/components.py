"""The components of the OpenAPI document: the events from their structs, and the documents that the
routes answer.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgspec

from threadfold.gateway.openapi.operation import Schema, one_or_list, ref
from threadfold.schemas.forms import APPENDED, LOG_TYPES, flat, other, told
from threadfold.schemas.structs import DATA, POSITION, components, fields_of
from threadfold.service.erasure import Receipt

_TEMPLATE = "#/components/schemas/{name}"
TEXT: Schema = {"type": "string"}
COUNT: Schema = {"type": "integer", "minimum": 0}
DIGEST: Schema = {"type": "string", "pattern": "^[0-9a-f]{64}$"}
OBJECT: Schema = {"type": "object"}
STATE: Schema = {"enum": ["active", "awaiting_input", "idle", "closed"]}
SCOPE: Schema = {"enum": ["append", "read", "subscribe", "admin", "erase"]}


def nullable(schema: Schema) -> Schema:
    """The schema, or null."""
    return {"anyOf": [schema, {"type": "null"}]}


def record(
    required: dict[str, Schema],
    optional: dict[str, Schema] | None = None,
    about: str = "",
    *,
    closed: bool = False,
) -> Schema:
    """An object with these fields; unless it is ``closed``, further ones may come with newer
    versions.
    """
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {**required, **(optional or {})},
        "required": [*required],
    }
    if closed:
        schema["additionalProperties"] = False
    return {**schema, "description": about} if about else schema


def array(items: Schema, **more: Any) -> Schema:
    """A list of items."""
    return {"type": "array", "items": items, **more}


@lru_cache(maxsize=1)
def all_components() -> dict[str, Schema]:
    """Every component by name, in order."""
    parts = components(_TEMPLATE, discriminators=True)
    made: dict[str, Schema] = dict(parts)
    names = {kind: "".join(part.capitalize() for part in kind.split(".")) for kind in DATA}
    for kind in APPENDED:
        made[f"New{names[kind]}"] = flat(kind, parts)
    made["NewOther"] = other()
    made["NewEvent"] = {
        "description": (
            "An event to append: `type` and its fields; `id` and `time` are made where they are"
            " missing."
        ),
        "oneOf": [ref(f"New{names[kind]}") for kind in APPENDED] + [ref("NewOther")],
    }
    for kind in LOG_TYPES:
        made[f"Told{names[kind]}"] = told(kind, parts)
    made["ToldEvent"] = _told_event(names)
    called, required = fields_of("model.called", parts)
    del called["generation"]
    made["NewModelCall"] = {
        "type": "object",
        "properties": called,
        "required": required,
        "additionalProperties": False,
    }
    made |= _of_appends() | _of_windows() | _of_administration() | _of_the_log()
    _, receipts = msgspec.json.schema_components([Receipt], ref_template=_TEMPLATE)
    made |= {
        name: {k: v for k, v in schema.items() if k != "description"}
        for name, schema in receipts.items()
    }
    return dict(sorted(made.items()))


def _told_event(names: dict[str, str]) -> Schema:
    """An event as it is read back: what all have in common, and for each known type what is its
    own.
    """
    cases: list[Schema] = [
        {"if": {"properties": {"type": {"const": kind}}}, "then": ref(f"Told{names[kind]}")}
        for kind in LOG_TYPES
    ]
    schema = record(
        {"id": TEXT, "type": TEXT, "time": nullable(TEXT), "position": POSITION},
        {
            "traceparent": TEXT,
            "page": record(
                {"offset": COUNT, "limit": COUNT, "characters": COUNT},
                about="which page of the text `content` is",
            ),
        },
        "An event as it stands in the log, flat: `type` without prefix and version, and the fields"
        " of its type.",
    )
    return {**schema, "allOf": cases}


def _of_appends() -> dict[str, Schema]:
    appended = record(
        {"id": TEXT, "position": POSITION},
        {"status": {"enum": ["applied", "duplicate", "rejected", "parked"]}},
    )
    role = {"enum": ["system", "developer", "user", "assistant", "tool"]}
    return {
        "Problem": record(
            {"type": TEXT, "title": TEXT, "status": {"type": "integer"}, "detail": TEXT},
            about="An RFC 9457 problem document.",
        ),
        "Appended": record(
            {"events": array(appended), "position": POSITION},
            about=(
                "Ids and positions in the order they were sent; `position` is the last, for"
                " `after`. `status` only with `wait`."
            ),
        ),
        "AppendedOfSeveral": record(
            {
                "events": array(
                    record(
                        {"conversation": TEXT, "id": TEXT, "position": POSITION},
                        {"status": appended["properties"]["status"]},
                    )
                ),
                "positions": {"type": "object", "additionalProperties": POSITION},
            },
            about="`positions` has the last position of each conversation.",
        ),
        "OpenAIMessage": record(
            {"role": role},
            {
                "content": nullable({"anyOf": [TEXT, array(OBJECT)]}),
                "name": TEXT,
                "tool_calls": array(ref("OpenAIToolCall")),
                "tool_call_id": TEXT,
            },
            "A message of OpenAI's chat completions.",
        ),
        "OpenAIToolCall": record(
            {"id": TEXT, "function": record({"name": TEXT, "arguments": TEXT})},
            {"type": {"const": "function"}},
        ),
        "AnthropicMessage": record(
            {
                "role": {"enum": ["system", "user", "assistant"]},
                "content": {"anyOf": [TEXT, array(OBJECT)]},
            },
            about=(
                "A message of Anthropic's messages API; `system` is given as a first message with"
                " that role."
            ),
        ),
        "ChatMessage": {"anyOf": [ref("OpenAIMessage"), ref("AnthropicMessage")]},
    }


def _of_windows() -> dict[str, Schema]:
    return {
        "ContextSummary": record(
            {
                "summary_id": TEXT,
                "position": POSITION,
                "text": TEXT,
                "tokens": COUNT,
                "trust": TEXT,
                "to": POSITION,
                "previous": nullable(TEXT),
            }
        ),
        "OpenSuspension": record(
            {
                "suspension_id": TEXT,
                "kind": {"enum": ["approval", "input", "external"]},
                "tool_call_id": nullable(TEXT),
                "prompt": nullable(TEXT),
                "expires_at": nullable(TEXT),
                "position": POSITION,
            }
        ),
        "Step": record(
            {
                "reducer": TEXT,
                "messages_before": COUNT,
                "messages_after": COUNT,
                "tokens_before": COUNT,
                "tokens_after": COUNT,
            }
        ),
        "Context": _context(),
        "ListedConversation": record(
            {
                "conversation": TEXT,
                "active_at": TEXT,
                "state": STATE,
                "position": POSITION,
                "count": COUNT,
                "tokens": COUNT,
            }
        ),
        "Turn": record(
            {
                "turn_id": TEXT,
                "status": {"enum": ["started", "queued"]},
                "fencing_token": nullable({"type": "integer"}),
                "position": POSITION,
            },
            {"place": COUNT},
            "`fencing_token` grows with every turn of the conversation; null while it waits."
            " `place`: how many turns are before it.",
        ),
    }


def _of_administration() -> dict[str, Schema]:
    return {
        "Key": record(
            {
                "id": TEXT,
                "name": nullable(TEXT),
                "scopes": array(SCOPE),
                "created": nullable(TEXT),
                "expires_at": nullable(TEXT),
                "expired": {"type": "boolean"},
            },
            about="A key as lists show it: nothing of it opens anything.",
        ),
        "NewKey": record(
            {"id": TEXT, "scopes": array(SCOPE), "key": TEXT},
            {
                "name": nullable(TEXT),
                "created": nullable(TEXT),
                "expires_at": nullable(TEXT),
                "expired": {"type": "boolean"},
            },
            "A new key; `key` is shown in this answer and never again.",
        ),
        "Tenant": record(
            {
                "name": TEXT,
                "policy": OBJECT,
                "next_policy": nullable(OBJECT),
                "quota": OBJECT,
                "quota_in_force": OBJECT,
                "keys": array(ref("Key")),
            },
            {"key": TEXT},
        ),
    }


def _of_the_log() -> dict[str, Schema]:
    return {
        "History": record(
            {"events": array(ref("ToldEvent")), "next_before": nullable(TEXT)},
            about="Newest first; `next_before` is null at the beginning.",
        ),
        "Render": record(
            {
                "id": TEXT,
                "conversation": TEXT,
                "time": nullable(TEXT),
                "record": ref("ModelCalled"),
                "messages": nullable(array(OBJECT)),
                "render_digest": nullable(DIGEST),
                "agrees": {"type": "boolean"},
                "why": array(TEXT),
            },
            {"system": TEXT},
        ),
        "OneOrMoreEvents": one_or_list(ref("NewEvent")),
        "OneOrMoreMessages": one_or_list(ref("ChatMessage")),
    }


def _context() -> Schema:
    return record(
        {
            "messages": array(
                {"anyOf": [ref("OpenAIMessage"), ref("AnthropicMessage"), ref("ToldEvent")]}
            ),
            "tokens": COUNT,
            "budget": COUNT,
            "ceiling": COUNT,
            "utilization": {"type": "number", "minimum": 0},
            "position": nullable(POSITION),
            "count": COUNT,
            "digest": DIGEST,
            "render_digest": DIGEST,
            "summary": nullable(ref("ContextSummary")),
            "suspensions": array(ref("OpenSuspension")),
            "state": STATE,
            "guard": {},
            "trace": array(ref("Step")),
        },
        {
            "positions": array(nullable(POSITION)),
            "system": TEXT,
            "parked": record({"position": POSITION, "cause": TEXT, "waiting": COUNT}),
        },
        "What a model is sent: `messages` (and `system`, for Anthropic) can be handed on as they"
        " are.",
    )
