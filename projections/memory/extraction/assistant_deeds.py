"""What an assistant says it has done for its user. It is a model's word: its trust says so."""

from __future__ import annotations

import re
from collections.abc import Iterator

from projections.events.memories import MemoryTags, MemoryTime
from projections.memory.extraction.candidate import MAX_CHARS, Candidate
from projections.memory.extraction.clauses import clauses
from projections.memory.extraction.hints import folded, has_any
from projections.memory.extraction.intervals import resolve_intervals
from projections.memory.extraction.statements import day_of, entities_of

_DEED = (
    r"(?:booked|cancell?ed|updated|changed|scheduled|rescheduled|ordered|refunded|upgraded|issued"
    r"|confirmed|shipped|renewed|extended|moved|created|deleted)"
)
_DONE = re.compile(
    r"^(?:i have (?:now |just |successfully )*" + _DEED + r" (?:your|the) (?P<what>.+)"
    r"|your (?P<thing>.{3,120}?) (?:has|have) (?:now |just |been |successfully )*been (?:now "
    r"|successfully )*" + _DEED + r"\b.*)$",
    re.IGNORECASE,
)
_MARKS = re.compile('["*\u201c\u201d]')
_HINTS = _DEED.removeprefix("(?:").removesuffix(")").replace("cancell?ed", "cancel").split("|")
_VAGUE = re.compile(
    r"\b(?:it|its|this|that|these|those|they|them|here|below|above|following|as requested)\b", re.I
)


def deeds(text: str, offset: int, time: str | None) -> Iterator[Candidate]:
    """What an assistant's message says was done, if it names what it was done to."""
    if (
        "been " not in text
        and " have " not in text
        and "'ve " not in text
        and "\u2019ve " not in text
    ):
        return
    # What is between quotes or asterisks may become one word with what is not.
    if not has_any(_MARKS.sub("", folded(text)), _HINTS):
        return
    for clause in clauses(text):
        match = _DONE.match(clause)
        if match is None or _VAGUE.search(clause):
            continue
        entities = entities_of(match["what"] or match["thing"])
        dated = resolve_intervals(clause, day_of(time), "plan", "event", dated=False)
        if dated is None or not entities:
            continue
        said = re.sub(r"^i have", "The assistant has", dated.text, flags=re.I)
        said = re.sub(r"\byour\b", "the user's", said, flags=re.I)
        if len(said) > MAX_CHARS:
            continue
        yield Candidate(
            memory_type="event",
            text=f"{said[0].upper()}{said[1:]}.",
            offsets=(offset,),
            time=time,
            role="assistant",
            trust="model",
            confidence=0.65,
            entities=entities,
            temporal=None
            if dated.day is None
            else MemoryTime(t_ref=dated.day.isoformat() + "T00:00:00Z"),
            tags=MemoryTags(task=["done"]),
        )
