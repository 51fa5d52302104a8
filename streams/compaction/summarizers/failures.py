"""What can go wrong with one attempt at what a model makes, each named by its cause.

No message carries a key, a prompt, or text that the endpoint sent, beyond the short name it may
give its error.
"""

from __future__ import annotations

from projections.errors import ThreadfoldError


class AttemptFailed(ThreadfoldError):
    """The root of them. ``again``: whether another attempt may end otherwise. ``faulty``: whether
    it counts against the endpoint each time (else once a tenant: the input may be at fault).
    ``retry_after``: seconds the endpoint asked us to wait. ``cost``: what the attempt cost
    nevertheless, None where no price is known.
    """

    problem = 503
    kind = "failed"
    """The cause in a word, for metrics."""
    again = True
    faulty = True

    def __init__(
        self, message: str, *, retry_after: float | None = None, cost: float | None = None
    ) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        self.cost = cost


class CallNotAllowed(AttemptFailed):
    """The endpoint was not called: its limits are used up, or it asked for a pause, for longer than
    the work may wait; or no time is left.
    """

    kind = "limited"
    again = False


class BudgetUsedUp(CallNotAllowed):
    """The tenant's budget of this day is used up: a quota of its own, not the endpoint's."""

    kind = "budget"


class EndpointResting(AttemptFailed):
    """The circuit is open: the endpoint is left alone, by all or by this tenant, after failures in
    a row.
    """

    kind = "breaker_open"
    again = False


class EndpointUnreachable(AttemptFailed):
    """No connection, or it broke before the answer was whole."""

    kind = "unreachable"


class EndpointTimedOut(AttemptFailed):
    """The answer was not there in time: the endpoint hangs, or this input takes too long."""

    kind = "timed_out"
    faulty = False


class EndpointBusy(AttemptFailed):
    """The endpoint answered that it cannot now: 408, 409, 425, 429 or 5xx. ``status``: which."""

    kind = "busy"

    def __init__(self, message: str, status: int, *, retry_after: float | None = None) -> None:
        super().__init__(message, retry_after=retry_after)
        self.status = status


class EndpointRefused(AttemptFailed):
    """The endpoint will not serve us at all: key, address or model are wrong (401, 403, 404, a
    redirect).
    """

    kind = "refused"
    again = False


class InputRefused(AttemptFailed):
    """The endpoint does not take this very request (400, 413, 422 and the like)."""

    kind = "input_refused"
    again = False
    faulty = False


class AnswerUnreadable(AttemptFailed):
    """The answer is not what such an endpoint answers, or larger than is read."""

    kind = "unreadable"


class AnswerRejected(AttemptFailed):
    """There is an answer, and it is not what was asked for; it is thrown away."""

    kind = "rejected"
    faulty = False


class SummaryRejected(AnswerRejected):
    """The answer is no summary of what was sent. ``reason``: one word for why, for metrics."""

    def __init__(self, message: str, *, reason: str = "", cost: float | None = None) -> None:
        super().__init__(message, cost=cost)
        self.reason = reason
