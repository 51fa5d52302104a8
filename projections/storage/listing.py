"""What a store lists of a tenant's conversations beside their windows: which were active last,
which wait for somebody, whose they are.

The lists follow from the windows and are written in one step with them, so they come back with them
after a loss. A conversation's time is that of its last record in the log, by the broker's clock. In
``waiting`` and ``parked`` it is that of the record that put it there. It is never compared.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import sha256
from typing import NamedTuple

from projections.names import Key
from projections.render.read_header import AWAITING, state_of
from projections.window.window import Window


class Listed(NamedTuple):
    """What of a window its lists follow from; the default is a conversation that is in none.

    ``awaiting`` is its state where somebody has to act, else None.
    """

    suspended: bool = False
    user: str | None = None
    erased: bool = False
    quarantined: bool = False
    channel: str | None = None
    awaiting: str | None = None


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
    those that wait or takes it away, None leaves it. ``quarantined`` puts it among the quarantined
    ones or takes it away. ``places`` are the lists of its user, its channel and its state, by
    :func:`place`; ``left`` are those of them that it is in no longer.
    """

    at_ms: int | None
    suspended: bool | None = None
    quarantined: bool | None = None
    places: tuple[str, ...] = ()
    left: tuple[str, ...] = ()


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
    state = window.state
    name = state_of(state)
    return Listed(
        bool(state.suspensions),
        state.user,
        quarantined=window.meta.quarantine is not None,
        channel=state.channel,
        awaiting=name if name in AWAITING else None,
    )


def listing_of(tenant: str, before: Listed, now: Listed, at_ms: int) -> Listing:
    """The change from ``before`` to ``now``. A conversation is in the list of its present user
    alone: a list that kept former ones would depend on how the log was folded.
    """
    old = places_of(tenant, before)
    if now.erased:
        return Listing(None, False, quarantined=False if before.quarantined else None, left=old)
    places = old if now == before else places_of(tenant, now)
    return Listing(
        at_ms,
        None if now.suspended == before.suspended else now.suspended,
        None if now.quarantined == before.quarantined else now.quarantined,
        places,
        tuple(name for name in old if name not in places) if old != places else (),
    )


def places_of(tenant: str, now: Listed) -> tuple[str, ...]:
    """The lists of its user, its channel and its state that a conversation is in."""
    if now.user is None and now.channel is None and now.awaiting is None:
        return ()  # as for most: this is asked with every write
    named = (("user", now.user), ("channel", now.channel), ("state", now.awaiting))
    return tuple([place(kind, tenant, value) for kind, value in named if value is not None])


@lru_cache(maxsize=4096)
def place(kind: str, tenant: str, value: str) -> str:
    """The name of the list of a ``user``, a ``channel`` or a ``state``: users' ids may be of any
    length and letters.
    """
    digest = sha256(value.encode("utf-8", "surrogatepass")).hexdigest()[:32]
    return f"{kind}:{tenant}/{digest}"


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
        if key.of_user and listing.at_ms is not None:
            # It sleeps and wakes like a conversation; nobody is shown it as one.
            self._put(IDLE, str(key), listing.at_ms)
        elif listing.at_ms is None:
            self._drop(f"recent:{tenant}", name)
            self.rest(key)
        else:
            self._put(f"recent:{tenant}", name, listing.at_ms)
            self._put(IDLE, str(key), listing.at_ms)
        if listing.suspended:
            self._put(f"waiting:{tenant}", name, listing.at_ms or 0)
        elif listing.suspended is not None:
            self._drop(f"waiting:{tenant}", name)
        for where in listing.places:
            self._put(where, name, listing.at_ms or 0)
        for where in listing.left:
            self._drop(where, name)
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
