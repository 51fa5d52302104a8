"""The queue of TLS handshakes: their steps leave the event loop to others for half of the time.

A step may be an operation with the certificate's private key: a millisecond or more, in the event
loop. Whoever begins handshakes needs no API key, so without a queue such clients hold up all
tenants.
"""

from __future__ import annotations

import asyncio
import time
from typing import Protocol

from threadfold.gateway.address_queue import AddressQueue

MOST = 1_024
"""Handshakes that may wait for their turn, preferred ones and others each."""
OTHERS = 4
"""Where both wait, one turn of so many is of a handshake that is not preferred."""
SLICE = 0.002
"""Seconds of steps after which the queue rests: it ends the step that it has begun."""
TIMER = 0.001
"""Seconds of the shortest rest: uvloop's timers count milliseconds, and round."""


class Waiting(Protocol):
    """A handshake that waits for its turn."""

    address: str

    @property
    def preferred(self) -> str:
        """With whom it takes turns among the preferred: the tenant or end user whose valid key or
        token its address has shown lately, or its address if it went on after its first turn;
        empty: it is none of them.
        """

    def step(self) -> None:
        """Go on with what the client has sent."""

    def end(self) -> None:
        """Close the connection."""


class HandshakeQueue:
    """The handshakes of one server that wait for their turn. After each slice of steps it rests as
    long as they took. Most turns are of preferred handshakes: those who begin handshakes from many
    addresses and do not go on keep out no client with a key. Among these tenants and end users
    take turns, else addresses.
    """

    def __init__(self, most: int = MOST) -> None:
        self.most = most
        self._preferred, self._others = AddressQueue[Waiting](), AddressQueue[Waiting]()
        self._places: dict[Waiting, tuple[AddressQueue[Waiting], str]] = {}
        self._turn = 0
        self._planned = False
        self._rests_until = 0.0

    def __len__(self) -> int:
        return len(self._preferred) + len(self._others)

    def add(self, handshake: Waiting) -> None:
        """Let it wait for its turn, once. If too many wait, the last one of who has most of them
        ends; where several have as many, of who has had so many for longest: a new one would have
        no chance else.
        """
        whose = handshake.preferred
        queue = self._preferred if whose else self._others
        place = queue, whose or handshake.address
        if self._places.get(handshake, place) != place:
            self.remove(handshake)
        self._places[handshake] = place
        queue.add(place[1], handshake)
        if len(queue) > self.most:
            last = queue.last()
            del self._places[last]
            last.end()
        self._plan()

    def remove(self, handshake: Waiting) -> None:
        """It waits no more, if it did: its client has left, or its connection is to close."""
        if handshake in self._places:
            queue, whose = self._places.pop(handshake)
            queue.remove(whose, handshake)

    def _plan(self) -> None:
        if self._planned or not len(self):
            return
        self._planned = True
        rest = self._rests_until - time.monotonic()
        loop = asyncio.get_running_loop()
        if rest > 0:
            loop.call_later(max(rest, TIMER), self._work)
        else:
            loop.call_soon(self._work)

    def _work(self) -> None:
        self._planned = False
        began = now = time.monotonic()
        try:
            while began >= self._rests_until and len(self) and now - began < SLICE:
                self._next().step()
                now = time.monotonic()
        finally:
            self._rests_until = max(self._rests_until, now + (now - began))
            self._plan()

    def _next(self) -> Waiting:
        self._turn += 1
        others = self._others and (not self._preferred or self._turn % OTHERS == 0)
        handshake = (self._others if others else self._preferred).next()
        del self._places[handshake]
        return handshake
