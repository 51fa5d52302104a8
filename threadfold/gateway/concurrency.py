"""The concurrency limit: how many requests, bytes of their bodies and streams may be under way at
once, in all and for each tenant.

What goes beyond the process' limits is answered 503 with ``Retry-After`` at once and not queued;
what goes beyond a tenant's share 429. A body counts until its request is answered; what is decoded
of it takes some times as much. Idle connections hold no more than the server's own read buffer.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import TracebackType
from typing import NamedTuple

from starlette.types import Message, Receive

from projections.errors import Overloaded, QuotaExceeded, RequestTooLarge
from streams.settings.quotas import NO_QUOTA, Quota

SHARE = 4
"""One tenant may hold a quarter of each limit, and no more than is left: some is always left for
who comes next.
"""
LARGE_ANSWER = 256 << 10
"""Bytes from which on an answer counts until its client has read it."""


class Limits(NamedTuple):
    """What may be under way at once. Requests that wait for their events to be applied count; a
    stream counts among the streams alone. One body of any allowed size is taken, and one answer of
    any size is sent, while no other is under way. Refusals are those that are held back
    (``threadfold.gateway.back_pressure``).
    """

    requests: int = 2_000
    body_bytes: int = 256 << 20
    answer_bytes: int = 256 << 20
    streams: int = 4_000
    refusals: int = 4_000


LIMITS = Limits()


def limits_within(connections: int) -> Limits:
    """The limits of a process that may hold so many connections: requests and streams have half
    of them each, at most. Refusals may have all: their connections make way for others.
    """
    half = max(1, connections // 2)
    return LIMITS._replace(
        requests=min(LIMITS.requests, half),
        streams=min(LIMITS.streams, half),
        refusals=min(LIMITS.refusals, connections),
    )


UNLIMITED = Limits(*[sys.maxsize] * 5)


def share_of(most: int, total: int, *, one: bool = False) -> int:
    """How much of a limit one tenant may hold, of which all hold ``total``; ``one``: a single body
    or answer, which may be over a quarter.
    """
    left = most - total
    return left if one else min(most // SHARE, left)


class UnderWay:
    """What is under way, in all or of one tenant."""

    __slots__ = ("answers", "bytes", "requests", "streams")

    def __init__(self) -> None:
        self.requests = self.bytes = self.answers = self.streams = 0

    def __bool__(self) -> bool:
        return bool(self.requests or self.streams)


class ConcurrencyLimit:
    """Counts what is under way, in and out again. ``limits`` may be replaced at any time.

    Args:
        quota_of: returns a tenant's quota in force, which may make its share smaller.
    """

    def __init__(
        self, limits: Limits = LIMITS, quota_of: Callable[[str], Quota] = lambda _: NO_QUOTA
    ) -> None:
        self.limits = limits
        self.all = UnderWay()
        self.tenants: dict[str, UnderWay] = {}
        self._quota_of = quota_of

    def slot(self, tenant: str | None, *, stream: bool) -> Slot:
        """A place for one request, to be held with ``with``; None is a caller in this process,
        without a share.

        Raises:
            Overloaded: as much as the process may hold is under way.
            QuotaExceeded: as much as the tenant may hold is under way.
        """
        self._check_all(stream)
        if tenant is None:
            return Slot(self, UnderWay(), None, stream)
        mine = self.tenants.get(tenant)
        if mine is None:
            mine = UnderWay()
        quota = self._quota_of(tenant)
        self._check_share(tenant, mine, stream, quota)
        self.tenants[tenant] = mine
        return Slot(self, mine, tenant, stream, quota.body_bytes or sys.maxsize)

    def _check_all(self, stream: bool) -> None:
        count, most = (
            (self.all.streams, self.limits.streams)
            if stream
            else (self.all.requests, self.limits.requests)
        )
        if count >= most:
            what = "streams are open" if stream else "requests are under way"
            raise Overloaded(f"{count} {what} already: try again shortly")

    def _check_share(self, tenant: str, mine: UnderWay, stream: bool, quota: Quota) -> None:
        most = self.limits.streams if stream else self.limits.requests
        total = self.all.streams if stream else self.all.requests
        own = quota.streams if stream else quota.concurrent_requests
        count = mine.streams if stream else mine.requests
        if count < min(max(1, share_of(most, total)), own or most):
            return
        what, then = (
            ("streams open", "close one, or try again shortly")
            if stream
            else ("requests under way", "try again shortly")
        )
        raise QuotaExceeded(f"tenant {tenant} has {count} {what}, which is its limit: {then}")


class Slot:
    """One request under way, the bytes of its body so far (``most`` are allowed), and those of its
    answer.
    """

    __slots__ = ("_answer", "_held", "_limit", "_mine", "_most", "_stream", "_tenant")

    def __init__(
        self,
        limit: ConcurrencyLimit,
        mine: UnderWay,
        tenant: str | None,
        stream: bool,
        most: int = sys.maxsize,
    ) -> None:
        self._limit, self._mine, self._tenant, self._stream = limit, mine, tenant, stream
        self._held, self._most, self._answer = 0, most, 0

    def __enter__(self) -> Slot:
        self._count(1)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._count(-1)
        self._limit.all.bytes -= self._held
        self._mine.bytes -= self._held
        self._limit.all.answers -= self._answer
        self._mine.answers -= self._answer
        if self._tenant is not None and not self._mine:
            self._limit.tenants.pop(self._tenant, None)

    def counted(self, receive: Receive) -> Receive:
        """The request's messages, their bytes counted; it raises :class:`Overloaded`,
        :class:`QuotaExceeded` or :class:`RequestTooLarge` where they are too many.
        """

        async def counting() -> Message:
            message = await receive()
            size = len(message.get("body", b""))
            if size:
                self._check(size)
                self._held += size
                self._limit.all.bytes += size
                self._mine.bytes += size
            return message

        return counting

    def answer(self, size: int) -> None:
        """Count the bytes of an answer until the request ends; raises :class:`Overloaded` or
        :class:`QuotaExceeded` where there are too many.
        """
        most, total, mine = self._limit.limits.answer_bytes, self._limit.all.answers, self._mine
        if total and total + size > most:
            raise Overloaded(f"{total >> 20} MiB of answers are being sent: try again shortly")
        share = share_of(most, total + size, one=not mine.answers)
        if self._tenant is not None and total and mine.answers + size > share:
            raise QuotaExceeded(
                f"tenant {self._tenant} has {mine.answers >> 20} MiB of answers that are not read"
                " yet, as much as it may: try again shortly"
            )
        self._answer += size
        self._limit.all.answers += size
        mine.answers += size

    def _count(self, n: int) -> None:
        for under_way in (self._limit.all, self._mine):
            if self._stream:
                under_way.streams += n
            else:
                under_way.requests += n

    def _check(self, size: int) -> None:
        if self._held + size > self._most:
            raise RequestTooLarge(
                f"the body is over the {self._most} bytes that a request of tenant {self._tenant}"
                " may have (quota body_bytes): send it in several requests"
            )
        most, total, mine = self._limit.limits.body_bytes, self._limit.all.bytes, self._mine.bytes
        if total > self._held and total + size > most:
            raise Overloaded(f"{total >> 20} MiB of requests are in progress: try again shortly")
        share = share_of(most, total + size, one=mine == self._held)
        if self._tenant is not None and total > self._held and mine + size > share:
            raise QuotaExceeded(
                f"tenant {self._tenant} has {mine >> 20} MiB of requests in progress, as much as it"
                " may: try again shortly"
            )
