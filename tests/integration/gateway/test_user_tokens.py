"""Tokens of end users: minted and signed ones, how long each opens something, and what is none."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import re
import time
from typing import Any

import jwt
import pytest

from tests.support.end_users import World
from tests.support.gateway import is_problem, is_problem_401, say
from tests.support.tokens import Signer
from tests.support.worker import until
from threadfold.gateway.user_tokens import AUDIENCE
from threadfold_client import AsyncClient, NotFound

NOT_SIGNED = "is not signed with a key of its tenant's"
"""The same for all: nobody learns from it which tenants there are, and what keys they have."""


async def test_a_minted_token_ends_with_its_time_and_with_its_key(world: World) -> None:
    mine = await world.begin("ann", "hello")
    short = await world.token("ann", expires_in=1)
    key = await world.control.add_key("acme")
    world.keys["short-lived"] = key

    async def known() -> bool:
        return (await world("GET", "/conversations", key)).status_code == 200

    await until(known)
    token = await world.token("ann", "short-lived", expires_in=600)
    path = f"/conversations/{mine}/context"
    assert (await world("GET", path, token)).status_code == 200

    async def expired() -> bool:
        return (await world("GET", path, short)).status_code == 401

    await until(expired)
    is_problem_401(await world("GET", path, short), "expired")
    await world.control.revoke_keys("acme", hashlib.sha256(key.encode()).hexdigest()[:12])

    async def ended() -> bool:
        return (await world("GET", path, token)).status_code == 401

    await until(ended)
    is_problem_401(await world("GET", path, token), "revoked")


@pytest.mark.parametrize("read", ["context", "history"])
@pytest.mark.parametrize("by", ["key", "token"])
async def test_a_read_that_waits_answers_nothing_once_its_key_is_revoked(
    world: World, by: str, read: str
) -> None:
    mine = await world.begin("ann", "hello")
    path = f"/conversations/{mine}"
    key = await world.control.add_key("acme")
    world.keys["short-lived"] = key

    async def known() -> bool:
        return (await world("GET", f"{path}/context", key)).status_code == 200

    async def waits() -> bool:
        found = re.search(
            r"^threadfold_http_under_way (\d+)", (await world.http.get("/metrics")).text, re.M
        )
        return found is not None and int(found[1]) >= 1

    async def ended() -> bool:
        return (await world("GET", f"{path}/context", key)).status_code == 401

    await until(known)
    given = key if by == "key" else await world.token("ann", "short-lived", expires_in=600)
    at = (await world("GET", f"{path}/context", key)).json()["position"]
    partition, offset = at.split("-")
    coming = f"{partition}-{int(offset) + 3}"
    reading = asyncio.create_task(world("GET", f"{path}/{read}?after={coming}", given))
    await until(waits)
    await world.control.revoke_keys("acme", hashlib.sha256(key.encode()).hexdigest()[:12])
    await until(ended)
    assert not reading.done()
    for n in range(4):
        await world("POST", f"{path}/events", "acme", say(f"secret {n}"))
    answer = await reading
    is_problem_401(answer, "revoked")
    assert "secret" not in answer.text and "hello" not in answer.text


async def test_a_changed_token_opens_nothing(world: World) -> None:
    mine = await world.begin("bob", "hello")
    token = await world.token("ann")
    payload, _, mac = token.removeprefix("tfu_").partition(".")
    said = json.loads(base64.urlsafe_b64decode(payload + "=="))
    changed = base64.urlsafe_b64encode(json.dumps({**said, "u": "bob"}).encode()).decode()
    guessed = hmac.digest(b"", changed.encode(), "sha256")
    for wrong in (
        f"tfu_{changed.rstrip('=')}.{mac}",
        f"tfu_{changed.rstrip('=')}.{base64.urlsafe_b64encode(guessed).decode().rstrip('=')}",
        f"tfu_{payload}.",
        f"tfu_{payload}",
        f"tfu_{payload}.{mac}=",
        "tfu_",
        "tfu_.",
        "tfu_" + "A" * 20_000,
        token + "A",
    ):
        is_problem_401(await world("GET", f"/conversations/{mine}/context", wrong), "token")


@pytest.mark.parametrize(
    "wrong",
    [
        {"verbs": []},
        {"verbs": ["admin"]},
        {"verbs": ["read", "erase"]},
        {"user": ""},
        {"user": "u" * 513},
        {"conversations": []},
        {"conversations": ["a b"]},
        {"conversations": [f"{i:0>120}" for i in range(101)]},
        {"expires_in": 0},
        {"expires_in": 86_401},
        {"scope": "read"},
    ],
    ids=str,
)
async def test_a_token_that_cannot_be_is_not_minted(world: World, wrong: dict[str, Any]) -> None:
    body = {"user": "ann", "verbs": ["read"], **wrong}
    is_problem(await world("POST", "/tokens", "acme", body), 422)


async def test_the_client_takes_a_token_where_it_takes_a_key(world: World) -> None:
    mine = await world.begin("ann", "hello")
    async with AsyncClient(world.url, await world.token("ann")) as client:
        event = {"type": "message", "role": "user", "content": "by the client"}
        appended = await client.append(mine, event, wait="applied")
        assert appended.events[0].status == "applied"
        context = await client.context(mine)
        assert context.messages[-1]["content"] == "by the client"
        await client.append_messages(mine, {"role": "user", "content": "again"})
        assert mine in [item["conversation"] async for item in client.conversations()]
        async for received in client.subscribe(mine, after=appended.position):
            if received.event == "event":
                assert received.data["content"] == "again"
                break
        with pytest.raises(NotFound):
            await client.context("nothing-here")


@pytest.fixture(scope="module")
async def signer(world: World) -> Signer:
    made = Signer("k1")
    answer = await world("PUT", "/tokens/keys", "signing", {"keys": [made.jwk]})
    assert answer.status_code == 200, answer.text
    assert (await world("GET", "/tokens/keys", "signing")).json() == answer.json()
    return made


def signed(signer: Signer, algorithm: str = "", headers: Any = None, **changes: Any) -> str:
    now = int(time.time())
    claims = {"aud": AUDIENCE, "sub": "ann", "tenant": "acme", "verbs": ["read"], "exp": now + 60}
    claims = {name: value for name, value in {**claims, **changes}.items() if value is not None}
    headers = {"kid": signer.kid, **(headers or {})}
    headers = {name: value for name, value in headers.items() if value is not None}
    return jwt.encode(claims, signer.key, algorithm or signer.algorithm, headers)


async def test_a_token_that_the_tenant_signs_opens_the_same(world: World, signer: Signer) -> None:
    mine, theirs = await world.begin("ann", "hello"), await world.begin("bob", "hello")
    for claims in ({}, {"conversations": [mine]}, {"aud": ["other", AUDIENCE]}):
        token = signed(signer, **claims)
        assert (await world("GET", f"/conversations/{mine}/context", token)).status_code == 200
        is_problem(await world("GET", f"/conversations/{theirs}/context", token), 404)
        is_problem(await world("POST", f"/conversations/{mine}/events", token, say("x")), 403)


async def test_signed_tokens_of_another_making_open_nothing(world: World, signer: Signer) -> None:
    mine = await world.begin("ann", "hello")
    stranger, now = Signer("k1"), int(time.time())
    public = json.dumps(signer.jwk)
    unsigned = jwt.encode(
        {"aud": AUDIENCE, "sub": "ann", "tenant": "acme", "verbs": ["read"], "exp": now + 60},
        None,
        "none",
        {"kid": "k1"},
    )
    head = base64.urlsafe_b64encode(b'{"alg":"HS256","kid":"k1"}').decode().rstrip("=")
    body = signed(signer).split(".")[1]
    mac = hmac.digest(public.encode(), f"{head}.{body}".encode(), "sha256")
    confused = f"{head}.{body}.{base64.urlsafe_b64encode(mac).decode().rstrip('=')}"
    for token, part in (
        (signed(stranger), NOT_SIGNED),
        (signed(stranger, headers={"kid": None}), NOT_SIGNED),
        (signed(stranger, headers={"kid": None}, tenant="nobody"), NOT_SIGNED),
        (unsigned, "algorithms"),
        (confused, "algorithms"),
        (signed(signer, headers={"kid": "../../etc/passwd"}), NOT_SIGNED),
        (signed(signer, headers={"kid": "k2", "jwk": stranger.jwk}), NOT_SIGNED),
        (signed(signer, tenant="rival"), NOT_SIGNED),
        (signed(signer, tenant="nobody"), NOT_SIGNED),
        (signed(signer, tenant=None), "'tenant'"),
        (signed(signer, tenant={"a": 1}), "'tenant'"),
        (signed(signer, exp=now - 60), "expired"),
        (signed(signer, exp=now + 200_000), "lasts longer"),
        (signed(signer, exp=None), "exp"),
        (signed(signer, nbf=now + 600), "not valid yet"),
        (signed(signer, sub=None), "sub"),
        (signed(signer, sub=""), "sub"),
        (signed(signer, sub="\ud800"), "signed tokens are not accepted"),
        (signed(signer, verbs=["admin"]), "verbs"),
        (signed(signer, verbs=None), "verbs"),
        (signed(signer, conversations=[]), "conversations"),
        (signed(signer, conversations="all"), "conversations"),
        (signed(signer, aud="other"), "signed tokens are not accepted"),
        (signed(signer, padding="x" * 20_000), "signed tokens are not accepted"),
    ):
        is_problem_401(await world("GET", f"/conversations/{mine}/context", token), part)
    # The clocks of two machines differ a little.
    late = signed(signer, exp=now - 5, nbf=now + 5)
    assert (await world("GET", f"/conversations/{mine}/context", late)).status_code == 200


async def test_signed_tokens_end_with_their_key(world: World) -> None:
    mine, old, new = await world.begin("ann", "hello"), Signer("old"), Signer("new", "Ed")
    known = (await world("GET", "/tokens/keys", "signing")).json()["keys"]
    path = f"/conversations/{mine}/context"
    both = {"keys": [*known, old.jwk, new.jwk]}
    assert (await world("PUT", "/tokens/keys", "signing", both)).status_code == 200
    tokens = [signed(old), signed(new)]
    assert [(await world("GET", path, token)).status_code for token in tokens] == [200, 200]
    assert (
        await world("PUT", "/tokens/keys", "signing", {"keys": [*known, new.jwk]})
    ).status_code == 200
    assert [(await world("GET", path, token)).status_code for token in tokens] == [401, 200]


def rsa_key(bits: int, exponent: int = 65_537) -> dict[str, Any]:
    """A public key of RSA, of any odd number."""

    def text(number: int) -> str:
        raw = number.to_bytes((number.bit_length() + 7) // 8)
        return base64.urlsafe_b64encode(raw).decode().rstrip("=")

    return {"kty": "RSA", "alg": "RS256", "n": text(2**bits - 1), "e": text(exponent)}


@pytest.mark.parametrize(
    ("change", "part"),
    [
        ({"d": "AAAA"}, "private"),
        ({"kty": "oct", "k": "AAAA"}, "private"),
        ({"kty": "oct"}, "cannot check"),
        ({"kty": "oct", "kid": "a\nb"}, r"key 1 ('a\nb') cannot check"),
        ({"kid": None}, "kid"),
        ({"use": "enc"}, "cannot check"),
        ({"kty": ["EC"]}, "cannot check"),
        ({"crv": {"P-256": 1}}, "cannot check"),
        ({"alg": []}, "cannot check"),
        ({"alg": "none"}, "cannot check"),
        ({"x": "AA"}, "cannot check"),
        (rsa_key(1024), "4096 bits"),
        (rsa_key(2048, 2**31 + 11), "exponent"),
        (rsa_key(8192), "4096 bits"),
        ({"kty": "OKP", "crv": "X25519", "x": "A" * 43, "y": None}, "cannot check"),
    ],
    ids=str,
)
async def test_keys_that_are_not_public_or_of_no_use_are_refused(
    world: World, change: dict[str, Any], part: str
) -> None:
    known = (await world("GET", "/tokens/keys", "signing")).json()
    body = {"keys": [{**Signer("k9").jwk, **change}]}
    is_problem(await world("PUT", "/tokens/keys", "signing", body), 422, part)
    is_problem(await world("PUT", "/tokens/keys", "acme", body), 403, "tokens")
    assert (await world("GET", "/tokens/keys", "signing")).json() == known
