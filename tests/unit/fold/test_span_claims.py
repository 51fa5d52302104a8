"""A summary's claimed count of events is not trusted: what the window keeps of it can always be
stored.
"""

from __future__ import annotations

import pytest

from projections.events import types as events
from projections.fold.apply import Status, apply
from projections.policy.policy import Rules
from projections.window.window import Window
from tests.support.histories import KEY, PARTITION, make_event


@pytest.fixture(scope="module")
def long_window() -> Window:
    """2,200 messages, of which most are kept only as a range of the log."""
    window = Window(KEY, PARTITION, Rules({"working_budget": 1, "compaction": False}))
    for offset in range(2200):
        apply(window, offset, make_event(events.Message("user", "hi there you"), f"e{offset}", 8))
    return window


@pytest.mark.parametrize("count", [-(10**30), -(2**63), -1, 0, 100, 10**30])
def test_a_false_count_leaves_a_window_that_can_be_stored(long_window: Window, count: int) -> None:
    window = long_window.copy()
    held = window.tail[0].tokens
    span = events.Span(f"{PARTITION}-0", f"{PARTITION}-100", count, [], "0" * 64)
    summary = events.Summary("s", "x", 1, span, None, "budget", "t", "user", 0, 0, "p")
    assert apply(window, 2200, make_event(summary, "s", 5)).status is Status.APPLIED
    assert window.image()
    assert 0 < window.tail[0].tokens <= held
    assert 0 < window.tail[0].count < 2200
