"""What a question asks for, and whether what was found says it.

A plan names it in ``missing_slots``: by kind ("time", "place"), or, where a model made it, in words
of its own ("seat preference").
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from projections.memory.background import RELEVANT
from projections.memory.extraction.statement_rules import RELATIVE
from projections.memory.planner import SearchPlan
from projections.memory.recall import Recalled
from projections.memory.resolution import Record
from projections.memory.words import MONTHS, WEEKDAYS, stems_of

MOST = 4
"""Slots that are searched for by their own words."""
_NUMBER = (
    r"(?:\d[\d,.]{0,30}|one|two|three|four|five|six|seven|eight|nine|ten|twelve|dozen|no|once"
    r"|twice)"
)
_CALENDAR = "|".join((*MONTHS, *WEEKDAYS))
_NAME = re.compile(rf"(?<!^)(?<![.!?] )\b(?!(?:(?i:{_CALENDAR})|I)\b)[A-Z][\w'-]+")
_PLACE = re.compile(
    r"\b(?:in|at|near|from|to|on|around|outside|is|visit(?:s|ed)?) (?:the )?"
    rf"(?!(?i:{_CALENDAR})\b)[A-Z]\w"
    r"|(?i:\b(?:lives?|lived|living|stay(?:s|ed|ing)?|born|grew up|located|based|address|moved"
    r"|parked|hidden|stored|kept) (?:is|in|at|near|on|under|to|behind)\b)"
)
_KIN = re.compile(rf"\b{RELATIVE}\b", re.IGNORECASE)


def _finds(pattern: str) -> Callable[[str], bool]:
    found = re.compile(pattern, re.IGNORECASE)
    return lambda text: found.search(text) is not None


_SAYS: dict[str, Callable[[str], bool]] = {
    "time": _finds(
        rf"\b(?:\d{{4}}-\d\d-\d\d|(?:19|20)\d\d|{_CALENDAR}"
        r"|\d{1,2}(?::\d\d)? ?(?:am|pm)|\d\d?:\d\d"
        r"|o'clock|noon|midnight|today|tomorrow|yesterday|tonight|ago|morning|afternoon|evening"
        r"|(?:last|next|every|each) \w+|spring|summer|autumn|winter)\b"
    ),
    "place": lambda text: _PLACE.search(text) is not None,
    "person": lambda text: _NAME.search(text) is not None or _KIN.search(text) is not None,
    "reason": _finds(r"\b(?:because|since|due to|so that|in order to|as it|reason|thanks to)\b"),
    "quantity": _finds(rf"\b{_NUMBER}\b|\b(?:several|few|dozens?|hundreds?|thousands?)\b"),
    "duration": _finds(
        rf"\b(?:since|until|all day|{_NUMBER} (?:second|minute|hour|day|night|week|month|year)s?"
        r"|an? (?:second|minute|hour|day|night|week|month|year)|from .{1,100} (?:to|until) )\b"
    ),
    "age": _finds(rf"\b(?:{_NUMBER} years?[ -]old|age|born|turn(?:s|ed)? \d+|birthday)\b"),
}


def named_slots(plan: SearchPlan) -> list[str]:
    """The slots that are searched for by their own words: those that are no mere kind."""
    slots = (slot for slot in plan.missing_slots if slot.lower() not in _SAYS)
    return [slot for slot in slots if stems_of(slot)][:MOST]


def still_missing(plan: SearchPlan, found: Iterable[Recalled]) -> list[str]:
    """The slots of which nothing says a value that was found and is relevant."""
    relevant = [one for one in found if one.relevance >= RELEVANT]
    return [slot for slot in plan.missing_slots if not any(_says(one, slot) for one in relevant)]


def _says(one: Recalled, slot: str) -> bool:
    kind, record = slot.lower(), one.found if isinstance(one.found, Record) else None
    text = one.found.text
    if record is not None and record.doc_markdown:
        text = f"{text}\n{record.doc_markdown}"
    says = _SAYS.get(kind)
    if says is None:
        tags = () if record is None else (tag for tags in record.tags.values() for tag in tags)
        own = set(stems_of(" ".join((text, *tags))))
        return own.issuperset(stems_of(slot))
    dated = kind == "time" and record is not None and bool(record.temporal)
    return dated or says(text)
