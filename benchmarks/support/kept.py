"""What a summary keeps of its span: ids, amounts, dates, names and decisions.

The patterns are this module's own and plain, so that a change of the summariser's patterns does not
change what it is measured by. A fact is kept if the summary has it as it was written. A decision is
a sentence of a user or of the assistant with one of a few English cues; it is kept if one line of
the summary has seven in ten of its longer words.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from streams.compaction.summarizers.base import SpanMessage

Shares = dict[str, float]
Tally = dict[str, tuple[int, int]]
"""Kept and all, by kind."""

FACTS = {
    "ids": re.compile(
        r"[\w.+-]+@[\w-]+\.[\w.]+|\b(?=\w*[A-Za-z])(?=(?:\w*\d){3})\w{4,40}\b|\b[A-Z]{6}\b|\b\d{6,12}\b"
    ),
    "amounts": re.compile(r"[$€£] ?\d[\d,]*(?:\.\d+)?|\b\d+\.\d\d\b(?!\.)"),
    "dates": re.compile(
        r"\b\d{4}-\d\d-\d\d\b|\b(?:January|February|March|April|May|June|July|August|September"
        r"|October|November|December|Jan|Feb|Mar|Apr|Jun|Jul|Aug|Sep|Oct|Nov|Dec)\.? \d{1,2}\b"
    ),
    "names": re.compile(r"\b[A-Z][a-z]{2,20} [A-Z][a-z]{2,20}\b"),
}
_DECISION = {
    "user": re.compile(
        r"\b(?:yes|agree|confirm|cancel|change|i want|i'd like|i would like|i need|instead|never"
        r"|must|only|decided?)\b",
        re.IGNORECASE,
    ),
    "assistant": re.compile(
        r"\b(?:has been|have been|booked|cancell?ed|confirmed|refunded|updated|approved|cannot"
        r"|unable|transferred)\b",
        re.IGNORECASE,
    ),
}
_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+")
_WORD = re.compile(r"\w{4,}")
KEPT = 0.7


def kept(messages: Iterable[SpanMessage], summary: str) -> Tally:
    """How many of the span's distinct facts and decisions the summary has, and how many there are;
    ``said …`` are those of users and the assistant alone.
    """
    messages = list(messages)
    found: Tally = {}
    for kind, pattern in FACTS.items():
        everywhere = {fact for message in messages for fact in pattern.findall(message.text)}
        said = {
            fact
            for message in messages
            if message.role != "tool"
            for fact in pattern.findall(message.text.partition("\ncalls ")[0])
        }
        stands = set(pattern.findall(summary))
        found[kind] = (len(everywhere & stands), len(everywhere))
        found[f"said {kind}"] = (len(said & stands), len(said))
    decided = {
        frozenset(_WORD.findall(sentence.lower()))
        for message in messages
        if message.role in _DECISION
        for sentence in _SENTENCE.split(message.text)
        if _DECISION[message.role].search(sentence)
    } - {frozenset()}
    lines = [set(_WORD.findall(line.lower())) for line in summary.splitlines()]
    held = sum(any(len(words & line) >= KEPT * len(words) for line in lines) for words in decided)
    found["decisions"] = (held, len(decided))
    return found


def added(tallies: Iterable[Tally]) -> Tally:
    """The sums of several spans' tallies."""
    sums: Tally = {}
    for tally in tallies:
        for kind, (held, of) in tally.items():
            before = sums.get(kind, (0, 0))
            sums[kind] = (before[0] + held, before[1] + of)
    return sums


def shares(tally: Tally) -> Shares:
    """The share kept, by kind; kinds that the span does not have are left out."""
    return {kind: round(held / of, 4) for kind, (held, of) in tally.items() if of}
