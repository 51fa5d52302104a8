"""Steps: one shortening each, as a context's trace and the spans of cuts tell it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from msgspec import Struct

ORDER = (
    "lose_pin",
    "cut_system_text",
    "clip_oversized",
    "soft_trim",
    "hard_clear",
    "compact_tool_results",
    "summarize_tool_results",
    "keep_last_n_turns",
    "keep_last_n_messages",
    "session_closed",
    "leave_out_oldest",
)
"""The order of the steps in a trace."""


class Step(Struct, array_like=True):
    """One shortening; messages and tokens are of the whole it was made of."""

    reducer: str
    messages_before: int
    messages_after: int
    tokens_before: int
    tokens_after: int

    def to_dict(self) -> dict[str, Any]:
        """As the ``trace`` of a context holds it."""
        return {name: getattr(self, name) for name in self.__struct_fields__}


class Cut(NamedTuple):
    """A cut that the fold made: at which event, how full the window was (tokens over the ceiling),
    and its steps over the tail.
    """

    at: int
    utilization: float
    steps: tuple[Step, ...]


def chain(gains: Mapping[str, tuple[int, int]], messages: int, tokens: int) -> list[Step]:
    """Steps that save so many messages and tokens each, ordered so that the last one ends with
    ``messages`` and ``tokens``.
    """
    order = [name for name in ORDER if name in gains] + [
        name for name in gains if name not in ORDER
    ]
    steps: list[Step] = []
    for name in reversed(order):
        fewer, less = gains[name]
        if fewer or less:
            steps.append(Step(name, messages + fewer, messages, tokens + less, tokens))
            messages, tokens = messages + fewer, tokens + less
    return steps[::-1]
