"""End users: what a token opens, and for how long; and pages of other origins."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import logging
import time
from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import httpx
import jwt
import pytest

from streams.settings.settings import Settings
from tests.support.end_users import PAGE, Followed, World, follow, serving_end_users
from tests.support.gateway import is_problem, say
from tests.support.tokens import Signer
from tests.support.worker import running_worker, until
from threadfold.gateway.user_tokens import AUDIENCE
from threadfold.service import conversation_list
from threadfold_client import AsyncClient, NotFound


@pytest.fixture(scope="module")
async def world(settings: Settings) -> AsyncIterator[World]:
    async with serving_end_users(settings) as made, running_worker(settings):
        await made.ready()
        yield made


# -- what a token opens
# ------------------------------------------------------------------------------------------


async def test_a_user_reads_follows_and_continues_his_own_conversation(world: World) -> None:
    mine = await world.begin("ann", "hello")
    token = await world.token("ann")
    for path in ("context", "history", "summaries"):
        assert (await world("GET", f"/conversations/{mine}/{path}", token)).status_code == 200
    said = await world(
        "POST",
        f"/conversations/{mine}/messages?wait=applied",
        token,
        {"role": "user", "content": "and more"},
    )
    assert [event["status"] for event in said.json()["events"]] == ["applied"]
    position = said.json()["position"]
    one = await world("GET", f"/conversations/{mine}/events/{position}", token)
    assert one.json()["content"] == "and more"
    flat = {"id": str(uuid4()), **say("as an event")}
    again = [
        await world("POST", f"/conversations/{mine}/events?wait=applied", token, flat)
        for _ in range(2)
    ]
    assert [answer.json()["events"][0]["status"] for answer in again] == ["applied", "duplicate"]
    parts = [{"type": "text", "text": "in parts"}]
    for form in ("openai", "anthropic"):
        body = {"role": "user", "content": parts}
        answer = await world("POST", f"/conversations/{mine}/messages?format={form}", token, body)
        assert answer.status_code == 202, answer.text


async def test_what_is_not_the_users_own_looks_like_what_does_not_exist(world: World) -> None:
    theirs, nobodys = await world.begin("bob", "secret"), await world.begin(None, "secret")
    token = await world.token("ann")

    async def tried(name: str) -> list[tuple[int, str]]:
        answers = [
            await world(method, f"/conversations/{name}{path}", token, body)
            for method, path, body in (
                ("GET", "/context", None),
                ("GET", "/history", None),
                ("GET", "/summaries", None),
                ("GET", "/events/0-1", None),
                ("GET", "/stream", None),
                ("POST", "/messages", {"role": "user", "content": "x"}),
                ("POST", "/events", say("x")),
            )
        ]
        return [(answer.status_code, answer.text.replace(name, "NAME")) for answer in answers]

    missing = await tried("nothing-here")
    assert {status for status, _ in missing} == {404}
    assert await tried(theirs) == missing
    assert await tried(nobodys) == missing
    rival = await world.token("ann", "rival")
    mine = await world.begin("ann", "hello")
    is_problem(await world("GET", f"/conversations/{mine}/context", rival), 404, "not known")


async def test_a_token_that_names_conversations_opens_these_alone_and_may_begin_them(
    world: World,
) -> None:
    mine, other = await world.begin("ann", "one"), await world.begin("ann", "two")
    theirs = await world.begin("bob", "three")
    new = f"new-{uuid4().hex[:12]}"
    token = await world.token("ann", conversations=[mine, theirs, new])
    assert (await world("GET", f"/conversations/{mine}/context", token)).status_code == 200
    for name in (other, theirs, new):
        is_problem(await world("GET", f"/conversations/{name}/context", token), 404)
    for name in (other, theirs):
        body = {"role": "user", "content": "x"}
        is_problem(await world("POST", f"/conversations/{name}/messages", token, body), 404)
    body = {"role": "user", "content": "first"}
    first = await world("POST", f"/conversations/{new}/messages?wait=applied", token, body)
    assert first.status_code == 200, first.text
    assert len(first.json()["events"]) == 1
    history = (await world("GET", f"/conversations/{new}/history", token)).json()["events"]
    assert [event["type"] for event in history] == ["message", "conversation.opened"]
    assert history[1]["user"] == "ann"
    # Without its name in the token nobody takes the name of what the tenant may write to later.
    anyone = await world.token("ann")
    body = {"role": "user", "content": "x"}
    is_problem(await world("POST", "/conversations/tenants-own/messages", anyone, body), 404)


async def test_a_user_lists_the_users_own_conversations(world: World) -> None:
    user, other = f"u-{uuid4().hex[:8]}", f"u-{uuid4().hex[:8]}"
    mine = [await world.begin(user, f"talk {i}") for i in range(3)]
    theirs, lost = await world.begin(other, "secret"), await world.begin(user, "given away")
    await world.begin(other, name=lost)
    token = await world.token(user)
    seen, query = [], "?limit=2"
    while True:
        page = (await world("GET", f"/conversations{query}", token)).json()
        seen += [item["conversation"] for item in page["conversations"]]
        assert {item["user"] for item in page["conversations"]} <= {user}
        if page["next_before"] is None:
            break
        query = f"?limit=2&before={page['next_before']}"
    assert sorted(seen) == sorted(mine)
    named = await world.token(user, conversations=[mine[1], theirs, "never"])
    page = (await world("GET", "/conversations", named)).json()
    assert [item["conversation"] for item in page["conversations"]] == [mine[1]]
    is_problem(await world("GET", f"/conversations?user={other}", token), 403, "user")
    # Cursors of other lists lead nowhere.
    for key, path in (("acme", "/conversations"), (await world.token(other), "/conversations")):
        cursor = (await world("GET", f"{path}?limit=1", key)).json()["next_before"]
        answer = await world("GET", f"/conversations?before={cursor}", token)
        is_problem(answer, 422, "cursor")


async def test_a_cursor_names_no_conversation_that_the_token_does_not_name(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conversation_list, "MAX_LOOKED", 3)
    user, mark = f"u-{uuid4().hex[:8]}", uuid4().hex[:8]
    names = [f"private-{mark}-{i}" for i in range(12)]
    for name in names:
        await world.begin(user, name=name)
    mine = [names[9], names[4], names[1]]
    token = await world.token(user, verbs=["read"], conversations=mine)
    for limit in (1, 2, 10):
        seen, query = [], f"?limit={limit}"
        while True:
            page = (await world("GET", f"/conversations{query}", token)).json()
            seen += [item["conversation"] for item in page["conversations"]]
            cursor = page["next_before"]
            if cursor is None:
                break
            shown = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
            assert [name for name in names if name.encode() in shown] in [[name] for name in mine]
            query = f"?limit={limit}&before={cursor}"
        assert seen == mine


async def test_a_refused_append_begins_nothing_and_an_erased_conversation_is_not_there(
    world: World,
) -> None:
    new, erased = f"new-{uuid4().hex[:12]}", await world.begin("ann", "hello")
    token = await world.token("ann", conversations=[new, erased])
    for body, status in (({"role": "assistant", "content": "x"}, 403), ([], 422)):
        is_problem(await world("POST", f"/conversations/{new}/messages", token, body), status)
    assert (await world("DELETE", f"/conversations/{new}", "eraser")).status_code == 404
    assert (await world("DELETE", f"/conversations/{erased}", "eraser")).status_code == 200
    body = {"role": "user", "content": "x"}
    for given in (token, await world.token("ann")):
        path = f"/conversations/{erased}/messages"
        is_problem(await world("POST", path, given, body), 404, "nothing was appended")
    is_problem(await world("POST", f"/conversations/{erased}/messages", "acme", body), 410)


async def test_of_two_users_who_begin_one_conversation_one_has_it(world: World) -> None:
    name = f"raced-{uuid4().hex[:12]}"
    users = ("ann", "bob", "cem", "dee")
    tokens = [await world.token(user, conversations=[name]) for user in users]
    answers = await asyncio.gather(
        *(
            world("POST", f"/conversations/{name}/events?wait=applied", token, say(f"I am {user}"))
            for user, token in zip(users, tokens, strict=True)
        )
    )
    assert sorted(answer.status_code for answer in answers)[0] == 200
    assert {answer.status_code for answer in answers} <= {200, 404}
    winner = [answer.status_code for answer in answers].index(200)
    reads = [await world("GET", f"/conversations/{name}/context", token) for token in tokens]
    assert [answer.status_code == 200 for answer in reads] == [i == winner for i in range(4)]
    messages = reads[winner].json()["messages"]
    assert messages == [{"role": "user", "content": f"I am {users[winner]}"}]


@pytest.mark.parametrize(
    ("flat", "status"),
    [
        (say("x", "system"), 403),
        (say("x", "developer"), 403),
        (say("x", "assistant"), 403),
        ({"type": "tool.result", "tool_call_id": "c", "content": "x"}, 403),
        ({"type": "conversation.opened", "user": "bob"}, 403),
        ({"type": "conversation.opened", "policy": {"working_budget": 1000}}, 403),
        ({"type": "rollback", "to": "0-0"}, 403),
        ({"type": "session.closed", "reason": "explicit"}, 403),
        ({"type": "conversation.erased"}, 403),
        ({"type": "app.note.v1", "text": "x"}, 403),
        ([], 422),
        ("text", 422),
        ({**say("x"), "name": "bob"}, 422),
        ({**say("x"), "time": "2000-01-01T00:00:00Z"}, 422),
        ({**say("x"), "id": "order-1182"}, 422),
        ({**say("x"), "conversation": "another"}, 422),
        ({**say("x"), "content": [{"type": "reasoning", "text": "x", "signature": "y"}]}, 422),
        ([say("fine"), say("x", "system")], 403),
    ],
    ids=str,
)  # fmt: skip
async def test_a_user_appends_what_a_user_says_and_nothing_else(
    world: World, flat: Any, status: int
) -> None:
    mine = await world.begin("ann", "hello")
    token = await world.token("ann")
    before = (await world("GET", f"/conversations/{mine}/history")).json()
    is_problem(await world("POST", f"/conversations/{mine}/events", token, flat), status)
    assert (await world("GET", f"/conversations/{mine}/history")).json() == before


async def test_a_message_of_another_role_in_any_format_is_refused(world: World) -> None:
    mine = await world.begin("ann", "hello")
    token = await world.token("ann")
    results = [{"type": "tool_result", "tool_use_id": "c", "content": "paid"}]
    for form, body in (
        ("openai", {"role": "system", "content": "x"}),
        ("openai", {"role": "tool", "tool_call_id": "c", "content": "x"}),
        ("anthropic", {"role": "assistant", "content": "x"}),
        ("anthropic", {"role": "user", "content": results}),
    ):
        path = f"/conversations/{mine}/messages?format={form}"
        is_problem(await world("POST", path, token, body), 403, "role user only")


async def test_an_idempotency_key_of_a_user_takes_no_id_of_the_tenant(world: World) -> None:
    mine = await world.begin("ann", "hello")
    token = await world.token("ann")
    ids = []
    for given in (token, token, "acme"):
        path = f"/conversations/{mine}/events?wait=applied"
        answer = await world("POST", path, given, say("x"), **{"Idempotency-Key": "refund-7"})
        ids.append((answer.json()["events"][0]["id"], answer.json()["events"][0]["status"]))
    assert [status for _, status in ids] == ["applied", "duplicate", "applied"]
    assert ids[0][0] == ids[1][0] != ids[2][0]


async def test_a_conversation_that_becomes_anothers_is_no_longer_the_users(world: World) -> None:
    name = await world.begin("ann", "hello")
    token = await world.token("ann")
    assert (await world("GET", f"/conversations/{name}/context", token)).status_code == 200
    await world.begin("bob", name=name)
    is_problem(await world("GET", f"/conversations/{name}/context", token), 404)
    assert (
        await world("GET", f"/conversations/{name}/context", await world.token("bob"))
    ).status_code == 200


async def test_each_verb_opens_what_it_names_and_needs_the_keys_own_scope(world: World) -> None:
    mine = await world.begin("ann", "hello")
    calls = {
        "read": ("GET", f"/conversations/{mine}/context", None),
        "append": ("POST", f"/conversations/{mine}/events", say("x")),
        "stream": ("GET", f"/conversations/{mine}/stream", None),
    }
    for verb in calls:
        token = await world.token("ann", verbs=[verb])
        for other, (method, path, body) in calls.items():
            if other != verb:
                is_problem(await world(method, path, token, body), 403, "scope")
            elif verb != "stream":
                assert (await world(method, path, token, body)).status_code in (200, 202)
    body = {"user": "ann", "verbs": ["read", "append"]}
    is_problem(await world("POST", "/tokens", "reader", body), 403, "'append'")
    assert (
        await world("POST", "/tokens", "reader", {**body, "verbs": ["read"]})
    ).status_code == 200
    is_problem(await world("POST", "/tokens", await world.token(), body), 403, "end user")


async def test_a_user_is_shown_who_he_is_and_the_own_window_as_it_is(world: World) -> None:
    mine, theirs = await world.begin("ann", "hello"), await world.begin("bob", "secret")
    token = await world.token("ann")
    assert (await world("GET", "/me", token)).json() == {
        "tenant": "acme",
        "user": "ann",
        "scopes": ["append", "read", "subscribe"],
        "quota": {},
        "used_today": None,
    }
    window = await world("GET", f"/conversations/{mine}/window", token)
    assert window.status_code == 200 and "hello" in window.text
    is_problem(await world("GET", f"/conversations/{theirs}/window", token), 404)
    past = f"/conversations/{mine}/window?at={window.json()['position']}"
    is_problem(await world("GET", past, token), 403, "leave out at")


async def test_what_is_not_declared_for_end_users_is_closed_to_them(world: World) -> None:
    mine = await world.begin("ann", "hello")
    token = await world.token("ann")
    for method, path in (
        ("GET", "/suspensions"),
        ("GET", "/summaries/stream"),
        ("POST", "/events"),
        ("POST", f"/conversations/{mine}/turns"),
        ("POST", f"/conversations/{mine}/renders"),
        ("POST", f"/conversations/{mine}/rollback"),
        ("POST", f"/conversations/{mine}/partial"),
        ("DELETE", f"/conversations/{mine}"),
        ("DELETE", "/users/ann"),
        ("GET", "/tenants"),
        ("GET", "/tokens/keys"),
        ("PUT", "/tokens/keys"),
    ):
        body = {} if method in ("POST", "PUT") else None
        answer = await world(method, path, token, body)
        assert answer.status_code == 403, (method, path, answer.text)


# -- which tokens
# ------------------------------------------------------------------------------------------


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


def is_problem_401(answer: httpx.Response, *parts: str) -> None:
    is_problem(answer, 401, *parts)
    assert "www-authenticate" in answer.headers


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
    return jwt.encode(
        claims, signer.key, algorithm or signer.algorithm, {"kid": signer.kid, **(headers or {})}
    )


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
        (signed(stranger), "signature"),
        (unsigned, "algorithms"),
        (confused, "algorithms"),
        (signed(signer, headers={"kid": "../../etc/passwd"}), "not in the key set"),
        (signed(signer, headers={"kid": "k2", "jwk": stranger.jwk}), "not in the key set"),
        (signed(signer, tenant="rival"), "not in the key set"),
        (signed(signer, tenant="nobody"), "not in the key set"),
        (signed(signer, tenant=None), "'tenant'"),
        (signed(signer, tenant={"a": 1}), "'tenant'"),
        (signed(signer, exp=now - 60), "expired"),
        (signed(signer, exp=now + 200_000), "lasts longer"),
        (signed(signer, exp=None), "exp"),
        (signed(signer, nbf=now + 600), "not valid yet"),
        (signed(signer, sub=None), "sub"),
        (signed(signer, sub=""), "sub"),
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
        ({"kid": None}, "kid"),
        ({"use": "enc"}, "cannot check"),
        ({"kty": ["EC"]}, "cannot check"),
        ({"crv": {"P-256": 1}}, "cannot check"),
        ({"alg": []}, "cannot check"),
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


# -- streams
# ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("carried", ["query", "cookie", "header"])
async def test_a_stream_takes_its_token_where_a_browser_can_put_it_and_logs_it_nowhere(
    world: World, carried: str, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    mine = await world.begin("ann", "hello")
    token = await world.token("ann", verbs=["stream"])
    query = f"?token={token}" if carried == "query" else ""
    headers = {
        "cookie": {"Cookie": f"theme=dark; threadfold_token={token}"},
        "header": {"Authorization": f"Bearer {token}"},
        "query": {},
    }[carried]
    seen = Followed()
    task = asyncio.create_task(follow(world, f"/conversations/{mine}/stream{query}", headers, seen))
    await seen.has("event: state")
    await world("POST", f"/conversations/{mine}/events", "acme", say("to the page"))
    await seen.has("to the page")
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    shown = "".join(
        record.getMessage() for record in caplog.records if not record.name.startswith("http")
    )
    out, error = capfd.readouterr()
    metrics = (await world.http.get("/metrics")).text
    for text in (shown, out, error, metrics, seen.text):
        assert token not in text
        assert token.rpartition(".")[2] not in text


async def test_a_token_in_an_address_is_for_streams_alone_and_a_key_never_goes_there(
    world: World,
) -> None:
    mine = await world.begin("ann", "hello")
    token, key = await world.token("ann"), world.keys["acme"]
    for path in ("context", "history"):
        for query, cookie in ((f"?token={token}", ""), ("", f"threadfold_token={token}")):
            answer = await world.http.get(
                f"/v1/conversations/{mine}/{path}{query}", headers={"Cookie": cookie}
            )
            is_problem_401(answer)
            assert token not in answer.text
    stream = f"/v1/conversations/{mine}/stream"
    for query in (f"?token={key}", f"?token={token}&token={token}", "?token="):
        answer = await world.http.get(stream + query)
        is_problem_401(answer, "query parameter token")
        assert key not in answer.text and token not in answer.text
    headers = {"Cookie": f"threadfold_token={token}", "Origin": "https://elsewhere.example"}
    is_problem_401(await world.http.get(stream, headers=headers))


async def test_a_stream_ends_with_its_token_and_with_the_conversations_owner(world: World) -> None:
    mine = await world.begin("ann", "hello")
    short = await world.token("ann", expires_in=2)
    token = await world.token("ann")
    until_expired, until_lost = Followed(), Followed()
    path = f"/conversations/{mine}/stream?token="
    tasks = [
        asyncio.create_task(follow(world, path + short, {}, until_expired)),
        asyncio.create_task(follow(world, path + token, {}, until_lost)),
    ]
    await until_lost.has("event: state")
    await asyncio.wait_for(until_expired.ended.wait(), 10)
    assert "not valid any more" in until_expired.text
    await world("POST", f"/conversations/{mine}/events", "acme", say("still mine"))
    await until_lost.has("still mine")
    await world.begin("bob", "for bob alone", name=mine)
    await asyncio.wait_for(until_lost.ended.wait(), 10)
    await asyncio.gather(*tasks)
    assert "not yours any more" in until_lost.text
    assert "bob" not in until_lost.text


async def test_a_conversation_whose_opening_is_rolled_back_is_nobodys(world: World) -> None:
    name = f"back-{uuid4().hex[:12]}"
    path = f"/conversations/{name}/events?wait=applied"
    first = (await world("POST", path, "acme", say("before"))).json()["position"]
    await world.begin("ann", "secret", name=name)
    token, seen = await world.token("ann"), Followed()
    stream = f"/conversations/{name}/stream?token={token}"
    task = asyncio.create_task(follow(world, stream, {}, seen))
    await seen.has("event: state")
    await world("POST", path, "acme", {"type": "rollback", "to": first})
    await asyncio.wait_for(seen.ended.wait(), 10)
    await task
    assert "not yours any more" in seen.text
    is_problem(await world("GET", f"/conversations/{name}/context", token), 404)


# -- erasure
# ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("at_once", [True, False])
async def test_what_was_given_to_another_user_is_not_erased_with_its_former_one(
    world: World, at_once: bool
) -> None:
    former, present = f"former-{at_once}", f"present-{at_once}"
    name, own = f"given-{uuid4().hex[:12]}", await world.begin(former, "mine alone")
    opened = [{"type": "conversation.opened", "user": user} for user in (former, present)]
    events = [opened[0], say("of the former"), opened[1]]
    for body in [events] if at_once else [[event] for event in events]:
        await world("POST", f"/conversations/{name}/events?wait=applied", "acme", body)
    answer = await world("DELETE", f"/users/{former}", "eraser")
    assert [one["conversation"] for one in answer.json()["conversations"]] == [own]
    context = await world("GET", f"/conversations/{name}/context", await world.token(present))
    assert "of the former" in context.text
    repeated = await world("DELETE", f"/users/{former}", "eraser")
    assert repeated.json() == answer.json()
    answer = await world("DELETE", f"/users/{present}", "eraser")
    assert [one["conversation"] for one in answer.json()["conversations"]] == [name]


# -- pages of other origins
# ------------------------------------------------------------------------------------------


async def test_a_page_of_a_configured_origin_may_call_and_no_other(world: World) -> None:
    mine = await world.begin("ann", "hello")
    token = await world.token("ann")
    path = f"/v1/conversations/{mine}/events"
    asks = {
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization,content-type",
    }
    preflight = await world.http.options(path, headers={"Origin": PAGE, **asks})
    assert preflight.status_code == 204
    allowed = preflight.headers
    assert allowed["access-control-allow-origin"] == PAGE
    assert "POST" in allowed["access-control-allow-methods"]
    assert "authorization" in allowed["access-control-allow-headers"]
    assert allowed["vary"] == "Origin"
    headers = {"Origin": PAGE, "Authorization": f"Bearer {token}"}
    answers = [
        await world.http.post(path, json=say("x"), headers=headers),
        await world.http.post(path, json=say("x", "system"), headers=headers),
        await world.http.post(path, json=say("x"), headers={"Origin": PAGE}),
    ]
    assert [answer.status_code for answer in answers] == [202, 403, 401]
    for answer in answers:
        assert answer.headers["access-control-allow-origin"] == PAGE
    for origin in ("https://evil.example", f"{PAGE}.evil.example", "null", PAGE.upper()):
        refused = await world.http.options(path, headers={"Origin": origin, **asks})
        is_problem(refused, 403, "cors_origins")
        answer = await world.http.get(
            f"/v1/conversations/{mine}/context", headers={**headers, "Origin": origin}
        )
        for each in (refused, answer):
            assert "access-control-allow-origin" not in each.headers
