"""The trace: every shortening of a render as one step, in the order in which they are made, each going on where the one before ended."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from projections.window import Window

ORDER = (
    "soft_trim",
    "hard_clear",
    "compact_tool_results",
    "summarize_tool_results",
    "keep_last_n_turns",
    "keep_last_n_messages",
    "session_closed",
    "leave_out_oldest",
)


class Step(Struct, array_like=True):
    """One shortening; messages and tokens are of the whole render."""

    reducer: str
    messages_before: int
    messages_after: int
    tokens_before: int
    tokens_after: int

    def to_dict(self) -> dict[str, Any]:
        """As the ``trace`` of a context holds it."""
        return {name: getattr(self, name) for name in self.__struct_fields__}


def steps_of(window: Window, messages: int, tokens: int) -> list[Step]:
    """What the fold shortened of a window, told so that the last step ends with ``messages`` and ``tokens``."""
    lanes = window.lanes
    gains = [("lose_pin", *lanes.pins_lost), ("cut_system_text", *lanes.pinned_lost)]
    order = [name for name in ORDER if name in window.gains] + sorted(window.gains.keys() - set(ORDER))
    gains += [(name, window.gains[name][0], window.gains[name][1]) for name in order]
    steps: list[Step] = []
    for name, fewer, less in reversed(gains):
        if fewer or less:
            steps.append(Step(name, messages + fewer, messages, tokens + less, tokens))
            messages, tokens = messages + fewer, tokens + less
    return steps[::-1]
