"""How a time is written in events, answers and records: RFC 3339, in UTC, with a ``Z``."""

from __future__ import annotations

from datetime import UTC, datetime


def rfc3339(when: datetime, timespec: str = "auto") -> str:
    """A time in UTC; ``timespec`` is as ``isoformat`` has it: without it to the second, or finer
    where the time is.
    """
    return when.astimezone(UTC).isoformat(timespec=timespec).replace("+00:00", "Z")


def present(timespec: str = "milliseconds") -> str:
    """The present time."""
    return rfc3339(datetime.now(UTC), timespec)
