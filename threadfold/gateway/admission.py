"""Admission: what every request passes before its handler, by its route's declaration.

1. **Authentication**: a key or token names the tenant, else 401. A stream's token may be in its
   query or cookie.
2. **Quota**: the tenant has requests left (for an append events and tokens, too), and an end user
   some of the own share, else 429. A request that is refused later has cost one.
3. **Concurrency limit**: requests, bodies and streams under way, else 503 (the process' limit) or
   429 (the tenant's share). The bytes of a body are counted as they come.
4. **Scope**: the key has the route's, else 403. An end user needs a route that is for them, and a
   conversation of their own, else 404.
5. **Body limit**: as declared, else 413.

Then come parameters and body, and the handler. A read is answered only if its credential still
holds then. **Back-pressure**: a 429 is held back, and so is the 503 of a read whose turn did not
come (``threadfold.gateway.back_pressure``). What is refused before 4 costs no reading of a body.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from projections.errors import Forbidden, Overloaded, QuotaExceeded, ThreadfoldError
from streams.control.state import State
from streams.runtime.current_request import current_request
from streams.runtime.keyed_limit import KeyedLimit
from streams.settings.quotas import NO_QUOTA, Quota
from threadfold.gateway.access import CREDENTIAL, INSIDE, PRINCIPAL, Caller, Connection
from threadfold.gateway.back_pressure import BackPressure
from threadfold.gateway.concurrency import LARGE_ANSWER, ConcurrencyLimit, Limits
from threadfold.gateway.connections import client_of, on_left, tell_keyed
from threadfold.gateway.credentials import bearer, stream_token
from threadfold.gateway.declaration import Cost, Route
from threadfold.gateway.end_users import reach
from threadfold.gateway.heads import announced_length
from threadfold.gateway.long_turns import is_long
from threadfold.gateway.loop_turns import KEYLESS_REST, Turns
from threadfold.gateway.origins import Origins
from threadfold.gateway.problems import disconnected, problem_of
from threadfold.gateway.tokens import Principal
from threadfold.gateway.user_share import UserShare
from threadfold.gateway.work_turns import WorkTurns

SMALL_BODY = 1 << 16
"""Bytes of a refused request's body that are worth reading to keep its connection."""
ANSWER_RATE = 150 << 20
"""Bytes of large answers that one tenant is sent in a second: a quarter of what the event loop can
send.
"""
BYTES_A_TOKEN = 8
"""Bytes of a body for each token that it is guessed to hold until it has been counted: four of
text, and the form of an event.
"""
PIECE, LARGE_PIECE = 16 << 10, 64 << 10
"""Bytes of an answer that are sent at once over TLS, which keeps an encrypted copy of what its
client does not read; and of a large one, whose bytes are counted.
"""
AT_ONCE = 32 << 10
"""Bytes of a stream that are sent without a turn."""
CHECK_SECONDS, CHECK = 0.002, 0.0005
"""So long signatures are checked in one step of the event loop, and one is guessed to take."""
Answer = Callable[[Route, Sequence[str], Scope, Receive], Awaitable[Response]]


