"""What routes share: parameters, the values of their examples, and the form of an answer."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta
from starlette.responses import Response

from threadfold.gateway.parameters import Header, Path, Query
from threadfold.schemas.structs import NAME

C = "/v1/conversations/{conversation}"
CONVERSATION = "support-42"
POSITION = "3-17"
DIGEST = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
ID = "0197a1c2-6f3e-7c41-9d2b-5f0a8e6b1c3d"
USUAL = (409, 410)
"""The problems of every append: a conflict, and a conversation that was erased."""

Conversation = Annotated[str, Path(example=CONVERSATION), Meta(extra_json_schema=NAME)]
Before = Annotated[str | None, Query("`next_before` of the page before")]
Wait = Annotated[
    Literal["applied"] | None,
    Query("`applied`: answer 200 once the window holds the events, with a status each", "applied"),
]
IdempotencyKey = Annotated[
    str | None,
    Header(
        "derives the ids of events that have none, so that a repeat is a duplicate",
        "order-1182-question",
        "Idempotency-Key",
    ),
    Meta(min_length=1, max_length=255),
]


def answer(document: object, status: int = 200) -> Response:
    """A document as JSON."""
    return Response(msgspec.json.encode(document), status, media_type="application/json")
