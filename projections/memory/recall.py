"""One list of what several channels found: without doubles, scored, best first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, pstdev
from typing import Literal

from msgspec import structs

from projections.memory.identity import normalize
from projections.memory.planner import SearchPlan
from projections.memory.raw_turns import Turn
from projections.memory.recall_scores import Parts, parts_of, recency
from projections.memory.resolution import Record
from projections.policy.recall_weights import RecallWeights

Channel = Literal["text", "vectors", "pragmatic_vectors", "tags", "time"]
CHANNELS: tuple[Channel, ...] = ("text", "vectors", "pragmatic_vectors", "tags", "time")
MAX_SKILLS = 3
NEAR = 0.5
"""The share of meaning in how well a text fits; the rest is its words'."""


@dataclass(slots=True)
class Recalled:
    """A record, composite, skill or turn that was found. ``fit``: how well its text fits;
    ``relevance``: from 0 to 1, how improbable it is that it fits by chance. ``cosine``: how near
    its meaning is; None where no vectors say.
    """

    found: Record | Turn
    fit: float = 0.0
    relevance: float = 0.0
    cosine: float | None = None
    channels: list[Channel] = field(default_factory=list)
    parts: Parts | None = None
    score: float = 0.0

    @property
    def kind(self) -> str:
        """What it is: ``record``, ``composite``, ``skill`` or ``turn``."""
        return "turn" if isinstance(self.found, Turn) else self.found.kind

    @property
    def id(self) -> str:
        """What names it."""
        return self.found.id

    @property
    def position(self) -> str | None:
        """The event that it is, or the last that taught it."""
        if isinstance(self.found, Turn):
            return self.found.position
        return self.found.positions[-1] if self.found.positions else None

    @property
    def scores(self) -> dict[str, float]:
        """Why it stands where it stands."""
        own = {} if self.parts is None else structs.asdict(self.parts)
        near = {} if self.cosine is None else {"cosine": self.cosine}
        return {**own, "text": self.fit, "relevance": self.relevance, **near}


def joined(channels: Iterable[tuple[Channel, Iterable[Recalled]]]) -> list[Recalled]:
    """What the channels found, each once; its fit is the best one."""
    found: dict[tuple[str, str], Recalled] = {}
    for channel, several in channels:
        for one in several:
            known = found.setdefault((one.kind, one.id), one)
            known.fit = max(known.fit, one.fit)
            known.relevance = max(known.relevance, one.relevance)
            if one.cosine is not None:
                known.cosine = max(one.cosine, known.cosine or -1.0)
            if channel not in known.channels:
                known.channels.append(channel)
    _fuse(list(found.values()))
    return _without_repeats(list(found.values()))


def _fuse(found: Sequence[Recalled]) -> None:
    """Where vectors say how near meanings are, they are half of how well a text fits: the sum of
    both, each as its distance from the mean in standard deviations. What only one of both found is
    last in the other. Turns have no vectors: their words count for both.
    """
    near = [one.cosine for one in found if one.cosine is not None]
    if not near:
        return
    words = _standing([one.fit for one in found])
    least = min(near)
    nearness = iter(
        _standing(
            [
                least if one.cosine is None else one.cosine
                for one in found
                if not isinstance(one.found, Turn)
            ]
        )
    )
    sums = [
        own if isinstance(one.found, Turn) else (1 - NEAR) * own + NEAR * next(nearness)
        for one, own in zip(found, words, strict=True)
    ]
    least = min(sums)
    for one, total in zip(found, sums, strict=True):
        one.fit = total - least


def _standing(values: Sequence[float]) -> list[float]:
    """Each value's distance from their mean, in standard deviations."""
    spread = pstdev(values) or 1.0
    mean = fmean(values)
    return [(value - mean) / spread for value in values]


def _without_repeats(found: list[Recalled]) -> list[Recalled]:
    """Without the turns that say what a found record says: that it was learnt from them, or the
    same words.
    """
    taught = set[tuple[str | None, str]]()
    said = set[str]()
    for one in found:
        if isinstance(one.found, Record):
            taught.update((one.found.conversation, position) for position in one.found.positions)
            said.add(one.found.normalized_text)
    left: list[Recalled] = []
    for one in sorted(found, key=lambda one: -one.fit):
        if isinstance(one.found, Turn):
            text = normalize(one.found.text)
            if text in said or (one.found.conversation, one.found.position) in taught:
                continue
            said.add(text)
        left.append(one)
    return left


def scored(
    found: list[Recalled],
    plan: SearchPlan,
    weights: RecallWeights,
    now: int,
    *,
    facts: bool = False,
) -> list[Recalled]:
    """The same with their scores, best first. A composite ranks above those of its sources that
    were found; of skills there are three at most.

    Args:
        facts: how well the text fits and its age alone count.
    """
    best = max((one.fit for one in found), default=0.0) or 1.0
    for one in found:
        one.parts = parts_of(one.found, plan, one.fit / best, now)
        said = one.found.at if isinstance(one.found, Turn) else one.found.confirmed_at
        one.score = one.fit * recency(said, now) if facts else one.parts.total(weights)
    _raise_composites({one.id: one for one in found})
    ordered = sorted(found, key=lambda one: (-one.score, one.kind == "turn", one.id))
    skills = [one for one in ordered if one.kind == "skill"][MAX_SKILLS:]
    return [one for one in ordered if one not in skills] if skills else ordered


def _raise_composites(found: Mapping[str, Recalled]) -> None:
    for one in found.values():
        if isinstance(one.found, Record) and one.found.sources:
            sources = [found[id_].score for id_ in one.found.sources if id_ in found]
            one.score = max([one.score, *(score + 1e-6 for score in sources)])
