"""How alike two texts are, without a model: by the words that mean something, as stems.

The measure is the cosine of the two sets of stems (Ochiai's coefficient): shared stems over the
geometric mean of both counts. It is symmetrical, needs no statistics of other texts, which would
make it depend on what came before, and costs a longer text less than Jaccard's does.
"""

from __future__ import annotations

import math
import re


def word_set(words: str) -> frozenset[str]:
    """Words that are written in one string, with blanks between them."""
    return frozenset(words.split())


_WORD = re.compile(r"[^\W_]+")
_STOP = word_set(
    "never always only "
    "a an the of to in on at for with from by as and or but is are am was were be "
    "been being has have had do does did will would can could should may might must i "
    "you he she it we they me him her us them my your his its our their this that "
    "these those there here user s said when asks who what which not no so very just "
    "also too than then into about"
)
_DENIAL = re.compile(
    r"\b(?:not|never|no longer|no|neither|nor|cannot|without|used to|stopped|quit|gave up)\b|n't\b"
)
_ANY_MORE = re.compile(r"\bany(?: ?more| longer)\b")
_ENDINGS = ("ing", "edly", "ed", "ies", "es", "s", "ly")


def stem(word: str) -> str:
    """A word without its ending; words with digits, and short ones, stay as they are."""
    if len(word) < 5 or not word.isalpha():
        return word[:-1] if len(word) == 4 and word.endswith("s") and word[-2] != "s" else word
    for ending in _ENDINGS:
        left = 2 if ending == "ies" else 3
        if word.endswith(ending) and len(word) - len(ending) >= left and not word.endswith("ss"):
            cut = word[: -len(ending)] + ("y" if ending == "ies" else "")
            return cut[:-1] if cut[-1:] == "e" or cut[-2:-1] == cut[-1:] else cut
    return word[:-1] if word.endswith("e") else word


def stems(text: str) -> frozenset[str]:
    """The stems of a text's words that mean something."""
    words = _WORD.findall(text.casefold())
    return frozenset(stem(word) for word in words if word not in _STOP)


def is_denied(text: str) -> bool:
    """Whether a text denies what it speaks of: "does not fly", "never flies", "no longer flies"."""
    return len(_DENIAL.findall(text.casefold())) % 2 == 1


def undenied(text: str) -> str:
    """A text without the words that deny."""
    return _ANY_MORE.sub(" ", _DENIAL.sub(" ", text.casefold()))


def meaning(text: str) -> str:
    """The words of a text that mean something, as they stand there."""
    return " ".join(word for word in _WORD.findall(text.casefold()) if word not in _STOP)


def similarity(one: frozenset[str], other: frozenset[str]) -> float:
    """From 0.0 (nothing shared) to 1.0 (the same stems)."""
    if not one or not other:
        return 0.0
    return len(one & other) / math.sqrt(len(one) * len(other))
