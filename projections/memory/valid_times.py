"""The times that a record speaks of, as they are kept: RFC 3339, so that all of them compare."""

from __future__ import annotations

import re

from projections.events.memories import MemoryTime
from projections.events.times import parse_micros

_DAY = re.compile(r"\d{4}-\d\d-\d\d")


def valid_times(given: MemoryTime) -> MemoryTime | None:
    """The same times, a day as its midnight in UTC; None where there is none.

    Raises:
        ValueError: one is no day or time, or the end comes before the begin; it names the field.
    """
    times = {name: _time_of(name, getattr(given, name)) for name in given.__struct_fields__}
    begin, end = parse_micros(times["t_valid_from"]), parse_micros(times["t_valid_to"])
    if begin is not None and end is not None and begin > end:
        raise ValueError("t_valid_to: it is before t_valid_from")
    return MemoryTime(**times) if any(times.values()) else None


def _time_of(name: str, given: str | None) -> str | None:
    if given is None:
        return None
    time = f"{given}T00:00:00Z" if _DAY.fullmatch(given) else given
    if parse_micros(time) is None:
        raise ValueError(
            f"{name}: {given[:40]!r} is no day or time: write it like 2026-01-31 or"
            " 2026-01-31T12:00:00Z"
        )
    return time
