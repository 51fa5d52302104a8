"""From when to when a statement holds follows from its words and the day on which it was said."""

from __future__ import annotations

from datetime import date, timedelta
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from projections.events import types as events
from projections.events.times import parse_micros
from projections.memory.extraction.candidate import Candidate
from projections.memory.extraction.extractor import extract
from tests.support.taught import event, said


def only(text: str, time: str | None = "2024-05-15T10:00:00Z") -> Candidate:
    """What a text teaches that was said on a Wednesday."""
    (found,) = extract([event(0, events.Message("user", text), time)])
    return found


def held(found: Candidate) -> tuple[str | None, str | None]:
    """From which day on, and up to which, as months and days of 2024 or whole dates."""
    times = found.temporal
    begin, end = (None, None) if times is None else (times.t_valid_from, times.t_valid_to)
    for one in (begin, end):
        assert one is None or one.endswith("T00:00:00Z")
    return begin and begin[:10].removeprefix("2024-"), end and end[:10].removeprefix("2024-")


@pytest.mark.parametrize(
    ("text", "stated", "holds"),
    [
        ("I live in Oslo from May to July", "from May 2024 to July 2024", ("05-01", "08-01")),
        ("I am living in Oslo until Friday", "until 2024-05-17", (None, "05-18")),
        ("I've been vegan since 2023", "since 2023", ("2023-01-01", None)),
        ("I'm working at Acme starting next week", "the week of 2024-05-20", ("05-20", None)),
        ("I'm working at Acme from June 1st on", "starting 2024-06-01", ("06-01", None)),
        ("I have been working at Acme since Monday", "since 2024-05-13", ("05-13", None)),
        ("I live in Oslo since June", "since June 2023", ("2023-06-01", None)),
        ("I am working from home till the end of June", "the end of June 2024", (None, "07-01")),
        ("I am working in Oslo from November to February", "from November 2024 to February 2025", ("11-01", "2025-03-01")),
        ("I live in Oslo from June 2023 to July 2025", "from June 2023 to July 2025", ("2023-06-01", "2025-08-01")),
        ("I had a car from 2019 to 2021", "from 2019 to 2021", ("2019-01-01", "2022-01-01")),
        ("I'm going to Rome from May 20 to 27", "from 2024-05-20 to 2024-05-27", ("05-20", "05-28")),
        ("I'm going to Rome from the 20th to the 27th of May", "from 2024-05-20 to 2024-05-27", ("05-20", "05-28")),
        ("I will be in Oslo from Monday to Friday", "from 2024-05-20 to 2024-05-24", ("05-20", "05-25")),
        ("I'm going to Spain for the next two weeks", "from 2024-05-15 to 2024-05-29", ("05-15", "05-30")),
        ("I have an exam tomorrow", "on 2024-05-16", ("05-16", "05-17")),
        ("I am moving to Bergen next month", "in June 2024", ("06-01", "07-01")),
        ("My vacation starts on Friday", "on 2024-05-17", ("05-17", None)),
        ("My vacation ends on Friday", "on 2024-05-17", (None, "05-18")),
        ("I cannot drive tomorrow", "on 2024-05-16", ("05-16", "05-17")),
    ],
)  # fmt: skip
def test_words_say_from_when_to_when_it_holds(
    text: str, stated: str, holds: tuple[str | None, str | None]
) -> None:
    found = only(text)
    assert found.text.endswith(f" {stated}.")
    assert held(found) == holds


@pytest.mark.parametrize(
    ("text", "stated"),
    [
        ("I work from Monday to Friday", "works from Monday to Friday."),
        ("I like skiing from December to March", "likes skiing from December to March."),
        ("I live in Oslo from September to December", "from September to December."),
        ("I collect coins from 1900 to 1950", "collects coins from 1900 to 1950."),
        ("My birthday is on May 20", "birthday is on 2024-05-20."),
        ("We are visiting Rome in two weeks", "is visiting Rome on 2024-05-29."),
        ("I visited Oslo on May 3", "visited Oslo on 2024-05-03."),
        ("I will visit Rome on May 20 and leave on May 25", "on 2024-05-20 and leave on 2024-05-25."),
        ("I moved to Bergen in March", "moved to Bergen in March 2024."),
        ("I like the 2000 to 2010 films", "likes the 2000 to 2010 films."),
    ],
)  # fmt: skip
def test_nothing_is_said_where_words_may_mean_two_times_or_every_year(
    text: str, stated: str
) -> None:
    found = only(text)
    assert found.text.endswith(stated)
    assert held(found) == (None, None)


