"""The sender of a request, by its headers: an API key, a signed token, or (with ``auth = "off"``)
nothing.
"""

from __future__ import annotations

import ipaddress
import re
import time
from collections.abc import Callable, Iterable
from urllib.parse import unquote_plus

from starlette.types import Scope

from projections.errors import InvalidSettings, Unauthorized
from streams.control.state import State
from streams.settings.quotas import SCOPES, hash_key, moment
from streams.settings.settings import Settings
from threadfold.gateway.key_sets import KeySet
from threadfold.gateway.tokens import Principal, Tokens
from threadfold.gateway.user_tokens import UserTokens, is_user_token

TOKEN_PARAMETER = "token"
TOKEN_COOKIE = "threadfold_token"
"""Where a stream's request may have a token of an end user, because a browser's ``EventSource``
sends no header.
"""
MOST_ESCAPES = 64
"""Escapes in a token of a query: its characters need none."""
_IN_COOKIE = re.compile(rf'(?:^|;)[ \t]*{TOKEN_COOKIE}="?([A-Za-z0-9._-]+)"?[ \t]*(?=;|$)')
"""The standard library's parser of cookies takes seconds for one of 60 KB of backslashes."""
_NO_KEY = "no key was given: send the header `Authorization: Bearer KEY`"
_SEVERAL = "the request has several Authorization headers: send one"


class Credentials:
    """Identifies callers. For one event loop."""

    def __init__(self, settings: Settings) -> None:
        self._open = (
            Principal(settings.auth_tenant, frozenset(SCOPES) - {"admin"})
            if settings.auth == "off"
            else None
        )
        self._keys = KeySet(settings.jwt_keys) if settings.jwt_keys else None
        self._tokens = Tokens(settings, self._keys) if self._keys is not None else None
        self.user_tokens = UserTokens(settings.token_secret, accepted=settings.token_secrets[1:])

    async def identify(self, given: str | None, state: Callable[[], State]) -> Principal:
        """The principal of a request with this credential. A value of an end user's token is known
        by its form (``threadfold.gateway.user_tokens``), another one with two dots is a token of
        the deployment, any other value is a key.

        Raises:
            Unauthorized: there is no credential, or an invalid one; the message says why.
            KeySetUnavailable: a token cannot be verified now.
            NotConnected: the gateway cannot look up a key now (raised by ``state``).
        """
        if self._open is not None:
            return self._open
        if given is None:
            raise Unauthorized(_NO_KEY)
        known = self._tokens is not None and self._tokens.remembers(given)
        if not known and is_user_token(given):
            return self.user_tokens.verify(given, state()).principal
        if given.count(".") == 2:
            if self._tokens is None:
                raise Unauthorized(
                    "signed tokens are not accepted here: the settings jwt_issuer, jwt_audience and"
                    " jwt_keys turn them on"
                )
            return await self._tokens.verify(given)
        hashed = hash_key(given)
        found = state().keys.get(hashed)
        if found is None:
            raise Unauthorized("the key is unknown or revoked: `threadfold tenants add` makes one")
        if found.expires_at and time.time() >= moment(found.expires_at):
            raise Unauthorized(
                f"the key expired at {found.expires_at}: `threadfold tenants add` makes another"
            )
        return Principal(found.tenant, frozenset(found.scopes), hashed)

    def whose(self, given: str | None, state: Callable[[], State]) -> str | None:
        """Whose signature has to be checked to identify a caller by this credential: a tenant's, or
        with an empty name the deployment's; None: it takes next to no time.

        Raises:
            NotConnected: as :meth:`identify` does.
        """
        if self._open is not None or given is None or given.count(".") != 2:
            return None
        if self._tokens is not None and self._tokens.remembers(given):
            return None
        if is_user_token(given):
            return self.user_tokens.whose(given, state())
        return "" if self._tokens is not None and self._tokens.has_to_check(given) else None

    def holds(
        self, given: str | None, state: Callable[[], State], principal: Principal
    ) -> Callable[[], bool]:
        """A function that returns whether the credential of ``principal`` is still valid. It reads
        memory only, so it may be called often.

        A token is valid until it expires or its signing key is withdrawn; a key until it expires,
        is revoked or loses a scope. A token of an end user is valid as long as both.
        """
        if self._open is not None or given is None:
            return lambda: True
        if principal.end_user is not None:
            verified = self.user_tokens.verified(given, state())
            return lambda: verified.holds(state(), time.time())
        if given.count(".") == 2 and self._tokens is not None:
            return self._tokens.holds(given)

        def known() -> bool:
            found = state().key_of(given)
            if found is None or (found.expires_at and time.time() >= moment(found.expires_at)):
                return False
            return found.tenant == principal.tenant and principal.scopes <= set(found.scopes)

        return known

    async def check_again(
        self, given: str | None, state: Callable[[], State], principal: Principal
    ) -> None:
        """Check that the credential of ``principal`` is still valid.

        Raises:
            Unauthorized: it is not; the message says why.
            Others: as :meth:`identify` does.
        """
        if self.holds(given, state, principal)():
            return
        # One of the deployment may have left the cache: it is checked anew.
        if principal.end_user is not None and self.whose(given, state) is not None:
            raise Unauthorized(
                "the token expired, or its key was replaced, while the request waited: send it"
                " again"
            )
        now = await self.identify(given, state)
        if now.tenant != principal.tenant or not principal.scopes <= now.scopes:
            raise Unauthorized("the key lost a scope while the request waited: send it again")

    async def close(self) -> None:
        """Cancel a fetch of keys that is under way."""
        if self._keys is not None:
            await self._keys.close()


