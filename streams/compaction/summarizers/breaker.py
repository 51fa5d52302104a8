"""A circuit breaker: after failures in a row it is open for a while, then lets one trial through.

Why not a library: ``docs/decisions/0012-summarizer-breaker.md``.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec


class Ticket(msgspec.Struct, frozen=True):
    """A call that was let through; ``trial`` when it decides whether the breaker closes again."""

    trial: bool


class Breaker:
    """Decides whether a call is made, from how the calls before it ended. No I/O, no tasks: a clock
    is all it asks.

    Closed, it lets every call through; ``failures`` failures in a row open it. Open, it lets none
    through for ``cool_down`` seconds, then exactly one, the trial: success closes it, failure opens
    it for another ``cool_down``, an end that says nothing (the caller was cancelled) leaves it to
    the next caller. Late ends of calls from before it opened do not count against the trial; a late
    success closes it. One instance belongs to one event loop.
    """

    def __init__(
        self, failures: int, cool_down: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._limit = failures
        self._cool_down = cool_down
        self._clock = clock
        self._failures = 0
        self._opened: float | None = None
        self._trying = False

    @property
    def open(self) -> bool:
        """Whether the next call would be refused."""
        if self._opened is None:
            return False
        return self._trying or self._clock() - self._opened < self._cool_down

    def admit(self) -> Ticket | None:
        """A ticket for one call, None while open. Every ticket has to be settled."""
        if self.open:
            return None
        self._trying = self._opened is not None
        return Ticket(self._trying)

    def settle(self, ticket: Ticket, succeeded: bool | None) -> bool:
        """Say how a call ended (None: nothing was learnt); returns whether this opened the
        breaker.
        """
        if ticket.trial:
            self._trying = False
        if succeeded:
            self._failures, self._opened = 0, None
            return False
        if succeeded is None or (self._opened is not None and not ticket.trial):
            return False
        self._failures += 1
        if ticket.trial or self._failures >= self._limit:
            self._opened = self._clock()
            return True
        return False
