"""How a time is written in events, answers and records: RFC 3339, in UTC, with a ``Z``."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import lru_cache

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def rfc3339(at: datetime, timespec: str = "auto") -> str:
    """A time in UTC; ``timespec`` is as ``isoformat`` has it: without it to the second, or finer
    where the time is.
    """
    return at.astimezone(UTC).isoformat(timespec=timespec).replace("+00:00", "Z")


def present(timespec: str = "milliseconds") -> str:
    """The present time."""
    return rfc3339(datetime.now(UTC), timespec)


def micros_of(at: datetime) -> int:
    """A time in microseconds since 1970."""
    return (at - _EPOCH) // _MICROSECOND


def moment(micros: int) -> datetime:
    """The time so many microseconds after 1970 began. What a zone puts before the year 1 or after
    9999 is the first or the last time that can be written.
    """
    return _EPOCH + min(max(micros, _FIRST), _LAST) * _MICROSECOND


def time_at(micros: int) -> str:
    """:func:`moment`, written to the millisecond."""
    millis = min(max(micros, _FIRST), _LAST) // 1_000
    minute, millis = divmod(millis, 60_000)
    return f"{_minute(minute)}{millis // 1_000:02}.{millis % 1_000:03}Z"


@lru_cache(maxsize=4096)
def _minute(minutes: int) -> str:
    """A minute as the times in it begin: what is written together is often of the same one."""
    return rfc3339(moment(minutes * 60_000_000), "minutes").replace("Z", ":")


_FIRST = micros_of(datetime.min.replace(tzinfo=UTC))
_LAST = micros_of(datetime.max.replace(tzinfo=UTC))


def stated_at(claimed: str | None, recorded: int) -> int:
    """When an event counts as said, in microseconds: the time that it claims, but not later than
    the broker recorded it. Nobody states the future.
    """
    said = parse_micros(claimed)
    return recorded if said is None else min(said, recorded)


def parse_micros(text: str | None) -> int | None:
    """An RFC 3339 time in microseconds since 1970; None where it is none."""
    if text is None:
        return None
    try:
        found = datetime.fromisoformat(text.upper())
        return None if found.tzinfo is None else micros_of(found)
    except (ValueError, OverflowError):
        # Shaped like a time, but there is no such day or hour.
        return None
