"""The arithmetic of quotas, without clock or Redis: a token bucket, and the portion of it that one
gateway has leased.

A bucket fills at ``rate`` units a second up to ``capacity``. Something is admitted while the
balance is above zero, whatever its size, and then charged, so a balance may go below zero; what is
beyond is owed, and paid from what fills the bucket next. Over any time the gateways together so
admit at most ``capacity + rate × time``, and for each of them one portion (:attr:`Lease.portion`)
and what its last admission went beyond. Times are seconds of any one clock that does not go back.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from projections.redis.shared_buckets import Settled

AHEAD = 0.25
"""Seconds of its recent use a gateway leases at once: ten times what a lease takes to arrive, a
quarter of the shortest honest wait.
"""
LEAST = 0.05
MOST = 0.5
"""Seconds of the quota's rate that it leases at the least and at the most; at least one unit."""
CALM = 0.05
"""Seconds between two askings of a bucket that was dry, at least."""


def filled(level: float, seconds: float, rate: float, capacity: float) -> float:
    """A bucket's level that many seconds later."""
    return min(capacity, level + max(0.0, seconds) * rate)


def settle(level: float, owed: float, wanted: float, capacity: float) -> Settled:
    """Take from a bucket what a gateway owes (below zero: gives back), in full, and of what it
    wants as much as there is.
    """
    level = min(capacity, level - owed)
    granted = max(0.0, min(wanted, level))
    return Settled(granted, level - granted)


def until_filled(left: float, rate: float) -> float:
    """Seconds until a bucket that has ``left`` holds a unit again (or, at less than a unit a
    second, any of it).
    """
    return max(0.0, (min(1.0, rate) - left) / rate)


@dataclass(slots=True)
class Lease:
    """What one gateway may still admit of one bucket. ``balance`` begins with one portion, which is
    owed and paid at the first settling.

    While ``alone`` (the bucket cannot be reached) it is a bucket of its own at the same rate and
    capacity.
    """

    rate: float
    capacity: float
    balance: float = field(init=False)
    debt: float = field(init=False)
    alone: bool = False
    dry_until: float = -math.inf
    asked: float = -math.inf
    used_at: float = -math.inf
    waiting: int = 0
    charged: float = 0.0
    """All that was charged here, less what was given back."""
    _asked_debt: float = 0.0
    _paying: float = 0.0
    _returned: float = 0.0
    _used: float = 0.0
    _use: float = 0.0
    _settled: float = -math.inf
    _filled: float = -math.inf

    def __post_init__(self) -> None:
        self.balance = self.debt = self.portion

    @property
    def portion(self) -> float:
        """What is leased at once: by recent use, within bounds."""
        return max(1.0, min(max(self._use * AHEAD, self.rate * LEAST), self.rate * MOST))

    def change(self, rate: float, capacity: float) -> None:
        """Take on another quota; what is leased already is cut to what may be leased of it."""
        self.rate, self.capacity = rate, capacity
        self.balance = min(self.balance, self.portion)
        self.dry_until = -math.inf

    def open(self, now: float) -> bool:
        """Whether something may be admitted now."""
        if self.alone and now > self._filled:
            self.balance = filled(self.balance, now - self._filled, self.rate, self.capacity)
            self._filled = now
        return self.balance > 0 and (not self.alone or now >= self._filled)

    def charge(self, units: float, now: float) -> None:
        """Charge what was admitted."""
        self.balance -= units
        self._used += units
        self.charged += units
        self.used_at = now

    def give_back(self, units: float) -> None:
        """Take a charge back. What the bucket has paid for it, or is paying now, goes back to the
        bucket, which may be owed more than that.
        """
        if self.alone and not self._paying:
            here = units
        else:
            here = min(units, max(0.0, -self.balance - self._paying))
        self.balance += here
        self.debt -= units - here
        if self._paying:
            self._returned += units - here
        self._used -= units
        self.charged -= units

    @property
    def dry(self) -> bool:
        """Whether the bucket had nothing left when it was last asked, so that asking again is not
        worth waiting for.
        """
        return self.alone or self.dry_until > -math.inf

    @property
    def _low(self) -> bool:
        return self.alone or self.balance < self.portion / 2 or self.waiting > 0 or self.debt > 0

    def wants(self, now: float) -> bool:
        """Whether to ask the bucket now: before the lease has run out, or as soon as a dry bucket
        should have something again.
        """
        return (
            self._low
            and (now >= self.dry_until or self.debt < 0)
            and (not self.dry or now >= self.asked + CALM)
        )

    def asks_again(self) -> float:
        """When a bucket that was dry should have something for this lease; infinity where nothing
        is needed, and while it cannot be reached.
        """
        if self.alone or self.dry_until == -math.inf or not self._low:
            return math.inf
        return max(self.dry_until, self.asked + CALM)

    def ask(self, now: float) -> tuple[float, float]:
        """What to settle with the bucket: what is owed, and what is wanted."""
        self.asked, self._asked_debt = now, self.debt
        self._paying, self._returned = max(0.0, -self.balance), 0.0
        owed = self.debt + self._paying
        wanted = max(0.0, self.portion + self.waiting - max(0.0, self.balance))
        return owed, wanted

    def take(self, owed: float, wanted: float, settled: Settled, now: float) -> None:
        """Take in the bucket's answer to :meth:`ask`; what was charged since then stays charged."""
        if self.alone:
            # What it filled up by itself while alone is not leased.
            self.alone, self.balance = False, min(self.balance, self.portion)
        self._paying = self._returned = 0.0
        self.debt -= self._asked_debt
        self.balance += owed - self._asked_debt + settled.granted
        short = settled.granted < wanted
        self.dry_until = now + until_filled(settled.left, self.rate) if short else -math.inf
        if self._settled > -math.inf:
            recent = max(0.0, self._used) / max(now - self._settled, 1e-3)
            self._use = max(recent, 0.7 * self._use + 0.3 * recent)
        self._used, self._settled = 0.0, now

    def leave(self, now: float) -> None:
        """Go on alone, at the quota's rate, as long as the bucket does not answer: from when it
        will have something again, if it was dry.
        """
        if not self.alone:
            self.alone, self._filled = True, max(now, self.dry_until)
            self.dry_until = -math.inf

    def fail(self, now: float) -> None:
        """The bucket cannot be reached: :meth:`ask` gets no answer."""
        self.balance += self._returned
        self.debt += self._returned
        self._paying = self._returned = 0.0
        self.leave(now)

    def wait(self, now: float) -> float:
        """Seconds until something may be admitted, as far as is known here."""
        if self.alone:
            short = 0.0 if self.balance > 0 else until_filled(self.balance, self.rate)
            return max(0.0, self._filled - now) + short
        if self.balance > 0:
            return 0.0
        own = until_filled(self.balance, self.rate)
        if not self.dry:
            return own if self.balance < 0 else 0.0
        # The bucket's word is from before what was charged and given back since then.
        return max(
            0.0, self.dry_until - now + (max(0.0, -self.balance) + min(0.0, self.debt)) / self.rate
        )
