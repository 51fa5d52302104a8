"""Signed tokens: each kind of invalid token is refused by its own sentence, and keys come and
go with their set.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path

import jwt
import pytest
from aiohttp import web

from projections.errors import KeySetUnavailable, Unauthorized
from streams.control.state import State
from streams.settings.settings import Settings
from tests.support.clock import Clock
from tests.support.ports import closed_port
from tests.support.tokens import AUDIENCE, ISSUER, Signer, key_set
from tests.support.worker import until
from threadfold.gateway import key_sets
from threadfold.gateway import tokens as tokens_module
from threadfold.gateway.credentials import Credentials
from threadfold.gateway.key_sets import FRESH, REFETCH, KeySet, SigningKey
from threadfold.gateway.tokens import LEEWAY, Tokens


def settings(**changes: object) -> Settings:
    return Settings.load(
        env={},
        **{"jwt_issuer": ISSUER, "jwt_audience": AUDIENCE, "jwt_keys": "set.json", **changes},
    )


@pytest.fixture(scope="module")
def signers() -> dict[str, Signer]:
    return {kind: Signer(f"key-{kind}", kind) for kind in ("RS", "ES", "Ed")}


@pytest.fixture
def source(tmp_path: Path, signers: dict[str, Signer]) -> Path:
    path = tmp_path / "set.json"
    path.write_bytes(key_set(*signers.values()))
    return path


def verifier(source: Path | str, **changes: object) -> Tokens:
    return Tokens(settings(**changes), KeySet(str(source)))


@pytest.mark.parametrize(
    ("kind", "algorithm"),
    [("RS", "RS256"), ("RS", "RS512"), ("RS", "PS256"), ("ES", "ES256"), ("Ed", "EdDSA")],
)
async def test_a_token_of_each_kind_of_key_names_its_tenant_and_scopes(
    source: Path, signers: dict[str, Signer], kind: str, algorithm: str
) -> None:
    found = await verifier(source).verify(signers[kind].token(algorithm=algorithm))
    assert found.tenant == "acme"
    assert found.scopes == {"read", "append"}, "openid is another service's"


async def test_scopes_may_be_a_list_under_another_claim_and_admin_counts_only_where_it_may(
    source: Path, signers: dict[str, Signer]
) -> None:
    token = signers["ES"].token(org="beta", scp=["read", "admin", 7], tenant=None, scope=None)
    changes = {"jwt_tenant_claim": "org", "jwt_scopes_claim": "scp"}
    plain = await verifier(source, **changes).verify(token)
    assert (plain.tenant, plain.scopes) == ("beta", {"read"})
    assert (await verifier(source, **changes, jwt_admin=True).verify(token)).scopes == {
        "read",
        "admin",
    }


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"exp": 1_000}, "expired"),
        ({"exp": None}, "lacks the claim 'exp'"),
        ({"aud": "other"}, "another audience"),
        ({"aud": None}, "lacks the claim 'aud'"),
        ({"iss": "https://evil.example"}, "another issuer"),
        ({"iss": None}, "lacks the claim 'iss'"),
        ({"nbf": 4_000_000_000}, "not valid yet"),
        ({"iat": 4_000_000_000}, "not valid yet"),
        ({"tenant": None}, "names no tenant: the claim 'tenant'"),
        ({"tenant": "a/b"}, "is not a name"),
        ({"tenant": ["acme"]}, "is not a name"),
        ({"headers": {"kid": "unknown"}}, "'unknown', which is not in the key set"),
        ({"exp": "soon"}, "is not valid: "),
    ],
)
async def test_an_invalid_token_is_refused_by_its_reason(
    source: Path, signers: dict[str, Signer], changes: dict[str, object], part: str
) -> None:
    if changes.get("exp") == "soon":
        token = _by_hand(
            {"alg": "EdDSA", "kid": "key-Ed"}, signers["Ed"].claims(exp="soon"), signers["Ed"]
        )
    else:
        token = signers["ES"].token(**changes)  # type: ignore[arg-type]
    with pytest.raises(Unauthorized, match=part):
        await verifier(source).verify(token)


def _part(value: object) -> bytes:
    return base64.urlsafe_b64encode(
        value if isinstance(value, bytes) else json.dumps(value).encode()
    ).rstrip(b"=")


def _by_hand(
    header: dict[str, object],
    claims: dict[str, object],
    signer: Signer | None = None,
    secret: bytes = b"",
) -> str:
    signed = _part(header) + b"." + _part(claims)
    signature = (
        signer.key.sign(signed)
        if signer is not None
        else hmac.new(secret, signed, hashlib.sha256).digest()
        if secret
        else b""
    )
    return (signed + b"." + _part(signature)).decode()


async def test_an_end_beyond_all_numbers_is_refused_and_is_no_error_of_ours(
    source: Path, signers: dict[str, Signer]
) -> None:
    with pytest.raises(Unauthorized, match="the token is not valid: "):
        await verifier(source).verify(signers["RS"].token(exp=10**400))


async def test_no_symmetric_and_no_missing_signature_is_taken(
    source: Path, signers: dict[str, Signer]
) -> None:
    tokens, claims = verifier(source), signers["RS"].claims()
    public = json.dumps(signers["RS"].jwk).encode()
    for header, secret in (
        ({"alg": "none"}, b""),
        ({"alg": "HS256", "kid": "key-RS"}, public),
        ({"alg": "ES256K"}, b"x"),
        ({"alg": 5}, b""),
    ):
        with pytest.raises(Unauthorized, match=r"accepted algorithms|malformed"):
            await tokens.verify(_by_hand(header, claims, secret=secret))


async def test_a_secret_in_a_key_set_signs_nothing(tmp_path: Path) -> None:
    path = tmp_path / "set.json"
    path.write_text(json.dumps({"keys": [{"kty": "oct", "k": "c2VjcmV0", "kid": "s"}]}))
    with pytest.raises(KeySetUnavailable, match="no public key"):
        await verifier(path).verify(_by_hand({"alg": "RS256", "kid": "s"}, {}, secret=b"secret"))


@pytest.mark.parametrize("left", [[], [{"kty": "oct", "k": "c2VjcmV0", "kid": "s"}]])
async def test_a_set_that_has_no_key_any_more_withdraws_all(
    source: Path, signers: dict[str, Signer], left: list[object]
) -> None:
    clock, token = Clock(1_000.0), signers["ES"].token()
    clock.now = time.time()
    keys = KeySet(str(source), clock)
    tokens = Tokens(settings(), keys, clock)
    await tokens.verify(token)
    await asyncio.to_thread(source.write_text, json.dumps({"keys": left}))
    clock.now += REFETCH + 1
    assert await keys.renew(keys.version)
    with pytest.raises(Unauthorized, match="not in the key set"):
        await tokens.verify(token)


async def test_an_entry_that_cannot_be_used_is_skipped_and_the_set_is_taken(tmp_path: Path) -> None:
    path, good = tmp_path / "set.json", Signer("good")
    unusable = [{**good.jwk, "kid": "bad", "alg": alg} for alg in ("none", "no-such", ["ES256"])]
    path.write_text(json.dumps({"keys": [*unusable, good.jwk]}))
    keys = KeySet(str(path))
    assert len(await keys.find("good")) == 1 and await keys.find("bad") == []


async def test_an_error_in_the_background_does_not_end_later_fetches(
    source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(1_000.0)
    keys = KeySet(str(source), clock)
    await keys.find("key-ES")

    failed = asyncio.Event()

    def fail(entries: list[object]) -> None:
        failed.set()
        raise RuntimeError("not foreseen")

    with monkeypatch.context() as patch:
        patch.setattr(key_sets, "keys_by_id", fail)
        await asyncio.to_thread(source.write_bytes, key_set(Signer("l")))
        clock.now += FRESH + 1
        keys.keep_fresh()
        await asyncio.wait_for(failed.wait(), 10)
    clock.now += FRESH + 1
    keys.keep_fresh()
    await until(lambda: asyncio.sleep(0, keys.version == 2))


async def test_a_changed_token_and_another_keys_signature_are_refused(
    source: Path, signers: dict[str, Signer]
) -> None:
    token = signers["ES"].token()
    head, _, signature = token.split(".")
    other = json.dumps(signers["ES"].claims(tenant="victim")).encode()
    for wrong in (f"{head}.{_part(other).decode()}.{signature}", Signer("key-ES", "ES").token()):
        with pytest.raises(Unauthorized, match="signature is not that of its key"):
            await verifier(source).verify(wrong)
    with pytest.raises(Unauthorized, match=r"not in the key set \(for ES256\)"):
        await verifier(source).verify(Signer("key-RS", "ES").token())
    for wrong in ("a.b.c", f"{head}..", "..", "é.b.c", "x" * 20_000 + ".b.c"):
        with pytest.raises(Unauthorized, match=r"malformed|characters|signature"):
            await verifier(source).verify(wrong)


async def test_a_long_forged_token_takes_no_longer_than_its_signature(
    source: Path, signers: dict[str, Signer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """PyJWT looks at each of its characters first."""
    token = Signer("key-ES", "ES").token(x="x" * 5_000)
    monkeypatch.setattr(jwt, "decode", lambda *_, **__: pytest.fail("it is read"))
    with pytest.raises(Unauthorized, match="signature is not that of its key"):
        await verifier(source).verify(token)


async def test_a_verified_token_is_remembered_until_it_ends_or_the_keys_change(
    source: Path, signers: dict[str, Signer], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, keys = Clock(1_000.0), KeySet(str(source))
    clock.now = time.time()

    async def away(kid: str | None) -> list[SigningKey]:
        raise KeySetUnavailable(f"the key {kid} cannot be fetched")

    tokens = Tokens(settings(), keys, clock)
    token = signers["ES"].token()
    first = await tokens.verify(token)
    await asyncio.to_thread(source.unlink)
    assert await tokens.verify(token) is first
    monkeypatch.setattr(keys, "find", away)
    assert await tokens.verify(token) is first, "neither key nor file is asked again"
    clock.now += 301 + LEEWAY
    with pytest.raises((Unauthorized, KeySetUnavailable)):
        await tokens.verify(token)
    clock.now -= 301 + LEEWAY
    keys.version += 1
    with pytest.raises((Unauthorized, KeySetUnavailable)):
        await tokens.verify(token)


async def test_only_a_signature_that_a_key_may_check_and_that_was_not_checked_has_to_wait(
    source: Path, signers: dict[str, Signer]
) -> None:
    clock = Clock(1_000.0)
    clock.now = time.time()
    keys = KeySet(str(source))
    tokens, token = Tokens(settings(), keys, clock), signers["ES"].token()
    assert tokens.has_to_check(token), "the set has not been fetched"
    await tokens.verify(token)
    assert not tokens.has_to_check(token)
    assert tokens.has_to_check(signers["ES"].token(tenant="beta"))
    keys.version += 1
    assert tokens.has_to_check(token), "the key set is another one"
    keys.version -= 1
    clock.now += 301 + LEEWAY
    assert tokens.has_to_check(token), "it has expired: each request would check it again"
    for nothing_to_check in (
        "a.b.c",
        Signer("unknown").token(),
        jwt.encode({}, "x" * 32, "HS256", {"kid": "key-ES"}),
        signers["RS"].token(headers={"kid": "key-ES"}),
        "e" * 20_000,
    ):
        assert not tokens.has_to_check(nothing_to_check)


async def test_a_token_that_others_pushed_out_of_the_cache_while_its_request_waited_still_holds(
    source: Path, signers: dict[str, Signer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokens_module, "KEPT", 1)
    credentials = Credentials(settings(jwt_keys=str(source)))
    waits, other = signers["ES"].token(), signers["ES"].token(tenant="beta")
    principal = await credentials.identify(waits, State)
    await credentials.identify(other, State)
    await credentials.check_again(waits, State, principal)


async def test_a_token_within_the_leeway_of_clocks_still_holds_when_its_request_is_answered(
    source: Path, signers: dict[str, Signer]
) -> None:
    credentials = Credentials(settings(jwt_keys=str(source)))
    token = signers["ES"].token(exp=int(time.time()) - 5)
    principal = await credentials.identify(token, State)
    await credentials.check_again(token, State, principal)
    assert credentials.holds(token, State, principal)(), "a stream goes on as long"
    assert credentials.whose(token, State) is None, "it is not checked at each request"


# -- key sets
# ------------------------------------------------------------------------------------------


class Server:
    """An issuer's key set over HTTP, which counts how often it is asked."""

    def __init__(self) -> None:
        self.body: bytes = b""
        self.status = 200
        self.asked = 0

    async def handle(self, _: web.Request) -> web.Response:
        self.asked += 1
        await asyncio.sleep(0.02)
        return web.Response(
            body=self.body,
            status=self.status,
            headers={"Location": "/elsewhere"} if self.status == 302 else None,
        )


