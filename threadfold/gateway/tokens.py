"""Signed tokens (JWT): the principal of a token, if its signature, issuer, audience and times are
valid.
"""

from __future__ import annotations

import base64
import hashlib
import json
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar

import jwt
import msgspec
from msgspec import Struct

from projections.errors import InvalidName, Unauthorized
from projections.names import check_name
from streams.settings.quotas import SCOPES
from streams.settings.settings import Settings
from threadfold.gateway.key_sets import KeySet, SigningKey

Part = TypeVar("Part", bound=Struct)
FITTING = {
    "RSA": ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    "EC": ("ES256", "ES384", "ES512"),
    "OKP": ("EdDSA",),
}
"""The accepted algorithms, by the kind of key. All are asymmetric: a key that checks a signature
cannot make one.
"""
ALGORITHMS = tuple(name for names in FITTING.values() for name in names)
LEEWAY = 30.0
"""Seconds that the clocks of two machines may differ."""
MAX_LENGTH = 8_192
KEPT = 10_000
"""At most so many characters of a token, and so many verified tokens in the cache."""


class EndUser(NamedTuple):
    """An end user of a tenant: reaches the conversations of this ``user`` alone, and of them only
    the named ones, unless that is None.
    """

    user: str
    conversations: frozenset[str] | None = None


class UnknownSigner(Unauthorized):
    """No key of the set signed a token, as far as is known."""


class Principal(NamedTuple):
    """The sender of a request: its tenant, and its scopes there.

    ``key`` is the hash of the API key, if it is one; ``end_user`` whom a token of an end user
    stands for.
    """

    tenant: str
    scopes: frozenset[str]
    key: str = ""
    end_user: EndUser | None = None


class _Verified(NamedTuple):
    until: float
    version: int
    principal: Principal
    key: SigningKey


class Tokens:
    """Verifies tokens by the settings ``jwt_*``. A valid token stays in a cache, by its hash, until
    it expires or the key set changes.
    """

    def __init__(
        self, settings: Settings, keys: KeySet, clock: Callable[[], float] = time.time
    ) -> None:
        self._settings = settings
        self._keys = keys
        self._clock = clock
        self._verified: OrderedDict[bytes, _Verified] = OrderedDict()

    async def verify(self, token: str) -> Principal:
        """The principal that a token names.

        Raises:
            Unauthorized: the token is not valid; the message says why.
            KeySetUnavailable: the keys to check it cannot be fetched now.
        """
        digest = digest_of(token)
        found = self._current(digest)
        if found is not None:
            self._verified.move_to_end(digest)
            # Else a token of a withdrawn key would stay while no other token comes.
            self._keys.keep_fresh()
            return found.principal
        claims, key = await self._claims(token)
        principal = self._principal(claims)
        until = claims["exp"] + LEEWAY
        self._verified[digest] = _Verified(until, self._keys.version, principal, key)
        if len(self._verified) > KEPT:
            self._verified.popitem(last=False)
        return principal

    def remembers(self, token: str) -> bool:
        """Whether a token was verified with the key set of now and has not expired."""
        return self._current(digest_of(token)) is not None

    def has_to_check(self, token: str) -> bool:
        """Whether :meth:`verify` checks the signature of a token: it was not checked before, and
        its key is known or may be after a fetch.
        """
        if self.remembers(token):
            return False
        try:
            check_length(token)
            algorithm, kid = read_header(token, ALGORITHMS)
            found = self._keys.at_hand(kid)
            if found is not None:
                fitting_key({kid: found}, kid, algorithm)
        except Unauthorized:
            return False
        return True

    def holds(self, token: str) -> Callable[[], bool]:
        """A function that returns whether a token that was verified is still valid: it has not
        expired, and the key that signed it has not been withdrawn.
        """
        found = self._verified.get(digest_of(token))
        if found is None:
            return lambda: False
        until, key = found.until, found.key

        def valid() -> bool:
            self._keys.keep_fresh()
            return self._clock() < until and self._keys.has(key)

        return valid

    def _current(self, digest: bytes) -> _Verified | None:
        found = self._verified.get(digest)
        if found is None or self._clock() >= found.until or found.version != self._keys.version:
            return None
        return found

    async def _claims(self, token: str) -> tuple[dict[str, Any], SigningKey]:
        check_length(token)
        algorithm, kid = read_header(token, ALGORITHMS)
        found, version = await self._keys.find(kid), self._keys.version
        try:
            return self._claims_by(token, algorithm, kid, found)
        except UnknownSigner:
            # Another key may have come in the place of one, under its id or without any.
            if not await self._keys.renew(version):
                raise
        return self._claims_by(token, algorithm, kid, await self._keys.find(kid))

    def _claims_by(
        self, token: str, algorithm: str, kid: str | None, found: list[SigningKey]
    ) -> tuple[dict[str, Any], SigningKey]:
        key = fitting_key({kid: found}, kid, algorithm)
        issuer, audience = self._settings.jwt_issuer, self._settings.jwt_audience
        claims = checked(token, key.key, algorithm, issuer, audience, ("exp", "iss", "aud"))
        return claims, key

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
        # Issuers put scopes of other services into the same claim: they are ignored.
        scopes = {scope for scope in listed if isinstance(scope, str) and scope in SCOPES}
        if not settings.jwt_admin:
            scopes.discard("admin")
        return Principal(tenant, frozenset(scopes))


