"""Tokens of end users: minted here with a tenant's key, or signed by a tenant's own key set (JWT).

A minted token is ``tfu_PAYLOAD.MAC``, both in base64. Its MAC is keyed with the setting
``token_secret`` and the hash of the key that minted it: nothing is stored, and it ends with that
key. Which of the two a token is follows from its form alone, never from a field of it.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Annotated, Any, NamedTuple

import msgspec
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from msgspec import Meta, Struct

from projections.errors import InvalidKey, InvalidName, Unauthorized
from projections.names import check_name
from streams.control.state import State
from streams.settings.quotas import ApiKey, TokenKeys, key_id
from threadfold.gateway.key_sets import SigningKey, keys_by_id, signing_key
from threadfold.gateway.tokens import (
    ALGORITHMS,
    KEPT,
    LEEWAY,
    MAX_LENGTH,
    EndUser,
    Principal,
    UnknownSigner,
    check_length,
    checked,
    digest_of,
    fitting_key,
    part_of,
    read_header,
)

PREFIX = "tfu_"
AUDIENCE = "threadfold-users"
"""The audience of the tokens that tenants sign: tokens for their other services do not count."""
LONGEST = 86_400
"""Seconds that a token may last. It cannot be revoked alone."""
MOST_CONVERSATIONS = 100
MOST_KEYS = 20
RSA_BITS = range(2048, 4097)
"""More bits or a large exponent would let a tenant choose how long the gateway checks a signature.
"""
VERBS = {"read": "read", "stream": "subscribe", "append": "append"}
"""What a token may allow, and the scope that this is."""
PRIVATE = frozenset({"d", "p", "q", "dp", "dq", "qi", "oth", "k"})
_PUBLIC = ("kty", "kid", "alg", "use", "n", "e", "crv", "x", "y")
_MALFORMED = "the token is malformed: get a new one"
_NOT_SIGNED = (
    "the token is not signed with a key of its tenant's: its claim 'tenant', its header 'kid' and"
    " its algorithm have to be those of a public key that the tenant registered"
)

UserName = Annotated[str, Meta(min_length=1, max_length=512)]
_Names = Annotated[list[str], Meta(min_length=1, max_length=MOST_CONVERSATIONS)]


class _Payload(Struct, forbid_unknown_fields=True):
    """What a minted token says. ``k`` is the id of the key that minted it."""

    t: str
    k: str
    u: str
    v: list[str]
    e: int
    c: list[str] | None = None


class _Unverified(Struct):
    """The claims by which the form of a tenant's own token is known, and its keys are found."""

    aud: object = None
    tenant: object = None


class _Claims(Struct):
    """The claims of a tenant's own token, beside those that PyJWT checks."""

    sub: UserName
    verbs: Annotated[list[str], Meta(min_length=1)]
    exp: float
    conversations: _Names | None = None


class Verified(NamedTuple):
    """A token that was verified: whom it lets in, until when, and the key that it stands on: the
    hash of the one that minted it, or the public one that it is signed with.
    """

    principal: Principal
    until: float
    made_with: str | dict[str, Any]

    def holds(self, state: State, now: float) -> bool:
        """Whether it has not expired, and its key is still there with these scopes. It reads memory
        alone.
        """
        if now >= self.until:
            return False
        if isinstance(self.made_with, dict):
            known = state.token_keys.get(self.principal.tenant)
            return known is not None and self.made_with in known.keys
        key = state.keys.get(self.made_with)
        return (
            key is not None
            and not key.expired(now)
            and key.tenant == self.principal.tenant
            and self.principal.scopes <= set(key.scopes)
        )


