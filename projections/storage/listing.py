"""What a store lists of a tenant's conversations beside their windows: which were active last,
which wait for somebody, whose they are.

The lists follow from the windows and are written in one step with them, so they come back with them
after a loss. A conversation's time is that of the batch that last wrote it, by the broker's clock
(of its healing, where it was put back): it is delivery state, and never compared.
"""

from __future__ import annotations

from hashlib import sha256
from typing import NamedTuple

from projections.names import Key
from projections.window.window import Window


class Listed(NamedTuple):
    """What of a window its lists follow from; the default is a conversation that is in none."""

    suspended: bool = False
    user: str | None = None
    erased: bool = False
    quarantined: bool = False


NOT_LISTED = Listed()
QUARANTINED = "parked"
"""The list of a partition's quarantined conversations, each by its whole key: it is the operator's,
and of all tenants.
"""
IDLE = "idle"
"""The list of all of a partition's conversations whose windows are stored whole, by their last
write: for whoever puts them to sleep.
"""


class Listing(NamedTuple):
    """The change of a tenant's lists that comes with a window's write.

    ``at_ms`` is when it was active, None where it leaves the lists; ``suspended`` puts it among
    those that wait or takes it away, None leaves it; ``user`` is whose it is from now on, ``left``
    whose it no longer is. ``quarantined`` puts it among the quarantined ones or takes it away.
    """

    at_ms: int | None
    suspended: bool | None = None
    user: str | None = None
    left: str | None = None
    quarantined: bool | None = None


class Found(NamedTuple):
    """A listed conversation and its time in ms; in a partition's lists no two have the same
    name.
    """

    at_ms: int
    conversation: str


def listed(window: Window) -> Listed:
    """What the lists of this window follow from."""
    if window.meta.erased:
        return Listed(erased=True)
    return Listed(
        bool(window.state.suspensions),
        window.state.user,
        quarantined=window.meta.quarantine is not None,
    )


def listing_of(before: Listed, now: Listed, at_ms: int) -> Listing:
    """The change from ``before`` to ``now``. A user whose conversation becomes another's keeps it,
    too, until it is erased.
    """
    if now.erased:
        return Listing(
            None, False, left=before.user, quarantined=False if before.quarantined else None
        )
    suspended = None if now.suspended == before.suspended else now.suspended
    quarantined = None if now.quarantined == before.quarantined else now.quarantined
    return Listing(
        at_ms, suspended, now.user if now.user != before.user else None, quarantined=quarantined
    )


def user_name(tenant: str, user: str) -> str:
    """The name of a user's list: users' ids may be of any length and letters."""
    return f"{tenant}/{sha256(user.encode('utf-8', 'surrogatepass')).hexdigest()[:32]}"


class Lists:
    """The changes that a batch makes to a partition's lists, put together by list: each a set of
    names, some with a time.
    """

    def __init__(self) -> None:
        self.put: dict[str, dict[str, int]] = {}
        self.gone: dict[str, set[str]] = {}

    def add(self, key: Key, listing: Listing) -> None:
        """Take one conversation's change in; the later one of a conversation counts."""
        tenant, name = key.tenant, key.conversation
        if listing.at_ms is None:
            self._drop(f"recent:{tenant}", name)
            self.rest(key)
        else:
            self._put(f"recent:{tenant}", name, listing.at_ms)
            self._put(IDLE, str(key), listing.at_ms)
        if listing.suspended:
            self._put(f"waiting:{tenant}", name, listing.at_ms or 0)
        elif listing.suspended is not None:
            self._drop(f"waiting:{tenant}", name)
        if listing.user is not None:
            self._put(f"user:{user_name(tenant, listing.user)}", name, listing.at_ms or 0)
        if listing.left is not None:
            self._drop(f"user:{user_name(tenant, listing.left)}", name)

        if listing.quarantined:
            self._put(QUARANTINED, str(key), listing.at_ms or 0)
        elif listing.quarantined is not None:
            self._drop(QUARANTINED, str(key))

    def rest(self, key: Key) -> None:
        """Take a conversation out of the idle set."""
        self._drop(IDLE, str(key))

    def _put(self, where: str, name: str, at_ms: int) -> None:
        self.gone.get(where, set()).discard(name)
        self.put.setdefault(where, {})[name] = at_ms

    def _drop(self, where: str, name: str) -> None:
        self.put.get(where, {}).pop(name, None)
        self.gone.setdefault(where, set()).add(name)
