"""Judging a render without trusting the code that made it: is it a valid request, and how many
tokens is it really?
"""

from __future__ import annotations

from typing import Any

import msgspec

from projections.events import token_cost
from projections.events import types as events
from projections.window.bodies import to_flat

ROLES = frozenset({"system", "developer", "user", "assistant", "tool"})


def faults(messages: list[dict[str, Any]]) -> list[str]:
    """What a provider would refuse of OpenAI-format messages, one sentence each; empty when all is
    well.

    Every call must be answered right after its message, in the order of the calls; a ``tool``
    message must answer a call; content may be null beside calls only.
    """
    found: list[str] = []
    expected: list[str] = []
    for i, message in enumerate(messages):
        role = message.get("role")
        if role not in ROLES:
            found.append(f"message {i} has role {role!r}")
        if role == "tool":
            if not expected or message.get("tool_call_id") != expected[0]:
                found.append(
                    f"message {i} answers {message.get('tool_call_id')!r} where {expected[:1]} is"
                    " expected"
                )
            expected = expected[1:]
        elif expected:
            found.append(f"message {i} comes before calls {expected} are answered")
            expected = []
        calls = message.get("tool_calls") or []
        if message.get("content") is None and not calls:
            found.append(f"message {i} has neither content nor calls")
        if calls:
            expected = [call["id"] for call in calls]
    if expected:
        found.append(f"calls {expected} are not answered")
    return found


def recount(messages: list[dict[str, Any]], encoding: str) -> int:
    """The tokens of the messages, counted from their text with the tokenizer; tool schemas are not
    among them.
    """
    total = 0
    for i, message in enumerate(messages):
        flat = to_flat(message, f"message {i}")
        data = msgspec.convert(
            {k: v for k, v in flat.items() if k not in ("type", "id", "time")},
            events.DATA_TYPES[flat["type"]],
        )
        total += token_cost.measured(data, encoding).count
    return total
