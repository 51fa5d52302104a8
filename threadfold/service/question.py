"""A question to the memory: what is looked for, and among what."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from projections.memory.planner import ActionState, Mode, SearchPlan, asked_text, make_plan
from projections.memory.private_text import all_without_private
from streams.memory.store import Filter

LIMIT = 10
"""Results, where neither the caller nor the plan asks for more."""
KINDS_OF: Mapping[str, tuple[str, ...]] = {
    "record": ("record", "composite"),
    "skill": ("skill",),
    "turn": (),
}
"""The kinds of the store by those that a search names."""


@dataclass(frozen=True, slots=True)
class Question:
    """What somebody wants to know of what a filter admits; ``kinds`` of :data:`KINDS_OF`.
    ``limit``: None: the plan says how many results there are.
    """

    only: Filter
    query: str
    kinds: Collection[str] = ("record", "turn", "skill")
    mode: Mode | None = None
    tools: Sequence[str] = ()
    constraints: Sequence[str] = ()
    failures: Sequence[str] = ()
    recent: str = ""
    limit: int | None = None
    facts: bool = False

    def most(self, plan: SearchPlan) -> int:
        """How many results are given out: as the caller says, else as deep as the plan goes."""
        return max(LIMIT, plan.depth) if self.limit is None else self.limit

    @property
    def kinds_of_store(self) -> tuple[str, ...]:
        """The kinds of the store that it is about."""
        return tuple(kind for name in self.kinds for kind in KINDS_OF[name])


class Prepared(NamedTuple):
    """A question without what is private, what is known of it, and the plan of the rules."""

    question: Question
    state: ActionState
    plan: SearchPlan


def prepare(question: Question, now: int) -> Prepared:
    """What of a question is looked for, and how; ``now`` is in microseconds since 1970."""
    asked = replace(
        question,
        query=asked_text(question.query),
        recent=asked_text(question.recent),
        tools=all_without_private(question.tools),
        constraints=all_without_private(question.constraints),
        failures=all_without_private(question.failures),
    )
    state = ActionState(
        query=asked.query,
        now=now,
        recent=asked.recent,
        tools=list(asked.tools),
        constraints=list(asked.constraints),
        failures=list(asked.failures),
        mode=asked.mode,
    )
    return Prepared(asked, state, make_plan(state))