@pytest.fixture
async def server() -> AsyncIterator[tuple[Server, str]]:
    serving = Server()
    app = web.Application()
    app.router.add_get("/keys", serving.handle)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    yield serving, f"http://127.0.0.1:{port}/keys"
    await runner.cleanup()


async def test_an_unknown_key_is_looked_for_again_once_at_a_time_and_not_more_often_than_allowed(
    server: tuple[Server, str],
) -> None:
    serving, url = server
    old, new = Signer("old"), Signer("new")
    serving.body = key_set(old)
    clock = Clock(1_000.0)
    keys = KeySet(url, clock)
    found = await asyncio.gather(*(keys.find("old") for _ in range(20)))
    assert all(len(each) == 1 for each in found)
    assert serving.asked == 1
    serving.body = key_set(old, new)
    assert await keys.find("new") == []
    assert serving.asked == 1, "not that soon"
    clock.now += REFETCH
    assert len((await asyncio.gather(*(keys.find("new") for _ in range(20))))[-1]) == 1
    assert serving.asked == 2
    assert keys.version == 2


@pytest.mark.parametrize("kid", [None, "k"], ids=["without an id", "with the former's id"])
@pytest.mark.parametrize("kind", ["ES", "RS"], ids=["of its kind", "of another kind"])
async def test_a_key_that_took_the_place_of_another_is_known_by_the_first_token_it_signed(
    server: tuple[Server, str], signers: dict[str, Signer], kid: str | None, kind: str
) -> None:
    def named(signer: Signer) -> bytes:
        (entry,) = json.loads(key_set(signer))["keys"]
        return json.dumps({"keys": [{**entry, "kid": kid}]}).encode()

    def signed(signer: Signer) -> str:
        return jwt.encode(
            signer.claims(), signer.key, signer.algorithm, {"kid": kid} if kid else {}
        )

    serving, url = server
    old, new, clock = Signer("old"), signers[kind], Clock(1_000.0)
    serving.body = named(old)
    keys = KeySet(url, clock)
    tokens = Tokens(settings(), keys)
    await tokens.verify(signed(old))
    serving.body = named(new)
    for _ in range(3):
        with pytest.raises(Unauthorized):
            await tokens.verify(signed(new))
    assert serving.asked == 1, "not that soon"
    clock.now += REFETCH
    found = await asyncio.gather(*(tokens.verify(signed(new)) for _ in range(20)))
    assert {one.tenant for one in found} == {"acme"} and serving.asked == 2
    with pytest.raises(Unauthorized):
        await tokens.verify(signed(old))


