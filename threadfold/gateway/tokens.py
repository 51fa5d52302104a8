"""Signed tokens (JWT): whom they name, once their signature, issuer, audience and times hold."""

from __future__ import annotations

import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, NamedTuple

import jwt

from projections.errors import InvalidName, Unauthorized
from projections.names import check_name
from streams.settings.quotas import SCOPES
from streams.settings.settings import Settings
from threadfold.gateway.key_sets import KeySet, SigningKey

FITTING = {
    "RSA": ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    "EC": ("ES256", "ES384", "ES512"),
    "OKP": ("EdDSA",),
}
"""The accepted algorithms, by the kind of key. All are asymmetric: who can check a signature cannot
make one.
"""
ALGORITHMS = tuple(name for names in FITTING.values() for name in names)
LEEWAY = 30.0
"""Seconds that two machines' clocks may be apart."""
MAX_LENGTH = 16_384
KEPT = 10_000
"""Characters of a token, and verified tokens remembered, at most."""


class Principal(NamedTuple):
    """Who a request is from: its tenant, and what it may do there."""

    tenant: str
    scopes: frozenset[str]


class _Held(NamedTuple):
    until: float
    version: int
    principal: Principal


class Tokens:
    """Verifies tokens by the settings ``jwt_*``. A token that held is remembered by its hash until
    it ends, or the key set changes.
    """

    def __init__(
        self, settings: Settings, keys: KeySet, clock: Callable[[], float] = time.time
    ) -> None:
        self._settings = settings
        self._keys = keys
        self._clock = clock
        self._held: OrderedDict[bytes, _Held] = OrderedDict()

    async def verify(self, token: str) -> Principal:
        """Whom the token names.

        Raises:
            Unauthorized: the token is not valid; the message says why.
            KeySetUnavailable: the keys to check it with cannot be had now.
        """
        digest = hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
        held = self._held.get(digest)
        if held is not None and self._clock() < held.until and held.version == self._keys.version:
            self._held.move_to_end(digest)
            return held.principal
        claims = await self._claims(token)
        principal = self._principal(claims)
        self._held[digest] = _Held(claims["exp"], self._keys.version, principal)
        if len(self._held) > KEPT:
            self._held.popitem(last=False)
        return principal

    def until(self, token: str) -> float:
        """When a token that was verified a moment ago ends, in seconds since 1970; 0 where it is
        not remembered.
        """
        held = self._held.get(hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest())
        return 0.0 if held is None else held.until

    async def _claims(self, token: str) -> dict[str, Any]:
        if len(token) > MAX_LENGTH:
            raise Unauthorized(f"the token is over {MAX_LENGTH} characters")
        try:
            header = jwt.get_unverified_header(token)
        except jwt.InvalidTokenError as error:
            raise Unauthorized(f"the token is malformed: {error}") from None
        algorithm, kid = header.get("alg"), header.get("kid")
        if not isinstance(kid, str | None):
            raise Unauthorized("the token is malformed: its kid is no text")
        if algorithm not in ALGORITHMS:
            raise Unauthorized(
                f"the token is signed with {str(algorithm)[:20]!r}: the algorithms taken are"
                f" {', '.join(ALGORITHMS)}"
            )
        keys = [key for key in await self._keys.find(kid) if _fits(key, algorithm)]
        if not keys:
            raise Unauthorized(
                f"the token is signed with the key {str(kid)[:60]!r}, which is not in the key set"
                f" (for {algorithm})"
            )
        if kid is None and len(keys) > 1:
            raise Unauthorized(
                "the token does not name the key it is signed with (kid), and several would do"
            )
        return self._checked(token, keys[0], algorithm)

    def _checked(self, token: str, key: SigningKey, algorithm: str) -> dict[str, Any]:
        settings = self._settings
        try:
            claims: dict[str, Any] = jwt.decode(
                token,
                key.key,
                algorithms=[algorithm],
                issuer=settings.jwt_issuer,
                audience=settings.jwt_audience,
                leeway=LEEWAY,
                options={"require": ["exp", "iss", "aud"]},
            )
            claims["exp"] = float(claims["exp"])
        except jwt.ExpiredSignatureError:
            raise Unauthorized("the token has expired: get a new one") from None
        except jwt.InvalidAudienceError:
            raise Unauthorized(
                f"the token is for another audience than {settings.jwt_audience!r}"
            ) from None
        except jwt.InvalidIssuerError:
            raise Unauthorized(
                f"the token is from another issuer than {settings.jwt_issuer!r}"
            ) from None
        except jwt.MissingRequiredClaimError as error:
            raise Unauthorized(f"the token lacks the claim {error.claim!r}") from None
        except jwt.ImmatureSignatureError:
            raise Unauthorized(
                "the token does not hold yet (nbf or iat is in the future)"
            ) from None
        except jwt.InvalidSignatureError:
            raise Unauthorized("the token's signature is not that of its key") from None
        except (jwt.PyJWTError, ValueError, TypeError, OverflowError) as error:
            raise Unauthorized(f"the token does not hold: {error}") from None
        return claims

    def _principal(self, claims: dict[str, Any]) -> Principal:
        settings = self._settings
        tenant = claims.get(settings.jwt_tenant_claim)
        if tenant is None:
            raise Unauthorized(
                f"the token names no tenant: the claim {settings.jwt_tenant_claim!r} is missing"
            )
        try:
            check_name("tenant", tenant)
        except InvalidName as error:
            raise Unauthorized(
                f"the token's claim {settings.jwt_tenant_claim!r}: {error}"
            ) from None
        given = claims.get(settings.jwt_scopes_claim)
        listed = (
            given.split() if isinstance(given, str) else given if isinstance(given, list) else []
        )
        # Issuers put scopes of other services into the same claim: those are passed over.
        scopes = {scope for scope in listed if isinstance(scope, str) and scope in SCOPES}
        if not settings.jwt_admin:
            scopes.discard("admin")
        return Principal(tenant, frozenset(scopes))


def _fits(key: SigningKey, algorithm: str) -> bool:
    """Whether a key may be used with an algorithm: of its kind, and (where the key names one) that
    very one.
    """
    return algorithm in FITTING.get(key.kind, ()) and key.algorithm in (None, algorithm)
