"""What the OpenAPI document tells of one operation beyond its parameters: bodies, answers,
examples, problems and the scope.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

Schema = dict[str, Any]
JSON = "application/json"
PROBLEM = "application/problem+json"
EVENT_STREAM = "text/event-stream"


def ref(name: str) -> Schema:
    """A reference to a component."""
    return {"$ref": f"#/components/schemas/{name}"}


def one_or_list(item: Schema) -> Schema:
    """An item, or an array of 1 to 500 of them."""
    return {"anyOf": [item, {"type": "array", "items": item, "minItems": 1, "maxItems": 500}]}


@dataclass(frozen=True, slots=True)
class Body:
    """A request's body: its schema, and examples by name."""

    schema: Schema
    examples: Mapping[str, Any]
    required: bool = True


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer that is no problem: its schema, one example, and what it says."""

    schema: Schema
    example: Any
    about: str
    media: str = JSON


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation.

    ``scope`` None needs no key. ``problems`` are the statuses of its problem documents, besides
    those that every route with a key may answer. ``parameters`` are examples by name; ``about``
    replaces the description that the route's own docstring gives.
    """

    tag: str
    summary: str
    scope: str | None
    answers: Mapping[int, Answer]
    body: Body | None = None
    problems: tuple[int, ...] = ()
    parameters: Mapping[str, Any] = field(default_factory=dict)
    about: str | None = None

    @property
    def all_problems(self) -> tuple[int, ...]:
        """Every status of a problem document it may answer, in order."""
        common = set() if self.scope is None else {401, 403, 422, 429, 503}
        if self.body is not None:
            common |= {400, 413, 422}
        return tuple(sorted({*common, *self.problems} - set(self.answers)))


Table = dict[tuple[str, str], Operation]
"""Operations by method and path, the path as the routes name it."""

PROBLEMS: dict[int, tuple[str, str, str]] = {
    400: (
        "malformed-input",
        "The body is not JSON; says where.",
        "the body is not JSON: expecting ',' delimiter (line 1, column 17)",
    ),
    401: (
        "unauthorized",
        "No key or token, or one that is not known, revoked or expired.",
        "no key was given: send the header `Authorization: Bearer KEY`",
    ),
    403: (
        "forbidden",
        "The key lacks the scope.",
        "the key lacks the scope 'append' (it has read)",
    ),
    404: (
        "unknown-conversation",
        "Not known.",
        "conversation support-42 is not known: nothing was appended to it",
    ),
    409: (
        "conflict",
        "Something else came first.",
        "conversation support-42 is at 3-18, not at 3-17: read it again",
    ),
    410: ("erased", "Erased; this is final.", "conversation support-42 was erased"),
    413: (
        "event-too-large",
        "Too large.",
        "event 1: 9437184 bytes are over the limit of 8388608 bytes for one event",
    ),
    422: (
        "invalid-event",
        "Not valid; names the event and the field.",
        "event 2: field role: missing",
    ),
    429: (
        "too-many-requests",
        "A quota of the tenant is used up.",
        "tenant demo has used its 1200 requests of this minute",
    ),
    500: (
        "spill-lost",
        "A piece of a spilled result is gone from the log.",
        "piece 2 of 4 of result 3-17 is not at 3-14 in the log",
    ),
    503: (
        "kafka-unavailable",
        (
            "Kafka or Redis is away, a partition is healing, or too much is under way. On an"
            " append: unknown whether it is in; repeat it with the same ids."
        ),
        (
            "append: Kafka did not answer within 10 s; unknown whether it is in: repeat it with the"
            " same ids"
        ),
    ),
}
"""For each status of a problem document: the type's last part, what it means, and an example's
detail.
"""


def problem_response(status: int) -> Schema:
    """The response object of a problem's status."""
    kind, about, detail = PROBLEMS[status]
    body = {
        "type": f"urn:threadfold:problem:{kind}",
        "title": kind.replace("-", " ").capitalize(),
        "status": status,
        "detail": detail,
    }
    response: Schema = {
        "description": about,
        "content": {PROBLEM: {"schema": ref("Problem"), "example": body}},
    }
    if status in (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE):
        response["headers"] = {
            "Retry-After": {
                "description": "seconds",
                "schema": {"type": "integer", "minimum": 0},
                "required": True,
            }
        }
    if status == HTTPStatus.UNAUTHORIZED:
        response["headers"] = {"WWW-Authenticate": {"schema": {"type": "string"}, "required": True}}
    return response
