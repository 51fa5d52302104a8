"""Events of adapters as a window gives them back."""

from __future__ import annotations

from typing import Any

from projections.events.validation import make_record
from projections.names import make_key


def in_the_window(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Events as the window gives them back: checked by intake, reasoning parts beside the
    content.
    """
    found = []
    for i, event in enumerate(events):
        make_record(
            make_key("t", "c"), event, where=f"event {i}", now="2026-01-01T00:00:00Z", new_id="x"
        )
        content = event.get("content")
        if isinstance(content, list):
            reasoning = [part for part in content if part["type"] == "reasoning"]
            rest = [part for part in content if part["type"] != "reasoning"]
            event = {**event, "content": rest or (None if event.get("tool_calls") else "")}
            event |= {"reasoning": reasoning} if reasoning else {}
        found.append(event)
    return found
