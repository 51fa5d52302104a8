"""The routes of end users' tokens: minting, and the public keys of those that tenants sign."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from projections.errors import Forbidden
from projections.events.times import rfc3339
from threadfold.gateway.access import PRINCIPAL, Caller
from threadfold.gateway.declaration import Answer, Routes
from threadfold.gateway.examples import TIME
from threadfold.gateway.request import Body, Request
from threadfold.gateway.tokens import ALGORITHMS, Principal
from threadfold.gateway.user_tokens import (
    LONGEST,
    MOST_CONVERSATIONS,
    MOST_KEYS,
    PRIVATE,
    VERBS,
    UserName,
    check_public_keys,
)
from threadfold.schemas.structs import NAME

routes = Routes("End users")
_KEYS = "/v1/tokens/keys"
_Verb = Literal["read", "stream", "append"]
_Name = Annotated[str, Meta(extra_json_schema=NAME)]
_JWK = {
    "kty": "EC",
    "crv": "P-256",
    "kid": "2026-01",
    "use": "sig",
    "alg": "ES256",
    "x": "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU",
    "y": "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0",
}


_PUBLIC_KEY = {
    "properties": {
        "kty": {"enum": ["RSA", "EC", "OKP"]},
        "kid": {"type": "string", "minLength": 1, "maxLength": 100},
        "use": {"const": "sig"},
        "alg": {"enum": list(ALGORITHMS)},
    },
    "required": ["kty", "kid"],
    "not": {"anyOf": [{"required": [name]} for name in sorted(PRIVATE)]},
}
_PublicKey = Annotated[dict[str, Any], Meta(extra_json_schema=_PUBLIC_KEY)]


class NewToken(Struct, forbid_unknown_fields=True):
    """A token to mint: for the conversations that were opened with this `user`, and of them only
    `conversations`, if they are given.
    """

    user: UserName
    verbs: Annotated[list[_Verb], Meta(min_length=1, max_length=len(VERBS))]
    conversations: (
        Annotated[list[_Name], Meta(min_length=1, max_length=MOST_CONVERSATIONS)] | None
    ) = None
    expires_in: Annotated[int, Meta(ge=1, le=LONGEST, description="seconds")] = 900


class MintedToken(Struct):
    """A token of an end user. It is stored nowhere."""

    token: str
    expires_at: str


class PublicKeys(Struct, forbid_unknown_fields=True):
    """A JWKS document: public keys (RFC 7517), each with its `kid`."""

    keys: Annotated[list[_PublicKey], Meta(min_length=1, max_length=MOST_KEYS)]


class RegisteredKeys(Struct):
    """The registered public keys."""

    keys: list[dict[str, Any]]


_REGISTERED = Answer(RegisteredKeys, example={"keys": [_JWK]})


@routes.add(
    "POST",
    "/v1/tokens",
    "Mint a token for an end user",
    Answer(MintedToken, example={"token": "tfu_eyJ0IjoiYWNtZSJ9.c2ln", "expires_at": TIME}),
    body=Body(
        NewToken,
        {
            "for a chat": {
                "user": "u-7",
                "verbs": ["read", "stream", "append"],
                "conversations": ["support-42"],
                "expires_in": 900,
            }
        },
        limit=1 << 18,
    ),
)
async def post_token(request: Request, caller: Caller, body: NewToken) -> dict[str, str]:
    """Mint a token with which an end user's browser reads, follows (`stream`) and appends to the
    user's own conversations.

    Each verb needs the key's scope `read`, `subscribe` or `append`. The token ends after
    `expires_in` seconds, or as soon as the key is revoked.
    """
    principal: Principal | None = request.scope.get(PRINCIPAL)
    if principal is None or not principal.key:
        raise Forbidden("tokens are minted with an API key: this request has another credential")
    lacking = [scope for verb, scope in VERBS.items() if verb in body.verbs]
    lacking = [scope for scope in lacking if scope not in principal.scopes]
    if lacking:
        raise Forbidden(f"the key lacks the scope {lacking[0]!r}, so its tokens cannot have it")
    token, until = request.state.connection.credentials.user_tokens.mint(
        caller.tenant, principal.key, body.user, body.verbs, body.conversations, body.expires_in
    )
    return {"token": token, "expires_at": rfc3339(datetime.fromtimestamp(until, UTC))}


@routes.add("GET", _KEYS, "List the keys of signed tokens", _REGISTERED, scope="tokens")
async def get_token_keys(caller: Caller) -> dict[str, Any]:
    """The public keys that the tenant's own tokens are verified with."""
    state = await caller.backend.control.sync()
    known = state.token_keys.get(caller.tenant)
    return {"keys": [] if known is None else known.keys}


@routes.add(
    "PUT",
    _KEYS,
    "Register the keys of signed tokens",
    _REGISTERED,
    scope="tokens",
    body=Body(PublicKeys, {"one key": {"keys": [_JWK]}}, limit=1 << 16),
)
async def put_token_keys(caller: Caller, body: PublicKeys) -> dict[str, Any]:
    """Register the public keys of the tokens (JWT) that the tenant signs for its end users. The set
    is replaced whole: tokens of a key that is missing from it end.
    """
    keys = check_public_keys(body.keys)
    await caller.backend.control.set_token_keys(caller.tenant, keys)
    return {"keys": keys}


@routes.add(
    "DELETE",
    _KEYS,
    "Remove the keys of signed tokens",
    Answer(RegisteredKeys, example={"keys": []}),
    scope="tokens",
)
async def delete_token_keys(caller: Caller) -> dict[str, Any]:
    """Remove all public keys: every token that the tenant has signed ends."""
    await caller.backend.control.sync()
    await caller.backend.control.set_token_keys(caller.tenant, [])
    return {"keys": []}
