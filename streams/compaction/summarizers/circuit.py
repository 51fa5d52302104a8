"""An endpoint's circuit: whom it is closed to, from how the calls before ended.

A breaker for all tenants opens after failures in a row. Those that a tenant's input may be to blame
for count in it once a tenant, until an answer is of use: what one tenant sends takes the endpoint
from no other. Time-outs are dear, so a breaker of the tenant's own counts them all.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from streams.compaction.summarizers.breaker import Breaker, Ticket
from streams.compaction.summarizers.failures import (
    AttemptFailed,
    CallNotAllowed,
    EndpointTimedOut,
)


class Call(NamedTuple):
    """A call that was let through; ``own`` is of the tenant's own breaker, None where there was
    none.
    """

    tenant: str
    of_all: Ticket
    own: Ticket | None


class Circuit:
    """Decides whether a tenant's call is made. One instance belongs to one event loop."""

    def __init__(
        self, failures: int, cool_down: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Args: as ``Breaker`` has them."""
        self._new = partial(Breaker, failures, cool_down, clock)
        self._of_all = self._new()
        self._own: dict[str, Breaker] = {}
        """Of tenants with a time-out since their last answer of use."""
        self._blamed: set[str] = set()
        """Tenants whose input may have been to blame since anybody's last answer of use."""

    @property
    def open(self) -> bool:
        """Whether it is open for all, or for a tenant since whose time-outs nobody had an answer of
        use: then it is not known whether the endpoint answers anybody.
        """
        own = (self._own[tenant] for tenant in self._blamed & self._own.keys())
        return self._of_all.open or any(one.open for one in own)

    def refusal(self, tenant: str) -> str | None:
        """Why the tenant's next call would be refused; None: it would not."""
        if self._of_all.open:
            return "is open after failures in a row"
        own = self._own.get(tenant)
        if own is not None and own.open:
            return f"is open for tenant {tenant} after time-outs in a row"
        return None

    def admit(self, tenant: str) -> Call | None:
        """One call of a tenant; None while the circuit is open. Every call has to be settled."""
        if self.refusal(tenant) is not None:
            return None
        of_all, own = self._of_all.admit(), self._own.get(tenant)
        assert of_all is not None
        return Call(tenant, of_all, None if own is None else own.admit())

    def settle(self, call: Call, failure: AttemptFailed | None, *, answered: bool) -> bool:
        """Say how a call ended: ``answered``, or with a failure, or neither (nothing was learnt);
        returns whether this opened the circuit, for the tenant at least.
        """
        if answered:
            self._blamed.clear()
            self._own.pop(call.tenant, None)
            return self._of_all.settle(call.of_all, True)
        counts = None if failure is None else self._counts(call.tenant, failure)
        opened = self._of_all.settle(call.of_all, counts)
        return self._settle_own(call, isinstance(failure, EndpointTimedOut)) or opened

    def _counts(self, tenant: str, failure: AttemptFailed) -> bool | None:
        """What is reported to the breaker for all: False, or None for a further failure that the
        tenant's input may be to blame for.
        """
        if isinstance(failure, CallNotAllowed):
            return None
        if not failure.faulty:
            if tenant in self._blamed:
                return None
            self._blamed.add(tenant)
        return False

    def _settle_own(self, call: Call, timed_out: bool) -> bool:
        own = self._own.get(call.tenant)
        if own is None:
            if not timed_out:
                return False
            own = self._own[call.tenant] = self._new()
        return own.settle(call.own or Ticket(trial=False), False if timed_out else None)