class UserTokens:
    """Mints and verifies the tokens of end users. A verified token stays in a cache, by its hash,
    as long as it holds.
    """

    def __init__(
        self,
        secret: str,
        clock: Callable[[], float] = time.time,
        *,
        accepted: Sequence[str] = (),
    ) -> None:
        """Args: ``secret`` is the setting ``token_secret``, the same in all gateways. Tokens made
        with one of the ``accepted`` count as well: a secret changes while tokens are in use.
        """
        self._secret = secret.encode()
        self._secrets = [self._secret, *(other.encode() for other in accepted)]
        self._clock = clock
        self._verified: OrderedDict[bytes, Verified] = OrderedDict()
        self._sets: dict[str, tuple[TokenKeys, dict[str | None, list[SigningKey]]]] = {}

    def mint(
        self,
        tenant: str,
        key: str,
        user: str,
        verbs: Sequence[str],
        conversations: Sequence[str] | None,
        seconds: int,
    ) -> tuple[str, int]:
        """A token and the Unix time of its end. ``key`` is the hash of the tenant's key.

        Raises:
            InvalidName: a conversation is not a name.
            InvalidKey: the token would be too long.
        """
        until = int(self._clock()) + seconds
        names = None
        if conversations is not None:
            names = [check_name("conversation", name) for name in dict.fromkeys(conversations)]
        known = [verb for verb in VERBS if verb in verbs]
        payload = _encoded(
            msgspec.json.encode(_Payload(tenant, key_id(key), user, known, until, names))
        )
        token = f"{PREFIX}{payload}.{_encoded(_mac(self._secret, key, payload))}"
        if len(token) > MAX_LENGTH:
            raise InvalidKey(
                f"the token is over {MAX_LENGTH} characters: name fewer conversations, or none for"
                " all of the user's"
            )
        return token, until

    def whose(self, token: str, state: State) -> str | None:
        """The tenant with whose key the signature of a token has to be checked, which takes up to
        2 ms; None: it was checked before, or there is none to check.
        """
        found = self._verified.get(digest_of(token))
        if token.startswith(PREFIX) or (found and found.holds(state, self._clock())):
            return None
        try:
            check_length(token)
            return self._signed_by(token, state)[0]
        except Unauthorized:
            return None

    def verified(self, token: str, state: State) -> Verified:
        """What :meth:`verify` returned for a token, whether it still holds or not."""
        return self._verified.get(digest_of(token)) or self.verify(token, state)

    def verify(self, token: str, state: State) -> Verified:
        """What a token says; raises :class:`Unauthorized`, which says why it is not valid."""
        digest, now = digest_of(token), self._clock()
        found = self._verified.get(digest)
        if found is not None and found.holds(state, now):
            self._verified.move_to_end(digest)
            return found
        self._verified.pop(digest, None)
        check_length(token)
        made = self._minted if token.startswith(PREFIX) else self._signed
        found = self._verified[digest] = made(token, state, now)
        if len(self._verified) > KEPT:
            self._verified.popitem(last=False)
        return found

    def _minted(self, token: str, state: State, now: float) -> Verified:
        payload, _, given = token.removeprefix(PREFIX).partition(".")
        try:
            said = msgspec.json.decode(_decoded(payload), type=_Payload)
            mac = _decoded(given)
        except (msgspec.DecodeError, ValueError):
            raise Unauthorized(_MALFORMED) from None
        keys = [
            (hashed, key)
            for hashed, key in state.keys_by_id(said.k)
            if key.tenant == said.t
            and any(hmac.compare_digest(_mac(s, hashed, payload), mac) for s in self._secrets)
        ]
        if not keys:
            raise Unauthorized(
                "the token was not minted by this deployment, or its key was revoked: get a new one"
            )
        hashed, key = keys[0]
        return self._made(hashed, key, said, now)

    def _made(self, hashed: str, key: ApiKey, said: _Payload, now: float) -> Verified:
        scopes = frozenset(VERBS[verb] for verb in said.v if verb in VERBS) & set(key.scopes)
        named = None if said.c is None else frozenset(said.c)
        principal = Principal(said.t, scopes, end_user=EndUser(said.u, named))
        if now >= said.e or key.expired(now):
            raise Unauthorized("the token has expired: get a new one")
        return Verified(principal, float(said.e), hashed)

    def _signed(self, token: str, state: State, now: float) -> Verified:
        try:
            tenant, algorithm, found = self._signed_by(token, state)
            claims = checked(token, found.key, algorithm, None, AUDIENCE, ("exp", "aud", "sub"))
        except UnknownSigner:
            # Whether there is such a tenant, with such a key, is nobody's to learn.
            raise UnknownSigner(_NOT_SIGNED) from None
        try:
            said = msgspec.convert(claims, _Claims)
            named = said.conversations
            for name in named or ():
                check_name("conversation", name)
        except (msgspec.ValidationError, InvalidName) as error:
            raise Unauthorized(f"the token's claims: {str(error)[:200]}") from None
        unknown = [verb for verb in said.verbs if verb not in VERBS]
        if unknown:
            raise Unauthorized(
                f"the token's claim 'verbs' has {unknown[0][:20]!r}: the verbs are"
                f" {', '.join(VERBS)}"
            )
        if said.exp > now + LONGEST + LEEWAY:
            raise Unauthorized(f"the token lasts longer than {LONGEST} seconds: sign it for less")
        scopes = frozenset(VERBS[verb] for verb in said.verbs)
        end_user = EndUser(said.sub, None if named is None else frozenset(named))
        principal = Principal(tenant, scopes, end_user=end_user)
        return Verified(principal, said.exp + LEEWAY, found.entry)

    def _signed_by(self, token: str, state: State) -> tuple[str, str, SigningKey]:
        """By which tenant a token says that it is signed, how, and the key to check that with."""
        algorithm, kid = read_header(token, ALGORITHMS)
        tenant = part_of(token, 1, _Unverified).tenant
        if not isinstance(tenant, str):
            raise Unauthorized("the token lacks the claim 'tenant'")
        known = state.token_keys.get(tenant)
        keys = {} if known is None else self._keys(tenant, known)
        return tenant, algorithm, fitting_key(keys, kid, algorithm)

    def _keys(self, tenant: str, known: TokenKeys) -> dict[str | None, list[SigningKey]]:
        """A tenant's public keys; parsed once for each registered set."""
        held = self._sets.get(tenant)
        if held is None or held[0] is not known:
            if len(self._sets) >= KEPT:
                self._sets.clear()
            held = self._sets[tenant] = (known, keys_by_id(known.keys))
        return held[1]


