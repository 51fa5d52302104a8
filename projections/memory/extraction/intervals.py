"""From when to when a statement holds, where its words say so: "since 2023", "until Friday", "from
May to July"; what is on a day holds on that day.

Nothing is said where the words may be meant in two ways. An end that may be the first or the last
day of a week, month or year is the last one, so that what counts as over is over.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import date, timedelta
from typing import Literal, NamedTuple

from projections.events.memories import MemoryTime
from projections.memory.extraction.dates import (
    A_COUNT,
    A_DATE,
    A_UNIT,
    Named,
    Resolved,
    after_months,
    dates_named,
    number_of,
    resolve_dates,
)

Tense = Literal["past", "plan", "state"]
"""Whether a statement says what was, what is planned or goes on, or what is so in general."""
AHEAD = {"plan": 366, "state": 92}
"""Days up to which a time without a year lies ahead. One that lies further may be a former one."""

_X = f"(?:the end of )?(?:{A_DATE})"
_LAST = rf"(?:{_X}|(?:the )?\d{{1,2}}(?:st|nd|rd|th)?)"
_TO = r"(?: (?:to|until|till|through) | ?[-\u2013] ?)"
_PHRASE = re.compile(
    rf"\b(?:between (?P<low>{_X}) and (?P<high>{_LAST})"
    rf"|(?:from )?(?P<first>{_LAST}){_TO}(?P<last>{_LAST})"
    rf"|from (?P<on>{_X}) (?:on|onwards?)"
    rf"|(?:starting|beginning|effective|as of)(?: from| on| in)? (?P<start>{_X})"
    rf"|since (?P<since>{_X})"
    rf"|(?P<up>until|till|through) (?P<until>{_X})"
    rf"|(?:for|over|during) the next (?:{A_COUNT} )?{A_UNIT})(?![\w-])",
    re.IGNORECASE,
)
_CONNECTOR = re.compile(
    r"\b(?:since|until|till|through|to|and|on(?:wards?)?|starting|beginning|effective|as of"
    r"|the next)\b|[-\u2013]",
    re.IGNORECASE,
)
_HABIT = re.compile(
    r"\b(?:every|each|usually|always|often|sometimes|typically|normally|generally|rarely|mostly|never"
    r"|annually|yearly|monthly|weekly|birthdays?|anniversary)\b",
    re.IGNORECASE,
)
_MOVED = re.compile(
    r"\b(?:moved|changed|rescheduled|postponed|pushed|shifted|switched|extended|brought)\b", re.I
)
_PAST = re.compile(
    r"^(?!.*\b(?:has|have|am|is|are|will)\b)"
    r"(?:i|we|my(?: [\w'-]+){1,5}?) (?:was|were|had|did|used|(?!need)[a-z]{2,}ed)\b",
    re.IGNORECASE,
)
_PLANNED = re.compile(
    r"\b(?:will|going to)\b|^(?:i|we|my(?: [\w'-]+){1,5}?) (?:am|are|is) (?:\w+ly )?\w+ing\b",
    re.IGNORECASE,
)
_WEEKDAY = re.compile(r"\b(?:mon|tues|wednes|thurs|fri|satur|sun)day\b", re.IGNORECASE)
_YEAR = re.compile(r"\d{4}")
_RELATIVE = re.compile(
    r"\b(?:today|tonight|tomorrow|yesterday|this|next|last|coming)\b", re.IGNORECASE
)
_DAY = re.compile(r"(?:the )?\d{1,2}(?:st|nd|rd|th)?", re.IGNORECASE)
_FOR_LATER = re.compile(
    r"\b(?:booked|ordered|cancell?ed|bought|scheduled|reserved)\b|\bfor (?:on |the )?\w+day\b",
    re.IGNORECASE,
)
"""What may be about a weekday to come, though it was done."""
_STARTS = re.compile(r"\b(?:start|begin)(?:s|n?ing)?\b", re.IGNORECASE)
_ENDS = re.compile(r"\bend(?:s|ing)?\b", re.IGNORECASE)


class Dated(NamedTuple):
    """A text with absolute dates, and the first day that it speaks of. It holds from ``begin`` on,
    and from ``end`` on no more, where it says so.
    """

    text: str
    day: date | None = None
    begin: date | None = None
    end: date | None = None

    @property
    def temporal(self) -> MemoryTime | None:
        """The same as a record has it."""
        times = [_midnight(day) for day in self[1:]]
        return MemoryTime(*times) if any(times) else None


def tense_of(clause: str) -> Tense:
    """The tense of a clause that begins with its speaker, without contractions."""
    if _PAST.match(clause):
        return "past"
    return "plan" if _PLANNED.search(clause) else "state"


def resolve_intervals(
    text: str, said: date | None, tense: Tense, memory_type: str, *, dated: bool
) -> Dated | None:
    """A text with its dates made absolute, and from when to when it holds.

    Args:
        said: the day on which it was said; None: nobody knows.
        dated: it says what is on a day.

    Returns:
        None where a date in it cannot be resolved.
    """
    past = dated and tense == "past" and _FOR_LATER.search(text) is None
    phrase = _PHRASE.search(text) if said is not None and _CONNECTOR.search(text) else None
    if phrase is None or said is None:
        plain = resolve_dates(text, said, past=past)
        if plain is None:
            return None
        passing = memory_type == "constraint" and _RELATIVE.search(text) is not None
        holds = tense != "past" and (dated or passing) and not _HABIT.search(text)
        begin, end = _on_a_day(text, plain, said) if holds and said else (None, None)
        return Dated(plain.text, plain.day, begin, end)
    before = resolve_dates(text[: phrase.start()], said, past=past)
    after = resolve_dates(text[phrase.end() :], said, past=past)
    if before is None or after is None:
        return None
    meant = _meant(phrase, said, tense, memory_type, dated=dated)
    if meant is None:
        # "From May to July" may be of every year, and is said as it is. "Until next week" is not.
        relative = _RELATIVE.search(phrase[0]) is not None
        return None if relative else Dated(f"{before.text}{phrase[0]}{after.text}")
    whole = f"{before.text}{meant.text}{after.text}"
    if _MOVED.search(text):
        # What was moved from Monday to Friday is on Friday.
        return Dated(whole, meant.end and meant.end - timedelta(days=1))
    if before.named or after.named or _PHRASE.search(text, phrase.end()):
        return Dated(whole, meant.day)
    return meant._replace(text=whole)


def _on_a_day(text: str, plain: Resolved, said: date) -> tuple[date | None, date | None]:
    """What is on one day, or in a week, holds then; what starts or ends then, from or up to it."""
    if len(plain.named) != 1 or plain.named[0].vague or plain.named[0].end <= said:
        return None, None
    one = plain.named[0]
    return (
        None if _ENDS.search(text) else one.day,
        None if _STARTS.search(text) else one.end,
    )


def _meant(
    phrase: re.Match[str], said: date, tense: Tense, memory_type: str, *, dated: bool
) -> Dated | None:
    """When a phrase means; its text is the phrase in absolute words. None where it is not clear."""
    given = phrase.groupdict()
    if given["since"]:
        return _since(given["since"], said)
    if _HABIT.search(phrase.string):
        return None
    if given["unit"]:
        return _next(given["count"] or "a", given["unit"], said) if tense != "past" else None
    if given["until"]:
        return _until(given["up"], given["until"], said, tense)
    if given["on"] or given["start"]:
        return _starting(given["on"] or given["start"], said, tense)
    if tense == "state" and memory_type not in ("fact", "event"):
        return None  # what somebody likes from May to July, they like so every year
    on_days = dated and (tense == "plan" or _MOVED.search(phrase.string))
    if _WEEKDAY.search(phrase[0]) and not on_days:
        return None  # who works from Monday to Friday does so every week
    ends = (given["low"] or given["first"], given["high"] or given["last"])
    return _range(ends, said, tense, between=given["low"] is not None)


def _since(words: str, said: date) -> Dated | None:
    one = max((one for one in dates_named(words, said) if one.day <= said), default=None)
    return None if one is None else Dated(f"since {one.words}", one.day, one.day)


def _until(up: str, words: str, said: date, tense: Tense) -> Dated | None:
    named = words.lower().removeprefix("the end of ")
    one = _nearest(dates_named(named, said), said, tense)
    if one is None:
        return None
    end_of = "the end of " if named != words.lower() else ""
    return Dated(f"{up.lower()} {end_of}{one.words}", one.day, None, one.end)


def _starting(words: str, said: date, tense: Tense) -> Dated | None:
    found = dates_named(words, said)
    one = _nearest(found, said, tense)
    if one is None or (len(found) > 1 and (one.day - said).days > AHEAD["state"]):
        return None
    return Dated(f"starting {one.words}", one.day, one.day)


def _nearest(found: Iterable[Named], said: date, tense: Tense) -> Named | None:
    """The latest one that has begun, of what was; else the first one that is not over."""
    if tense == "past":
        return max((one for one in found if one.day <= said), default=None)
    return min((one for one in found if one.end > said), default=None)


def _next(count: str, unit: str, said: date) -> Dated | None:
    """ "For the next two weeks": from the day on which it was said."""
    days = {"day": 1, "week": 7}.get(unit.lower())
    months = 12 if unit.lower() == "year" else 1
    try:
        many = number_of(count)
        last = after_months(said, many * months) if days is None else said + timedelta(many * days)
        return Dated(f"from {said} to {last}", said, said, last + timedelta(days=1))
    except (ValueError, OverflowError):
        return None


def _range(ends: tuple[str, str], said: date, tense: Tense, *, between: bool) -> Dated | None:
    first, last = _whole(*ends)
    firsts, lasts = dates_named(first, said), dates_named(last, said)
    pairs = []
    for one in firsts:
        two = min((two for two in lasts if two.day > one.day and two.end > one.end), default=None)
        if two is not None and not any(one.day < other.day < two.day for other in firsts):
            pairs.append((one, two))
    found = _likely(pairs, said, tense)
    if found is None or first.lower() == last.lower():
        return None
    one, two = found
    begin, to = ("between", "and") if between else ("from", "to")
    return Dated(f"{begin} {one.words} {to} {two.words}", one.day, one.day, two.end)


def _likely(
    pairs: list[tuple[Named, Named]], said: date, tense: Tense
) -> tuple[Named, Named] | None:
    """Of the times that a range may mean, in order, the one that it means; None: unclear."""
    if tense == "past":
        return max((pair for pair in pairs if pair[0].day <= said), default=None)
    left = [pair for pair in pairs if pair[1].end > said]
    if not left or len(pairs) == 1:
        return left[0] if left else None
    begun = left[0][0].day <= said
    if begun and len(left) > 1:
        ahead = (left[1][0].day - said).days
        if ahead <= 7:  # of weekdays
            return left[1]
        return None if (said - left[0][0].day).days > ahead else left[0]
    return left[0] if begun or (left[0][0].day - said).days <= AHEAD[tense] else None


def _whole(first: str, last: str) -> tuple[str, str]:
    """Both ends with their month: "May 3 to 10" is "May 3" to "May 10", "3 to 10 May" the same."""
    if _DAY.fullmatch(last):
        month = re.match(r"(?:the )?([a-z]+\.? )(?:the )?\d", first, re.IGNORECASE)
        last = f"{month[1]}{last}" if month else ""
    elif _DAY.fullmatch(first):
        month = re.match(r"(?:the )?\d{1,2}(?:st|nd|rd|th)? (\D.*)", last, re.IGNORECASE)
        first = f"{first} {month[1]}" if month else ""
    return first, last


def _midnight(day: date | None) -> str | None:
    return None if day is None else f"{day.isoformat()}T00:00:00Z"
