"""What was said last counts, also where no rule knows that two statements are about the same."""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterator, Sequence
from operator import attrgetter
from typing import NamedTuple

from projections.memory.raw_turns import INDEXED_ROLES, Turn
from projections.memory.resolution import Record
from projections.memory.words import MONTHS, WEEKDAYS, is_common, stem, stems_of

ALIKE = 0.3
"""The least cosine of two statements' sets of stems that may be about the same, where the later one
says that something changed or was wrong.
"""
MUCH_ALIKE = 0.4
"""The same where it says neither. With less, turns of real dialogues that only return to a subject
came before those that answer.
"""
SHORT = 7
"""Stems of a statement that is about one thing. In long turns one telling stem and "last week" say
little: without this bound, turns of real dialogues that correct nothing came first (recall@5 of
their questions 0.70 in place of 0.74).
"""
SOON = 10 * 60_000_000
"""Microseconds within which somebody corrects what was said just before."""
_OF_USER = frozenset(stems_of("the user"))
_OF_A_KIND = tuple(frozenset(map(stem, names)) - {"may"} for names in (WEEKDAYS, MONTHS))
"""Words of which one takes another's place where something changes: its value is of that kind."""
_DENIED = re.compile(r"\b(?:\w+n['\u2019]t|cannot|not)\b", re.IGNORECASE)
"""Says nothing of what a statement is about; cut into words, "don't" would."""
_LEAD = (
    r"\W*(?:(?:oh|oops|ah|u[hm]+|er+|hm+|well|no|nope|wait|sorry|but|and|so|actually|please)\b\W*)*"
)
_CORRECTED = re.compile(
    _LEAD + r"(?:correction\b|(?:scratch|strike|forget|ignore|disregard)"
    r" (?:that|it|this|what i (?:just )?said)"
    r"|(?:(?:let me|i (?:have to|need to|must|should|want to)|allow me to) )?(?:correct|rephrase)"
    r" (?:that|it|this|myself)"
    r"|(?:i|that|this|it|what i said) (?:was|is|were) (?:\w+ )?"
    r"(?:wrong|mistaken|incorrect|in error|a mistake|not (?:right|correct|true))"
    r"|my (?:mistake|bad|error)|i (?:was confused|mis\w+|got (?:that|it) wrong|made a mistake"
    r"|made an error|meant(?: to say)?))\b\W*",
    re.IGNORECASE,
)
"""What corrects the words right before it."""
_CHANGED = re.compile(
    r"\b(?:(?:by |right |as of |from |until )?now(?: on)?|nowadays|(?:these|those) days|currently"
    r"|lately|recently|meanwhile|instead|any ?more|any longer|no longer"
    r"|at (?:the|this) (?:moment|time)|at present|for the (?:moment|time being)|so far"
    r"|(?:as of|since|starting|beginning|effective) (?:(?:the|this|last|next|a) )?\w+"
    r"|for (?:some|a few|a couple of|several|many|the last|the past|\w+) (?:\w+ )?"
    r"(?:days?|weeks?|months?|years?)"
    r"|(?:this|last) (?:week|month|year)|(?:have |has |'ve |'s )?(?:changed|switched|moved on))\b",
    re.IGNORECASE,
)
"""What says that something holds since lately."""
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|\n")
LONG = 2_000
"""Characters of a text that are looked at as a statement: what somebody states is shorter."""
_LOOKED_AT = 300
"""Characters of a statement in which it says that something changed."""


class Statement(NamedTuple):
    """What a user said: its place in a list, its time in microseconds since 1970, who said it
    (empty: a record says it of the user, or of the one that its text names), the conversation, and
    its stems. ``name``: those of the speaker's name, which say nothing of what it is about.
    ``corrects``: it says that what was said right before is wrong; ``changes``: that it holds since
    lately. ``noted``: a model saved it.
    """

    number: int
    at: int
    speaker: str
    conversation: str | None
    stems: frozenset[str]
    name: frozenset[str] = frozenset()
    corrects: bool = False
    changes: bool = False
    noted: bool = False

    @property
    def says_so(self) -> bool:
        """Whether it says itself that something changed, or was wrong."""
        return self.changes or self.corrects

    def about(self, other: Statement) -> frozenset[str]:
        """Its stems but for the names of its speaker and of the other's."""
        names = self.name | other.name
        return self.stems - names if names else self.stems


def is_stated(found: Record | Turn) -> bool:
    """Whether it is a user's statement, or one that a model saved of the user."""
    noted = isinstance(found, Record) and found.trust == "model" and found.origin == "explicit"
    return found.trust == "user" or noted


