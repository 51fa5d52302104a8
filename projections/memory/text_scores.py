"""How well texts fit a question's words: BM25 over several fields, beside the session's own fit.

A store says where the words occur; this says what that is worth. Counts are those of one tenant or
user, so nobody's texts change what another finds. The weights are those that were measured best on
long dialogues (issue 18): text 1, the text before it 0.4, words of its date 0.5, its speaker 1; 0.4
of its session's score; 0.2 of the best for a speaker whom the question names.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from math import log
from typing import NamedTuple

from projections.memory.words import is_common

FIELDS = {"text": 1.0, "dates": 0.5, "speaker": 1.0, "tags": 1.0}
BEFORE = 0.4
ABOUT = 4
"""Words of a text's date and speaker, which count for its length."""
SESSION = 0.4
NAMED = 0.2
SATURATION = 1.2
LENGTH = 0.75
"""BM25's k1 and b."""
VIRTUAL = 50
"""Texts that are counted in, because few texts tell little of how rare a word is. Of a question's
words they have the common ones, each in one of ten texts.
"""


WORDS = 128
"""Words of a question that are looked for, the first ones: each costs every store time, and others
wait for it.
"""


class Place(NamedTuple):
    """A text by its number, with what its score needs: how many words it has together with the text
    before it, its session (empty: none), the text before it, and its speaker's stems.
    """

    number: int
    length: int
    session: str
    before: int | None
    speaker: frozenset[str]


class TextScore(NamedTuple):
    """A text's score, where 1 is about the best that any text could have; its ``relevance`` from 0
    to 1: how improbable it is that it has the question's words by chance; and the ``coverage`` from
    0 to 1: how much of the question, by the rarity of its words, any text has.
    """

    number: int
    score: float
    relevance: float
    coverage: float


class Corpus(NamedTuple):
    """How many texts there are, and how many words."""

    texts: int
    words: int


def text_scores(
    corpus: Corpus,
    having: Mapping[str, int],
    found: Mapping[str, Sequence[tuple[int, str]]],
    places: Mapping[int, Place],
    sessions: Mapping[str, int],
) -> list[TextScore]:
    """The scores of texts, best first.

    Args:
        having: for each stem of the question how many texts have it.
        found: for each of them texts that have it, by number and field, one for each time.
        places: the texts that may be found, and those that stand behind a found one.
        sessions: how many words each session has.
    """
    rarity = {stem: rarity_of(corpus, stem, having[stem]) for stem in found}
    sums = _summed(corpus, rarity, found, places, sessions)
    sums.heard.pop("", None)
    named = frozenset(having)
    ideal = sum(rarity.values()) or 1.0
    coverage = ideal / (sum(rarity_of(corpus, stem, n) for stem, n in having.items()) or 1.0)
    whole = {
        number: score + SESSION * sums.heard.get(places[number].session, 0.0)
        for number, score in sums.scores.items()
    }
    best = max(whole.values(), default=0.0)
    made = [
        TextScore(
            number,
            (score + NAMED * best * _is_named(places[number], named)) / ideal,
            1 - sums.chance[number] if number in sums.chance else 0.0,
            min(1.0, coverage),
        )
        for number, score in whole.items()
    ]
    return sorted(made, key=lambda one: (-one.score, one.number))


class _Sums(NamedTuple):
    """What the words come to: the scores of texts and of their sessions, and how probable it is
    that a text has its words by chance.
    """

    scores: defaultdict[int, float]
    chance: defaultdict[int, float]
    heard: defaultdict[str, float]


def _summed(
    corpus: Corpus,
    rarity: Mapping[str, float],
    found: Mapping[str, Sequence[tuple[int, str]]],
    places: Mapping[int, Place],
    sessions: Mapping[str, int],
) -> _Sums:
    sums = _Sums(defaultdict(float), defaultdict(lambda: 1.0), defaultdict(float))
    scores, chance, heard = sums
    long, after = _lengths(corpus, places), _followers(places)
    middle = max(1.0, sum(sessions.values()) / max(1, len(sessions)))
    highest = _rarity(corpus, 0)
    session_of = {number: place.session for number, place in places.items()}
    for stem, at in found.items():
        weights: dict[int, float] = {}
        behind: list[int] = []
        said: dict[str, float] = {}
        rare = rarity[stem]
        for number, field in at:
            session = session_of.get(number)
            if session is None:
                continue
            weight = FIELDS[field]
            weights[number] = weights.get(number, 0.0) + weight
            said[session] = said.get(session, 0.0) + weight
            if field == "text" and number in after:
                behind += after[number]
        by_chance = 1 - rare / highest
        for number in weights:
            chance[number] *= by_chance
        for number in behind:
            weights[number] = weights.get(number, 0.0) + BEFORE
        for number, weight in weights.items():
            scores[number] += rare * _saturated(weight, long[number])
        for session, weight in said.items():
            longer = 1 - LENGTH + LENGTH * sessions.get(session, 0) / middle
            heard[session] += rare * _saturated(weight, longer)
    return sums


def _lengths(corpus: Corpus, places: Mapping[int, Place]) -> dict[int, float]:
    """How long each text is, beside a usual one, with the text before it."""
    usual = max(1.0, corpus.words / max(1, corpus.texts))
    usual *= 1 + any(place.before is not None for place in places.values())
    usual += ABOUT
    return {
        number: 1 - LENGTH + LENGTH * (place.length + ABOUT) / usual
        for number, place in places.items()
    }


def _followers(places: Mapping[int, Place]) -> dict[int, list[int]]:
    """The texts that stand behind each."""
    after: defaultdict[int, list[int]] = defaultdict(list)
    for place in places.values():
        if place.before is not None:
            after[place.before].append(place.number)
    return after


def _is_named(place: Place, stems: frozenset[str]) -> bool:
    return bool(place.speaker) and place.speaker <= stems


def rarity_of(corpus: Corpus, stem: str, having: int) -> float:
    """What a word weighs that so many texts have: BM25's inverse document frequency."""
    return _rarity(corpus, having, VIRTUAL // 10 if is_common(stem) else 0)


def _rarity(corpus: Corpus, having: int, virtual: int = 0) -> float:
    texts = max(corpus.texts, having) + VIRTUAL
    return log(1 + (texts - having - virtual + 0.5) / (having + virtual + 0.5))


def _saturated(weight: float, long: float) -> float:
    return weight * (SATURATION + 1) / (weight + SATURATION * long)
