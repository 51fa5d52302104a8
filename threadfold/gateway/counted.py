"""A connection as it is counted among the server's: the place that it has, whether it may make way,
and what is known of the requests on it.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from threadfold.gateway.connections import ON_LEFT, TELL_KEYED, Connections, address_of

STAYS = 0.05
"""Seconds that a request may wait for its turn whose client has shut its side. On an idle server it
waits for a step of the event loop, which is no reason to drop it.
"""


class CountedProtocol(HttpToolsProtocol):
    """httptools' protocol on a connection that is counted."""

    open_connections: Connections
    """Those of its server."""

    address = ""
    _counted = False
    _explains = False
    _keyed: bool | None = None
    """Whether the last request had a valid key, as the next one is expected to; None: not known."""
    _tenant: str | None = None
    """Whose key that was."""
    _refused = False
    """Whether it waits for its refusal."""
    _shown = ""
    """Whose key it has shown, as the server knows."""
    _waiting = 0
    _answered: RequestResponseCycle | None = None
    """The request that is being answered. ``cycle`` is the one that came last."""
    _on_left: Callable[[], bool] | None = None
    _has_left = False

    @abstractmethod
    def make_way(self) -> None:
        """Close, as there is no room (``threadfold.gateway.connections``)."""

    def has_key(self) -> bool:
        """Whether its last request had a valid key."""
        return self._keyed is True

    def whose_key(self) -> str:
        """The tenant of that key; empty: it had none."""
        return self._tenant or ""

    def _come(self) -> bool:
        """Be counted. False: there is no room, and it is gone."""
        self.address = address_of(self.client[0]) if self.client else ""
        self._counted = self.open_connections.add(self)
        return self._counted or self._may_explain()

    def _leave(self) -> None:
        """Be counted no more, and give up what waits."""
        self._has_left = True
        self._gives_up()
        if self._shown:
            self.open_connections.shows_key(self.address, self._shown)
        if self._counted:
            self._counted = False
            self.open_connections.remove(self)
        elif self._explains:
            self.open_connections.explaining -= 1
        self.pipeline.clear()
        self._count_waiting()

    def _may_explain(self) -> bool:
        """Whether a connection that is not counted may stay until it was answered why; it is gone
        if not.
        """
        self._explains = self.open_connections.may_explain()
        if self._explains:
            self.open_connections.explaining += 1
        else:
            self.transport.abort()
        return self._explains

    def _place(self) -> None:
        """Say whether a request is being answered that may have a key, to a client that reads."""
        if not self._counted:
            return
        if self._keyed is False:
            self.open_connections.needs_no_key(self)
        elif (
            self.cycle is None
            or self.cycle.response_complete
            or self.flow.write_paused
            or self._refused
        ):
            self.open_connections.waits(self, self._tenant)
        else:
            self.open_connections.is_answered(self)

    def _count_waiting(self) -> None:
        self.open_connections.requests_waiting += len(self.pipeline) - self._waiting
        self._waiting = len(self.pipeline)

    def _be_told(self) -> None:
        """Let the application tell of the request that begins."""
        scope = cast("dict[str, object]", self.scope)
        scope[TELL_KEYED], scope[ON_LEFT] = self._tell_keyed, self._set_on_left

    def _tell_keyed(self, tenant: str | None, user: str | None, refused: bool) -> None:
        self._keyed, self._tenant, self._refused = tenant is not None, tenant, refused
        if tenant is not None:
            self.open_connections.has_no_large_head(self)
            whose = tenant if user is None else f"{tenant}/{user}"
            if self._shown != whose:
                self._shown = whose
                self.open_connections.shows_key(self.address, whose)
        self._place()

    def _gives_up(self) -> bool:
        """Let whoever waits for its turn give up, as the client leaves; False: nobody waits."""
        return self._on_left is not None and self._on_left()

    def _give_up_soon(self) -> None:
        """Its client has shut its side, as those do that leave: give up what waits for its turn in
        :data:`STAYS` seconds, and close.
        """
        self.loop.call_later(STAYS, self._give_up)

    def _give_up(self) -> None:
        if self._gives_up():
            self._disconnected()
            self.transport.close()

    def _disconnected(self) -> None:
        """Tell the requests under way that nobody is there to be answered."""
        for cycle in (self._answered, self.cycle):
            if cycle is not None and not cycle.response_complete:
                cycle.disconnected = True
                cycle.message_event.set()

    def _set_on_left(self, call: Callable[[], bool]) -> None:
        if self._has_left:
            call()
        else:
            self._on_left = call
