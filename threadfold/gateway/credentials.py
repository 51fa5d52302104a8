"""The sender of a request, by its headers: an API key, a signed token, or (with ``auth = "off"``)
nothing.
"""

from __future__ import annotations

import ipaddress
import time
from collections.abc import Callable, Iterable

from projections.errors import InvalidSettings, Unauthorized
from streams.control.state import State
from streams.settings.quotas import SCOPES, moment
from streams.settings.settings import Settings
from threadfold.gateway.key_sets import KeySet
from threadfold.gateway.tokens import Principal, Tokens

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

    async def identify(
        self, headers: Iterable[tuple[bytes, bytes]], state: Callable[[], State]
    ) -> Principal:
        """The principal of a request with these ASGI headers. A bearer value with two dots is a
        token, any other value is a key.

        Raises:
            Unauthorized: there is no credential, or an invalid one; the message says why.
            KeySetUnavailable: a token cannot be verified now.
            NotConnected: the gateway cannot look up a key now (raised by ``state``).
        """
        if self._open is not None:
            return self._open
        given = bearer(headers)
        if given is None:
            several = sum(name == b"authorization" for name, _ in headers) > 1
            raise Unauthorized(_SEVERAL if several else _NO_KEY)
        if given.count(".") == 2:
            if self._tokens is None:
                raise Unauthorized(
                    "signed tokens are not accepted here: the settings jwt_issuer, jwt_audience and"
                    " jwt_keys turn them on"
                )
            return await self._tokens.verify(given)
        found = state().key_of(given)
        if found is None:
            raise Unauthorized(
                "the key is not known, or was revoked: `threadfold tenants add` makes one"
            )
        if found.expires_at and time.time() >= moment(found.expires_at):
            raise Unauthorized(
                f"the key expired at {found.expires_at}: `threadfold tenants add` makes another"
            )
        return Principal(found.tenant, frozenset(found.scopes))

    def holds(
        self,
        headers: Iterable[tuple[bytes, bytes]],
        state: Callable[[], State],
        principal: Principal,
    ) -> Callable[[], bool]:
        """A function that returns whether the credential of ``principal`` is still valid. It reads
        memory only, so it may be called often.

        A token is valid until it expires; a key until it expires, is revoked or loses a scope.
        """
        given = bearer(headers)
        if self._open is not None or given is None:
            return lambda: True
        if given.count(".") == 2 and self._tokens is not None:
            until = self._tokens.until(given)
            return lambda: time.time() < until

        def known() -> bool:
            found = state().key_of(given)
            if found is None or (found.expires_at and time.time() >= moment(found.expires_at)):
                return False
            return found.tenant == principal.tenant and principal.scopes <= set(found.scopes)

        return known

    async def close(self) -> None:
        """Cancel a fetch of keys that is under way."""
        if self._keys is not None:
            await self._keys.close()


def bearer(headers: Iterable[tuple[bytes, bytes]]) -> str | None:
    """The value after ``Bearer`` in the Authorization header; None if there is no such header, or
    several.
    """
    values = [value for name, value in headers if name == b"authorization"]
    if len(values) != 1:
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
