"""Tokens of end users: what they stand on, and that a verified one is not verified again."""

from __future__ import annotations

import base64
import json
import time
from typing import Any

import jwt
import msgspec
import pytest

from projections.errors import InvalidSettings, Unauthorized
from streams.control.state import State
from streams.settings.quotas import ApiKey, TokenKeys, hash_key
from streams.settings.settings import Settings
from tests.support.clock import Clock
from tests.support.tokens import Signer
from threadfold.gateway import tokens
from threadfold.gateway.credentials import stream_token
from threadfold.gateway.problems import problem_of
from threadfold.gateway.user_tokens import AUDIENCE, LONGEST, UserTokens, is_user_token

HASHED = hash_key("tf_acme")


def state(signer: Signer | None = None) -> State:
    made = State()
    made.put(f"key/{HASHED}".encode(), msgspec.json.encode(ApiKey("acme")))
    if signer is not None:
        made.put(b"token-keys/acme", msgspec.json.encode(TokenKeys([signer.jwk])))
    return made


def mint(of: UserTokens, verbs: tuple[str, ...] = ("read",), seconds: int = 60) -> str:
    return of.mint("acme", HASHED, "ann", verbs, None, seconds)[0]


def signed(signer: Signer, **claims: Any) -> str:
    usual = {"aud": AUDIENCE, "tenant": "acme", "sub": "ann", "verbs": ["read"]}
    said = {**usual, "exp": int(time.time()) + 60, **claims}
    return jwt.encode(said, signer.key, signer.algorithm, {"kid": signer.kid})


def test_a_minted_token_says_whom_it_lets_in_and_until_when() -> None:
    clock, known = Clock(time.time()), state()
    made = UserTokens("", clock)
    token, until = made.mint("acme", HASHED, "ann", ["append", "read"], ["c1", "c2", "c1"], 60)
    assert until == int(clock.now) + 60
    principal = made.verify(token, known).principal
    assert (principal.tenant, principal.scopes) == ("acme", {"read", "append"})
    assert principal.end_user == ("ann", {"c1", "c2"})
    assert HASHED not in token and is_user_token(token)
    clock.now += 61
    with pytest.raises(Unauthorized, match="expired"):
        made.verify(token, known)


def test_a_token_is_of_its_secret_and_of_its_key() -> None:
    known, secret = state(), "s" * 32
    token = mint(UserTokens(secret))
    assert UserTokens(secret).verify(token, known), "another gateway with the secret"
    for other in ("", "t" * 32):
        with pytest.raises(Unauthorized, match="not minted by this deployment"):
            UserTokens(other).verify(token, known)
    with pytest.raises(Unauthorized, match="revoked"):
        UserTokens(secret).verify(token, State())


def test_a_verified_token_ends_when_its_key_is_gone_expires_or_loses_a_scope() -> None:
    of = UserTokens("")
    for change, still in (
        (ApiKey("acme"), True),
        (ApiKey("acme", ("read",)), False),
        (ApiKey("acme", expires_at="2001-01-01T00:00:00Z"), False),
        (ApiKey("rival"), False),
        (None, False),
    ):
        known = state()
        verified = of.verify(mint(of, ("read", "append")), known)
        assert verified.holds(known, time.time())
        known.put(f"key/{HASHED}".encode(), None if change is None else msgspec.json.encode(change))
        assert verified.holds(known, time.time()) == still, change


