"""Events as a summariser reads them: who said what, as plain text."""

from __future__ import annotations

from projections.events import types as events
from projections.events.types import AnyEvent
from streams.compaction.summarizers.base import SpanMessage


def messages_of(event: AnyEvent, position: str) -> list[SpanMessage]:
    """What a summariser reads of an event; empty for events that say nothing."""
    data = event.data if not isinstance(event, events.OtherEvent) else None
    if isinstance(data, events.Message):
        if data.role in ("system", "developer"):
            return []
        text = _text(data.content)
        for call in data.tool_calls or ():
            text += f"\ncalls {call.name}({call.arguments})"
        return [SpanMessage(position, data.role, text.strip(), data.name)]
    if isinstance(data, events.ToolResult):
        return [SpanMessage(position, "tool", _text(data.content), data.name, data.is_error)]
    if isinstance(data, events.Suspension) and data.prompt:
        return [SpanMessage(position, "assistant", f"asks for {data.kind}: {data.prompt}")]
    if isinstance(data, events.Resolution):
        return [SpanMessage(position, "user", f"{data.outcome}. {_text(data.content)}".strip())]
    return []


def _text(content: events.Content) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    parts = []
    for part in content:
        if isinstance(part, events.TextPart):
            parts.append(part.text)
        elif isinstance(part, events.ImagePart):
            parts.append("[an image]")
        elif isinstance(part, events.FilePart):
            parts.append("[a file]")
    return "\n".join(parts)
