"""Who calls: the tenant is the key's, never the caller's word; and the backend, once it is
connected.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, NamedTuple

from fastapi import Request, Security
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from starlette.types import Scope

from projections.errors import Forbidden, Unauthorized
from streams.settings.settings import Settings
from threadfold.gateway.credentials import Credentials
from threadfold.gateway.problems import NotConnected
from threadfold.gateway.tokens import Principal
from threadfold.quotas import Quotas
from threadfold.service.appended import Appended
from threadfold.service.conversations import ConversationService

INSIDE = "threadfold.caller"
"""The key of an ASGI scope under which a caller in this process gives its :class:`Caller`: no
server takes it from the network.
"""
PRINCIPAL = "threadfold.principal"
"""Where the gate leaves whom a request is from, in its ASGI scope."""
_bearer = HTTPBearer(
    auto_error=False,
    description="A key, as `threadfold tenants add` printed it, or a signed token (JWT).",
)


class Caller(NamedTuple):
    """A request's tenant, the backend to serve it with, and the quotas to charge."""

    tenant: str
    backend: ConversationService
    quotas: Quotas | None = None

    def charge(self, appended: Sequence[Appended]) -> None:
        """Charge what was accepted into the log to the tenant's quotas."""
        if self.quotas is not None:
            self.quotas.charge(self.tenant, len(appended), sum([item.tokens for item in appended]))


class Connection:
    """The gateway's backend: None until it is connected, and then why not (``reason``); its quotas,
    and what tells who calls.
    """

    def __init__(self, settings: Settings) -> None:
        self.backend: ConversationService | None = None
        self.quotas: Quotas | None = None
        self.credentials = Credentials(settings)
        self.reason = "it is starting"
        self.was_ready = False

    def get(self) -> ConversationService:
        """The connected backend; raises :class:`NotConnected`."""
        if self.backend is None:
            raise NotConnected(f"the gateway is not connected yet: {self.reason}")
        return self.backend


def caller_of(scope: Scope, connection: Connection, needed: str) -> Caller:
    """Who a request is from, when its key has the scope ``needed``; the gate has found out before.

    Raises:
        Unauthorized: the gate was not passed.
        Forbidden: the key lacks the scope.
        NotConnected: the gateway is not connected.
    """
    inside: Caller | None = scope.get(INSIDE)
    if inside is not None:
        return inside
    principal: Principal | None = scope.get(PRINCIPAL)
    if principal is None:
        raise Unauthorized("no key was given: send the header `Authorization: Bearer KEY`")
    backend = connection.get()
    if needed not in principal.scopes:
        raise Forbidden(
            f"the key lacks the scope {needed!r} (it has"
            f" {', '.join(sorted(principal.scopes)) or 'none'})"
        )
    return Caller(principal.tenant, backend, connection.quotas)


def caller_with(scope: str) -> Callable[..., Awaitable[Caller]]:
    """A dependency that lets in callers whose key has the scope; the gate has found out before whom
    they are from.

    It raises :class:`Unauthorized` (the gate was not passed), :class:`Forbidden` or
    :class:`NotConnected`.
    """

    async def caller(
        request: Request, _: Annotated[HTTPAuthorizationCredentials | None, Security(_bearer)]
    ) -> Caller:
        return caller_of(request.scope, request.app.state.connection, scope)

    return caller
