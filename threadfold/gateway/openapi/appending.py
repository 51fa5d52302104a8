"""The operations that append."""

from __future__ import annotations

from typing import Any

from threadfold.gateway.openapi.components import TEXT, nullable, record
from threadfold.gateway.openapi.operation import Answer, Body, Operation, Table, ref
from threadfold.schemas.structs import ID as ID_SCHEMA
from threadfold.schemas.structs import TIME, TRACEPARENT

C = "/v1/conversations/{conversation}"
CONVERSATION = "support-42"
ID = "0197a1c2-6f3e-7c41-9d2b-5f0a8e6b1c3d"
DIGEST = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
_STATED: dict[str, Any] = {
    "events": [{"id": ID, "position": "3-17", "status": "applied"}],
    "position": "3-17",
}
_APPENDED: dict[str, Any] = {"events": [{"id": ID, "position": "3-17"}], "position": "3-17"}
_USUAL = (409, 410)
MESSAGE = {"type": "message", "role": "user", "content": "Where is my order 1182?"}
CALL = {
    "type": "message",
    "role": "assistant",
    "content": None,
    "tool_calls": [{"id": "call_1", "name": "find_order", "arguments": '{"order":1182}'}],
}
RESULT = {
    "type": "tool.result",
    "tool_call_id": "call_1",
    "content": '{"state":"shipped","carrier":"post"}',
}


def appended(several: bool = False) -> dict[int, Answer]:
    """The two answers of an append: 202 once it is safe, and 200 (with ``wait=applied``) once the
    window holds it.
    """
    if not several:
        return {
            202: Answer(ref("Appended"), _APPENDED, "Safe in the log."),
            200: Answer(ref("Appended"), _STATED, "With `wait=applied`: the window holds them."),
        }
    events = [{"conversation": CONVERSATION, **_APPENDED["events"][0]}]
    stated = [{"conversation": CONVERSATION, **_STATED["events"][0]}]
    return {
        202: Answer(
            ref("AppendedOfSeveral"),
            {"events": events, "positions": {CONVERSATION: "3-17"}},
            "Safe in the log.",
        ),
        200: Answer(
            ref("AppendedOfSeveral"),
            {"events": stated, "positions": {CONVERSATION: "3-17"}},
            "With `wait=applied`: the windows hold them.",
        ),
    }


_PARAMETERS = {
    "conversation": CONVERSATION,
    "wait": "applied",
    "Idempotency-Key": "order-1182-question",
}

OPERATIONS: Table = {
    ("POST", f"{C}/events"): Operation(
        "Appending",
        "Append events",
        "append",
        appended(),
        Body(
            ref("OneOrMoreEvents"),
            {
                "one": MESSAGE,
                "several": [CALL, RESULT],
                "opened": {
                    "type": "conversation.opened",
                    "user": "u-7",
                    "metadata": {"shop": "nord"},
                },
            },
        ),
        _USUAL,
        _PARAMETERS,
    ),
    ("POST", f"{C}/messages"): Operation(
        "Appending",
        "Append messages",
        "append",
        appended(),
        Body(
            ref("OneOrMoreMessages"),
            {
                "one": {"role": "user", "content": "Where is my order 1182?"},
                "several": [
                    {
                        "role": "assistant",
                        "content": None,
                        "tool_calls": [
                            {
                                "id": "call_1",
                                "type": "function",
                                "function": {"name": "find_order", "arguments": '{"order":1182}'},
                            }
                        ],
                    },
                    {"role": "tool", "tool_call_id": "call_1", "content": '{"state":"shipped"}'},
                ],
            },
        ),
        _USUAL,
        {**_PARAMETERS, "format": "openai"},
    ),
    ("POST", "/v1/events"): Operation(
        "Appending",
        "Append events of several conversations",
        "append",
        appended(several=True),
        Body(
            {
                "anyOf": [
                    {"allOf": [ref("NewEvent"), {"required": ["conversation"]}]},
                    {
                        "type": "array",
                        "items": {"allOf": [ref("NewEvent"), {"required": ["conversation"]}]},
                        "minItems": 1,
                        "maxItems": 500,
                    },
                ]
            },
            {
                "several": [
                    {"conversation": CONVERSATION, **MESSAGE},
                    {"conversation": "support-43", **MESSAGE},
                ]
            },
        ),
        _USUAL,
        {"wait": "applied", "Idempotency-Key": "batch-7"},
    ),
    ("POST", f"{C}/rollback"): Operation(
        "Appending",
        "Roll back",
        "append",
        appended(),
        Body(
            record(
                {
                    "to": {
                        **TEXT,
                        "description": (
                            "a position, or the id of one of the last 1,024 events: the last that"
                            " stays"
                        ),
                    }
                },
                {"id": ID_SCHEMA, "time": TIME, "traceparent": TRACEPARENT},
                closed=True,
            ),
            {"by position": {"to": "3-17"}},
        ),
        _USUAL,
        _PARAMETERS,
    ),
    ("POST", f"{C}/close"): Operation(
        "Appending",
        "Close the session",
        "append",
        appended(),
        problems=(400, *_USUAL),
        parameters=_PARAMETERS,
    ),
    ("POST", f"{C}/renders"): Operation(
        "Model calls",
        "Record a call of a model",
        "append",
        {
            202: Answer(
                record({"id": nullable(TEXT), "recorded": {"type": "boolean"}}),
                {"id": "AAAAAwAAAAAAAAARkDcrvJ9jZJbB", "recorded": True},
                "Recorded; `id` is null where the tenant's policy has `renders` off.",
            )
        },
        Body(
            ref("NewModelCall"),
            {
                "a call": {
                    "model": "gpt-5-mini",
                    "render_digest": DIGEST,
                    "position": "3-17",
                    "format": "openai",
                    "tokens": 11,
                    "reported_usage": {"prompt_tokens": 12, "completion_tokens": 40},
                    "latency_ms": 812.5,
                }
            },
        ),
        (410,),
        {"conversation": CONVERSATION},
    ),
    ("POST", f"{C}/compact"): Operation(
        "Appending",
        "Ask for a summary",
        "append",
        {
            **appended(),
            202: Answer(
                ref("Appended"),
                _APPENDED,
                "Asked for; the summary comes over the stream once the window took it.",
            ),
        },
        problems=(400, *_USUAL),
        parameters=_PARAMETERS,
    ),
}
