"""How large the parts of one event may be, beyond its total size: what a window keeps of an event
has to be bounded.

Checked twice with the same rules: on append, where the caller gets an error, and in the fold, where
an event of another producer that goes beyond is skipped the same way on every replay.
"""

from __future__ import annotations

import msgspec

from projections.events import types as events

MAX_CALLS = 64
"""Tool calls in one message; as many may stand open in a window."""
MAX_NAME = 256
"""Characters of an id or a name inside an event."""
MAX_CONTROL_BYTES = 32 << 10
"""Bytes of what a window keeps of an event that is not rendered (a suspension's prompt, a
conversation's metadata).
"""


def control_body(data: object) -> bytes:
    """What the tail keeps of an event that is not rendered: its data, without tool schemas and what
    was answered (the log has both).
    """
    kept = data
    if isinstance(data, events.Opened) and data.tools:
        kept = msgspec.structs.replace(data, tools=[])
    elif isinstance(data, events.Resolution) and data.content is not None:
        kept = msgspec.structs.replace(data, content=None)
    return msgspec.json.encode(kept)


def out_of_bounds(data: object) -> tuple[str, str] | None:
    """The field of an event's data that is too large and the limit, or None when all is within
    bounds.
    """
    if isinstance(data, events.Message):
        if not data.tool_calls and data.name is None:
            return None
        calls = data.tool_calls or ()
        if len(calls) > MAX_CALLS:
            return (
                "tool_calls",
                f"{len(calls)} calls are over the limit of {MAX_CALLS} for one message",
            )
        named = [("name", data.name)]
        for i, call in enumerate(calls):
            if not call.id or not call.name:
                return (
                    f"tool_calls[{i}].{'name' if call.id else 'id'}",
                    "it is empty, which no provider accepts",
                )
            named += [(f"tool_calls[{i}].id", call.id), (f"tool_calls[{i}].name", call.name)]
        return _too_long(named)
    if isinstance(data, events.ToolResult):
        return _too_long([("tool_call_id", data.tool_call_id), ("name", data.name)])
    if isinstance(data, events.ToolResultChunk):
        return _too_long([("spill_id", data.spill_id)])
    if isinstance(data, events.Summary):
        return _too_long(
            [
                ("summary_id", data.summary_id),
                ("previous", data.previous),
                ("summarizer", data.summarizer),
            ]
        )
    if isinstance(data, events.Suspension | events.Resolution):
        too_long = _too_long([("suspension_id", data.suspension_id)])
        if too_long is not None:
            return too_long
    size = len(control_body(data))
    if size > MAX_CONTROL_BYTES:
        return _largest_field(
            data
        ), f"{size} bytes are over the limit of {MAX_CONTROL_BYTES} for an event of this type"
    return None


def _too_long(named: list[tuple[str, str | None]]) -> tuple[str, str] | None:
    for field, text in named:
        if text is not None and len(text) > MAX_NAME:
            return field, f"{len(text)} characters are over the limit of {MAX_NAME}"
    return None


def _largest_field(data: object) -> str:
    sizes = {
        name: len(msgspec.json.encode(value))
        for name, value in msgspec.structs.asdict(data).items()  # type: ignore[arg-type]
        if name != "tools"
    }
    return max(sizes, key=lambda name: sizes[name], default="data")
