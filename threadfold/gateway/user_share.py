"""One end user's share of the tenant's quotas: requests a second, requests under way and open
streams, in this gateway.

The tenant's own quotas hold for all of its users together. A share keeps one user from using them
up.
"""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from projections.errors import QuotaExceeded
from threadfold.quotas.bucket import filled, until_filled

BURST = 2.0
"""Seconds of its rate that a user may use at once after a pause."""
MOST = 50_000
"""Users whose use is remembered; the one seen longest ago is forgotten first."""
_User = tuple[str, str]


class UserShare:
    """Counts what end users do, in and out again. For one event loop.

    Args:
        rate: requests a second of one user; 0: no limit.
        requests: requests of one user that may be under way at once; 0: no limit.
        streams: streams that one user may have open; 0: no limit.
    """

    def __init__(
        self,
        rate: float,
        requests: int,
        streams: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._rate = rate
        self._capacity = max(1.0, rate * BURST)
        self._requests, self._streams = requests, streams
        self._clock = clock
        self._levels: OrderedDict[_User, tuple[float, float]] = OrderedDict()
        self._under_way: dict[_User, int] = {}
        self._open: dict[_User, int] = {}

    @contextmanager
    def slot(self, tenant: str, user: str, *, stream: bool) -> Iterator[None]:
        """A place for one request of a user.

        Raises:
            QuotaExceeded: the user has no requests left, or as many requests under way or streams
                as may be.
        """
        who = (tenant, user)
        if self._rate:
            self._charge(who)
        counts, most = (self._open, self._streams) if stream else (self._under_way, self._requests)
        count = counts.get(who, 0)
        if most and count >= most:
            raise QuotaExceeded(
                f"you have {count} open streams, which is the limit: close one"
                if stream
                else f"you have {count} requests under way, which is the limit: wait for one"
            )
        counts[who] = count + 1
        try:
            yield
        finally:
            counts[who] -= 1
            if not counts[who]:
                del counts[who]

    def _charge(self, who: _User) -> None:
        now = self._clock()
        level, at = self._levels.pop(who, (self._capacity, now))
        level = filled(level, now - at, self._rate, self._capacity)
        self._levels[who] = (level, now) if level <= 0 else (level - 1, now)
        if len(self._levels) > MOST:
            self._levels.popitem(last=False)
        if level <= 0:
            seconds = max(1, math.ceil(until_filled(level, self._rate)))
            raise QuotaExceeded(
                f"you have used up your requests ({self._rate:g} a second): try again in"
                f" {seconds} s",
                seconds,
            )
