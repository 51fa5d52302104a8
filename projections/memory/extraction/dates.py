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


class Named(NamedTuple):
    """A day, week, month or year that words name: its first day, the first day after it, and
    absolute words for it. ``vague``: about then ("in two weeks").
    """

    day: date
    end: date
    words: str
    at: str = "on"
    vague: bool = False


class Resolved(NamedTuple):
    """A text with absolute dates, and the dates that it names."""

    text: str
    named: list[Named]

    @property
    def day(self) -> date | None:
        """The first day that it speaks of; None where it names none."""
        return min((one.day for one in self.named), default=None)


def resolve_dates(text: str, said: date | None, *, past: bool = False) -> Resolved | None:
    """A text with its dates made absolute.

    Args:
        said: the day on which it was said; None: nobody knows.
        past: it says what was.

    Returns:
        None where it cannot be resolved: its day is not known, or there is no such date.
    """
    if not _HINT.search(text):
        return Resolved(text, [])
    found: list[Named] = []
    for pattern, meaning in _FORMS:
        parts, at = [], 0
        for match in pattern.finditer(text):
            if said is None and pattern is not _ISO:
                return None
            try:
                meant = meaning(match, said or date.min)
                if past and said is not None:
                    meant = _not_to_come(match, meaning, meant, said)
            except (ValueError, OverflowError):
                return None
            if not any(meant[:2] == one[:2] for one in found):  # another form may read it again
                found.append(meant)
            parts += [text[at : match.start()], f"{meant.at} {meant.words}"]
            at = match.end()
        text = "".join(parts) + text[at:]
    return Resolved(text, found)


def dates_named(words: str, said: date) -> list[Named]:
    """What words may mean that name one date and nothing else: one date, or for "Friday", "May" or
    "May 3" those of the weeks and years around. A weekday is never the day on which it is said.
    """
    low = words.lower()
    try:
        if low in WEEKDAYS:
            ahead = (WEEKDAYS.index(low) - said.weekday()) % 7 or 7
            days = (ahead + 7 * week for week in range(-3, 3))
            return [_on(said + timedelta(days=n)) for n in days if n]
        if _A_YEAR.fullmatch(low):
            return [_year(int(low))]
        for pattern in (_MONTH_DAY, _DAY_MONTH, _A_MONTH):
            match = pattern.fullmatch(low)
            if match is not None:
                return _in_years(match, said)
        low = f"this{low[3:]}" if low.startswith("the ") and low[4:] in _PERIODS else low
        for form, meaning in _FORMS:
            match = form.fullmatch(low)
            if match is not None:
                return [meaning(match, said)]
    except (ValueError, OverflowError):
        pass
    return []


def _in_years(match: re.Match[str], said: date) -> list[Named]:
    """A month, or a day of it: of the year that is named, or of each year around."""
    parts = match.groupdict()
    years = (int(parts["year"]),) if parts["year"] else range(said.year - 2, said.year + 3)
    month = _number(match)
    found = []
    for year in years:
        try:
            day = date(year, month, int(parts.get("day") or 1))
        except ValueError:
            continue  # 29 February
        found.append(_on(day) if parts.get("day") else _month_of(day))
    return found


def after_months(day: date, months: int) -> date:
    """The same day of a later month, or its last one."""
    first = _month_after(day.replace(day=1), months)
    return min(first + timedelta(days=day.day - 1), _month_after(first, 1) - timedelta(days=1))


def _on(day: date, *, vague: bool = False) -> Named:
    return Named(day, day + timedelta(days=1), day.isoformat(), vague=vague)


def _month_of(first: date, *, vague: bool = False) -> Named:
    words = f"{MONTHS[first.month - 1].capitalize()} {first.year}"
    return Named(first, _month_after(first, 1), words, "in", vague)


def _year(year: int, *, vague: bool = False) -> Named:
    return Named(date(year, 1, 1), date(year + 1, 1, 1), str(year), "in", vague)


def _not_to_come(
    match: re.Match[str], meaning: Callable[..., Named], meant: Named, said: date
) -> Named:
    """What was: a weekday alone is the latest one, a month or its day none that is to come."""
    named = match.groupdict()
    if meaning is _weekday and not named["which"]:
        weeks = 2 if meant.day == said + timedelta(days=7) else 1
        return _on(meant.day - timedelta(days=7 * weeks))
    free = meaning in (_month_day, _month_only) and not (named["year"] or named.get("which"))
    return meaning(match, after_months(said, -6)) if free and meant.day > said else meant


def _iso(match: re.Match[str], _: date) -> Named:
    return _on(date.fromisoformat(match["iso"]))


def _near_day(match: re.Match[str], said: date) -> Named:
    steps = {
        "day after tomorrow": 2,
        "day before yesterday": -2,
        "tomorrow": 1,
        "yesterday": -1,
    }
    name = match["name"].lower()
    return _on(said + timedelta(days=next((n for word, n in steps.items() if word in name), 0)))


