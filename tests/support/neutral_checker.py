"""Whether events are the neutral format of a window: written from the contract's table of events,
knowing nothing of threadfold's code.
"""

from __future__ import annotations

import itertools
import json
import re
from collections import Counter
from typing import Any

POSITION = re.compile(r"[0-9]+-([0-9]+)")
NEEDED: dict[str, set[str]] = {
    "conversation.opened": set(),
    "message": {"role"},
    "tool.result": {"tool_call_id"},
    "suspension": {"suspension_id", "kind"},
    "resolution": {"suspension_id", "outcome"},
    "session.closed": {"reason"},
    "turn.started": {"turn_id"},
    "turn.ended": {"turn_id"},
    "loop.detected": {"tool", "arguments_sha256", "count"},
    "compaction.requested": set(),
    "summary": {"summary_id", "text", "tokens", "trust"},
    "held": {"from", "to", "count"},
}
CHOICES = {
    ("message", "role"): {"system", "developer", "user", "assistant"},
    ("suspension", "kind"): {"approval", "input", "external"},
    ("resolution", "outcome"): {"approved", "rejected", "answered", "expired", "cancelled"},
    ("session.closed", "reason"): {"idle", "explicit"},
    ("summary", "trust"): {"user", "model", "tool"},
}
PARTS = {"text", "image_url", "file", "reasoning"}


def problems(
    events: bytes | list[Any], known_ids: set[str] | None = None, *, paired: bool = False
) -> list[str]:
    """What is wrong with the events, one sentence each; empty when nothing is.

    First the system lane, then at most one summary, then pinned results with their calls, then the
    rest by ascending positions. Events are facts, so a result may stand before its call, answer one
    that a summary took, or none: with ``known_ids`` (those of the whole log) a result of any other
    id is a fault. ``paired`` asks for more: each result stands behind a call of its id that nothing
    else has answered.
    """
    parsed = json.loads(events) if isinstance(events, bytes) else events
    if not isinstance(parsed, list):
        return ["it is not a list"]
    wrong: list[str] = []
    waiting: Counter[Any] = Counter()
    pins = _pins(parsed)
    stage, last = 0, {0: -1, 2: -1}
    for i, event in enumerate(parsed):
        if not isinstance(event, dict) or event.get("type") not in NEEDED:
            wrong.append(f"{i}: not an event of a known type")
            continue
        wrong += [f"{i}: {text}" for text in _own(event)]
        kind = event["type"]
        lane = kind == "message" and event.get("role") in ("system", "developer")
        place = 0 if lane else 1 if kind == "summary" else 2
        if place < stage or (place == stage == 1):
            wrong.append(f"{i}: {kind} stands behind what comes after it")
        stage = max(stage, place)
        position = POSITION.fullmatch(str(event.get("position")))
        if position is None:
            wrong.append(f"{i}: no position")
        elif place != 1:
            if i not in pins and int(position[1]) <= last[place]:
                wrong.append(f"{i}: its position is not after the one before")
            last[place] = last[place] if i in pins else int(position[1])
        waiting.update(
            call.get("id") for call in event.get("tool_calls") or () if isinstance(call, dict)
        )
        if kind == "tool.result" and paired:
            if waiting[event.get("tool_call_id")] < 1:
                wrong.append(
                    f"{i}: a result of {event.get('tool_call_id')!r}, which waits for none"
                )
            waiting[event.get("tool_call_id")] -= 1
        if (
            kind == "tool.result"
            and known_ids is not None
            and event.get("tool_call_id") not in known_ids
        ):
            wrong.append(f"{i}: a result of {event.get('tool_call_id')!r}, which nobody called")
    return wrong


def _pins(events: list[Any]) -> set[int]:
    """Where calls and results stand that were pinned and whose place is not in the tail: pairs of
    one position.
    """
    found: set[int] = set()
    for i, (before, event) in enumerate(
        itertools.pairwise(e if isinstance(e, dict) else {} for e in events)
    ):
        if (
            event.get("pinned")
            and before.get("tool_calls")
            and event.get("position") == before.get("position")
        ):
            found |= {i, i + 1}
    return found


def _own(event: dict[str, Any]) -> list[str]:
    """What is wrong with one event by itself."""
    kind = event["type"]
    wrong = [f"a {kind} without {name}" for name in sorted(NEEDED[kind]) if event.get(name) is None]
    for (of, name), allowed in CHOICES.items():
        if of == kind and name in event and event[name] not in allowed:
            wrong.append(f"{name} {event[name]!r} of a {kind}")
    if kind in ("message", "tool.result"):
        wrong += _content(event)
    calls = event.get("tool_calls")
    if calls is not None:
        if event.get("role") != "assistant" or not isinstance(calls, list) or not calls:
            return [*wrong, "tool_calls that are not an assistant's filled list"]
        for call in calls:
            if not isinstance(call, dict) or not all(
                isinstance(call.get(name), str) for name in ("id", "name", "arguments")
            ):
                wrong.append("a call without id, name and arguments")
    return wrong


def _content(event: dict[str, Any]) -> list[str]:
    content = event.get("content")
    if content is None:
        return [] if event["type"] == "tool.result" or event.get("tool_calls") else ["no content"]
    if isinstance(content, str):
        return []
    if not isinstance(content, list) or not content:
        return ["content is neither text nor a filled list of parts"]
    return [
        f"a part of type {p.get('type') if isinstance(p, dict) else p!r}"
        for p in content
        if not isinstance(p, dict) or p.get("type") not in PARTS
    ]
