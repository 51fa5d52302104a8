"""Sentences that teach the memory something if a user says them, and one that it must never have."""

from __future__ import annotations

import random
import re

SECRET = "unsaid"
"""What is private begins so."""
PLANTED = re.compile(
    r"(?:My favourite \w+ is|I do not eat) \w+ @[a-z0-9]+/[a-z0-9]+@ (?P<number>n\d+x\d+)\."
)
"""What the memory learns if a user says it, each once."""


def statement(rng: random.Random, word: str, mark: str, number: str) -> str:
    """One such sentence: a value that the next one revises, what is like others, what is said again
    and again, what the next one denies, or what is private.
    """
    return rng.choice(
        (
            f"My favourite {rng.choice(('tea', 'train'))} is {word} {mark} {number}.",
            f"I do not eat {word} {mark} {number}.",
            f"I only drink {word} {mark}.",
            f"I {rng.choice(('do not', 'only'))} drink water and {word} {mark}.",
            f"<private>My favourite book is {SECRET}{number} {mark}.</private>",
        )
    )