def _weekday(match: re.Match[str], said: date) -> Named:
    wanted, which = WEEKDAYS.index(match["weekday"].lower()), (match["which"] or "").lower()
    ahead = (wanted - said.weekday() - 1) % 7 + 1
    if which == "last":
        return _on(said - timedelta(days=(said.weekday() - wanted - 1) % 7 + 1))
    if which == "next":
        return _on(said + timedelta(days=7 - said.weekday() + wanted))
    return _on(said + timedelta(days=ahead))


def _period(match: re.Match[str], said: date) -> Named:
    if match[0].lower().startswith("the "):
        raise ValueError("it may begin at once")
    step = {"last": -1, "this": 0, "next": 1}[match["which"].lower()]
    unit = match["unit"].lower()
    if unit == "month":
        return _month_of(_month_after(said.replace(day=1), step))
    if unit == "year":
        return _year(said.year + step)
    monday = said + timedelta(days=7 * step - said.weekday())
    if unit == "weekend":
        saturday = monday + timedelta(days=5)
        two_days = saturday + timedelta(days=2)
        return Named(saturday, two_days, f"the weekend of {saturday.isoformat()}")
    return Named(monday, monday + timedelta(days=7), f"the week of {monday.isoformat()}", "in")


def _distance(match: re.Match[str], said: date) -> Named:
    step = number_of(match["count"])
    step = -step if match["ago"] else step
    unit = match["unit"].lower()
    if unit == "month":
        return _month_of(_month_after(said.replace(day=1), step), vague=True)
    if unit == "year":
        return _year(said.year + step, vague=True)
    return _on(said + timedelta(days=step * (7 if unit == "week" else 1)), vague=unit == "week")


def number_of(count: str) -> int:
    """The number of "3", "three" or "a"."""
    return int(count) if count.isdigit() else _COUNTS[count.lower()]


def _number(match: re.Match[str]) -> int:
    """The number of a month."""
    short = match["month"][:3].lower()
    return next(n for n, name in enumerate(MONTHS, 1) if name.startswith(short))


def _month_after(first: date, step: int) -> date:
    months = first.year * 12 + first.month - 1 + step
    return date(months // 12, months % 12 + 1, 1)


def _month_day(match: re.Match[str], said: date) -> Named:
    month = _number(match)
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


def _month_only(match: re.Match[str], said: date) -> Named:
    month, which = _number(match), (match["which"] or "").lower()
    years = (int(match["year"]),) if match["year"] else (said.year - 1, said.year, said.year + 1)
    firsts = [date(year, month, 1) for year in years]
    now = said.replace(day=1)
    if which == "last":
        first = max(one for one in firsts if one < now)
    elif which == "next":
        first = min(one for one in firsts if one > now)
    else:
        first = min(firsts, key=lambda one: abs((one - said).days))
    return _month_of(first)


def _form(pattern: str) -> re.Pattern[str]:
    return re.compile(r"(?<!every )(?<!each )\b(?:on |the )?" + pattern + r"\b", re.IGNORECASE)


def _bare(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE)


_MONTH_DAY = _bare(f"(?:the )?{_MONTH} (?:the )?{_DAY}{_YEAR}")
_DAY_MONTH = _bare(f"(?:the )?{_DAY} (?:of )?{_MONTH}{_YEAR}")
_A_MONTH = _bare(_MONTH + _YEAR)
_A_YEAR = _bare(r"(?:19|20)\d\d")
_PERIODS = ("week", "weekend", "month", "year")
_ISO = _form(r"(?P<iso>\d{4}-\d\d-\d\d)")
_FORMS: tuple[tuple[re.Pattern[str], Callable[[re.Match[str], date], Named]], ...] = (
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
    (_form(_MONTH_DAY.pattern), _month_day),
    (_form(_DAY_MONTH.pattern), _month_day),
    (_form("(?:in|(?P<which>this|next|last)) " + _MONTH + r"(?:,? (?P<year>\d{4}))?"), _month_only),
)
_NAMED = (
    r"\d{4}-\d\d-\d\d",
    _MONTH_DAY.pattern,
    _DAY_MONTH.pattern,
    r"(?:(?:this|next|last) )?" + _MONTH + _YEAR,
    r"the day after tomorrow|the day before yesterday|tomorrow|yesterday|today|tonight",
    r"(?:(?:this|next|last|coming) )?" + _WEEKDAY + "(?! \\d)",
    r"(?:this|next|last|the) (?:weekend|week|month|year)",
    # A number of four digits may be anything: as a year it ends what is said of the time.
    _A_YEAR.pattern
    + r"(?=$|[.,;:!)\u2013-]| (?:to|until|till|through|and|in|at|on|with|as|for)\b)",
)
A_DATE = re.sub(r"\?P<\w+>", "?:", "|".join(_NAMED))
"""A pattern of what :func:`dates_named` reads."""
A_COUNT, A_UNIT = _COUNT, _UNIT
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
