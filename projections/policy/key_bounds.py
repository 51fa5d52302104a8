"""What the value of each policy key must be, and which keys bound the pinned lane."""

from __future__ import annotations

from typing import Any, Literal, get_args

Encoding = Literal["o200k_base", "cl100k_base"]
NON_NEGATIVE = (
    "reserve_tokens",
    "min_messages",
    "soft_trim_chars",
    "hard_clear_chars",
    "protect_recent",
    "spill_chars",
    "idle_close_seconds",
    "loop_guard",
    "keep_recent_tokens",
)
POSITIVE = (
    "model_window",
    "working_budget",
    "summary_max_tokens",
    "max_result_bytes",
    "wm_max_tokens",
)
SHARES = ["hard_ceiling", "low_water", "compaction_ratio"]
MOST = 10**12
"""No number of tokens, characters, bytes or seconds is meant beyond it; arithmetic with shares
fails on far larger ones.
"""
MOST_REDUCERS = 16
"""Reducers that a policy may list: each may look at all of a tail."""
LIMITS: dict[str, dict[str, Any]] = {
    **{name: {"minimum": 0, "maximum": MOST} for name in (*NON_NEGATIVE, "pinned_max_tokens")},
    **{name: {"minimum": 1, "maximum": MOST} for name in POSITIVE},
    **{name: {"minimum": 0.0, "maximum": 1.0} for name in SHARES},
    "encoding": {"enum": list(get_args(Encoding))},
    "reducers": {"maxItems": MOST_REDUCERS},
}
"""What each key's value must be, in JSON Schema's words."""
PINNED_KEYS = (
    "encoding",
    "model_window",
    "pinned_max_tokens",
    "profile",
    "hard_ceiling",
    "reserve_tokens",
    "summary_max_tokens",
)
"""Keys that decide how much text may be pinned: its limit and how it is counted, and all that a
conversation's own policy may contradict (``policy._check``). Such a policy is left out whole.
"""
