"""Whose call it is: the client of the gateway that acts with the caller's own credential."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

import msgspec
from mcp.server.mcpserver.exceptions import ToolError

from projections.errors import Unauthorized
from threadfold.gateway.credentials import bearer
from threadfold.gateway.problems import NotConnected
from threadfold.gateway.tokens import digest_of
from threadfold.mcp.address_turns import AddressTurns
from threadfold_client import (
    AsyncClient,
    ClientError,
    NotAllowed,
    RateLimited,
    Retries,
    Unauthenticated,
    Unavailable,
)
from threadfold_client.calls import Call
from threadfold_client.http import CONNECT, HttpTransport

KEPT = 256
"""Clients that are kept for their connections."""
KNOWN = 4_096
KNOWN_FOR = 30.0
"""Credentials that the gateway is known to accept, and the seconds after which it is asked again.
The gateway checks each call of a tool by itself.
"""
CHECKS = 64
"""Credentials that the gateway is asked about at once, of those that were valid before: with the
others fewer than the file descriptors that the server keeps back.
"""
NO_CREDENTIAL = (
    "no credential: send the header `Authorization: Bearer KEY` with a tenant's key or an end"
    " user's token"
)
PATIENCE = Retries(attempts=3, total=10.0)
"""A model waits for the answer: what fails for longer is reported."""


@dataclass(slots=True)
class _Open:
    client: AsyncClient
    calls: int = 0


class Callers:
    """Clients of a gateway by their credential.

    With a ``key`` it is the credential of every call (stdio: one process, one user). Without one,
    each call brings its own in the header ``Authorization`` (HTTP).
    """

    def __init__(self, url: str, key: str | None = None) -> None:
        """Raises ``ClientError`` if the address is none."""
        self.url = url
        self._key = key
        self._open: OrderedDict[bytes, _Open] = OrderedDict()
        """By the credential's digest: no error can quote a credential."""
        self._known: OrderedDict[bytes, tuple[float, str]] = OrderedDict()
        """Until when a credential is known, and whose it is."""
        self._checks = HttpTransport(url, None, timeout=CONNECT)
        self._known_turns = asyncio.Semaphore(CHECKS)
        self._unknown_turns = AddressTurns()
        if key is not None:
            self._open[digest_of(key)] = _Open(AsyncClient(url, key, retries=PATIENCE))

    async def check(self, key: str, address: str = "") -> str:
        """Check that the gateway accepts a credential, which came from an address; returns its
        tenant, or a name of its own where the gateway does not say.

        Raises:
            Unauthorized: it does not.
            NotConnected: that cannot be known now.
            Overloaded: it was not valid before, and many such are asked about now.
        """
        digest = digest_of(key)
        until, whose = self._known.get(digest, (0.0, ""))
        if until > time.monotonic():
            return whose
        known = digest in self._known
        async with self._known_turns if known else self._unknown_turns.turn(address):
            whose = await self._ask(key) or whose or digest.hex()
        self._known[digest] = time.monotonic() + KNOWN_FOR, whose
        self._known.move_to_end(digest)
        if len(self._known) > KNOWN:
            self._known.popitem(last=False)
        return whose

    async def _ask(self, key: str) -> str | None:
        asking = Call("GET", "/me", headers={"Authorization": f"Bearer {key}"})
        try:
            if not key.isascii():  # no header of a client can carry it
                raise Unauthenticated("the key is unknown or revoked")
            return str(msgspec.json.decode(await self._checks.request(asking))["tenant"])
        except (NotAllowed, RateLimited):
            return None  # the gateway knows whose it is
        except Unauthenticated as error:
            raise Unauthorized(self._line(error)) from None
        except ClientError as error:
            raise NotConnected(self._line(error)) from None

    @asynccontextmanager
    async def client(self, headers: Mapping[str, str] | None) -> AsyncIterator[AsyncClient]:
        """The client of a call with these headers; the gateway's refusals become one line.

        Raises:
            ToolError: the call has no credential, or the gateway refuses it or does not answer.
        """
        key = self._key or _bearer(headers or {})
        digest = digest_of(key)
        found = self._open.get(digest)
        if found is None:
            found = self._open[digest] = _Open(AsyncClient(self.url, key, retries=PATIENCE))
        self._open.move_to_end(digest)
        found.calls += 1
        try:
            await self._close_idle()
            yield found.client
        except ClientError as error:
            raise ToolError(self._line(error)) from None
        finally:
            found.calls -= 1

    async def close(self) -> None:
        """Close every client."""
        await self._checks.close()
        while self._open:
            await self._open.popitem()[1].client.close()

    async def _close_idle(self) -> None:
        idle = [digest for digest, one in self._open.items() if not one.calls]
        # All are taken before the first is closed: other calls go on meanwhile.
        gone = [self._open.pop(digest) for digest in idle[: max(0, len(self._open) - KEPT)]]
        await asyncio.gather(*(one.client.close() for one in gone))

    def _line(self, error: ClientError) -> str:
        """What went wrong, and what to do, on one line."""
        said = " ".join(error.detail.split())
        if isinstance(error, Unauthenticated):
            what = "THREADFOLD_KEY" if self._key else "the header Authorization"
            return f"the gateway refuses the credential ({said}): check {what}"
        if isinstance(error, Unavailable) and error.status == 0:
            return f"the gateway at {self.url} does not answer ({said}): check that it runs there"
        return said


def _bearer(headers: Mapping[str, str]) -> str:
    pairs = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
    key = bearer(pairs)  # requests with several do not come here
    if key is None:
        raise ToolError(NO_CREDENTIAL)
    return key
