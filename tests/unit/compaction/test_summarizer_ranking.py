"""LexRank and MMR: central sentences rank high, taken ones differ, budgets hold, and order of
addition does not matter.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streams.compaction.summarizers.ranking import Candidates, lexrank, select
from streams.compaction.summarizers.terms import similarities, terms
from tests.support.profiles import examples

TALK = [
    "The flight to Oslo was delayed by the storm.",
    "The storm delayed every flight to Oslo today.",
    "A storm over Oslo means the flight is delayed.",
    "My sister likes pancakes.",
]


def _candidates(
    relevance: list[float], costs: list[int], similarity: np.ndarray | None = None
) -> Candidates:
    n = len(relevance)
    same = np.eye(n, dtype=np.float32) if similarity is None else similarity
    return Candidates(
        np.array(relevance),
        same,
        np.array(costs, dtype=np.int64),
        np.zeros(0, np.int64),
        np.zeros(0, np.int64),
        np.zeros(0),
    )


def test_terms_are_words_and_pairs_of_unspaced_characters() -> None:
    assert terms("Hello, WORLD 42") == ["hello", "world", "42"]
    assert terms("今日は雨") == ["今日", "日は", "は雨"]
    assert terms("字 !?") == ["字"]


def test_a_sentence_is_like_itself_and_unlike_one_without_its_words() -> None:
    matrix = similarities([*TALK, TALK[0], "!?"])
    assert matrix[0, 4] == pytest.approx(1.0, abs=1e-3)
    assert matrix[0, 3] == 0.0
    assert matrix[5, 5] == 0.0
    assert np.array_equal(matrix, matrix.T)


def test_central_sentences_rank_above_the_odd_one() -> None:
    rank = lexrank(similarities(TALK))
    assert rank.max() == 1.0
    assert rank[3] == rank.min()
    assert all(rank[i] > rank[3] for i in range(3))


@given(st.lists(st.text(alphabet="ab cd字.", max_size=20), max_size=12))
@settings(max_examples=examples(100), deadline=None)
def test_ranks_are_finite_and_between_zero_and_one(sentences: list[str]) -> None:
    rank = lexrank(similarities(sentences))
    assert rank.shape == (len(sentences),)
    assert np.isfinite(rank).all()
    assert ((rank >= 0) & (rank <= 1)).all()


def test_the_order_of_sentences_changes_no_bit_of_their_likeness() -> None:
    order = [2, 0, 3, 1]
    straight, turned = similarities(TALK), similarities([TALK[i] for i in order])
    assert np.array_equal(straight[np.ix_(order, order)], turned)
    assert np.array_equal(lexrank(straight)[order], lexrank(turned))


def test_the_second_sentence_taken_is_not_a_copy_of_the_first() -> None:
    similarity = np.array([[1.0, 0.95, 0.0], [0.95, 1.0, 0.0], [0.0, 0.0, 1.0]], np.float32)
    assert select(_candidates([1.0, 0.99, 0.5], [10, 10, 10], similarity), 20) == [0, 2]


def test_a_sentence_with_a_new_fact_goes_before_one_whose_fact_is_kept() -> None:
    candidates = Candidates(
        np.array([1.0, 0.9, 0.6]),
        np.eye(3, dtype=np.float32),
        np.array([10, 10, 10], dtype=np.int64),
        np.array([0, 1, 2]),
        np.array([0, 0, 1]),
        np.array([3.0, 3.0]),
    )
    assert select(candidates, 20) == [0, 2]


@given(
    st.lists(st.tuples(st.floats(0, 2), st.integers(1, 60)), max_size=30),
    st.integers(-5, 300),
)
@settings(max_examples=examples(100), deadline=None)
def test_selection_keeps_its_budget_and_takes_each_once(
    items: list[tuple[float, int]], budget: int
) -> None:
    costs = [cost for _, cost in items]
    taken = select(_candidates([value for value, _ in items], costs), budget)
    assert len(set(taken)) == len(taken)
    left = budget - sum(costs[i] for i in taken)
    assert left >= 0 or not taken
    assert all(costs[i] > left for i in range(len(items)) if i not in taken)


def test_ties_go_to_the_earlier_sentence() -> None:
    assert select(_candidates([1.0, 1.0, 1.0], [10, 10, 10]), 20) == [0, 1]
