"""The gate before routing: whom a request under ``/v1`` is from, and whether that tenant's quota
lets it in.

What is refused here costs neither routing nor the reading of a body. Routes find the principal in
the ASGI scope (``access.caller_with``).
"""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send

from projections.errors import QuotaExceeded, ThreadfoldError
from streams.control.follower import State
from threadfold.gateway.access import INSIDE, PRINCIPAL, Connection
from threadfold.gateway.holding import Holding
from threadfold.gateway.problems import of_error
from threadfold.quotas import Quotas

SMALL_BODY = 1 << 16
"""Bytes of a refused request's body that are worth reading to keep its connection."""
BYTES_A_TOKEN = 8
"""Bytes of a body for each token that it is guessed to hold until it has been counted; they are
four of text, and the form of an event.
"""
_NO_EVENTS = ("/partial", "/renders", "/end")
"""POSTs to a conversation that append no events of the caller's, or end what costs."""


class Gate:
    """ASGI middleware; the outermost of the application's own."""

    def __init__(self, app: ASGIApp, connection: Connection) -> None:
        self._app = app
        self._connection = connection
        self._credentials = connection.credentials
        self._holding = Holding()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, or refuse it with a problem document."""
        if scope["type"] != "http" or not scope["path"].startswith("/v1/") or INSIDE in scope:
            await self._app(scope, receive, send)
            return
        try:
            principal = await self._credentials.identify(scope["headers"], self._state)
        except ThreadfoldError as error:
            await of_error(error)(scope, receive, send)
            return
        scope[PRINCIPAL] = principal
        quotas = self._connection.quotas
        try:
            if quotas is None or ("admin" in principal.scopes and _administers(scope["path"])):
                await self._app(scope, receive, send)
            elif _appends(scope):
                await self._append(quotas, principal.tenant, scope, receive, send)
            else:
                # Text in progress costs nothing until it is kept, but who may not append may not
                # begin to speak either.
                await quotas.admit(
                    principal.tenant,
                    appends=scope["method"] == "POST" and scope["path"].endswith("/partial"),
                )
                await self._app(scope, receive, send)
        except QuotaExceeded as error:
            await self._refuse(principal.tenant, error, scope, receive, send)

    async def _append(
        self, quotas: Quotas, tenant: str, scope: Scope, receive: Receive, send: Send
    ) -> None:
        # What is under way counts by a low guess, or any number of lists could come in at once
        # while there is one token left.
        await quotas.admit(tenant, appends=True)
        guess = (1, _length(scope) // BYTES_A_TOKEN)
        quotas.charge(tenant, *guess)
        try:
            await self._app(scope, receive, send)
        finally:
            quotas.give_back(tenant, *guess)

    def _state(self) -> State:
        return self._connection.get().control.state

    async def _refuse(
        self, tenant: str, error: QuotaExceeded, scope: Scope, receive: Receive, send: Send
    ) -> None:
        held = await self._holding.hold(tenant)
        answer = of_error(error)
        if not held or _length(scope) > SMALL_BODY:
            answer.headers["Connection"] = "close"
        await answer(scope, receive, send)


def _length(scope: Scope) -> int:
    """The bytes that the body is announced with; 0 where they are not."""
    value = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
    return int(value) if value.isdigit() and len(value) < 16 else 0


def _administers(path: str) -> bool:
    return path == "/v1/tenants" or path.startswith("/v1/tenants/")


def _appends(scope: Scope) -> bool:
    path: str = scope["path"]
    return (
        scope["method"] == "POST"
        and path.startswith(("/v1/conversations/", "/v1/events"))
        and not path.endswith(_NO_EVENTS)
    )
