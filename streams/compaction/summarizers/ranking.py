"""LexRank and MMR: which sentences say most, and which of them to take.

LexRank (Erkan and Radev, 2004, "LexRank: graph-based lexical centrality as salience in text
summarization") ranks a sentence by a random walk over cosine similarities; MMR (Carbonell and
Goldstein, 1998) takes the best sentence that is least like those taken. All matrices are dense
numpy arrays of bounded size.

Results do not depend on the order in which a machine adds numbers up: numbers are rounded to fixed
steps, so that every sum of products below is exact, whatever the number of threads.
"""

from __future__ import annotations

import msgspec
import numpy as np
from numpy.typing import NDArray

from streams.compaction.summarizers.terms import Array, Matrix, Places

DAMPING = 0.85
THRESHOLD = 0.1
ITERATIONS = 40
TOLERANCE = 1e-3
"""Share of the mean rank: the walk ends when no rank changes by more."""

MOST_FACTS = 6.0
"""Worth of facts beyond which a sentence gains nothing more."""
_STEP = 2.0**-20
_RANK_STEP = 2.0**-30


class Candidates(msgspec.Struct, frozen=True):
    """What MMR chooses from, all of one length n, in order.

    ``relevance``: worth of each by itself, about 0 to 2; ``similarity``: n x n, 0 to 1; ``costs``:
    tokens each, at least 1; ``holders``, ``facts``: one place for each fact of each sentence, which
    sentence and which fact; ``weights``: worth of each fact.
    """

    relevance: Array
    similarity: Matrix
    costs: NDArray[np.int64]
    holders: Places
    facts: Places
    weights: Array


def lexrank(similarity: Matrix) -> Array:
    """The rank of each sentence, 0 to 1 (the best has 1): power iteration over cosines of at least
    ``THRESHOLD``.

    A sentence does not vote for itself, and one that is like no other votes for all alike, so it
    ranks low.
    """
    n = len(similarity)
    if n == 0:
        return np.zeros(0)
    links = np.where(similarity >= THRESHOLD, similarity, 0.0).astype(np.float64)
    np.fill_diagonal(links, 0.0)
    votes = links.sum(axis=1)
    alone = votes == 0.0
    votes[alone] = 1.0
    rank: Array = np.full(n, np.floor(1 / n / _RANK_STEP) * _RANK_STEP)
    for _ in range(ITERATIONS):
        given = np.round(np.where(alone, 0.0, rank / votes) / _RANK_STEP) * _RANK_STEP
        # Not by BLAS: its threads would cost more than they take over.
        got = np.einsum("ij,j->i", links, given) + rank[alone].sum() / n
        after = np.round(((1 - DAMPING) / n + DAMPING * got) / _RANK_STEP) * _RANK_STEP
        change = float(np.abs(after - rank).max())
        rank = after
        if change < TOLERANCE / n:
            break
    return rank / float(rank.max())


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
    length = np.round((np.maximum(candidates.costs, 8) / 24.0) ** 0.35 / _STEP) * _STEP
    relevance = np.round(candidates.relevance / _STEP) * _STEP
    worth_of_facts = fact_share * 2 / MOST_FACTS
    open_weights = candidates.weights.copy()
    fresh = np.bincount(candidates.holders, open_weights[candidates.facts], n)
    nearest = np.zeros(n)
    taken: list[int] = []
    closed = np.where(candidates.costs > budget, -np.inf, 0.0)
    while n and budget > 0:
        worth = relevance + worth_of_facts * np.minimum(fresh, MOST_FACTS)
        worth -= novelty * 2 * nearest
        worth /= length
        worth += closed
        choice = int(worth.argmax())
        if worth[choice] == -np.inf:
            break
        taken.append(choice)
        closed[choice] = -np.inf
        budget -= int(candidates.costs[choice])
        closed[candidates.costs > budget] = -np.inf
        np.maximum(nearest, candidates.similarity[choice], out=nearest)
        held = candidates.facts[candidates.holders == choice]
        if open_weights[held].any():
            open_weights[held] = 0.0
            fresh = np.bincount(candidates.holders, open_weights[candidates.facts], n)
    return taken