async def test_a_set_that_cannot_be_fetched_is_named_and_the_last_good_one_goes_on(
    server: tuple[Server, str],
) -> None:
    serving, url = server
    serving.status = 500
    clock = Clock(1_000.0)
    keys = KeySet(url, clock)
    with pytest.raises(
        KeySetUnavailable, match=f"{url} cannot be fetched: it answered 500"
    ) as caught:
        await keys.find("k")
    assert caught.value.problem == 503
    clock.now += REFETCH
    serving.status, serving.body = 200, key_set(Signer("k"))
    assert len(await keys.find("k")) == 1
    for status, body in (
        (302, b""),
        (200, b"{"),
        (200, b"[]"),
        (200, b" " * (key_sets.MAX_BYTES + 1)),
    ):
        serving.status, serving.body = status, body
        clock.now += REFETCH
        with pytest.raises(KeySetUnavailable):
            await keys.find("other")
        assert len(await keys.find("k")) == 1
    assert keys.version == 1


async def test_a_withdrawn_key_is_dropped_when_the_set_has_become_old(
    server: tuple[Server, str],
) -> None:
    serving, url = server
    serving.body = key_set(Signer("k"))
    clock = Clock(1_000.0)
    keys = KeySet(url, clock)
    await keys.find("k")
    serving.body = key_set(Signer("l"))
    clock.now += FRESH + 1
    assert len(await keys.find("k")) == 1, "nobody waits for the fetch"
    await until(lambda: asyncio.sleep(0, keys.version == 2))
    assert await keys.find("k") == []
    await keys.close()


