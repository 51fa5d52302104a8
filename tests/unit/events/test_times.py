"""How times are written."""

from __future__ import annotations

from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from projections.events.times import micros_of, moment, rfc3339, time_at

YEAR_1, YEAR_9999 = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)


@given(st.datetimes(timezones=st.just(UTC)))
def test_a_time_is_written_to_the_millisecond_below_it(at: datetime) -> None:
    assert time_at(micros_of(at)) == rfc3339(at, "milliseconds")


@given(st.integers())
def test_what_lies_beyond_the_calendar_is_its_first_or_last_moment(micros: int) -> None:
    assert time_at(micros) == rfc3339(moment(micros), "milliseconds")
    assert YEAR_1 <= moment(micros) <= YEAR_9999
