"""Turns, streams and text in progress."""

from __future__ import annotations

from threadfold.gateway.openapi.appending import CONVERSATION, C, appended
from threadfold.gateway.openapi.components import COUNT, TEXT, record
from threadfold.gateway.openapi.operation import EVENT_STREAM, Answer, Body, Operation, Table

_EVENTS = (
    "retry: 1000\n\n"
    'event: state\ndata: {"state":"active","position":"3-17","tokens":23,"summary":null,"suspensions":[]}\n\n'
    'event: event\nid: 3-18\ndata: {"id":"e-18","type":"message","time":null,"position":"3-18","role":"user","content":"hello"}\n\n'
    'event: partial\ndata: {"turn_id":"t-1","offset":0,"delta":"Your order "}\n\n'
    ": heartbeat\n\n"
)
_SUMMARIES = (
    'retry: 1000\n\nevent: summary\nid: 0-5.1-0\ndata: {"id":"s-1","type":"summary","summary_id":"s-1","text":"The order is shipped."}\n\n'
)

OPERATIONS: Table = {
    ("POST", f"{C}/turns"): Operation(
        "Turns",
        "Begin a turn",
        "append",
        {
            202: Answer(
                record(
                    {"turn_id": TEXT, "fencing_token": {"type": "integer"}, "status": {"enum": ["started", "queued"]}}, {"position": TEXT}
                ),
                {"turn_id": "t-1", "fencing_token": 7, "status": "started", "position": "3-18"},
                "The turn holds the conversation, or waits for it.",
            )
        },
        Body(
            record(
                {},
                {
                    "turn_id": TEXT,
                    "model": TEXT,
                    "policy": {"enum": ["queue", "reject", "interrupt"]},
                    "seconds": {"type": "number", "exclusiveMinimum": 0},
                },
            ),
            {"queued": {"turn_id": "t-1", "model": "gpt-5-mini", "policy": "queue", "seconds": 60}},
        ),
        (404, 409, 410),
        {"conversation": CONVERSATION},
    ),
    ("POST", f"{C}/turns/{{turn_id}}/end"): Operation(
        "Turns",
        "End a turn",
        "append",
        appended(),
        problems=(400, 404, 409, 410, 413),
        parameters={"conversation": CONVERSATION, "turn_id": "t-1"},
    ),
    ("POST", f"{C}/partial"): Operation(
        "Streams",
        "Say a part of a message in progress",
        "append",
        {202: Answer(record({"turn_id": TEXT, "offset": COUNT}), {"turn_id": "t-1", "offset": 11}, "Characters held now.")},
        Body(
            record({"turn_id": TEXT, "delta": TEXT}, {"offset": COUNT}),
            {"a word": {"turn_id": "t-1", "delta": "Your order ", "offset": 0}},
        ),
        (404, 409, 410),
        {"conversation": CONVERSATION},
    ),
    ("GET", f"{C}/stream"): Operation(
        "Streams",
        "Follow a conversation",
        "subscribe",
        {200: Answer(TEXT, _EVENTS, "Server-sent events `event`, `summary`, `partial` and `state`, until the caller goes.", EVENT_STREAM)},
        problems=(404, 410),
        parameters={"conversation": CONVERSATION, "after": "3-17", "Last-Event-ID": "3-17"},
    ),
    ("GET", "/v1/summaries/stream"): Operation(
        "Streams",
        "Follow the tenant's summaries",
        "subscribe",
        {200: Answer(TEXT, _SUMMARIES, "Server-sent events `summary`, `voided` and `erased`, until the caller goes.", EVENT_STREAM)},
        parameters={"Last-Event-ID": "0-5.1-0"},
    ),
}
