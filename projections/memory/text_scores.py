"""How well texts fit a question's words: BM25 over several fields, beside the session's own fit.

A store says where the words occur; this says what that is worth. Counts are those of one tenant or
user, so nobody's texts change what another finds. The weights are those that were measured best on
long dialogues (issue 18): text 1, the text before it 0.4, words of its date 0.5, its speaker 1; 0.4
of its session's score; 0.2 of the best for a speaker whom the question names.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from math import log, prod
from typing import NamedTuple

FIELDS = {"text": 1.0, "dates": 0.5, "speaker": 1.0, "tags": 1.0}
BEFORE = 0.4
SESSION = 0.4
NAMED = 0.2
SATURATION = 1.2
LENGTH = 0.75
"""BM25's k1 and b."""
VIRTUAL = 50
"""Texts without any of the words that are counted in: few texts tell little of how rare a word
is.
"""


class Place(NamedTuple):
    """A text by its number, with what its score needs: how many words it has, its session (empty:
    none), the text before it, and its speaker's stems.
    """

    number: int
    length: int
    session: str
    before: int | None
    speaker: frozenset[str]


class TextScore(NamedTuple):
    """A text's score, where 1 is about the best that any text could have; and its ``relevance``
    from 0 to 1: how improbable it is that it has the question's words by chance.
    """

    number: int
    score: float
    relevance: float


class Corpus(NamedTuple):
    """How many texts there are, and how many words."""

    texts: int
    words: int


def text_scores(
    corpus: Corpus,
    found: Mapping[str, Sequence[tuple[int, str]]],
    places: Mapping[int, Place],
    sessions: Mapping[str, int],
) -> list[TextScore]:
    """The scores of texts, best first.

    Args:
        found: for each stem of the question the texts that have it, by number and field, one for
            each time.
        places: the texts that may be found, and those that stand behind a found one.
        sessions: how many words each session has.
    """
    rarity = {stem: _rarity(corpus, len({n for n, _ in at})) for stem, at in found.items()}
    usual = max(1.0, corpus.words / max(1, corpus.texts))
    after: defaultdict[int, list[int]] = defaultdict(list)
    for place in places.values():
        if place.before is not None:
            after[place.before].append(place.number)
    scores: defaultdict[int, float] = defaultdict(float)
    chance: defaultdict[int, list[float]] = defaultdict(list)
    heard: defaultdict[str, float] = defaultdict(float)
    middle = max(1.0, sum(sessions.values()) / max(1, len(sessions)))
    highest = _rarity(corpus, 0)
    for stem, at in found.items():
        weights: defaultdict[int, float] = defaultdict(float)
        said: defaultdict[str, float] = defaultdict(float)
        for number, field in at:
            if number in places:
                weights[number] += FIELDS[field]
                said[places[number].session] += FIELDS[field]
        for number in weights:
            chance[number].append(1 - rarity[stem] / highest)
        for number, field in at:
            if field == "text":
                for follower in after.get(number, ()):
                    weights[follower] += BEFORE
        for number, weight in weights.items():
            long = 1 - LENGTH + LENGTH * places[number].length / usual
            scores[number] += rarity[stem] * _saturated(weight, long)
        for session, weight in said.items():
            long = 1 - LENGTH + LENGTH * sessions.get(session, 0) / middle
            heard[session] += rarity[stem] * _saturated(weight, long)
    heard.pop("", None)
    named = frozenset(found)
    ideal = sum(rarity.values()) or 1.0
    whole = {
        number: score + SESSION * heard.get(places[number].session, 0.0)
        for number, score in scores.items()
    }
    best = max(whole.values(), default=0.0)
    made = [
        TextScore(
            number,
            (score + NAMED * best * _is_named(places[number], named)) / ideal,
            1 - prod(chance[number]) if number in chance else 0.0,
        )
        for number, score in whole.items()
    ]
    return sorted(made, key=lambda one: (-one.score, one.number))


def _is_named(place: Place, stems: frozenset[str]) -> bool:
    return bool(place.speaker) and place.speaker <= stems


def _rarity(corpus: Corpus, having: int) -> float:
    return log(1 + (max(corpus.texts, having) + VIRTUAL - having + 0.5) / (having + 0.5))


def _saturated(weight: float, long: float) -> float:
    return weight * (SATURATION + 1) / (weight + SATURATION * long)
