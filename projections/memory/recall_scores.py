"""What a found record is worth for a plan: the parts of its score, and their sum.

The formula is that of issue 18: 0.30 semantic + 0.25 action + 0.15 temporal + 0.10 recency + 0.10
evidence - 0.10 token cost. The weights are policy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import exp, log

from msgspec import Struct

from projections.events.times import parse_micros
from projections.memory.planner import SearchPlan, TemporalFilter
from projections.memory.raw_turns import Turn
from projections.memory.resolution import Record
from projections.memory.words import words_of
from projections.policy.recall_weights import RecallWeights

HALF_LIFE = 30 * 86_400_000_000
"""Microseconds after which a record's recency is a half."""
LONG = 2_000
"""Characters that cost as much as a text can."""
BONUS = {"procedure": 0.3, "tool_affordance": 0.3, "failure_pattern": 0.3, "constraint": 0.2}
"""What the type of a record adds to its use for an action."""


class Parts(Struct, frozen=True):
    """The parts of a score, each from 0 to 1."""

    semantic: float
    action: float
    temporal: float
    recency: float
    evidence: float
    token_cost: float

    def total(self, weights: RecallWeights) -> float:
        """The score."""
        return (
            weights.semantic * self.semantic
            + weights.action * self.action
            + weights.temporal * self.temporal
            + weights.recency * self.recency
            + weights.evidence * self.evidence
            - weights.token_cost * self.token_cost
        )


class Scoring:
    """Scores what was found for a plan. What that asks for is cut into words once.

    Args: ``now``: microseconds since 1970.
    """

    def __init__(self, plan: SearchPlan, now: int) -> None:
        self._mode, self._times, self._now = plan.mode, plan.temporal_filter, now
        wanted = (
            ("tool", plan.tool_hints),
            ("constraint", plan.required_constraints),
            ("affordance", plan.required_affordances),
        )
        self._wanted = [(kind, list(map(_words, asked))) for kind, asked in wanted if asked]

    def parts_of(self, found: Record | Turn, semantic: float) -> Parts:
        """The parts of a record's or turn's score.

        Args: ``semantic``: how well its text fits, where the best of all that was found has 1.
        """
        return Parts(
            semantic=semantic,
            action=self._action(found),
            temporal=_temporal(found, self._times, self._now),
            # How long ago it was said makes a turn no better or worse an answer: measured on long
            # dialogues, it put newer turns before those that answer (docs/performance.md).
            recency=0.0 if isinstance(found, Turn) else recency(found.confirmed_at, self._now),
            evidence=_evidence(found),
            token_cost=min(1.0, len(found.text) / LONG),
        )

    def _action(self, found: Record | Turn) -> float:
        if self._mode == "answer":
            return 0.2
        tags: Mapping[str, list[str]] = {} if isinstance(found, Turn) else found.tags
        overlaps = [_overlap(tags.get(kind, ()), asked) for kind, asked in self._wanted]
        mean = sum(overlaps) / len(overlaps) if overlaps else 0.0
        bonus = 0.0 if isinstance(found, Turn) else BONUS.get(found.type, 0.0)
        return min(1.0, mean + bonus)


def recency(at: int, now: int) -> float:
    """1 for what was said just now, a half after 30 days, and so on."""
    return exp(-log(2) * max(0, now - at) / HALF_LIFE)


def _words(text: str) -> str:
    """A text's words in one: a string keeps its hash, and this is looked up for each result."""
    return " ".join(words_of(text))


def _overlap(tags: Sequence[str], asked: Sequence[str]) -> float:
    """The share of what is asked for that the tags have."""
    own = set(map(_words, tags))
    return sum(one in own for one in asked) / len(asked)


def _temporal(found: Record | Turn, asked: TemporalFilter | None, now: int) -> float:
    """0.7 if it holds at the time in question, 0.1 if it does not, 0.3 if nobody says. What is to
    come is not over, unless the question is about a time.
    """
    if isinstance(found, Turn):
        return 0.3 if asked is None else 0.7 if asked.holds(found.at) else 0.1
    begins = parse_micros(found.temporal.get("t_valid_from"))
    ends = parse_micros(found.temporal.get("t_valid_to"))
    if asked is not None:
        about = parse_micros(found.temporal.get("t_ref"))
        if begins is not None or ends is not None:
            held = (asked.until is None or begins is None or begins < asked.until) and (
                asked.since is None or ends is None or ends > asked.since
            )
            return 0.7 if held else 0.1
        return 0.7 if asked.holds(found.created if about is None else about) else 0.1
    if ends is not None and ends <= now:
        return 0.1
    to_come = begins is not None and begins > now
    return 0.3 if to_come or (begins is None and ends is None) else 0.7


def _evidence(found: Record | Turn) -> float:
    """0.5 for what was never used, else half its hit rate and half its success rate."""
    if isinstance(found, Turn):
        return 0.5
    use = found.use
    tried = use.succeeded + use.failed
    if not use.retrieved and not tried:
        return 0.5
    hits = use.hits / use.retrieved if use.retrieved else 0.5
    succeeded = use.succeeded / tried if tried else 0.5
    return min(1.0, 0.5 * hits + 0.5 * succeeded)
