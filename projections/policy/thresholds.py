"""The marks a tail is held against, computed once for a policy, a pinned lane and a summary, and
not with every event.
"""

from __future__ import annotations

from typing import NamedTuple

from projections.policy.policy import Policy
from projections.policy.profiles import KeepMessages, KeepTurns

NEVER = 1 << 62
SUMMARY_MARK = "[Summary of the earlier conversation]\n"
"""What stands before a summary where a model is given it."""
STUB_TOKENS = 60
"""Tokens taken for a stub line: it is under 60 bytes of ASCII beside two positions, and a token is
at least a byte.
"""


class Limits(NamedTuple):
    """Tokens: ``ceiling`` of any render, ``budget`` of the tail, ``room`` for it under the ceiling,
    ``hold`` above which it is shortened.

    Up to ``mark`` tokens in the tail no cut is made for their sake; above it
    ``projections.reducers.enforce_limits`` decides. ``messages`` and ``turns`` are the most that
    may be shown. ``counted``: more is to be looked at than tokens.
    """

    ceiling: int
    budget: int
    room: int
    hold: int
    mark: int
    messages: int
    turns: int
    counted: bool

    @classmethod
    def of(cls, policy: Policy, pinned: int, summary: int, usage_excess: int) -> Limits:
        """The limits beside a pinned lane and a summary of so many tokens (0: there is none).

        ``usage_excess`` is by how much the model's own count of the last call exceeded ours.
        """
        ceiling, budget = policy.ceiling, policy.budget(pinned)
        room = max(
            1, ceiling - pinned - (summary + len(SUMMARY_MARK) if summary else 0) - STUB_TOKENS
        )
        mark = min(budget, room)
        if policy.compaction_ratio < 1.0:
            share = policy.compaction_ratio * (policy.model_window - policy.reserve_tokens)
            mark = min(mark, int(share) - pinned - summary - usage_excess)
        if not policy.pays and not policy.shortens:
            mark = NEVER
        messages = min((r.n for r in policy.reducers if isinstance(r, KeepMessages)), default=NEVER)
        turns = min((r.n for r in policy.reducers if isinstance(r, KeepTurns)), default=NEVER)
        counted = policy.counted or policy.profile == "sliding"
        return cls(ceiling, budget, room, min(2 * budget, room), mark, messages, turns, counted)
