"""LexRank and MMR: which sentences say most, and which of them to take.

LexRank (Erkan and Radev, 2004, "LexRank: graph-based lexical centrality as salience in text
summarization") ranks a sentence by a random walk over cosine similarities; MMR (Carbonell and
Goldstein, 1998) takes the best sentence that is least like those taken. All matrices are dense
numpy arrays of bounded size.

Results do not depend on the order in which a machine adds numbers up: weights are rounded to fixed
steps, so that every product and sum below is exact in float64, whatever the number of threads or
the hash seed.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

MAX_SENTENCES = 600
"""Sentences ranked at once: the similarity matrix is this squared (2.9 MB), about 0.1 s; callers
choose among more.
"""

MAX_TERMS = 3_000
"""Terms in the matrix; of more, those in most sentences."""

DAMPING = 0.85
THRESHOLD = 0.1
ITERATIONS = 40
TOLERANCE = 1e-6

Array = NDArray[np.float64]

_TERM = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7a3\u0e00-\u0e7f]{1,64}|[^\W_]{1,40}")
_UNSPACED = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7a3\u0e00-\u0e7f]")
_UNIT_STEP = 2.0**-20
_RANK_STEP = 2.0**-30


class Candidates(msgspec.Struct, frozen=True):
    """What MMR chooses from, all of one length n, in order.

    ``relevance``: worth of each by itself, about 0 to 2; ``similarity``: n x n, 0 to 1; ``costs``:
    tokens each, at least 1; ``facts``: n x m, 1 where a sentence holds a fact; ``weights``: worth
    of each of the m facts.
    """

    relevance: Array
    similarity: Array
    costs: NDArray[np.int64]
    facts: Array
    weights: Array


def terms(sentence: str) -> list[str]:
    """The terms of a sentence: lower-case words, and pairs of characters in scripts without
    spaces.
    """
    found: list[str] = []
    for run in _TERM.findall(sentence.lower()):
        if _UNSPACED.match(run):
            found.extend([run[i : i + 2] for i in range(len(run) - 1)] or [run])
        else:
            found.append(run)
    return found


def similarities(sentences: Sequence[str]) -> Array:
    """The n x n TF-IDF cosines of sentences, 0 to 1, in steps of 2^-20; rows of sentences without
    terms are zero.
    """
    counts = [Counter(terms(sentence)) for sentence in sentences]
    n = len(counts)
    spread = Counter(term for count in counts for term in count)
    shared = sorted(
        (term for term, seen in spread.items() if seen > 1), key=lambda term: (-spread[term], term)
    )
    column = {term: i for i, term in enumerate(shared[:MAX_TERMS])}
    idf = {term: math.log(1 + n / seen) for term, seen in spread.items()}
    matrix = np.zeros((n, max(1, len(column))))
    for row, count in enumerate(counts):
        weighed = {term: (1 + math.log(times)) * idf[term] for term, times in sorted(count.items())}
        norm = math.sqrt(math.fsum(value * value for value in weighed.values()))
        for term, value in weighed.items():
            if term in column:
                matrix[row, column[term]] = value / norm
    matrix = np.round(matrix / _UNIT_STEP)
    cosines: Array = np.round(matrix @ matrix.T * _UNIT_STEP) * _UNIT_STEP
    np.fill_diagonal(cosines, [1.0 if count else 0.0 for count in counts])
    return np.minimum(cosines, 1.0)


def lexrank(similarity: Array) -> Array:
    """The rank of each sentence, 0 to 1 (the best has 1): power iteration over cosines of at least
    ``THRESHOLD``.

    A sentence does not vote for itself, and one that is like no other votes for all alike, so it
    ranks low.
    """
    n = len(similarity)
    if n == 0:
        return np.zeros(0)
    links = np.where(similarity >= THRESHOLD, similarity, 0.0)
    np.fill_diagonal(links, 0.0)
    links[links.sum(axis=1) == 0.0] = 1.0
    moves = np.floor(links / links.sum(axis=1, keepdims=True) / _UNIT_STEP) * _UNIT_STEP
    rank: Array = np.full(n, math.floor(1 / n / _RANK_STEP) * _RANK_STEP)
    for _ in range(ITERATIONS):
        after = np.round(((1 - DAMPING) / n + DAMPING * (rank @ moves)) / _RANK_STEP) * _RANK_STEP
        change = float(np.abs(after - rank).max())
        rank = after
        if change < TOLERANCE / n:
            break
    best = float(rank.max())
    return rank / best if best > 0 else np.ones(n)


def select(
    candidates: Candidates, budget: int, novelty: float = 0.45, fact_share: float = 0.6
) -> list[int]:
    """The indexes of the sentences to take, best first, whose costs add up to no more than
    ``budget`` tokens.

    Each step takes the sentence with the most worth for its length: relevance, plus ``fact_share``
    for facts that no sentence taken so far holds, less ``novelty`` times its likeness to the
    nearest one taken. Ties go to the earlier sentence.
    """
    n = len(candidates.relevance)
    length = (np.maximum(candidates.costs, 8) / 24.0) ** 0.35
    open_weights = candidates.weights.copy()
    nearest = np.zeros(n)
    free = np.ones(n, dtype=bool)
    taken: list[int] = []
    while budget > 0:
        free &= candidates.costs <= budget
        if not free.any():
            break
        fresh = np.minimum(candidates.facts @ open_weights, 6.0) / 6.0
        worth = (candidates.relevance + fact_share * 2 * fresh - novelty * 2 * nearest) / length
        choice = int(np.argmax(np.where(free, np.round(worth, 9), -np.inf)))
        taken.append(choice)
        free[choice] = False
        budget -= int(candidates.costs[choice])
        nearest = np.maximum(nearest, candidates.similarity[choice])
        open_weights[candidates.facts[choice] > 0] = 0.0
    return taken
