"""How slowly the body of a request may come: a minimum rate, not only a time for all of it."""

from __future__ import annotations

BODY_GRACE = 20.0
BODY_RATE = 4_096
"""A body has ``BODY_GRACE`` seconds, and one more for each ``BODY_RATE`` bytes that have come; but
never more than ``BODY_GRACE`` from the moment at which the last of them came: whoever sends much at
once cannot stop then, and hold what was sent for hours.
"""


class BodyPace:
    """How fast one body comes. Times are seconds of one clock."""

    def __init__(self, now: float) -> None:
        self._until = now + BODY_GRACE

    def add(self, size: int, now: float) -> None:
        """So many bytes have come now."""
        self._until = min(self._until + size / BODY_RATE, now + BODY_GRACE)

    def give(self, seconds: float) -> None:
        """For so long nobody took what had come: that is not its sender's fault."""
        self._until += seconds

    def fault(self, now: float) -> str | None:
        """The words to refuse the body with; None: it comes fast enough."""
        if now <= self._until:
            return None
        return (
            f"the request's body comes too slowly: it has {BODY_GRACE:g} s and a second more for"
            f" each {BODY_RATE} bytes, and may not stop for {BODY_GRACE:g} s"
        )
