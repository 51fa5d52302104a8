"""What routes share: parameters, and the form of an answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path as FilePath
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Raw, Struct
from starlette.responses import Response

from streams.runtime.keyed_limit import LARGE, KeyedLimit
from threadfold.gateway.conditions import Conditional
from threadfold.gateway.examples import CONVERSATION
from threadfold.gateway.parameters import Header, ParameterGroup, Path, Query
from threadfold.gateway.request import Body
from threadfold.schemas.structs import NAME
from threadfold.service.documents import beside
from threadfold.service.drafts import UNCONDITIONED

C = "/v1/conversations/{conversation}"
MANY_VALUES = 2_000
"""Values of a document that are written in a millisecond, about."""


class Nothing(Struct, forbid_unknown_fields=True):
    """An empty object."""


NO_BODY = Body(Nothing, {"nothing": {}}, required=False)
"""The body of a route that needs none: a field that it does not have must not seem to count."""

Conversation = Annotated[str, Path(example=CONVERSATION), Meta(extra_json_schema=NAME)]
Before = Annotated[str | None, Query("`next_before` of the previous page")]
Wait = Annotated[
    Literal["applied"] | None,
    Query("`applied`: answer 200 once the window has the events, with a status each", "applied"),
]
IdempotencyKey = Annotated[
    str | None,
    Header(
        "gives an id to each event without one; a repeat with the same key is a duplicate",
        "order-1182-question",
        "Idempotency-Key",
    ),
    Meta(min_length=1, max_length=255),
]


@dataclass(frozen=True, slots=True)
class AppendOptions(ParameterGroup):
    """The parameters of every append to one conversation."""

    wait: Wait = None
    idempotency_key: IdempotencyKey = None
    conditions: Conditional = UNCONDITIONED


NO_OPTIONS = AppendOptions()


class JsonBytes(Response):
    """A document that is encoded as JSON already."""

    def __init__(self, body: bytes, status: int = 200) -> None:
        # What Response's own does, without what a few fixed headers do not need.
        self.body, self.status_code, self.background = body, status, None
        self.raw_headers = [
            (b"content-length", b"%d" % len(body)),
            (b"content-type", b"application/json"),
        ]


def file_answer(path: FilePath, media: str, headers: Mapping[str, str]) -> Response:
    """A file of a page, from memory: an open file would be a second descriptor for each client that
    does not read.
    """
    return Response(_content(path), headers=dict(headers), media_type=media)


@cache
def _content(path: FilePath) -> bytes:
    return path.read_bytes()


def answer(document: object, status: int = 200) -> Response:
    """A document as JSON."""
    return JsonBytes(msgspec.json.encode(document), status)


async def answer_beside(turns: KeyedLimit, tenant: str, document: object, status: int) -> Response:
    """:func:`answer`, made :func:`beside` others' requests."""
    make = partial(_answer_by_items, document, status)
    return await beside(text_size(document), turns, tenant, make)


def _answer_by_items(document: object, status: int) -> Response:
    """:func:`answer`, the items of an object's lists each by itself: one call for all of them would
    hold Python's lock to its end.
    """
    if not isinstance(document, dict):
        return answer(document, status)
    encode = msgspec.json.encode
    fields = [
        b"%b:[%b]" % (encode(name), b",".join(map(encode, value)))
        if isinstance(value, list)
        else b"%b:%b" % (encode(name), encode(value))
        for name, value in document.items()
    ]
    return JsonBytes(b"{%b}" % b",".join(fields), status)


def text_size(document: object) -> int:
    """The characters of a document's texts; of one that has many values, as many as make it a large
    one.
    """
    size, looked, waiting = 0, 0, [document]
    while waiting:
        looked += 1
        if looked > MANY_VALUES:
            return size + LARGE + 1
        match waiting.pop():
            case str() as text:
                size += len(text)
            case Raw() as raw:
                size += len(memoryview(raw))
            case dict() as fields:
                waiting += fields.values()
            case list() as items:
                waiting += items
    return size
