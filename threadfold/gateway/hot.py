"""The short way to the routes that chat platforms call on every turn: single appends and reading a
context.

Of what such a request costs, the framework's own work is the larger half: matching routes, solving
dependencies, converting parameters. So a request for one of the routes below that has none but the
plainest parameters goes straight to the route's own function, from inside the gate. Everything
else, and every request that is wrong, takes the framework's way, which answers the same
(``test_hot`` compares the two).
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, get_args, get_type_hints

from fastapi import params
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from projections.errors import QuotaExceeded, ThreadfoldError
from threadfold.gateway import conversations, problems
from threadfold.gateway.access import Caller, Connection, caller_of

logger = logging.getLogger(__name__)
_PREFIX = "/v1/conversations/"
_SKIP = len(_PREFIX)
_WAIT_APPLIED = {"wait": "applied"}
_OF_QUERY: dict[str, dict[bytes, dict[str, str]]] = {
    "events": {b"": {}, b"wait=applied": _WAIT_APPLIED},
    "messages": {b"": {}, b"wait=applied": _WAIT_APPLIED, b"format=openai": {"format": "openai"}},
    "context": {
        b"": {},
        **{
            f"format={name}".encode(): {"format": name}
            for name in ("openai", "anthropic", "events")
        },
    },
}
"""The query strings that are taken here, and the arguments they stand for."""


class _Route(NamedTuple):
    """What the framework leaves in the scope, for whoever counts requests by route."""

    path: str


class _Way(NamedTuple):
    """A route's function, its method and scope, and the headers that mean something to it."""

    route: _Route
    endpoint: Callable[..., Awaitable[Response]]
    method: str
    scope: str
    takes_request: bool
    headers: frozenset[bytes]
    queries: dict[bytes, dict[str, str]]


class Hot:
    """The innermost part of the gate: serves the routes above, and hands everything else on."""

    def __init__(self, app: ASGIApp, connection: Connection) -> None:
        self._app = app
        self._connection = connection
        self._ways = {
            "events": _way(conversations.post_events, "POST", "append", "events"),
            "messages": _way(conversations.post_messages, "POST", "append", "messages"),
            "context": _way(conversations.get_context, "GET", "read", "context"),
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        path: str = scope["path"]
        conversation, _, last = path[_SKIP:].partition("/")
        way = self._ways.get(last) if path.startswith(_PREFIX) else None
        arguments = (
            None
            if way is None or scope["method"] != way.method
            else way.queries.get(scope["query_string"])
        )
        if (
            way is None
            or arguments is None
            or not way.headers.isdisjoint([name for name, _ in scope["headers"]])
        ):
            await self._app(scope, receive, send)
            return
        scope["route"] = way.route
        response = await self._answer(way, conversation, arguments, scope, receive)
        await response(scope, receive, send)

    async def _answer(
        self,
        way: _Way,
        conversation: str,
        arguments: dict[str, str],
        scope: Scope,
        receive: Receive,
    ) -> Response:
        try:
            caller: Caller = caller_of(scope, self._connection, way.scope)
            if way.takes_request:
                return await way.endpoint(
                    Request(scope, receive), conversation, caller, **arguments
                )
            return await way.endpoint(conversation, caller, **arguments)
        except QuotaExceeded:
            raise  # the gate's to answer
        except ThreadfoldError as error:
            return problems.of_error(error)
        except ClientDisconnect:
            return problems.disconnected()
        except Exception as error:
            logger.exception("an error that was not foreseen")
            return problems.unforeseen(error)


def _way(endpoint: Any, method: str, scope: str, last: str) -> _Way:
    hints = get_type_hints(endpoint, include_extras=True)
    return _Way(
        _Route(f"{_PREFIX}{{conversation}}/{last}"),
        endpoint,
        method,
        scope,
        "request" in hints,
        _headers_of(hints),
        _OF_QUERY[last],
    )


def _headers_of(hints: dict[str, Any]) -> frozenset[bytes]:
    """The headers a route's function declares: one that it learns of later must not be passed over
    here.
    """
    names = set()
    for name, hint in hints.items():
        for part in get_args(hint)[1:]:
            if isinstance(part, params.Header):
                names.add((part.alias or name.replace("_", "-")).lower().encode("latin-1"))
    return frozenset(names)
