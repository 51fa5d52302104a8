"""The words of sentences, and how like they make them.

Results do not depend on the order in which a machine adds numbers up: weights are rounded to fixed
steps, so that every sum and product of them is exact in float64.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

MAX_TERMS = 1_000
"""Terms that sentences are compared by; of more, those in most sentences."""

BLOCK = 1 << 18
"""Multiplications of a product that OpenBLAS, as numpy's wheels have it, takes in one thread."""

Array = NDArray[np.float64]
Matrix = NDArray[np.float32]
Places = NDArray[np.int64]

_TERM = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7a3\u0e00-\u0e7f]{1,64}|[^\W_]{1,40}")
_UNSPACED = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7a3\u0e00-\u0e7f]")
_TERM_OR_END = re.compile(r"[^\W_]{1,40}|\n")
_END = "\n"
_WEIGHT_STEP = 2.0**-16
_UNIT_STEP = 2.0**-10
"""Of a vector's values: a sum of their products is exact in 24 bits, so in float32."""


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


def similarities(sentences: Sequence[str]) -> Matrix:
    """The n x n TF-IDF cosines of sentences, 0 to 1, in steps of 2^-20; rows of sentences without
    terms are zero. No sentence holds a line break.
    """
    n = len(sentences)
    words = _words(sentences)
    codes = {word: code for code, word in enumerate(dict.fromkeys((_END, *words)))}
    found = np.fromiter(map(codes.__getitem__, words), np.int64, len(words))
    rows = np.cumsum(found == 0)
    pairs, times = np.unique((rows * len(codes) + found)[found > 0], return_counts=True)
    rows, terms_of = np.divmod(pairs, len(codes))
    spread = np.bincount(terms_of, minlength=len(codes))
    idf = np.log(1 + n / np.maximum(spread, 1))
    weights = np.round((1 + np.log(times)) * idf[terms_of] / _WEIGHT_STEP) * _WEIGHT_STEP
    norms = np.sqrt(np.bincount(rows, weights * weights, n))
    # A term of one sentence alone makes it like no other. Of too many, those in most are taken.
    shared = np.flatnonzero(spread > 1)
    shared = shared[np.argsort(-spread[shared], kind="stable")][:MAX_TERMS]
    column = np.full(len(codes), -1)
    column[shared] = np.arange(len(shared))
    at = column[terms_of]
    matrix: Matrix = np.zeros((n, max(1, len(shared))), np.float32)
    values = np.round(weights / norms[rows] / _UNIT_STEP) * _UNIT_STEP
    matrix[rows[at >= 0], at[at >= 0]] = values[at >= 0]
    cosines = _products(matrix)
    np.fill_diagonal(cosines, norms > 0)
    bounded: Matrix = np.minimum(cosines, np.float32(1.0))
    return bounded


def _products(matrix: Matrix) -> Matrix:
    """The products of all pairs of rows, in blocks that BLAS takes in one thread: waiting for
    others costs it more than such small ones take.
    """
    n, width = matrix.shape
    products: Matrix = np.empty((n, n), np.float32)
    size = max(8, int((BLOCK / width) ** 0.5))
    for i in range(0, n, size):
        for j in range(i, n, size):
            block = matrix[i : i + size] @ matrix[j : j + size].T
            products[i : i + size, j : j + size] = block
            products[j : j + size, i : i + size] = block.T
    return products


def _words(sentences: Sequence[str]) -> list[str]:
    """The terms of all sentences, with a line break between two."""
    text = _END.join(sentences).lower()
    if text.isascii() or not _UNSPACED.search(text):
        return _TERM_OR_END.findall(text)
    words: list[str] = []
    for sentence in sentences:
        words += [*terms(sentence), _END]
    return words
