"""The types of the bodies of the routes of memories."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from msgspec import Meta, Struct

from projections.events.memories import Trust
from projections.events.types import MemoryTags, MemoryTime
from projections.fold.memory_acceptance import MAX_TEXT
from threadfold.schemas.structs import NAME
from threadfold.service.memories import MAX_LISTED

_Text = Annotated[str, Meta(min_length=1, max_length=MAX_TEXT)]
_Name = Annotated[str, Meta(extra_json_schema=NAME)]
User = Annotated[str, Meta(min_length=1, max_length=1024)]
_TEXT = {"type": "string"}
_DAY_OR_TIME = [_TEXT | {"format": "date"}, _TEXT | {"format": "date-time"}]
_Moment = Annotated[str, Meta(extra_json_schema={"anyOf": _DAY_OR_TIME})]
_Time = Annotated[datetime, Meta(tz=True)]
MemoryType = Literal[
    "fact", "preference", "event", "constraint", "procedure", "failure_pattern", "tool_affordance"
]


class NewTags(MemoryTags, forbid_unknown_fields=True):
    """Words for what a record is about."""


class NewTimes(MemoryTime, forbid_unknown_fields=True):
    """The time a record speaks of, and from when to when it holds: days, or RFC 3339 times."""

    t_ref: _Moment | None = None
    t_valid_from: _Moment | None = None
    t_valid_to: _Moment | None = None


class NewMemory(Struct, forbid_unknown_fields=True):
    """A record to save. It belongs to the conversation's user and channel, or to the `user` and
    `channel` given. A record with a `topic` is revised by the next one of that topic. `trust` is
    who says it: `model` where a model decided to save it.
    """

    text: _Text
    type: MemoryType = "fact"
    user: User | None = None
    channel: User | None = None
    conversation: _Name | None = None
    topic: User | None = None
    tags: NewTags | None = None
    temporal: NewTimes | None = None
    confidence: Annotated[float, Meta(ge=0, le=1)] = 1.0
    trust: Trust = "user"


class NewSkill(Struct, forbid_unknown_fields=True):
    """A skill to save. Saving the same `intent` again revises it. `trust` is who says it."""

    intent: _Text
    doc_markdown: Annotated[str, Meta(min_length=1, max_length=16_384)]
    preconditions: Annotated[list[_Text], Meta(max_length=64)] = []
    user: User | None = None
    channel: User | None = None
    conversation: _Name | None = None
    trust: Trust = "user"


class MemorySearch(Struct, forbid_unknown_fields=True):
    """A search. `user`, `channel` and `conversation` narrow it. `as_of` answers from what was known
    then. `tools`, `constraints` and `failures` are words that count like the query's. Without a
    `limit` there are at most 10 results, or as many as the plan's `depth` if that is more.
    """

    query: _Text
    user: User | None = None
    channel: User | None = None
    conversation: _Name | None = None
    kinds: tuple[Literal["record", "turn", "skill"], ...] = ("record", "turn", "skill")
    types: list[MemoryType] = []
    mode: Literal["answer", "action", "mixed"] | None = None
    tools: Annotated[list[_Text], Meta(max_length=64)] = []
    constraints: Annotated[list[_Text], Meta(max_length=32)] = []
    failures: Annotated[list[_Text], Meta(max_length=16)] = []
    since: _Time | None = None
    until: _Time | None = None
    as_of: _Time | None = None
    limit: Annotated[int, Meta(ge=1, le=MAX_LISTED)] | None = None
    max_tokens: Annotated[int, Meta(ge=1)] | None = None
    profile: Literal["facts"] | None = None
    explain: bool = False


class Succeeded(Struct, forbid_unknown_fields=True):
    """Whether the action that used the record succeeded."""

    succeeded: bool
