"""Conversations in which a tool's result comes late: after an approval, or after others spoke."""

from __future__ import annotations

import json
from typing import Any

from projections.events import types as events
from tests.support.stories import WIDE, Story
from threadfold.service.documents import document

ASKS = events.Suspension("s", "approval", tool_call_id="a", prompt="May I?")
LIMITS: dict[str, dict[str, Any]] = {
    "messages": {"reducers": [{"name": "keep_last_n_messages", "n": 4}]},
    "turns": {"reducers": [{"name": "keep_last_n_turns", "n": 2}]},
    "sliding": {"profile": "sliding", "close_summarizer": "extractive"},
    "exact": {"reducers": [{"name": "keep_last_n_messages", "n": 4}], "cuts": "exact"},
    "budget": {"working_budget": 60, "compaction": False},
}
HAS_COME = "[The result of the call of refund has come: it stands with the call]"


def context(story: Any, fmt: str = "openai") -> dict[str, Any]:
    found: dict[str, Any] = json.loads(document(story.window, fmt))
    return found


def waiting(policy: dict[str, Any] | None = None) -> Story:
    """A call that waits for an approval."""
    story = Story({**WIDE, **(policy or {})})
    story.user("Refund it.")
    story.call("a", tool="refund")
    story.say(ASKS)
    return story


def spoken(story: Story, turns: int) -> None:
    for i in range(turns):
        story.user(f"question {i}")
        story.assistant(f"answer {i}")
