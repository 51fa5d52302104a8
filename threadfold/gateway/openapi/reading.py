"""The operations that read."""

from __future__ import annotations

from typing import Any

from threadfold.gateway.openapi.appending import CONVERSATION, DIGEST, ID, C
from threadfold.gateway.openapi.components import TEXT, array, nullable, record
from threadfold.gateway.openapi.operation import Answer, Operation, Table, ref

CURSOR = "AAAAAAAAABH__________zG3mJ4Qh1dS"
MESSAGES: list[dict[str, Any]] = [
    {"role": "system", "content": "You help customers of a shop."},
    {"role": "user", "content": "Where is my order 1182?"},
]
CONTEXT: dict[str, Any] = {
    "messages": MESSAGES,
    "positions": ["3-16", "3-17"],
    "tokens": 23,
    "budget": 30000,
    "ceiling": 92160,
    "utilization": 0.00025,
    "position": "3-17",
    "count": 2,
    "digest": DIGEST,
    "render_digest": DIGEST,
    "summary": None,
    "suspensions": [],
    "state": "active",
    "guard": None,
    "trace": [],
}
TOLD: dict[str, Any] = {
    "id": ID,
    "type": "message",
    "time": "2026-01-31T12:00:00.000Z",
    "position": "3-17",
    "role": "user",
    "content": "Where is my order 1182?",
}
CALLED: dict[str, Any] = {
    "model": "gpt-5-mini",
    "render_digest": DIGEST,
    "position": "3-17",
    "format": "openai",
    "tokens": 23,
    "generation": 1,
}
_SUSPENSION: dict[str, Any] = {
    "suspension_id": "refund-1",
    "kind": "approval",
    "tool_call_id": "call_2",
    "prompt": "Refund 40 EUR?",
    "expires_at": None,
    "position": "3-19",
}
SUMMARY: dict[str, Any] = {
    "id": "c0ffee00c0ffee00c0ffee00c0ffee00",
    "type": "summary",
    "time": "2026-01-31T12:05:00.000Z",
    "position": "3-60",
    "summary_id": "c0ffee00c0ffee00c0ffee00c0ffee00",
    "text": "The customer asked where order 1182 is; it was shipped by post.",
    "tokens": 16,
    "span": {"from": "3-17", "to": "3-41", "count": 3, "positions": [17, 12, 12], "digest": DIGEST},
    "previous": None,
    "reason": "budget",
    "summarizer": "extractive",
    "trust": "tool",
    "tokens_before": 30400,
    "tokens_after": 12100,
    "policy": "0f1e2d3c4b5a6978",
}
_PAGED = {"limit": 50}

OPERATIONS: Table = {
    ("GET", f"{C}/context"): Operation(
        "Reading",
        "Read the context",
        "read",
        {200: Answer(ref("Context"), CONTEXT, "What a model is sent.")},
        problems=(404, 410),
        parameters={
            "conversation": CONVERSATION,
            "format": "openai",
            "max_tokens": 8000,
            "after": "3-17",
        },
    ),
    ("GET", f"{C}/history"): Operation(
        "Reading",
        "Read a page of history",
        "read",
        {
            200: Answer(
                ref("History"), {"events": [TOLD], "next_before": CURSOR}, "A page, newest first."
            )
        },
        problems=(404, 410),
        parameters={"conversation": CONVERSATION, "limit": 50, "before": CURSOR},
    ),
    ("GET", f"{C}/events/{{position}}"): Operation(
        "Reading",
        "Read one event whole",
        "read",
        {
            200: Answer(
                ref("ToldEvent"), TOLD, "The event; with `offset` or `limit`, a page of its text."
            )
        },
        problems=(404, 410, 500),
        parameters={"conversation": CONVERSATION, "position": "3-17", "offset": 0, "limit": 4000},
    ),
    ("GET", "/v1/renders/{render_id}"): Operation(
        "Model calls",
        "Render a recorded call again",
        "read",
        {
            200: Answer(
                ref("Render"),
                {
                    "id": "AAAAAwAAAAAAAAARkDcrvJ9jZJbB",
                    "conversation": CONVERSATION,
                    "time": "2026-01-31T12:00:01.000Z",
                    "record": CALLED,
                    "messages": MESSAGES,
                    "render_digest": DIGEST,
                    "agrees": True,
                    "why": [],
                },
                "The record, rendered again from the log.",
            )
        },
        problems=(404, 410),
        parameters={"render_id": "AAAAAwAAAAAAAAARkDcrvJ9jZJbB"},
    ),
    ("GET", "/v1/conversations"): Operation(
        "Reading",
        "List conversations",
        "read",
        {
            200: Answer(
                record(
                    {
                        "conversations": array(ref("ListedConversation")),
                        "next_before": nullable(TEXT),
                    }
                ),
                {
                    "conversations": [
                        {
                            "conversation": CONVERSATION,
                            "active_at": "2026-01-31T12:00:00.000Z",
                            "state": "active",
                            "position": "3-17",
                            "count": 2,
                            "tokens": 23,
                        }
                    ],
                    "next_before": None,
                },
                "The tenant's active and recent ones.",
            )
        },
        parameters=_PAGED,
    ),
    ("GET", f"{C}/summaries"): Operation(
        "Reading",
        "List a conversation's summaries",
        "read",
        {
            200: Answer(
                record({"summaries": array(ref("ToldSummary")), "next_before": nullable(TEXT)}),
                {"summaries": [SUMMARY], "next_before": None},
                "Newest first.",
            )
        },
        problems=(404, 410),
        parameters={"conversation": CONVERSATION, **_PAGED},
    ),
    ("GET", "/v1/suspensions"): Operation(
        "Reading",
        "List open suspensions",
        "read",
        {
            200: Answer(
                record(
                    {
                        "suspensions": array(
                            {"allOf": [ref("OpenSuspension"), record({"conversation": TEXT})]}
                        ),
                        "next_before": nullable(TEXT),
                    }
                ),
                {
                    "suspensions": [{"conversation": CONVERSATION, **_SUSPENSION}],
                    "next_before": None,
                },
                "What waits for somebody, of all the tenant's conversations.",
            )
        },
        parameters=_PAGED,
    ),
}
