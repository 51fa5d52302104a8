"""Relative dates are resolved against the time of the event itself."""

from __future__ import annotations

from datetime import date

import pytest

from projections.events import types as events
from projections.memory.extraction.dates import resolve_dates
from projections.memory.extraction.extractor import extract
from tests.support.taught import event, said

WEDNESDAY = date(2024, 5, 15)


@pytest.mark.parametrize(
    ("text", "resolved"),
    [
        ("tomorrow", "on 2024-05-16"),
        ("the day before yesterday", "on 2024-05-13"),
        ("on Friday", "on 2024-05-17"),
        ("Wednesday", "on 2024-05-22"),
        ("next Friday", "on 2024-05-24"),
        ("last Friday", "on 2024-05-10"),
        ("last Wednesday", "on 2024-05-08"),
        ("last week", "in the week of 2024-05-06"),
        ("this weekend", "on the weekend of 2024-05-18"),
        ("next month", "in June 2024"),
        ("last June", "in June 2023"),
        ("in January", "in January 2024"),
        ("in two weeks", "on 2024-05-29"),
        ("three days ago", "on 2024-05-12"),
        ("on May 20th", "on 2024-05-20"),
        ("December 31", "on 2023-12-31"),
        ("20 May 2025", "on 2025-05-20"),
        ("29 February", "on 2024-02-29"),
        ("every Friday", "every Friday"),
        ("I may go", "I may go"),
    ],
)
def test_a_date_is_made_absolute(text: str, resolved: str) -> None:
    found = resolve_dates(text, WEDNESDAY)
    assert found is not None
    assert found.text == resolved


def test_what_cannot_be_resolved_is_refused() -> None:
    assert resolve_dates("on February 30", WEDNESDAY) is None
    assert resolve_dates("tomorrow", None) is None
    assert resolve_dates("tomorrow", date.max) is None
    assert resolve_dates("on 2024-05-20", None) is not None


def test_a_dated_event_has_the_day_of_its_speaker() -> None:
    (one,) = extract([said("I'm flying to Paris next Friday")])
    assert one.text == "The user is flying to Paris on 2024-05-24."
    assert one.temporal is not None
    assert one.temporal.t_ref == "2024-05-24T00:00:00Z"
    late = event(1, events.Message("user", "I have an exam tomorrow"), "2024-05-15T23:30:00-05:00")
    assert [found.text for found in extract([late])] == ["The user has an exam on 2024-05-16."]


def test_an_event_without_a_date_is_chatter() -> None:
    assert extract([said("I'm flying to Paris")]) == []
    timeless = event(0, events.Message("user", "I'm flying to Paris tomorrow"), None)
    assert extract([timeless]) == []
