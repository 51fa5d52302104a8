"""What to look for in the memory: rules that make a search plan of what an agent is about to do."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from typing import Literal

from msgspec import Struct

from projections.events.times import micros_of, moment
from projections.memory.extraction.dates import resolve_dates
from projections.memory.private_text import ends_without_private
from projections.memory.words import MONTHS, stems_of, words_of

Mode = Literal["answer", "action", "mixed"]
DEPTH = 5
FEW = 2
"""Telling words up to which a query is read together with what was said just before."""
MAX_QUERY = 8_192
"""Characters of a query that are read: of a longer one its head and tail."""
_SLOTS = {
    "when": "time",
    "where": "place",
    "who": "person",
    "whose": "person",
    "whom": "person",
    "why": "reason",
    "many": "quantity",
    "much": "quantity",
    "long": "duration",
    "old": "age",
}
_ACTION_WORDS = """
add apply arrange ask book build buy call cancel change check clean configure copy create delete
deploy draft edit email execute export file fill find fix format generate import install invite make
merge move open order pay plan post prepare print query refund remind remove rename renew reply
report request reschedule reserve reset restart retry return run schedule search send set ship start
stop submit summarise summarize test track translate try update upload use write
"""
_ACTIONS = frozenset(_ACTION_WORDS.split())
_POLITE_WORDS = "please can could would will you now then just and ok okay let s us i"
_POLITE = frozenset(_POLITE_WORDS.split())
_AGO = re.compile(r"\b(?:this|last|past|previous|next) (week|month|year)\b", re.IGNORECASE)
_SINCE = re.compile(r"\b(since|after|before|until|by)\b", re.IGNORECASE)
_MONTH_ALONE = re.compile(
    r"\b(?:in|during|of|since|before|until|after|by) (january|february|march|april|may|june|july"
    r"|august|september|october|november|december)(?: (\d{4}))?\b(?! \d)",
    re.IGNORECASE,
)
_YEAR_ALONE = re.compile(r"\b(?:in|during|since|before|until|after|by) (19\d\d|20\d\d)\b")
_PAST = frozenset(["did", "was", "were", "had", "ago", "last", "yesterday"])


class ActionState(Struct):
    """What an agent knows when it asks its memory. ``recent`` is what was said just before, ``now``
    microseconds since 1970.
    """

    query: str
    now: int
    recent: str = ""
    tools: list[str] = []
    constraints: list[str] = []
    failures: list[str] = []
    mode: Mode | None = None


class TemporalFilter(Struct):
    """The time that a question is about, from and up to which, in microseconds since 1970."""

    since: int | None = None
    until: int | None = None

    def holds(self, at: int) -> bool:
        """Whether a time is in it."""
        return (self.since is None or at >= self.since) and (self.until is None or at < self.until)


class SearchPlan(Struct):
    """What to search, and how to weigh what is found. ``reasoning`` says why, in one line."""

    mode: Mode
    semantic_queries: list[str]
    pragmatic_queries: list[str]
    tool_hints: list[str]
    required_constraints: list[str]
    required_affordances: list[str]
    missing_slots: list[str]
    temporal_filter: TemporalFilter | None
    depth: int
    reasoning: str


def asked_text(text: str) -> str:
    """What of a query may be looked for: no more than is read, and nothing that is private."""
    text = ends_without_private(text)
    half = MAX_QUERY // 2
    return text if len(text) <= MAX_QUERY else f"{text[:half]} {text[-half:]}"


def make_plan(state: ActionState) -> SearchPlan:
    """The plan that the rules make; they need neither a model nor a clock."""
    words = words_of(state.query)
    verb = next((word for word in words if word not in _POLITE), "")
    acts = verb in _ACTIONS or bool(state.tools or state.failures)
    slots = list(dict.fromkeys(_SLOTS[word] for word in words if word in _SLOTS))
    asks = bool(slots) or state.query.rstrip().endswith("?") or verb in ("what", "which", "how")
    mode = state.mode or ("mixed" if acts and asks else "action" if acts else "answer")
    short = len(set(stems_of(state.query))) <= FEW and bool(state.recent)
    semantic = [state.query, *([f"{state.query} {state.recent}"] if short else [])]
    pragmatic = [] if mode == "answer" else [state.query, *state.failures]
    said = " ".join(words)
    named = [tool for tool in state.tools if " ".join(words_of(tool)) in said]
    temporal = _time_of(state.query, state.now)
    reasons = [
        "it was asked for" if state.mode else f"the query {'acts' if acts else 'asks'}",
        f"slots: {', '.join(slots)}" if slots else "",
        "read with what was said before" if short else "",
        "it names a time" if temporal else "",
    ]
    return SearchPlan(
        mode=mode,
        semantic_queries=semantic,
        pragmatic_queries=pragmatic,
        tool_hints=[*named, *(tool for tool in state.tools if tool not in named)],
        required_constraints=list(state.constraints),
        required_affordances=[verb] if verb in _ACTIONS and mode != "answer" else [],
        missing_slots=slots,
        temporal_filter=temporal,
        depth=DEPTH,
        reasoning=f"mode {mode}: " + "; ".join(reason for reason in reasons if reason),
    )


def _time_of(query: str, now: int) -> TemporalFilter | None:
    """The time that a query names; None where it names none, or one that no calendar has."""
    try:
        span = _span_of(query, moment(now).date())
    except (ValueError, OverflowError):
        return None
    if span is None:
        return None
    since, until = _micros(span[0]), _micros(span[1])
    side = _SINCE.search(query)
    if side is None:
        return TemporalFilter(since, until)
    if side[1].lower() in ("since", "after"):
        return TemporalFilter(since if side[1].lower() == "since" else until, None)
    return TemporalFilter(None, until if side[1].lower() in ("until", "by") else since)


def _span_of(query: str, today: date) -> tuple[date, date] | None:
    """The first day that a query names, and the day after the last."""
    ago = _AGO.search(query)
    if ago is not None:
        back = 0 if ago[0].lower().startswith("this") else 1
        back = -back if ago[0].lower().startswith("next") else back
        return _period(today, ago[1].lower(), back)
    month = _MONTH_ALONE.search(query)
    if month is not None:
        number = MONTHS.index(month[1].lower()) + 1
        # A month without a year is the latest one.
        year = int(month[2]) if month[2] else today.year - (number > today.month)
        return date(year, number, 1), _next_month(date(year, number, 1))
    year_ = _YEAR_ALONE.search(query)
    if year_ is not None:
        return date(int(year_[1]), 1, 1), date(int(year_[1]) + 1, 1, 1)
    resolved = resolve_dates(query, today)
    if resolved is None or resolved.day is None:
        return None
    day = resolved.day
    if day > today and _PAST.intersection(words_of(query)):
        return None
    return day, day + timedelta(days=1)


def _period(today: date, unit: str, back: int) -> tuple[date, date]:
    if unit == "week":
        monday = today - timedelta(days=today.weekday() + 7 * back)
        return monday, monday + timedelta(days=7)
    if unit == "year":
        return date(today.year - back, 1, 1), date(today.year - back + 1, 1, 1)
    first = date(today.year, today.month, 1)
    if back > 0:
        first = (first - timedelta(days=1)).replace(day=1)
    elif back < 0:
        first = _next_month(first)
    return first, _next_month(first)


def _next_month(first: date) -> date:
    return (first + timedelta(days=31)).replace(day=1)


def _micros(day: date) -> int:
    return micros_of(datetime(day.year, day.month, day.day, tzinfo=UTC))
