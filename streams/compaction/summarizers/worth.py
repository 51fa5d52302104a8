"""What the lines of a span are worth before they are compared with each other: by who said them,
by cues, and by the facts they hold.

Everything here is one pass over all lines: a search over their joined text costs a fraction of one
search a line. Cues for decisions and courtesies are English; other languages go without them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from streams.compaction.summarizers.facts import WEIGHTS, Fact, find_all, in_words
from streams.compaction.summarizers.lines import Line
from streams.compaction.summarizers.terms import Array, Places, terms

EARLIER_DISCOUNT = 0.9
SHORT = 12
"""Characters below which a line of fewer than three words says little."""

_ROLE_WORTH = {
    "user": 1.5,
    "summary": 1.25,
    "assistant": 1.0,
    "tool": 0.625,
    "system": 0.5,
    "developer": 0.5,
}
_ROLE_FACTS = {
    "user": 1.5,
    "summary": 1.25,
    "assistant": 1.25,
    "tool": 0.75,
    "system": 0.5,
    "developer": 0.5,
}


def _cue(words: str) -> re.Pattern[str]:
    # It begins with what stands before a word, so that the search tries words only.
    return re.compile(rf"[ \n\"'(\[*/-](?:{words})\b")


_USER_CUE = _cue(
    r"want|need|prefer|would like|i'd like|don't|do not|never|always|must|only|instead|cancel"
    r"|change|confirm|agree|decided?|please|my|i am|i'm|i have|i live|yes|no|budget|allergic"
    r"|deadline"
)
_OUTCOME_CUE = _cue(
    r"has been|have been|successfully|is now|booked|cancell?ed|confirmed|refund(?:ed)?|updated"
    r"|completed|fixed|failed|unable|cannot|not (?:possible|allowed|eligible)|error|total"
    r"|transferred|decided"
)
_COURTESY = _cue(
    r"anything else|how (?:can|may) i (?:help|assist)|thank you|thanks|you're welcome"
    r"|have a (?:great|nice|safe)|feel free|let me know|glad|happy to help|i apologi[sz]e"
    r"|sorry for|great day|one moment|please wait|would you like"
)


def worth_of(lines: Sequence[Line]) -> Array:
    """What each line is worth by who said it and by its cues, about 0.2 to 2.5; before centrality
    and facts.
    """
    roles = [line.role for line in lines]
    worth = np.array([_ROLE_WORTH.get(role, 1.0) for role in roles])
    users = np.array([role == "user" for role in roles], bool)
    answers = np.array([role in ("assistant", "tool") for role in roles], bool)
    assistant = np.array([role == "assistant" for role in roles], bool)
    lowered = [line.text.lower() for line in lines]
    text = "\n" + "\n".join(lowered)
    ends = np.cumsum(np.fromiter(map(len, lowered), np.int64, len(lowered)) + 1)
    worth[users & _with_cue(_USER_CUE, text, ends)] *= 1.25
    worth[answers & _with_cue(_OUTCOME_CUE, text, ends)] *= 1.375
    worth[_with_cue(_COURTESY, text, ends)] *= 0.5
    worth[assistant & np.array([said[-1] == "?" for said in lowered], bool)] *= 0.75
    worth[np.array([line.speaker[-1] == ")" for line in lines], bool)] *= 1.5
    worth[np.array([len(said) < SHORT and _is_short(said) for said in lowered], bool)] *= 0.375
    worth[np.array([line.earlier for line in lines], bool)] *= EARLIER_DISCOUNT
    return worth


def _with_cue(cue: re.Pattern[str], text: str, ends: Places) -> NDArray[np.bool_]:
    """Which lines have the cue; ``text`` is all lines, each after a line break."""
    places = np.fromiter((match.start() for match in cue.finditer(text)), np.int64)
    found = np.zeros(len(ends), bool)
    found[np.searchsorted(ends, places, side="right")] = True
    return found


def _is_short(said: str) -> bool:
    return said.count(" ") < 2 if said.isascii() else len(terms(said)) < 3


class SpanFacts(msgspec.Struct, frozen=True):
    """The facts of lines, and of the facts line before them (``kept``).

    ``known`` are all, ``scores`` what each is worth; ``holders`` and ``places`` say which line
    holds which of them, line by line.
    """

    known: list[Fact]
    scores: Array
    holders: Places
    places: Places
    lines: Sequence[Line]
    kept: Mapping[Fact, str]

    def best(self) -> list[int]:
        """The places of all facts, those of most worth first; ties go to what was said earlier."""
        order: list[int] = np.argsort(-np.round(self.scores, 9), kind="stable").tolist()
        return order

    def first_said(self) -> Places:
        """The first line that holds each fact, -1 for one that no line holds."""
        first = np.full(len(self.known), -1)
        first[self.places[::-1]] = self.holders[::-1]
        return first

    def last_said(self) -> Places:
        """The last line that holds each fact, -1 for one that no line holds."""
        last = np.full(len(self.known), -1)
        last[self.places] = self.holders
        return last

    def words(self, fact: Fact, line: int) -> str:
        """A fact with the few words of a line (-1: of the earlier facts line) that say what it is
        about; empty for digits without any.
        """
        kept = self.kept.get(fact, "")
        words = ""
        if line >= 0:
            said = self.lines[line]
            tool = said.speaker.partition(" ")[2] if said.role == "tool" else ""
            words = in_words(said.text, fact, tool.removesuffix(" (error)"))
        # Words that were found earlier stay, where there are no better ones.
        return words if len(words) > len(fact.text) or not kept else kept


def facts_of(lines: Sequence[Line], kept: Mapping[Fact, str]) -> SpanFacts:
    """The facts of lines, and what each is worth (about 0.2 to 8): its kind, who said it, how
    often; facts carried over (``kept``) lose a little with each place they fall.
    """
    found = find_all([line.text for line in lines])
    index = {(fact.text, fact.kind): place for place, fact in enumerate(kept)}
    places = np.array(
        [index.setdefault((text, kind), len(index)) for _, text, kind in found], np.int64
    )
    holders = np.array([row for row, _, _ in found], np.int64)
    shares = np.array([_ROLE_FACTS.get(line.role, 1.0) for line in lines])
    weights = np.array([WEIGHTS[kind] for _, kind in index])
    best = np.zeros(len(index))
    np.maximum.at(best, places, shares[holders])
    times = np.bincount(places, minlength=len(index))
    scores = weights * best * (1 + 0.125 * np.clip(times - 1, 0, 4))
    carried = 4.5 * (1 - 0.5 * np.arange(len(kept)) / max(1, len(kept)))
    scores[: len(kept)] = np.maximum(scores[: len(kept)], carried)
    known = [Fact(text, kind) for text, kind in index]
    return SpanFacts(known, scores, holders, places, lines, kept)