def test_a_deed_was_done_on_the_weekday_before() -> None:
    assert only("I visited Oslo on Friday").text == "The user visited Oslo on 2024-05-10."
    assert only("I visited Oslo on Wednesday").text == "The user visited Oslo on 2024-05-08."
    assert only("My exam was on Friday").text == "The user's exam was on 2024-05-10."
    assert only("I visited Oslo in September").text == "The user visited Oslo in September 2023."
    assert only("I visited Oslo on June 2").text == "The user visited Oslo on 2023-06-02."
    # What was booked may be for a day to come.
    assert only("I booked a table on Friday").text == "The user booked a table on 2024-05-17."


def test_what_was_moved_is_on_the_later_day() -> None:
    found = only("My appointment has been moved from Monday to Wednesday")
    assert found.text.endswith("has been moved from 2024-05-20 to 2024-05-22.")
    assert found.temporal is not None and found.temporal.t_ref == "2024-05-22T00:00:00Z"
    assert held(found) == (None, None)


def test_without_the_day_on_which_it_was_said_nothing_relative_is_kept() -> None:
    assert extract([event(0, events.Message("user", "I live in Oslo until Friday"), None)]) == []
    assert extract([said("I am living in Oslo since next week")]) == []
    assert extract([said("I am going to take a class in the next year")]) == []


_DATES = (
    "today", "tomorrow", "yesterday", "Monday", "next Friday", "last week", "next month", "May", "June",
    "December 31", "3 February", "February 29", "May 3, 2025", "March 2020", "2019", "2031", "the weekend",
    "2024-01-31", "9999-12-31", "the 10th", "5",
)  # fmt: skip
_ENDINGS = (
    *(f"{word} {one}" for word, one in product(("since", "until", "starting", "on"), _DATES)),
    *(f"from {one} to {two}" for one, two in product(_DATES, _DATES)),
    *(f"between {one} and {two}" for one, two in product(_DATES, _DATES)),
    "for the next 3 days", "for the next year", "for the next 999 years", "from May 3 to May 3", "from Monday on",
)  # fmt: skip
_BEGINNINGS = (
    "I live in Oslo", "I am living in Oslo", "I'm flying to Oslo", "I visited Oslo", "I like Oslo",
    "I cannot drive", "I have an exam", "My trip was", "My vacation ends", "I will be in Oslo",
)  # fmt: skip


@given(
    st.sampled_from(_BEGINNINGS),
    st.sampled_from(_ENDINGS),
    st.dates(date(1999, 12, 25), date(2032, 1, 5)) | st.sampled_from([date.min, date.max]),
)
def test_it_never_ends_before_it_begins_and_follows_from_the_words_alone(
    beginning: str, ending: str, day: date
) -> None:
    span = [event(0, events.Message("user", f"{beginning} {ending}"), f"{day}T23:00:00Z")]
    found = extract(span)
    assert extract(span) == found
    for one in found:
        if one.temporal is not None:
            begin, end = (
                parse_micros(at) for at in (one.temporal.t_valid_from, one.temporal.t_valid_to)
            )
            assert begin is None or end is None or begin < end
            assert one.temporal.t_ref is not None


def test_every_weekday_is_resolved_to_that_weekday() -> None:
    for n in range(14):
        day = date(2024, 5, 1) + timedelta(days=n)
        found = only("I cannot eat eggs until Friday", f"{day}T10:00:00Z")
        assert found.temporal is not None and found.temporal.t_ref is not None
        meant = date.fromisoformat(found.temporal.t_ref[:10])
        assert meant.weekday() == 4 and 0 < (meant - day).days <= 7
