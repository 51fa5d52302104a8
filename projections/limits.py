"""The marks a tail is held against, computed once for a policy, a pinned lane and a summary, and not with every event."""

from __future__ import annotations

from typing import NamedTuple

from projections.policy import Policy

NEVER = 1 << 62


class Limits(NamedTuple):
    """Tokens: ``ceiling`` of any render, ``budget`` of the tail, ``hold`` above which its oldest entries are held in the log only.

    Up to ``mark`` tokens in the tail compaction is certainly not due; above it ``projections.due`` decides.
    """

    ceiling: int
    budget: int
    hold: int
    mark: int

    @classmethod
    def of(cls, policy: Policy, pinned: int, summary: int) -> Limits:
        """The limits beside a pinned lane and a summary of so many tokens."""
        ceiling, budget = policy.ceiling, policy.budget(pinned)
        mark = NEVER
        if policy.compaction:
            mark = budget
            if policy.compaction_ratio < 1.0:
                share = policy.compaction_ratio * (policy.model_window - policy.reserve_tokens)
                mark = min(budget, int(share) - pinned - summary)
        return cls(ceiling, budget, 2 * budget, mark)
