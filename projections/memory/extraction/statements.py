"""What a message states: clauses that fit a rule, made to stand alone."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import date, datetime

from projections.events.memories import MemoryTags
from projections.memory.extraction.candidate import MAX_CHARS, Candidate
from projections.memory.extraction.clauses import Clause, clauses
from projections.memory.extraction.intervals import resolve_intervals, tense_of
from projections.memory.extraction.statement_rules import RULES, Rule
from projections.memory.extraction.third_person import THE_USER, third_person
from projections.memory.similarity import word_set

HEDGED = 0.8
"""A statement whose speaker is not sure counts by this much less."""

_DEICTIC = re.compile(
    r"\b(?:it|its|this|that|these|those|here|there|they|them|their|theirs|he|she|him|her|his|hers"
    r"|you|your|yours|yourself|u|ya|ones|such|so|too|either|one of|the same|the (?:first"
    r"|second|third"
    r"|other|latter|former) (?:one|option|flight|choice)?|option|anything|something|everything"
    r"|someone|anyone|everyone|nothing|things?|stuff|instead|mine|ours|both|another|what"
    r"|(?:probably|maybe|one|(?<!any )more|better|less|own|most|because)$|ago\b.*\bago)\b",
    re.IGNORECASE,
)
_MINE = re.compile(
    r"^(?:i|we|my|our|always|never|from now on|(?:you can |please |everyone )?calls? me)\b|\bmy\b",
    re.I,
)
_OWN = re.compile(r"(?:\b|_)(?:i|im|we|my|our|always|never|from|calls?)(?:\b|_)", re.IGNORECASE)
"""A word that a clause of :data:`_MINE` begins with, or has, before contractions are expanded."""
_JOINED = re.compile('[`"\u201c\u201d]|\\*\\*')
"""Marks that are taken out: what stands around them may be one word then."""
_KNOWN = word_set(
    "beach ocean sea snow rain heat cold outdoors mountains city country countryside "
    "theater theatre opera gym library internet sun summer winter"
)
_TAIL = re.compile(
    r"(?:,? (?:please|though|tho|lol|haha\w*|if possible|as well|right now|at the moment"
    r"|at all|tbh|xd"
    r"|i think|i guess|you know|sorry|actually|honestly|these days|now|just|mostly|i suppose"
    r"|or so|by the way|of course|and|or|so+|for|to|with|of|the|an?|from))+$",
    re.IGNORECASE,
)
_OUR = re.compile(r"^our\b", re.IGNORECASE)
_ENTITY = re.compile(
    r"\b(?:[A-Z][\w'-]+(?: [A-Z][\w'-]+){0,3}|[A-Z]{2,}\d*"
    # A digit and, later, a letter: seen from the first digit, in one way.
    r"|(?=[^\W\d]*\d[^\WA-Za-z]*[A-Za-z])\w+)\b"
)


def day_of(time: str | None) -> date | None:
    """The day of an event's own time, in the zone that it names."""
    if time is None:
        return None
    try:
        return datetime.fromisoformat(time.upper()).date()
    except ValueError:
        return None


def statements(
    text: str, offset: int, time: str | None, name: str | None = None
) -> Iterator[Candidate]:
    """What a user's message states.

    Args:
        text: what was said, without what is private.
        name: who said it, where several talk.
    """
    if _OWN.search(text) is None and _JOINED.search(text) is None:
        return
    said = day_of(time)
    for clause in clauses(text):
        if _MINE.search(clause) is None:
            continue
        found = _stated(clause, offset, time, said, name or THE_USER)
        if found is not None:
            yield found


def _stated(
    clause: Clause, offset: int, time: str | None, said: date | None, subject: str
) -> Candidate | None:
    plain = _TAIL.sub("", clause).rstrip(" ,.!")
    plain = _OUR.sub("my", plain, count=1) if plain[:1] in "oO" else plain
    if _DEICTIC.search(plain):
        return None
    for rule in RULES:
        match = rule.pattern.match(plain)
        if match is not None:
            return _candidate(rule, match, clause, offset, time, said, subject)
    return None


def _candidate(
    rule: Rule,
    match: re.Match[str],
    clause: Clause,
    offset: int,
    time: str | None,
    said: date | None,
    subject: str,
) -> Candidate | None:
    tense = rule.tense or tense_of(match[0])
    dated = resolve_intervals(match[0], said, tense, rule.memory_type, dated=rule.dated)
    if dated is None or (rule.dated and dated.day is None) or _is_of_context(match):
        return None
    if rule.said is None:
        text = third_person(dated.text, subject)
    else:
        whom = "the user" if subject == THE_USER else subject
        groups = {key: value or "" for key, value in match.groupdict().items()}
        text = rule.said.format(subject=subject, object=whom, **groups)
    if not text or len(text) > MAX_CHARS or text[:2].lower() == "i ":
        return None
    text = f"{text[0].upper()}{text[1:]}."
    attribute = None if rule.topic is None else rule.topic(match)
    topic = None if attribute is None else f"{subject.lower()}: {attribute}"
    return Candidate(
        memory_type=rule.memory_type,
        text=text,
        offsets=(offset,),
        time=time,
        role="user",
        trust="user",
        confidence=round(rule.confidence * (HEDGED if clause.hedged else 1.0), 3),
        topic=topic,
        entities=entities_of(match[0]),
        temporal=dated.temporal,
        tags=MemoryTags(task=list(rule.task), constraint=list(rule.constraint)),
    )


def _is_of_context(match: re.Match[str]) -> bool:
    """Whether what is liked is "the movie": which one, only the conversation knows."""
    words = (match.groupdict().get("of") or "").lower().split()
    return len(words) == 2 and words[0] == "the" and words[1] not in _KNOWN


def entities_of(text: str) -> tuple[str, ...]:
    """Names and codes in a text, in order, each once."""
    found = (match[0] for match in _ENTITY.finditer(text))
    return tuple(dict.fromkeys(one for one in found if one not in ("I", "My", "We", "Our")))[:16]
