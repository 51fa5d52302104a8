"""The times that a record speaks of."""

from __future__ import annotations

import pytest

from projections.events.memories import MemoryTime
from projections.memory.valid_times import valid_times


def test_a_day_is_its_midnight_and_a_time_stays() -> None:
    given = MemoryTime("2026-01-31", "2026-01-01T12:00:00+02:00")
    assert valid_times(given) == MemoryTime("2026-01-31T00:00:00Z", "2026-01-01T12:00:00+02:00")
    assert valid_times(MemoryTime()) is None
    same = MemoryTime(t_valid_from="2026-01-31", t_valid_to="2026-01-31T01:00:00+01:00")
    assert valid_times(same) is not None


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (MemoryTime(""), "t_ref: '' is no day or time"),
        (MemoryTime("soon"), "t_ref: 'soon' is no day or time"),
        (MemoryTime(t_valid_from="2026-02-30"), "t_valid_from: '2026-02-30' is no day or time"),
        (MemoryTime(t_valid_to="2026-01-31T12:00:00"), "t_valid_to: .* is no day or time"),
        (MemoryTime(None, "2026-02-01", "2026-01-31"), "t_valid_to: it is before t_valid_from"),
    ],
)
def test_what_is_no_time_is_refused_by_its_field(given: MemoryTime, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        valid_times(given)
