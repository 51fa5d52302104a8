"""Dates in English text, resolved against the time at which it was said.

A weekday alone, or after "this" or "on", is the coming one. "Next Friday" is the Friday of the next
week, which begins on Monday. "Last Friday" is the latest one before. A month and a day without a
year are the nearest ones to the time of the event.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date, timedelta
from typing import NamedTuple

from projections.memory.words import MONTHS, WEEKDAYS

_COUNTS = {
    word: n
    for n, word in enumerate(
        ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
    )
} | {"a": 1, "an": 1}
_MONTH = (
    r"(?P<month>jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?"
    r"|sept?(?:ember)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)\.?"
)
_DAY = r"(?P<day>\d{1,2})(?:st|nd|rd|th)?"
_YEAR = r"(?:,? (?P<year>\d{4}))?"
_WEEKDAY = r"(?P<weekday>" + "|".join(WEEKDAYS) + ")"
_COUNT = r"(?P<count>\d{1,3}|an?|one|two|three|four|five|six|seven|eight|nine|ten)"
_UNIT = r"(?P<unit>day|week|month|year)s?"


class Resolved(NamedTuple):
    """A text with absolute dates, and the first day that it speaks of; None where it names none."""

    text: str
    day: date | None


class _Meaning(NamedTuple):
    words: str
    day: date


def resolve_dates(text: str, said: date | None) -> Resolved | None:
    """A text with its dates made absolute.

    Args:
        said: the day on which it was said; None: nobody knows.

    Returns:
        None where it cannot be resolved: its day is not known, or there is no such date.
    """
    if not _HINT.search(text):
        return Resolved(text, None)
    found: list[date] = []
    for pattern, meaning in _FORMS:
        parts, at = [], 0
        for match in pattern.finditer(text):
            if said is None and pattern is not _ISO:
                return None
            try:
                meant = meaning(match, said or date.min)
            except (ValueError, OverflowError):
                return None
            found.append(meant.day)
            parts += [text[at : match.start()], meant.words]
            at = match.end()
        text = "".join(parts) + text[at:]
    return Resolved(text, min(found, default=None))


def _on(day: date) -> _Meaning:
    return _Meaning(f"on {day.isoformat()}", day)


def _iso(match: re.Match[str], _: date) -> _Meaning:
    return _on(date.fromisoformat(match["iso"]))


def _near_day(match: re.Match[str], said: date) -> _Meaning:
    steps = {
        "day after tomorrow": 2,
        "day before yesterday": -2,
        "tomorrow": 1,
        "yesterday": -1,
    }
    name = match["name"].lower()
    return _on(said + timedelta(days=next((n for word, n in steps.items() if word in name), 0)))


def _weekday(match: re.Match[str], said: date) -> _Meaning:
    wanted, which = WEEKDAYS.index(match["weekday"].lower()), (match["which"] or "").lower()
    ahead = (wanted - said.weekday() - 1) % 7 + 1
    if which == "last":
        return _on(said - timedelta(days=(said.weekday() - wanted - 1) % 7 + 1))
    if which == "next":
        return _on(said + timedelta(days=7 - said.weekday() + wanted))
    return _on(said + timedelta(days=ahead))


def _period(match: re.Match[str], said: date) -> _Meaning:
    step = {"last": -1, "this": 0, "next": 1}[match["which"].lower()]
    unit = match["unit"].lower()
    if unit == "month":
        first = _month_after(said.replace(day=1), step)
        return _Meaning(f"in {MONTHS[first.month - 1].capitalize()} {first.year}", first)
    if unit == "year":
        return _Meaning(f"in {said.year + step}", date(said.year + step, 1, 1))
    monday = said + timedelta(days=7 * step - said.weekday())
    if unit == "weekend":
        saturday = monday + timedelta(days=5)
        return _Meaning(f"on the weekend of {saturday.isoformat()}", saturday)
    return _Meaning(f"in the week of {monday.isoformat()}", monday)


def _distance(match: re.Match[str], said: date) -> _Meaning:
    count = match["count"].lower()
    step = int(count) if count.isdigit() else _COUNTS[count]
    step = -step if match["ago"] else step
    unit = match["unit"].lower()
    if unit == "month":
        first = _month_after(said.replace(day=1), step)
        return _Meaning(f"in {MONTHS[first.month - 1].capitalize()} {first.year}", first)
    if unit == "year":
        return _Meaning(f"in {said.year + step}", date(said.year + step, 1, 1))
    return _on(said + timedelta(days=step * (7 if unit == "week" else 1)))


def _month_after(first: date, step: int) -> date:
    months = first.year * 12 + first.month - 1 + step
    return date(months // 12, months % 12 + 1, 1)


def _month_day(match: re.Match[str], said: date) -> _Meaning:
    short = match["month"][:3].lower()
    month = next(n for n, name in enumerate(MONTHS, 1) if name.startswith(short))
    day = int(match["day"])
    if match["year"]:
        return _on(date(int(match["year"]), month, day))
    near = []
    for year in (said.year - 1, said.year, said.year + 1):
        try:
            near.append(date(year, month, day))
        except ValueError:
            continue  # 29 February
    if not near:
        raise ValueError("there is no such day")
    return _on(min(near, key=lambda one: abs((one - said).days)))


def _month_only(match: re.Match[str], said: date) -> _Meaning:
    short, which = match["month"][:3].lower(), (match["which"] or "").lower()
    month = next(n for n, name in enumerate(MONTHS, 1) if name.startswith(short))
    years = (int(match["year"]),) if match["year"] else (said.year - 1, said.year, said.year + 1)
    firsts = [date(year, month, 1) for year in years]
    now = said.replace(day=1)
    if which == "last":
        first = max(one for one in firsts if one < now)
    elif which == "next":
        first = min(one for one in firsts if one > now)
    else:
        first = min(firsts, key=lambda one: abs((one - said).days))
    return _Meaning(f"in {MONTHS[month - 1].capitalize()} {first.year}", first)


def _form(pattern: str) -> re.Pattern[str]:
    return re.compile(r"(?<!every )(?<!each )\b(?:on |the )?" + pattern + r"\b", re.IGNORECASE)


_ISO = _form(r"(?P<iso>\d{4}-\d\d-\d\d)")
_FORMS: tuple[tuple[re.Pattern[str], Callable[[re.Match[str], date], _Meaning]], ...] = (
    (_ISO, _iso),
    (
        _form(
            r"(?P<name>the day after tomorrow|the day before yesterday|tomorrow|yesterday"
            r"|today|tonight)"
            r"(?: (?:morning|afternoon|evening|night))?"
        ),
        _near_day,
    ),
    (_form(r"(?:(?P<which>this|next|last) |coming )?" + _WEEKDAY + "(?! \\d)"), _weekday),
    (_form(r"(?P<which>this|next|last) (?P<unit>weekend|week|month|year)"), _period),
    (_form("in " + _COUNT + " " + _UNIT + "(?P<ago>(?!))?"), _distance),
    (_form(_COUNT + " " + _UNIT + " (?P<ago>ago)"), _distance),
    (_form("(?:the )?" + _MONTH + " (?:the )?" + _DAY + _YEAR), _month_day),
    (_form("(?:the )?" + _DAY + " (?:of )?" + _MONTH + _YEAR), _month_day),
    (_form("(?:in|(?P<which>this|next|last)) " + _MONTH + r"(?:,? (?P<year>\d{4}))?"), _month_only),
)
_HINT = re.compile(
    r"\d{4}-\d\d-\d\d|\b(?:in "
    + _MONTH.replace("?P<month>", "?:")
    + r"|tomorrow|yesterday|today|tonight|ago|this|next|last|coming|"
    + "|".join(WEEKDAYS)
    + r"|in (?:\d+|an?|one|two|three|four|five|six|seven|eight|nine|ten) (?:day|week|month|year)"
    + r"|\d{1,2}(?:st|nd|rd|th)?(?: of)? "
    + _MONTH.replace("?P<month>", "?:")
    + "|"
    + _MONTH.replace("?P<month>", "?:")
    + r" (?:the )?\d)",
    re.IGNORECASE,
)