def test_a_signed_token_is_verified_once_and_ends_with_its_public_key(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    signer, of = Signer("k1"), UserTokens("")
    known, token = state(signer), signed(signer)
    first = of.verify(token, known)

    def never(*_: object, **__: object) -> None:
        raise AssertionError("a signature is checked again")

    with monkeypatch.context() as patched:
        patched.setattr(tokens.jwt, "decode", never)
        assert of.verify(token, known) is first
        assert all(first.holds(known, time.time()) for _ in range(1000)), "what streams ask"
    # Another set with the key leaves it; the same id with another key does not.
    known.put(b"token-keys/acme", msgspec.json.encode(TokenKeys([Signer("k0").jwk, signer.jwk])))
    assert first.holds(known, time.time())
    known.put(b"token-keys/acme", msgspec.json.encode(TokenKeys([Signer("k1").jwk])))
    assert not first.holds(known, time.time())
    with pytest.raises(Unauthorized, match="not signed with a key of its tenant's"):
        of.verify(token, known)


def test_only_a_signature_that_a_key_can_check_and_that_was_not_checked_has_to_wait() -> None:
    signer, clock = Signer("k1"), Clock(time.time())
    known, of = state(signer), UserTokens("", clock)
    token, stranger = signed(signer), signed(Signer("k2"))
    assert of.whose(token, known) == "acme"
    for quick in (
        mint(of),
        stranger,
        signed(signer, tenant="rival"),
        signed(signer, tenant=None),
        f"e30.{token.split('.')[1]}.AAAA",
        f"[].{token.split('.')[1]}.AAAA",
    ):
        assert of.whose(quick, known) is None
    of.verify(token, known)
    assert of.whose(token, known) is None
    known.put(
        b"token-keys/acme", msgspec.json.encode(TokenKeys([{**signer.jwk, "x5t": "of another"}]))
    )
    assert of.whose(token, known) == "acme", "its key was registered anew"
    of.verify(token, known)
    clock.now += 100
    assert of.whose(token, known) == "acme", "it expired"


@pytest.mark.parametrize(
    "exp", [float("inf"), float("nan"), "soon", None, -1, 1e300, LONGEST * 1e6]
)
def test_a_signed_token_without_a_near_end_is_refused(exp: Any) -> None:
    signer = Signer("k1")
    with pytest.raises(Unauthorized):
        UserTokens("").verify(signed(signer, exp=exp), state(signer))


@pytest.mark.parametrize(
    "claims",
    [
        {"sub": "\ud800"},
        {"sub": "ann\udfff"},
        {"verbs": ["read", "\ud800"]},
        {"conversations": ["\ud800"]},
        {"tenant": "\ud800"},
        {"aud": [AUDIENCE, "\ud800"]},
        {"email": "\ud800"},
        {"groups": [{"name": ["\ud800"]}]},
        {"\ud800": 1},
    ],
)
def test_a_claim_with_half_of_a_surrogate_pair_is_refused_when_the_token_is_verified(
    claims: dict[str, Any],
) -> None:
    signer = Signer("k1")
    with pytest.raises(Unauthorized) as refused:
        UserTokens("").verify(signed(signer, **claims), state(signer))
    assert problem_of(refused.value).status_code == 401


def test_a_header_of_a_token_with_half_a_character_is_malformed() -> None:
    signer = Signer("k1")
    for header in ({"kid": "\ud800"}, {"alg": "\ud800"}, {"crit": ["\ud800"], "\ud800": 1}):
        head = _base64(json.dumps({"alg": "ES256", "kid": "k1", **header}).encode())
        token = ".".join([head, *signed(signer).split(".")[1:]])
        with pytest.raises(Unauthorized, match="malformed"):
            UserTokens("").verify(token, state(signer))


def test_a_header_of_a_token_that_is_nested_too_deeply_is_malformed() -> None:
    signer = Signer("k1")
    token = ".".join([_base64(b"[" * 1_500), *signed(signer).split(".")[1:]])
    with pytest.raises(Unauthorized, match="malformed"):
        UserTokens("").verify(token, state(signer))


def _base64(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def test_a_short_secret_is_refused() -> None:
    with pytest.raises(InvalidSettings, match="32 characters"):
        Settings.load(env={}, token_secret="short")


def test_a_secret_changes_while_tokens_are_in_use() -> None:
    known = state()
    first, second = "a" * 32, "b" * 32
    before, after = mint(UserTokens(first)), mint(UserTokens(second))
    # Gateways are restarted one by one, three times: each takes what any other makes.
    for made in (UserTokens(first, accepted=[second]), UserTokens(second, accepted=[first])):
        assert made.verify(before, known) and made.verify(after, known)
    assert UserTokens(second).verify(after, known)
    with pytest.raises(Unauthorized, match="not minted by this deployment"):
        UserTokens(second).verify(before, known)


def test_the_accepted_secrets_are_a_list_of_long_ones() -> None:
    made = Settings(token_secret="a" * 32, accepted_token_secrets=f"{'b' * 32},\n{'c' * 32}")
    assert made.token_secrets == ["a" * 32, "b" * 32, "c" * 32]
    with pytest.raises(InvalidSettings, match="also of each of 'accepted_token_secrets'"):
        Settings.load(env={}, accepted_token_secrets=f"{'b' * 32},short")


def test_a_tenants_own_keys_are_changed_by_a_set_with_both() -> None:
    first, second = Signer(kid="1"), Signer(kid="2")
    made, known = UserTokens(""), State()

    def register(*signers: Signer) -> None:
        keys = TokenKeys([signer.jwk for signer in signers])
        known.put(b"token-keys/acme", msgspec.json.encode(keys))

    register(first)
    before = signed(first)
    assert made.verify(before, known)
    register(first, second)
    after = signed(second)
    assert made.verify(before, known) and made.verify(after, known)
    register(second)
    assert made.verify(after, known)
    with pytest.raises(Unauthorized):
        made.verify(before, known)


@pytest.mark.parametrize("name", ["token", "%74oken", "%74%6f%6b%65%6e"])
def test_a_streams_token_is_taken_out_of_its_query_and_the_rest_stays_as_it_came(name: str) -> None:
    for before, after in (("", ""), ("after=0-1&", ""), ("a=%41+b&", "&c=%zz&d")):
        scope: dict[str, Any] = {"headers": []}
        scope["query_string"] = f"{before}{name}=tfu_a%2Eb{after}".encode()
        assert stream_token(scope, cookies=False) == "tfu_a.b"
        left = [part for part in f"{before}{after}".split("&") if part]
        assert scope["query_string"] == "&".join(left).encode()


@pytest.mark.parametrize("query", ["token=tfu_a.b&%74oken=tfu_a.b", "token=tfu_" + "%41" * 100])
def test_several_tokens_in_a_query_or_one_full_of_escapes_are_none(query: str) -> None:
    with pytest.raises(Unauthorized, match="one token"):
        stream_token({"query_string": query.encode(), "headers": []}, cookies=False)
