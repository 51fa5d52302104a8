"""The CloudEvents envelope that all events share."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct


class Tokens(Struct, omit_defaults=False):
    """What the producer counted: a claim the fold checks for plausibility (see
    ``projections.events.tokenizer``).
    """

    count: int
    encoding: str
    exact: bool = True


class Event(Struct, tag_field="type", kw_only=True):
    """The envelope every event shares; subclasses give ``data`` its type.

    ``expect`` and ``fence`` are conditions that the fold checks
    (``projections.fold.conditions``).
    """

    specversion: Literal["1.0"]
    id: str
    source: str
    time: str | None = None
    traceparent: str | None = None
    tokens: Tokens | None = None
    expect: str | None = None
    fence: int | None = None
    data: Any