def digest_of(token: str) -> bytes:
    """What tells a token from others without keeping it."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


def check_length(token: str) -> None:
    """Raises :class:`Unauthorized` for a token that is too long to be worth a look."""
    if len(token) > MAX_LENGTH:
        raise Unauthorized(f"the token is over {MAX_LENGTH} characters")


class _Header(Struct):
    alg: object = None
    kid: object = None


@lru_cache(maxsize=8)  # it is asked for a few times in a row
def part_of(token: str, number: int, form: type[Part]) -> Part:
    """The header (0) or the claims (1) of a signed token, as far as ``form`` names them: the rest
    is passed over, quickly. Nothing is verified. Raises :class:`Unauthorized`.
    """
    try:
        part = token.split(".")[number]
        text = base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))
        return msgspec.json.decode(text, type=form)
    except (ValueError, RecursionError):  # msgspec.DecodeError is a ValueError
        what = ("header", "claims")[number]
        raise Unauthorized(f"the token is malformed: its {what} is no JSON object") from None


def read_header(token: str, algorithms: Sequence[str]) -> tuple[str, str | None]:
    """The algorithm and the key id that a token names, neither verified; raises
    :class:`Unauthorized` for another algorithm than these.
    """
    header = part_of(token, 0, _Header)
    algorithm, kid = str(header.alg), header.kid
    if not isinstance(kid, str | None):
        raise Unauthorized("the token is malformed: its kid is not a string")
    if algorithm not in algorithms:
        raise Unauthorized(
            f"the token is signed with {algorithm[:20]!r}: the accepted algorithms are"
            f" {', '.join(algorithms)}"
        )
    return algorithm, kid


def fitting_key(
    keys: Mapping[str | None, Sequence[SigningKey]], kid: str | None, algorithm: str
) -> SigningKey:
    """The key of that id that may be used with the algorithm; a token without an id may only be of
    a set with one such key. Raises :class:`UnknownSigner`.
    """
    listed = keys.get(kid, ()) if kid is not None else [k for of in keys.values() for k in of]
    fitting = [key for key in listed if _fits(key, algorithm)]
    if not fitting:
        raise UnknownSigner(
            f"the token is signed with the key {str(kid)[:60]!r}, which is not in the key set"
            f" (for {algorithm})"
        )
    if kid is None and len(fitting) > 1:
        raise UnknownSigner("the token does not name its key (kid), and the key set has several")
    return fitting[0]


def checked(
    token: str, key: Any, algorithm: str, issuer: str | None, audience: str, require: Sequence[str]
) -> dict[str, Any]:
    """The claims of a token, whose signature, times, audience and issuer (unless None) are
    verified; raises :class:`Unauthorized`, :class:`UnknownSigner` where the key did not sign it.
    """
    # Forged ones end here: PyJWT looks at each character before, which takes up to 3 ms.
    if not _signed(token, key, algorithm):
        raise UnknownSigner("the token's signature is not that of its key")
    try:
        claims: dict[str, Any] = jwt.decode(
            token,
            key,
            algorithms=[algorithm],
            issuer=issuer,
            audience=audience,
            leeway=LEEWAY,
            options={"require": list(require)},
        )
        claims["exp"] = float(claims["exp"])
        # JSON may escape half of a surrogate pair: such a text cannot be stored, sent or compared.
        json.dumps(claims, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise Unauthorized("the token has a claim whose text is not valid Unicode") from None
    except jwt.MissingRequiredClaimError as error:
        raise Unauthorized(f"the token lacks the claim {error.claim!r}") from None
    except (jwt.PyJWTError, ValueError, TypeError, OverflowError, RecursionError) as error:
        reasons: dict[type[Exception], str] = {
            jwt.ExpiredSignatureError: "the token has expired: get a new one",
            jwt.InvalidAudienceError: f"the token is for another audience than {audience!r}",
            jwt.InvalidIssuerError: f"the token is from another issuer than {issuer!r}",
            jwt.ImmatureSignatureError: "the token is not valid yet (nbf or iat is in the future)",
        }
        reason = reasons.get(type(error), f"the token is not valid: {error}")
        raise Unauthorized(reason) from None
    return claims


def _signed(token: str, key: Any, algorithm: str) -> bool:
    signed, _, given = token.rpartition(".")
    try:
        signature = base64.urlsafe_b64decode(given + "=" * (-len(given) % 4))
        return jwt.get_algorithm_by_name(algorithm).verify(signed.encode(), key, signature)
    except ValueError:
        return False


def _fits(key: SigningKey, algorithm: str) -> bool:
    """Whether a key may be used with an algorithm: it is of the key's kind, and the key names this
    one or none.
    """
    return algorithm in FITTING.get(key.kind, ()) and key.algorithm in (None, algorithm)