def stream_token(scope: Scope, *, cookies: bool) -> str | None:
    """The token of an end user in a stream's query or else (``cookies``) in its cookie. What is in
    the query is taken out of the scope, so that nothing behind this can log it. Nobody knows yet
    whose request it is, so nothing else in the query is decoded.

    Raises:
        Unauthorized: the query has several, or what it has is no token of an end user: a key does
            not belong into an address.
    """
    pairs = scope["query_string"].decode("latin-1").split("&")
    found = [pair.partition("=")[2] for pair in pairs if _is_token(pair)]
    if found:
        left = [pair for pair in pairs if not _is_token(pair)]
        scope["query_string"] = "&".join(left).encode("latin-1")
        given = unquote_plus(found[0]) if found[0].count("%") <= MOST_ESCAPES else ""
        if len(found) > 1 or not is_user_token(given):
            raise Unauthorized(
                f"query parameter {TOKEN_PARAMETER}: expected one token of an end user; send keys"
                " and other tokens in the header Authorization only"
            )
        return given
    for name, value in scope["headers"]:
        if cookies and name == b"cookie" and TOKEN_COOKIE.encode() in value:
            morsel = _IN_COOKIE.search(value.decode("latin-1"))
            if morsel is not None and is_user_token(morsel[1]):
                return morsel[1]
    return None


def _is_token(pair: str) -> bool:
    """Whether this part of a query is the parameter of a token."""
    name = pair.partition("=")[0]
    return len(name) <= 3 * len(TOKEN_PARAMETER) and unquote_plus(name) == TOKEN_PARAMETER


def bearer(headers: Iterable[tuple[bytes, bytes]]) -> str | None:
    """The value after ``Bearer`` in the Authorization header; None if there is no such header.

    Raises:
        Unauthorized: there are several.
    """
    values = [value for name, value in headers if name == b"authorization"]
    if len(values) > 1:
        raise Unauthorized(_SEVERAL)
    if not values:
        return None
    scheme, _, given = values[0].decode("latin-1").strip().partition(" ")
    return given.strip() or None if scheme.lower() == "bearer" else None


def check_exposure(settings: Settings) -> None:
    """Check that a gateway without keys listens on loopback only.

    Raises:
        InvalidSettings: ``auth`` is off and ``gateway_host`` is not loopback.
    """
    host = settings.gateway_host
    try:
        loopback = host == "localhost" or ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        loopback = False
    if settings.auth == "off" and not loopback:
        raise InvalidSettings(
            f"auth is off, so the gateway listens on loopback only, not on {host}: set auth to on,"
            " or gateway_host to 127.0.0.1"
        )
