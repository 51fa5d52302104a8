"""One list of what several channels found: without doubles, scored, best first."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import nlargest
from typing import Literal

from msgspec import structs

from projections.memory.identity import normalize
from projections.memory.latest import (
    LONG,
    SHORT,
    Statement,
    corrections,
    is_stated,
    others_of_kind,
    statement,
)
from projections.memory.planner import SearchPlan
from projections.memory.raw_turns import Turn
from projections.memory.recall_scores import Parts, Scoring, recency
from projections.memory.resolution import Record
from projections.memory.words import is_common, stems_of
from projections.policy.recall_weights import RecallWeights

Channel = Literal["text", "vectors", "pragmatic_vectors", "tags", "time"]
CHANNELS: tuple[Channel, ...] = ("text", "vectors", "pragmatic_vectors", "tags", "time")
MAX_SKILLS = 3
LATEST_AMONG = 20
"""Of how many results it is seen whether one corrects another."""
LIKELY = 0.7
"""How much of the score of what it corrects a statement has by itself, if it does not say that
something changed. In long dialogues many a later turn is alike and answers something else. The
highest bound that left no more former values first in part ``train`` of figure ``recall``.
"""
FARTHER = 0.4
"""How much less the cosine may be of what corrects than of what it corrects. The lowest that left
no more former values first there.
"""
BEST = 3
"""Statements that fit best by words, and by meaning, of which it is looked what corrects them."""
COVERED = 0.5
"""The power of how much of the question is covered, where there are no vectors: nothing else finds
what answers in other words, and a few words of it are better than none.
"""
NEAR, OPEN = 0.5, 10.0
"""What a cosine counts beside a fit of 1: where words fit the question wholly, and how much more
where none fits.
"""


@dataclass(slots=True)
class Recalled:
    """A record, composite, skill or turn that was found. ``fit``: how well its text fits;
    ``relevance``: from 0 to 1, how improbable it is that it fits by chance; ``coverage``: how much
    of the question any text has. ``cosine``: how near its meaning is; None where no vectors say.
    ``taught_by``: the found turn that says a record, and is left out. ``corrects``: it was looked
    for because it corrects something that was found.
    """

    found: Record | Turn
    fit: float = 0.0
    relevance: float = 0.0
    coverage: float = 1.0
    cosine: float | None = None
    channels: list[Channel] = field(default_factory=list)
    parts: Parts | None = None
    score: float = 0.0
    taught_by: Turn | None = None
    corrects: bool = False

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


def joined(
    channels: Iterable[tuple[Channel, Iterable[Recalled]]], composites: Iterable[Record] = ()
) -> list[Recalled]:
    """What the channels found, each once; its fit is the best one. A composite fits as well as the
    best of its sources. What the channels hold stays as it is.
    """
    found: dict[tuple[str, str], Recalled] = {}
    for channel, several in channels:
        for one in several:
            known = found.get((one.kind, one.id))
            if known is None:
                known = found[one.kind, one.id] = replace(one, channels=[])
            known.coverage = one.coverage if one.fit > known.fit else known.coverage
            known.fit = max(known.fit, one.fit)
            known.relevance = max(known.relevance, one.relevance)
            known.corrects = known.corrects or one.corrects
            if one.cosine is not None:
                known.cosine = max(one.cosine, known.cosine or -1.0)
            if channel not in known.channels:
                known.channels.append(channel)
    _fuse(list(found.values()))
    for record in composites:
        places = (*(("record", one) for one in record.sources), ("composite", record.id))
        own = [found[place] for place in places if place in found]
        if own:
            found["composite", record.id] = _composite(record, own)
    return _without_repeats(list(found.values()))


def _composite(record: Record, found: Sequence[Recalled]) -> Recalled:
    near = [one.cosine for one in found if one.cosine is not None]
    return Recalled(
        record,
        max(one.fit for one in found),
        max(one.relevance for one in found),
        cosine=max(near) if near else None,
        channels=list(dict.fromkeys(channel for one in found for channel in one.channels)),
    )


def _fuse(found: Sequence[Recalled]) -> None:
    """Make the fits of several channels comparable, and add how near meanings are, where vectors
    say so.

    A fit counts for as much of the question as any text of its channel has: of a question whose
    telling words nobody said, the others say little. Else a record that has no more of it than a
    name came before the turns that answer. A cosine counts, above the least one, the more the best
    words leave open: little beside words that fit, much where all are poor. It is a plain sum, so
    that how many were found changes little. Distances from the mean, summed, take a chance match
    for a good one where all are poor (docs/memory.md). Where turns have no vectors, their words
    count alone.
    """
    near = [one.cosine for one in found if one.cosine is not None]
    least, covered = min(near, default=0.0), 1.0 if near else COVERED
    for one in found:
        one.fit *= one.coverage**covered
    left = 1 - min(1.0, max((one.fit for one in found), default=0.0))
    for one in found:
        if one.cosine is not None:
            one.fit += (NEAR + OPEN * left**2) * (one.cosine - least)


def _without_repeats(found: list[Recalled]) -> list[Recalled]:
    """Without the turns that say what a found record says: that it was learnt from them, or the
    same words.
    """
    taught = dict[tuple[str | None, str], Recalled]()
    said = set[str]()
    for one in found:
        if isinstance(one.found, Record):
            taught |= {(one.found.conversation, place): one for place in one.found.positions}
            said.add(one.found.normalized_text)
    left: list[Recalled] = []
    for one in sorted(found, key=lambda one: -one.fit):
        if isinstance(one.found, Turn):
            text = _same(one.found.text)
            record = taught.get((one.found.conversation, one.found.position))
            if record is not None:
                record.taught_by = one.found
                record.corrects = record.corrects or one.corrects
            if record is not None or text in said:
                continue
            said.add(text)
        left.append(one)
    return left


def _same(text: str) -> str:
    """What two texts have in common that say the same; long ones have to be equal."""
    return normalize(text) if len(text) <= LONG else text


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
    scoring = Scoring(plan, now)
    for one in found:
        # Squared, as a cosine is: else age outweighs a text that clearly fits better.
        one.parts = scoring.parts_of(one.found, (one.fit / best) ** 2)
        said = one.found.at if isinstance(one.found, Turn) else one.found.confirmed_at
        one.score = one.fit * recency(said, now) if facts else one.parts.total(weights)
    _raise_latest(found, plan)
    _raise_composites({one.id: one for one in found})
    ordered = sorted(found, key=lambda one: (-one.score, one.kind == "turn", one.id))
    skills = [one for one in ordered if one.kind == "skill"][MAX_SKILLS:]
    return [one for one in ordered if one not in skills] if skills else ordered


def _raise_latest(found: Sequence[Recalled], plan: SearchPlan) -> None:
    """Of the best, put what corrects an earlier statement before that one. It is as relevant."""
    ordered = sorted(found, key=lambda one: -one.score)
    first = ordered[:LATEST_AMONG] + [one for one in ordered[LATEST_AMONG:] if one.corrects]
    statements = {one.number: one for one in _statements(first)}
    own = [one.score for one in first]
    for later, earlier in corrections(list(statements.values()), _asked(plan)):
        likely = statements[later].says_so or own[later] >= LIKELY * own[earlier]
        if likely and not _far(first[later], first[earlier]):
            first[later].score = max(first[later].score, first[earlier].score + 1e-6)
            first[later].relevance = max(first[later].relevance, first[earlier].relevance)


def _far(one: Recalled, other: Recalled) -> bool:
    """Whether it is much farther from the question than another, as far as vectors say."""
    if one.cosine is None or other.cosine is None:
        return False
    return one.cosine < other.cosine - FARTHER


def _statements(found: Sequence[Recalled]) -> list[Statement]:
    said = (statement(number, one.found, one.taught_by) for number, one in enumerate(found))
    return [one for one in said if one is not None]


def _asked(plan: SearchPlan) -> list[str]:
    return [stem for query in plan.semantic_queries for stem in stems_of(query)]


def stated(
    channels: Sequence[tuple[Channel, Sequence[Recalled]]],
    plan: SearchPlan,
    weights: RecallWeights,
    now: int,
    most: int,
) -> list[Recalled]:
    """Of what channels found the statements of which it is looked what corrects them: those that
    fit best, and the short ones of ``most`` results.
    """
    shown = scored(joined(channels), plan, weights, now)
    best = best_statements(channels)
    return [*best, *other_statements(shown[: min(most, LATEST_AMONG)], best)]


def best_statements(
    channels: Iterable[tuple[Channel, Iterable[Recalled]]],
) -> list[Recalled]:
    """What was stated that fits best by its words, and by its meaning."""
    channels = list(channels)
    best: dict[tuple[str, str], Recalled] = {}
    for channel in ("text", "vectors"):
        hits = [one for name, several in channels if name == channel for one in several]
        first = nlargest(BEST, _said(hits), key=lambda one: (one.cosine or 0.0, one.fit))
        best |= {(one.kind, one.id): one for one in first}
    return list(best.values())


def other_statements(shown: Iterable[Recalled], best: Iterable[Recalled]) -> list[Recalled]:
    """The short ones of users' statements that are shown besides the best: a former value must not
    stand there alone, wherever it stands.
    """
    known = {(one.kind, one.id) for one in best}
    return [
        one
        for one in _said(shown)
        if (one.kind, one.id) not in known
        and len(one.found.text) <= LONG
        and len(stems_of(one.found.text)) <= SHORT
    ]


def telling_words(shown: Iterable[Recalled]) -> list[str]:
    """The words that say what results are about, and others that may stand in their place."""
    stems = (stem for one in shown for stem in stems_of(one.found.text[:LONG]))
    words = list(dict.fromkeys(stem for stem in stems if not is_common(stem)))
    return words + sorted(others_of_kind(words))


def _said(found: Iterable[Recalled]) -> list[Recalled]:
    return [one for one in found if is_stated(one.found) and one.kind in ("record", "turn")]


def correcting(
    shown: Sequence[Recalled], others: Collection[Recalled], plan: SearchPlan
) -> list[Recalled]:
    """Those of other results that say that something changed which is shown; by themselves they
    fit nothing.
    """
    all_ = [*shown, *others]
    statements = {one.number: one for one in _statements(all_)}
    says_so = {n for n, one in statements.items() if n >= len(shown) and one.says_so}
    pairs = corrections(list(statements.values()), _asked(plan), says_so, range(len(shown)))
    numbers = {later for later, _ in pairs}
    return [Recalled(all_[number].found, corrects=True) for number in sorted(numbers)]


def _raise_composites(found: Mapping[str, Recalled]) -> None:
    for one in found.values():
        if isinstance(one.found, Record) and one.found.sources:
            inner = (*one.found.sources, *one.found.children)
            sources = [found[id_].score for id_ in inner if id_ in found]
            one.score = max([one.score, *(score + 1e-6 for score in sources)])
