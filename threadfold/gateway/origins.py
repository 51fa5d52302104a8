"""What browsers may do: cross-origin requests (CORS) of the configured origins, and, with ``auth =
"off"``, no request that another page or a rebound name sends.

Without a key, the only thing between a web page and the gateway is what the browser says of itself:
the ``Host`` it asked for, the page's ``Origin``, and a ``Content-Type`` that a plain form cannot
have.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence

from starlette.responses import Response
from starlette.types import Message, Scope, Send

from projections.errors import Forbidden, InvalidSettings, UnsupportedMedia
from streams.settings.settings import Settings
from threadfold.gateway.declaration import JSON, Route
from threadfold.gateway.problems import problem_of

_HOST = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^][@/?#\\:]*)(?::[0-9]*)?")
METHODS = "DELETE, GET, PATCH, POST, PUT"
HEADERS = (
    "authorization, content-type, fencing-token, idempotency-key, if-match, if-none-match,"
    " last-event-id, traceparent, x-request-id"
)
EXPOSED = "Retry-After, X-Request-Id"
MAX_AGE = 600
"""Seconds that a browser may remember the answer to a preflight."""
_ORIGIN = re.compile(r"https?://[a-z0-9.-]+(:[0-9]{1,5})?|https?://\[[0-9a-f:]+\](:[0-9]{1,5})?")
_CORS = (
    (b"access-control-allow-credentials", b"true"),
    (b"access-control-expose-headers", EXPOSED.encode()),
)


def listed_origins(setting: str) -> frozenset[str]:
    """The origins of the setting ``cors_origins``.

    Raises:
        InvalidSettings: one of them is not an origin, like ``*``.
    """
    found = frozenset(part.strip() for part in setting.split(",") if part.strip())
    for origin in found:
        if not _ORIGIN.fullmatch(origin):
            raise InvalidSettings(
                f"setting 'cors_origins' has {origin[:60]!r}: expected origins in lower case like"
                " https://app.example.com, joined by commas"
            )
    return found


class Origins:
    """The check of every request below ``/v1``, and the headers of its answer."""

    def __init__(self, settings: Settings) -> None:
        self._allowed = listed_origins(settings.cors_origins)
        self._local = settings.auth == "off"
        self._hosts = frozenset(
            host for part in settings.gateway_hosts.lower().split(",") if (host := part.strip())
        )
        self.idle = not self._allowed and not self._local
        """Whether there is nothing to check: the settings of a gateway with keys alone."""

    def answer(self, route: Route, scope: Scope) -> Response | None:
        """The answer to a preflight, and to a request that is refused; None for all others."""
        try:
            answered = self._preflight(scope)
            if answered is None and self._local:
                self._check(route, scope)
            return answered
        except (Forbidden, UnsupportedMedia) as error:
            return problem_of(error)

    def _preflight(self, scope: Scope) -> Response | None:
        """The answer to a preflight, which never has a key."""
        origin = header(scope, b"origin")
        if (
            scope["method"] != "OPTIONS"
            or not origin
            or not self._allowed
            or header(scope, b"access-control-request-method") is None
        ):
            return None
        if origin not in self._allowed:
            raise Forbidden(
                f"pages of {origin[:100]!r} may not call this gateway: the setting cors_origins"
                " lists those that may"
            )
        return Response(
            status_code=204,
            headers={
                "Access-Control-Allow-Methods": METHODS,
                "Access-Control-Allow-Headers": HEADERS,
                "Access-Control-Max-Age": str(MAX_AGE),
            },
        )

    def _check(self, route: Route, scope: Scope) -> None:
        """Check a request to a gateway without keys: its ``Host`` is loopback or configured, its
        ``Origin`` the gateway's own or configured, and its body declared as JSON.
        """
        host = header(scope, b"host") or ""
        name = _host_name(host)
        if not (_is_loopback(name) or name in self._hosts):
            raise Forbidden(
                f"host {name[:100]!r}: with auth off the gateway answers only to loopback names"
                " and those in the setting gateway_hosts, only"
            )
        origin = header(scope, b"origin")
        own = f"{scope.get('scheme', 'http')}://{host}".lower()
        if origin is not None and origin != own and origin not in self._allowed:
            raise Forbidden(
                f"origin {origin[:100]!r}: with auth off no other page may call the gateway, but"
                " those in the setting cors_origins"
            )
        if route.body is not None and not _is_json(scope):
            raise UnsupportedMedia(f"with auth off a body needs the header Content-Type: {JSON}")

    def answering(self, scope: Scope, send: Send) -> Send:
        """``send``, which lets a page of a configured origin read the answer."""
        origin = header(scope, b"origin") if self._allowed else None
        allowed = origin is not None and origin in self._allowed
        if not self._allowed:
            return send
        more: Sequence[tuple[bytes, bytes]] = ((b"vary", b"Origin"),)
        if origin is not None and allowed:
            more = (*more, (b"access-control-allow-origin", origin.encode("latin-1")), *_CORS)

        async def answered(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *more]
            await send(message)

        return answered

    def may_use_cookie(self, scope: Scope) -> bool:
        """Whether a request's cookie counts: not that of a page of another origin, which the
        browser adds unasked.
        """
        origin = header(scope, b"origin")
        own = (f"{scheme}://{header(scope, b'host')}".lower() for scheme in ("http", "https"))
        return origin is None or origin in self._allowed or origin in own


def header(scope: Scope, name: bytes) -> str | None:
    """The first value of a header, None if there is none."""
    for given, value in scope["headers"]:
        if given == name:
            return str(value.decode("latin-1"))
    return None


def _host_name(host: str) -> str:
    """The name of a ``Host`` header, without its port; empty where it is none."""
    found = _HOST.fullmatch(host)
    return found[1].strip("[]").lower() if found else ""


def _is_loopback(name: str) -> bool:
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def _is_json(scope: Scope) -> bool:
    """Whether the body is declared as JSON, or there is none."""
    given = header(scope, b"content-type")
    if given is None:
        return header(scope, b"transfer-encoding") is None and header(scope, b"content-length") in (
            None,
            "0",
        )
    return given.partition(";")[0].strip().lower() == JSON
