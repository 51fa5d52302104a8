"""Turns, streams and text in progress."""

from __future__ import annotations

from typing import Any

from threadfold.gateway.openapi.appending import CONVERSATION, C
from threadfold.gateway.openapi.components import COUNT, TEXT, array, nullable, record
from threadfold.gateway.openapi.operation import EVENT_STREAM, Answer, Body, Operation, Table, ref
from threadfold.schemas.structs import POSITION

_EVENTS = (
    "retry: 1000\n\nevent: state\ndata:"
    ' {"state":"active","position":"3-17","tokens":23,"summary":null,"suspensions":[]}\n\nevent:'
    " event\nid: 3-18\ndata:"
    ' {"id":"e-18","type":"message","time":null,"position":"3-18","role":"user",'
    '"content":"hello"}\n\nevent:'
    ' partial\ndata: {"turn_id":"t-1","offset":0,"delta":"Your order "}\n\n: heartbeat\n\n'
)
_SUMMARIES = (
    "retry: 1000\n\nevent: summary\nid: 0-5.1-0\ndata:"
    ' {"id":"s-1","type":"summary","summary_id":"s-1","text":"The order is shipped."}\n\n'
)
_TURN: dict[str, Any] = {
    "turn_id": "t-1",
    "status": "started",
    "fencing_token": 18,
    "position": "3-18",
}
_SECONDS = {
    "type": "integer",
    "minimum": 1,
    "description": "how long the lease holds without a renewal; 60 by default",
}
_OF_TURN = {"conversation": CONVERSATION, "turn_id": "t-1"}
_BEGUN = Answer(
    ref("Turn"), _TURN, "The turn holds the conversation (`started`), or waits for it (`queued`)."
)
_ENDED = record({"turn_id": TEXT, "position": POSITION})

OPERATIONS: Table = {
    ("POST", f"{C}/turns"): Operation(
        "Turns",
        "Begin a turn",
        "append",
        {202: _BEGUN},
        Body(
            record(
                {},
                {
                    "turn_id": nullable({"type": "string", "minLength": 1, "maxLength": 128}),
                    "model": nullable(TEXT),
                    "policy": {"enum": ["queue", "reject", "interrupt"]},
                    "seconds": _SECONDS,
                    "wait": {
                        "type": "number",
                        "minimum": 0,
                        "maximum": 30,
                        "description": "seconds to wait for a queued turn",
                    },
                },
                closed=True,
            ),
            {"queued": {"turn_id": "t-1", "model": "gpt-5-mini", "policy": "queue", "seconds": 60}},
            required=False,
        ),
        (409, 410),
        {"conversation": CONVERSATION},
    ),
    ("GET", f"{C}/turns"): Operation(
        "Turns",
        "Who holds the conversation",
        "read",
        {
            200: Answer(
                record(
                    {
                        "live": nullable(
                            record(
                                {
                                    "turn_id": TEXT,
                                    "fencing_token": {"type": "integer"},
                                    "seconds": {"type": "number"},
                                }
                            )
                        ),
                        "waiting": array(TEXT),
                    }
                ),
                {
                    "live": {"turn_id": "t-1", "fencing_token": 18, "seconds": 60},
                    "waiting": ["t-2"],
                },
                "The turn in force, and those that wait.",
            )
        },
        problems=(404, 410),
        parameters={"conversation": CONVERSATION},
    ),
    ("POST", f"{C}/turns/{{turn_id}}/renew"): Operation(
        "Turns",
        "Renew a turn's lease",
        "append",
        {202: Answer(ref("Turn"), _TURN, "The lease runs on.")},
        Body(record({}, {"seconds": _SECONDS}), {"a minute": {"seconds": 60}}, required=False),
        (404, 409, 410),
        {**_OF_TURN, "Fencing-Token": 18},
    ),
    ("POST", f"{C}/turns/{{turn_id}}/end"): Operation(
        "Turns",
        "End a turn",
        "append",
        {
            202: Answer(
                _ENDED,
                {"turn_id": "t-1", "position": "3-19"},
                "Over; the next one that waits is in force.",
            )
        },
        problems=(400, 404, 409, 410, 413),
        parameters={**_OF_TURN, "Fencing-Token": 18},
    ),
    ("POST", f"{C}/partial"): Operation(
        "Streams",
        "Say a part of a message in progress",
        "append",
        {
            202: Answer(
                record({"turn_id": TEXT, "offset": COUNT}),
                {"turn_id": "t-1", "offset": 11},
                "Characters held now.",
            )
        },
        Body(
            record(
                {
                    "turn_id": {"type": "string", "pattern": "^[A-Za-z0-9._:-]{1,128}$"},
                    "delta": TEXT,
                },
                {"offset": {"type": ["integer", "null"], "minimum": 0, "maximum": 1 << 40}},
                closed=True,
            ),
            {"a word": {"turn_id": "t-1", "delta": "Your order ", "offset": 0}},
        ),
        (404, 409, 410),
        {"conversation": CONVERSATION},
    ),
    ("GET", f"{C}/stream"): Operation(
        "Streams",
        "Follow a conversation",
        "subscribe",
        {
            200: Answer(
                TEXT,
                _EVENTS,
                "Server-sent events `event`, `summary`, `partial` and `state`, until the caller"
                " goes.",
                EVENT_STREAM,
            )
        },
        problems=(404, 410),
        parameters={"conversation": CONVERSATION, "after": "3-17"},
    ),
    ("GET", "/v1/summaries/stream"): Operation(
        "Streams",
        "Follow the tenant's summaries",
        "subscribe",
        {
            200: Answer(
                TEXT,
                _SUMMARIES,
                "Server-sent events `summary`, `voided` and `erased`, until the caller goes.",
                EVENT_STREAM,
            )
        },
        parameters={"from": "beginning"},
    ),
}