class Admission:
    """Admits requests and hands them on.

    Args:
        answer: what an admitted request is handed to. It may raise :class:`QuotaExceeded`, and
            for a read :class:`Overloaded`: these are answered here.
    """

    def __init__(
        self,
        connection: Connection,
        origins: Origins,
        share: UserShare,
        answer: Answer,
        limits: Limits,
    ) -> None:
        self.concurrency = ConcurrencyLimit(limits, self._quota_of)
        self._connection = connection
        self._origins = origins
        self._share = share
        self._answer = answer
        self._back_pressure = BackPressure(limits.refusals)
        self._turns_to_send = KeyedLimit(1)
        self._keyless_turns = Turns(rest=KEYLESS_REST)
        self._checks = Turns(CHECK_SECONDS)
        self._work_turns = WorkTurns()

    async def serve(
        self, route: Route, parts: Sequence[str], scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Answer one request, or refuse it with a problem document; ``parts`` are those of its
        path.
        """
        if route.cost is Cost.FREE:
            await self._serve_free(route, parts, scope, receive, send)
            return
        if INSIDE in scope:
            try:
                await self._limited(route, parts, None, scope, receive, send)
            except Overloaded as error:
                await problem_of(error)(scope, receive, send)
            return
        try:
            given = bearer(scope["headers"])
            if route.streams:
                found = stream_token(scope, cookies=self._origins.may_use_cookie(scope))
                given = given or found
            # It may wait for the keys of a token that somebody made up.
            tell_keyed(scope, None)
            principal = await self._identified(given, scope)
            if principal is None:
                return
        except ThreadfoldError as error:
            if await self.keyless_turn(scope):
                await problem_of(error)(scope, receive, send)
            return
        end_user = principal.end_user
        user = None if end_user is None else end_user.user
        tell_keyed(scope, principal.tenant, user)
        scope[PRINCIPAL], scope[CREDENTIAL] = principal, given
        if (current := current_request()) is not None:
            current.tenant = principal.tenant
            named = dict(zip(route.names, parts, strict=False))
            current.conversation = named.get("conversation")
        try:
            if end_user is None:
                await self._charged(route, parts, principal, scope, receive, send)
            else:
                with self._share.slot(principal.tenant, end_user.user, stream=route.streams):
                    await self._charged(route, parts, principal, scope, receive, send)
        except (QuotaExceeded, Overloaded) as error:
            # What is held back holds nothing large: a traceback has what was to be answered.
            error.__traceback__ = error.__context__ = None
            tell_keyed(scope, principal.tenant, user, refused=True)
            held = await self._back_pressure.hold(principal.tenant, partial(on_left, scope))
            refusal = problem_of(error)
            if not held or announced_length(scope["headers"]) > SMALL_BODY:
                refusal.headers["Connection"] = "close"
            await refusal(scope, receive, send)

    async def _serve_free(
        self, route: Route, parts: Sequence[str], scope: Scope, receive: Receive, send: Send
    ) -> None:
        if await self.keyless_turn(scope):
            response = await self._answer(route, parts, scope, receive)
            if await self.keyless_turn(scope):
                await response(scope, receive, in_pieces(send) if _over_tls(scope) else send)

    async def _identified(self, given: str | None, scope: Scope) -> Principal | None:
        """Whom a request is from; None: its client has left. A new signature waits for its turn.
        Tenants take turns by the name in the token, the deployment as one of them, and the
        addresses of each do. Raises what :meth:`Credentials.identify` does.
        """
        credentials = self._connection.credentials
        whose = credentials.whose(given, self._state)
        if whose is None:
            return await credentials.identify(given, self._state)
        address, left = client_of(scope), partial(on_left, scope)
        if not await self._checks.take(address, left, CHECK, group=whose):
            return None
        since = time.perf_counter()
        try:
            return await credentials.identify(given, self._state)
        finally:
            self._checks.charge(time.perf_counter() - since - CHECK)

    async def keyless_turn(self, scope: Scope) -> bool:
        """Wait for the turn of a request that has no valid key. False: its client has left."""
        tell_keyed(scope, None)
        return await self._keyless_turns.take(client_of(scope), partial(on_left, scope))

    async def caller(
        self, route: Route, scope: Scope, receive: Receive, parts: Sequence[str]
    ) -> Caller:
        """Whom an admitted request is from.

        Raises:
            NotConnected: the gateway is not connected.
            Forbidden: the key lacks the route's scope, or the route is not for end users.
            UnknownConversation: the conversation in its path is not the end user's.
        """
        inside: Caller | None = scope.get(INSIDE)
        if inside is not None:
            return inside
        principal: Principal = scope[PRINCIPAL]
        backend = self._connection.get()
        if route.scope is not None and route.scope not in principal.scopes:
            raise Forbidden(
                f"the key lacks the scope {route.scope!r} (it has"
                f" {', '.join(sorted(principal.scopes)) or 'none'})"
            )
        end_user = principal.end_user
        quotas = self._connection.quotas
        caller = Caller(principal.tenant, backend, quotas, end_user, receive=receive)
        return caller if end_user is None else await reach(caller, end_user, route, parts)

    async def _charged(
        self,
        route: Route,
        parts: Sequence[str],
        principal: Principal,
        scope: Scope,
        receive: Receive,
        send: Send,
    ) -> None:
        tenant, quotas = principal.tenant, self._connection.quotas
        guess = None
        if route.cost is Cost.ADMINISTRATION and "admin" in principal.scopes:
            quotas = None
        if quotas is not None:
            await quotas.admit(tenant, appends=route.cost.appends)
            if route.cost is Cost.APPEND:
                # What is under way counts by a low guess: else any number of lists could come in
                # at once while there is one token left.
                guess = (1, announced_length(scope["headers"]) // BYTES_A_TOKEN)
                quotas.hold(tenant, *guess)
        try:
            await self._limited(route, parts, tenant, scope, receive, send)
        finally:
            if quotas is not None and guess is not None:
                quotas.give_back(tenant, *guess)

    async def _limited(
        self,
        route: Route,
        parts: Sequence[str],
        tenant: str | None,
        scope: Scope,
        receive: Receive,
        send: Send,
    ) -> None:
        try:
            slot = self.concurrency.slot(tenant, stream=route.streams)
        except Overloaded as error:
            await problem_of(error)(scope, receive, send)
            return
        with slot:
            counted = slot.counted(receive)
            try:
                response = await self._work_turns.work(
                    tenant or "",
                    partial(self._held, route, parts, scope, counted),
                    long=route.cost.appends and is_long(scope),
                    on_left=partial(on_left, scope),
                )
            except ClientDisconnect:
                response = disconnected()
            if route.streams:
                send = in_turns(send, self._turns_to_send, tenant)
            size = len(response.body) if hasattr(response, "body") else 0
            if size >= LARGE_ANSWER and scope["method"] == "GET":  # else it was done already
                send = until_read(send, self._turns_to_send, tenant, over_tls=_over_tls(scope))
                try:
                    slot.answer(size)
                except QuotaExceeded:
                    del response  # a refusal is held back: its traceback does not hold the answer
                    raise
                except Overloaded as error:
                    response = problem_of(error)
            elif size > PIECE and _over_tls(scope):
                send = in_pieces(send)
            await response(scope, counted, send)

    async def _held(
        self, route: Route, parts: Sequence[str], scope: Scope, receive: Receive
    ) -> Response:
        """The handler's answer; of a read only if its credential still lets the caller in: it may
        have waited for what came after the credential's end.
        """
        response = await self._answer(route, parts, scope, receive)
        if route.scope != "read" or PRINCIPAL not in scope:
            return response
        try:
            await self._connection.credentials.check_again(
                scope[CREDENTIAL], self._state, scope[PRINCIPAL]
            )
        except ThreadfoldError as error:
            return problem_of(error)
        return response

    def _state(self) -> State:
        return self._connection.get().control.state

    def _quota_of(self, tenant: str) -> Quota:
        quotas = self._connection.quotas
        return NO_QUOTA if quotas is None else quotas.of(tenant)


def in_turns(send: Send, turns: KeyedLimit, tenant: str | None) -> Send:
    """A ``send`` of a stream: what is large waits until what was sent before it is read, and then
    for its tenant's turn.
    """

    async def sending(message: Message) -> None:
        size = len(message.get("body", b""))
        if size <= AT_ONCE or tenant is None:
            await send(message)
            return
        await send({**message, "body": b"", "more_body": True})
        async with turns.of(tenant) as turn:
            await send(message)
            turn.rest = size / ANSWER_RATE

    return sending


def _over_tls(scope: Scope) -> bool:
    return scope.get("scheme") == "https"


def in_pieces(send: Send) -> Send:
    """A ``send`` that sends :data:`PIECE` bytes of a body at once: the server waits between them,
    until the client has read most of those before.
    """

    async def sending(message: Message) -> None:
        body = message.get("body", b"")
        if len(body) <= PIECE:
            await send(message)
            return
        for at in range(0, len(body), PIECE):
            more = at + PIECE < len(body) or message.get("more_body", False)
            await send({**message, "body": body[at : at + PIECE], "more_body": more})

    return sending


def until_read(
    send: Send, turns: KeyedLimit, tenant: str | None, *, over_tls: bool = False
) -> Send:
    """A ``send`` of a large answer: it waits for its tenant's turn, and returns from the end once
    the client has read nearly all of it.

    Args: ``over_tls``: in pieces, as TLS waits for the writes before a write, not for that one.
    """

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.body" and not message.get("more_body"):
            # The server waits before it sends more, not after the last.
            body = message.get("body", b"")
            size = LARGE_PIECE if over_tls else max(1, len(body))
            async with turns.of(tenant or "") as turn:
                await send({**message, "body": body[:size], "more_body": True})
                turn.rest = 0.0 if tenant is None else len(body) / ANSWER_RATE
            for at in range(size, len(body), size):
                await send({**message, "body": body[at : at + size], "more_body": True})
            message = {"type": "http.response.body"}
        await send(message)

    return sending
