"""Who calls: the tenant is the key's, never the caller's word; and the backend, once it is connected."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, NamedTuple

from fastapi import Request, Security
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from projections.errors import Forbidden, Unauthorized
from threadfold.backend import Backend
from threadfold.gateway.problems import NotConnected

INSIDE = "threadfold.caller"
"""The key of an ASGI scope under which a caller in this process gives its :class:`Caller`: no server takes it from the network."""
_bearer = HTTPBearer(auto_error=False, description="The tenant's key, as `threadfold tenants add` printed it.")


class Caller(NamedTuple):
    """A request's tenant, and the backend to serve it with."""

    tenant: str
    backend: Backend


class Connection:
    """The gateway's backend: None until it is connected, and then why not (``reason``)."""

    def __init__(self) -> None:
        self.backend: Backend | None = None
        self.reason = "it is starting"
        self.was_ready = False

    def get(self) -> Backend:
        """The connected backend; raises :class:`NotConnected`."""
        if self.backend is None:
            raise NotConnected(f"the gateway is not connected yet: {self.reason}")
        return self.backend


def caller_with(scope: str) -> Callable[..., Awaitable[Caller]]:
    """A dependency that lets in callers whose key has the scope.

    It raises :class:`Unauthorized` (no key, or an unknown one), :class:`Forbidden` or :class:`NotConnected`.
    """

    async def caller(request: Request, given: Annotated[HTTPAuthorizationCredentials | None, Security(_bearer)]) -> Caller:
        inside: Caller | None = request.scope.get(INSIDE)
        if inside is not None:
            return inside
        if given is None:
            raise Unauthorized("no key was given: send the header `Authorization: Bearer KEY`")
        connection: Connection = request.app.state.connection
        backend = connection.get()
        found = backend.control.state.key_of(given.credentials)
        if found is None:
            raise Unauthorized("the key is not known: `threadfold tenants add` makes one")
        if scope not in found.scopes:
            raise Forbidden(f"the key lacks the scope {scope!r} (it has {', '.join(found.scopes) or 'none'})")
        return Caller(found.tenant, backend)

    return caller
