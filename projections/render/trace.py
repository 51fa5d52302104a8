"""The trace: every shortening of a render as one step, in the order in which they are made, each
going on where the one before ended.
"""

from __future__ import annotations

from projections.policy.thresholds import STUB_TOKENS
from projections.window.entry import LEFT_OUT, omits
from projections.window.trace_steps import ORDER, Step, chain
from projections.window.window import Window


def steps_of(window: Window, messages: int, tokens: int) -> list[Step]:
    """What the fold shortened of a window, ordered so that the last step ends with ``messages`` and
    ``tokens``.
    """
    state = window.state
    gains = {"lose_pin": state.pins_lost, "cut_system_text": state.pinned_lost}
    saved = sum(pin.saved for pin in state.pins)
    gains |= {"shorten_pinned_results": (0, saved)} if saved else {}
    gains |= {name: (window.gains[name][0], window.gains[name][1]) for name in sorted(window.gains)}
    limits = [name for name in ORDER if name in gains and omits(f"out:{name}")]
    if window.omitted is not None and limits and limits[-1] != LEFT_OUT:
        # The line that names them came in their place.
        fewer, less = gains[limits[-1]]
        gains[limits[-1]] = (fewer - 1, less - STUB_TOKENS)
    return chain(gains, messages, tokens)