async def test_a_token_of_a_withdrawn_key_ends_also_where_no_other_token_comes(
    server: tuple[Server, str],
) -> None:
    serving, url = server
    withdrawn = Signer("k")
    serving.body = key_set(withdrawn)
    clock = Clock(1_000.0)
    keys = KeySet(url, clock)
    tokens, token = Tokens(settings(), keys), withdrawn.token()
    await tokens.verify(token)
    serving.body = key_set(Signer("l"))
    clock.now += FRESH + 1
    await tokens.verify(token)
    await until(lambda: asyncio.sleep(0, keys.version == 2))
    with pytest.raises(Unauthorized, match="not in the key set"):
        await tokens.verify(token)
    await keys.close()


async def test_a_token_of_a_withdrawn_key_does_not_keep_a_stream_open(
    server: tuple[Server, str],
) -> None:
    serving, url = server
    withdrawn, kept = Signer("k"), Signer("l")
    serving.body = key_set(withdrawn, kept)
    clock = Clock(1_000.0)
    keys = KeySet(url, clock)
    tokens = Tokens(settings(), keys)
    given = [withdrawn.token(), kept.token()]
    for token in given:
        await tokens.verify(token)
    one, other = map(tokens.holds, given)
    assert one() and other()
    serving.body = key_set(kept)
    clock.now += FRESH + 1
    await until(lambda: asyncio.sleep(0, not one()))
    assert other()
    await keys.close()


async def test_a_source_that_is_not_there_is_named(tmp_path: Path) -> None:
    for source in (str(tmp_path / "none.json"), f"http://127.0.0.1:{closed_port()}/keys"):
        with pytest.raises(KeySetUnavailable, match="cannot be fetched"):
            await KeySet(source).find("k")