def _mac(secret: bytes, hashed: str, payload: str) -> bytes:
    key = hmac.digest(secret, f"token of an end user\n{hashed}".encode(), "sha256")
    return hmac.digest(key, payload.encode(), "sha256")


def is_user_token(given: str) -> bool:
    """Whether a credential is, by its form, a token of an end user; a signed one says so in its
    audience.
    """
    if given.startswith(PREFIX):
        return True
    if given.count(".") != 2 or len(given) > MAX_LENGTH:
        return False
    try:
        audience = part_of(given, 1, _Unverified).aud
    except Unauthorized:
        return False
    return audience == AUDIENCE or (isinstance(audience, list) and AUDIENCE in audience)


def check_public_keys(entries: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The public keys of a tenant as they are stored.

    Raises:
        InvalidKey: one of them is private, has no id or the id of another, or cannot check a
            signature; the message names it.
    """
    if not 1 <= len(entries) <= MOST_KEYS:
        raise InvalidKey(f"keys: expected 1 to {MOST_KEYS} public keys (JWK), got {len(entries)}")
    known: set[str] = set()
    for i, entry in enumerate(entries, 1):
        kid = entry.get("kid")
        if not isinstance(kid, str) or not 1 <= len(kid) <= 100 or kid in known:
            raise InvalidKey(f"key {i}: field kid: expected an id that no other key of the set has")
        known.add(kid)
        if PRIVATE & entry.keys():
            raise InvalidKey(
                f"key {i} ({kid!r}) is a private key or a shared secret. It is no longer secret:"
                " make another one, and register only its public part"
            )
        found = signing_key(entry)
        if found is None or found.algorithm not in (None, *ALGORITHMS):
            raise InvalidKey(
                f"key {i} ({kid!r}) cannot check a signature: expected a public key of kty RSA, EC"
                " or OKP with use sig"
            )
        if found.kind == "RSA" and not _quick(found.key):
            raise InvalidKey(
                f"key {i} ({kid!r}): an RSA key has {RSA_BITS.start} to {RSA_BITS.stop - 1} bits"
                " and the exponent 65537 or less"
            )
    return [{name: entry[name] for name in _PUBLIC if name in entry} for entry in entries]


def _quick(key: RSAPublicKey) -> bool:
    return key.key_size in RSA_BITS and key.public_numbers().e <= 65_537


def _encoded(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def _decoded(text: str) -> bytes:
    """Raises ValueError unless it is what :func:`_encoded` makes: one text for each token."""
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("not base64") from None
    if _encoded(raw) != text:
        raise ValueError("not base64 in its only form")
    return raw
