"""The pace of a tenant's long requests. While other tenants have requests, too, they begin one
after the other, and the event loop has time for others in between.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from starlette.requests import ClientDisconnect
from starlette.types import Scope

from projections.errors import QuotaExceeded
from streams.runtime.other_tenants import OtherTenants
from threadfold.gateway.heads import announced_length
from threadfold.gateway.loop_turns import OnLeft, end_wait
from threadfold.gateway.origins import header

LONG = 1 << 10
"""Bytes of a body from which on a request may be a long one."""
SHARE = 4
"""A tenant's long requests have one of so many parts of the event loop's time at most."""
ACTIVE = 1.0
"""For so many seconds after its last request a tenant counts as one that has requests."""
PATIENCE = 10.0
"""Seconds that a long request may wait."""
OF_LAST = 0.25
"""How much the last one counts in the guess of the next."""
LEAST, MOST = 0.001, 0.25
"""Seconds of the event loop: so much of a request does not count (one large message takes less),
and none counts more, because the event loop may have stood still for another reason.
"""
TENANTS = 1_000
"""The pace of so many tenants is kept: of those whose long requests came last."""


def is_long(scope: Scope) -> bool:
    """Whether a request may be a long one, as far as its head says."""
    return (
        announced_length(scope["headers"]) >= LONG
        or header(scope, b"transfer-encoding") is not None
    )


@dataclass(slots=True)
class _Pace:
    """When a tenant's next long request may begin, and how long it is guessed to take: little, as
    long as none has ended.
    """

    next: float = 0.0
    guess: float = LEAST

    def took(self, seconds: float, guessed: float) -> None:
        """One that was guessed has ended."""
        seconds = max(0.0, min(seconds, MOST) - LEAST)
        self.guess += (seconds - self.guess) * OF_LAST
        self.next += (seconds - guessed) * SHARE


class LongTurns:
    """The pace of the long requests of one event loop. A tenant that is alone is not held back."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._paces: OrderedDict[str, _Pace] = OrderedDict()
        self._others = OtherTenants()

    def note(self, tenant: str) -> None:
        """A request of this tenant has come."""
        self._others.note(tenant, self._clock())

    async def take(self, tenant: str, on_left: OnLeft = lambda _: None) -> Callable[[float], None]:
        """Wait until the tenant's next long request may begin. Returns what has to be called at its
        end, with the seconds of the event loop that it took.

        Args: ``on_left`` is given what to call when the client leaves.

        Raises:
            QuotaExceeded: so many of the tenant's wait that this one would for more than
                :data:`PATIENCE`.
            ClientDisconnect: its client left before.
        """
        pace, now = self._pace_of(tenant), self._clock()
        guess, wait = pace.guess, pace.next - now

        def end(seconds: float) -> None:
            pace.took(seconds, guess)

        if not self._others.than(tenant, now - ACTIVE):
            pace.next = now
            return end
        if wait > PATIENCE:
            raise QuotaExceeded(
                f"tenant {tenant} has as many long requests under way as it may have beside other"
                f" tenants: this one would wait for {wait:.0f} s; send fewer at a time"
            )
        pace.next = max(now, pace.next) + guess * SHARE
        if wait > 0 and await _leaves_within(wait, on_left):
            pace.next -= guess * SHARE  # those who come later wait less
            raise ClientDisconnect
        return end

    def _pace_of(self, tenant: str) -> _Pace:
        pace = self._paces.setdefault(tenant, _Pace())
        self._paces.move_to_end(tenant)
        if len(self._paces) > TENANTS:
            self._paces.popitem(last=False)
        return pace


async def _leaves_within(seconds: float, on_left: OnLeft) -> bool:
    """Wait so long; return True at once when the client leaves."""
    left: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
    timer = asyncio.get_running_loop().call_later(seconds, end_wait, left, False)
    on_left(partial(end_wait, left, True))
    try:
        return await left
    finally:
        timer.cancel()