def statement(number: int, found: Record | Turn, taught_by: Turn | None = None) -> Statement | None:
    """A record or turn as a statement; None for what is none.

    Args:
        taught_by: the turn that taught the record, in the speaker's own words. Its sentences that
            share no word with the record are about something else.
    """
    if not is_stated(found):
        return None
    if isinstance(found, Record):
        said = None if taught_by is None else statement(number, taught_by)
        stems = frozenset(stems_of(found.text)) - _OF_USER
        noted = found.trust != "user"
        one = Statement(number, found.confirmed_at, "", found.conversation, stems, noted=noted)
        if said is None or taught_by is None:
            return one
        about = said.stems & _told_with(stems, taught_by.text[:LONG])
        return said._replace(at=one.at, speaker="", stems=stems | about)
    text = found.text[:LONG]
    corrected = _CORRECTED.match(text)
    text = text if corrected is None else text[corrected.end() :]
    begin, rest = text[:_LOOKED_AT], text[_LOOKED_AT:]
    same = _CHANGED.sub(" ", begin)
    stems = frozenset(stems_of(_DENIED.sub(" ", same + rest)))
    name = frozenset[str]()
    if found.speaker not in INDEXED_ROLES:
        name = frozenset(stems_of(found.speaker))
    return Statement(
        number,
        found.at,
        found.speaker,
        found.conversation,
        stems | name,
        name,
        corrects=corrected is not None,
        changes=same != begin,
    )


def _told_with(stems: frozenset[str], text: str) -> frozenset[str]:
    """The stems of a text's sentences that have one of some stems; of all, where none has."""
    sentences = [frozenset(stems_of(one)) for one in _SENTENCE_END.split(text)]
    own = [one for one in sentences if not one.isdisjoint(stems)]
    return frozenset[str]().union(*(own or sentences))


def corrections(
    statements: Sequence[Statement],
    asked: Collection[str],
    by: Collection[int] | None = None,
    of: Collection[int] | None = None,
) -> list[tuple[int, int]]:
    """Pairs of places: a statement, and an earlier one of the same speaker that it corrects as far
    as a question goes. In the order of time. ``by`` and ``of``: the places of those that are asked
    for, as what corrects and as what is corrected; None: all.

    A statement corrects an earlier one that is much alike, if it has all of the question's stems
    that the earlier one has. One that says that something changed needs less. To be alike is
    enough, but where both are long it has the question's stems. Where both are short, a telling
    stem that both have or that each of them shares with the question is enough, or to be alike but
    for the weekday or month. One that begins as a correction corrects what was said right before.
    """
    words = frozenset(asked)
    ordered = sorted(statements, key=attrgetter("at", "number"))
    return [
        (later.number, earlier.number)
        for later in ordered
        if by is None or later.number in by
        for earlier in _corrected(later, ordered, words, of)
    ]


def _corrected(
    later: Statement,
    others: Sequence[Statement],
    asked: frozenset[str],
    of: Collection[int] | None,
) -> Iterator[Statement]:
    """Those of the others, in the order of time, that a statement corrects; ``of``: see above."""
    before = itertools.takewhile(lambda one: one.at < later.at, others)
    # What a model saved takes nothing back that a user said.
    heard = (one for one in before if one.noted or not later.noted)
    own = [one for one in heard if _same_speaker(one, later)]
    if later.corrects:
        just = [
            one
            for one in own
            if one.conversation == later.conversation and later.at - one.at <= SOON
        ]
        last = max((one.at for one in just), default=0)
        yield from (one for one in just if one.at == last and (of is None or one.number in of))
    for one in own if of is None else [one for one in own if one.number in of]:
        alike = _alike(one.about(later), later.about(one), MUCH_ALIKE)
        alike = alike and one.stems & asked <= later.stems
        if alike or (later.says_so and _of_one_thing(one, later, asked)):
            yield one


def others_of_kind(stems: Collection[str]) -> frozenset[str]:
    """The words that may stand in the place of some of these: other weekdays, other months."""
    kinds = (kind for kind in _OF_A_KIND if not kind.isdisjoint(stems))
    return frozenset[str]().union(*kinds).difference(stems)


def _of_one_thing(one: Statement, other: Statement, asked: frozenset[str]) -> bool:
    mine, others = one.about(other), other.about(one)
    if _alike(mine, others):
        return min(len(mine), len(others)) <= SHORT or one.stems & asked <= other.stems
    return max(len(mine), len(others)) <= SHORT and (
        _telling(mine & others)
        or (_telling(mine & asked) and _telling(others & asked))
        or _same_but_for_a_value(mine, others)
    )


def _same_but_for_a_value(one: frozenset[str], other: frozenset[str]) -> bool:
    """Whether they are alike where a weekday or month is as good as another. A word must be the
    same in both.
    """
    kinds = [kind for kind in _OF_A_KIND if not (kind.isdisjoint(one) or kind.isdisjoint(other))]
    values = frozenset[str]().union(*kinds)
    names = frozenset(min(kind) for kind in kinds)
    plain = one - values, other - values
    return bool(kinds and plain[0] & plain[1]) and _alike(plain[0] | names, plain[1] | names)


def _same_speaker(one: Statement, other: Statement) -> bool:
    return not (one.speaker and other.speaker) or one.speaker == other.speaker


def _alike(one: frozenset[str], other: frozenset[str], least: float = ALIKE) -> bool:
    needed = least**2 * len(one) * len(other)
    if min(len(one), len(other)) ** 2 < needed:
        return False  # not even if one has all of the other
    shared = len(one & other)
    return shared > 0 and shared**2 >= needed


def _telling(stems: frozenset[str]) -> bool:
    return any(not is_common(stem) for stem in stems)
