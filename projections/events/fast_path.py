"""The forms that nearly every event has, checked in one call: a message or a tool's answer whose
parts are plain texts.

What fits one of these forms is right by every rule of ``projections.events.validation`` but three
that are left to the caller: its id, its time, and that its texts hold no lone surrogate (writing it
as JSON finds that). What does not fit may be right or wrong: the whole check tells, and says what
is wrong in its own words.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from projections.events import types as events
from projections.events.size_limits import MAX_CALLS, MAX_NAME

_Id = Annotated[str, Meta(min_length=1, max_length=MAX_NAME)]
_Name = Annotated[str, Meta(max_length=MAX_NAME)]


class _Call(events.ToolCall, forbid_unknown_fields=True):
    id: _Id
    name: _Id
    arguments: str


class _Message(events.Message, forbid_unknown_fields=True, kw_only=True):
    content: str | None = None
    name: _Name | None = None
    tool_calls: Annotated[list[_Call], Meta(max_length=MAX_CALLS)] | None = None  # type: ignore[assignment]  # a narrower list is never written to
    type: Any = None
    id: Any = None
    time: Any = None
    traceparent: Any = None
    conversation: Any = None


class _Result(events.ToolResult, forbid_unknown_fields=True, kw_only=True):
    tool_call_id: _Id
    content: str | None = None
    name: _Name | None = None
    spill: None = None
    type: Any = None
    id: Any = None
    time: Any = None
    traceparent: Any = None
    conversation: Any = None


_FORMS: dict[str, type[msgspec.Struct]] = {"message": _Message, "tool.result": _Result}


def quick_data(name: str, flat: dict[str, Any]) -> msgspec.Struct | None:
    """The data of a flat event of type ``name`` (a ``Message`` or a ``ToolResult``), or None where
    the whole check has to decide.
    """
    form = _FORMS.get(name)
    if form is None:
        return None
    if not isinstance(flat.get("tool_calls", []), list | None):
        return None  # a tuple would be taken for a list
    try:
        return msgspec.convert(flat, form)
    except (
        msgspec.ValidationError,
        UnicodeEncodeError,
    ):  # the latter for a lone surrogate where no text belongs
        return None
