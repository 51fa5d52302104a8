"""Who is let in, as whom, to do what: keys, signed tokens, no auth, administration, quotas and each
tenant's share of what may be under way.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import msgspec
import pytest

from projections.errors import InvalidSettings
from projections.events.times import rfc3339
from streams.control.control_topic import Control
from streams.control.state import Generation, Maintenance
from streams.settings.quotas import ApiKey, hash_key, key_id
from streams.settings.settings import Settings
from tests.support.gateway import POLICY, PROBLEM, say
from tests.support.serving import serving
from tests.support.tokens import AUDIENCE, ISSUER, Signer, key_set
from tests.support.worker import running_worker, until
from threadfold.gateway import create_gateway, serve
from threadfold.gateway.concurrency import Limits


class World:
    """Two gateways of one deployment, and keys by name."""

    def __init__(
        self, one: str, two: str, keys: dict[str, str], control: Control, settings: Settings
    ) -> None:
        self.urls = (one, two)
        self.keys = keys
        self.control = control
        self.settings = settings
        self.http = httpx.AsyncClient(timeout=30)

    async def __call__(
        self, method: str, path: str, key: str | None = "acme", body: Any = None, gateway: int = 0
    ) -> httpx.Response:
        headers = {} if key is None else {"Authorization": f"Bearer {self.keys.get(key, key)}"}
        content = None if body is None else json.dumps(body).encode()
        return await self.http.request(
            method, self.urls[gateway] + path, content=content, headers=headers
        )


@pytest.fixture(scope="module")
def signer() -> Signer:
    return Signer("k1")


@pytest.fixture(scope="module")
async def world(
    settings: Settings, signer: Signer, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[World]:
    source = tmp_path_factory.mktemp("keys") / "set.json"
    source.write_bytes(key_set(signer))
    told = msgspec.structs.replace(
        settings, jwt_issuer=ISSUER, jwt_audience=AUDIENCE, jwt_keys=str(source)
    )
    control = await Control(settings).start()
    await control.write(
        {"generation/1": Generation(1, settings.partitions, POLICY), "generation/live": 1}
    )
    keys = {}
    for tenant, scopes in (
        ("acme", None),
        ("beta", None),
        ("reader", ["read"]),
        ("root", ["admin"]),
    ):
        await control.ensure_tenant(tenant)
        keys[tenant] = await control.add_key(tenant, scopes)
    async with (
        running_worker(settings),
        serving(create_gateway(told)) as one,
        serving(create_gateway(told)) as two,
    ):
        made = World(one, two, keys, control, settings)

        async def ready() -> bool:
            return all(
                [(await made("GET", "/readyz", gateway=i)).status_code == 200 for i in (0, 1)]
            )

        await until(ready)
        yield made
        await made.http.aclose()
    await control.stop()


def refused(answer: httpx.Response, status: int, *parts: str) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == PROBLEM
    document: dict[str, Any] = answer.json()
    for part in parts:
        assert part in document["detail"], document["detail"]
    assert ("www-authenticate" in answer.headers) == (status == 401)
    return document


CONTEXT = "/v1/conversations/never/context"


# -- keys
# ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "header", [None, "", "Bearer", "Basic abc", "tf_abc", "Bearer tf_unknown", "Bearer \xe9"]
)
async def test_what_is_no_known_key_is_401_and_says_what_to_do(
    world: World, header: str | None
) -> None:
    headers = {} if header is None else {"Authorization": header.encode("latin-1")}
    for path in (CONTEXT, "/v1/no/such/route", "/v1/tenants"):
        answer = await world.http.get(world.urls[0] + path, headers=headers)
        refused(
            answer,
            401,
            "key",
            (
                "threadfold tenants add"
                if (header and "unknown" in header) or header == "Bearer \xe9"
                else "Authorization"
            ),
        )


async def test_two_authorization_headers_are_none(world: World) -> None:
    headers = [
        ("Authorization", f"Bearer {world.keys['acme']}"),
        ("Authorization", f"Bearer {world.keys['root']}"),
    ]
    refused(
        await world.http.get(world.urls[0] + CONTEXT, headers=headers),
        401,
        "several Authorization headers",
    )


async def test_an_expired_key_says_when_it_ended_and_a_revoked_one_opens_nothing(
    world: World,
) -> None:
    gone = rfc3339(datetime.fromtimestamp(int(time.time()) - 60, UTC))
    await world.control.write({f"key/{hash_key('tf_old')}": ApiKey("acme", expires_at=gone)})
    both = [await world.control.add_key("acme"), await world.control.add_key("acme")]

    async def seen() -> bool:
        return (await world("GET", CONTEXT, both[1])).status_code == 404

    await until(seen)
    refused(await world("GET", CONTEXT, "tf_old"), 401, "expired", gone)
    assert await world.control.revoke_keys("acme", key_id(hash_key(both[0]))) == 1

    async def revoked() -> bool:
        return (await world("GET", CONTEXT, both[0])).status_code == 401

    await until(revoked)
    refused(await world("GET", CONTEXT, both[0]), 401, "revoked")
    refused(await world("GET", CONTEXT, both[1]), 404, "never")


async def test_appends_under_maintenance_are_503_and_reads_go_on(world: World) -> None:
    path = "/v1/conversations/kept/events"
    assert (await world("POST", f"{path}?wait=applied", "acme", say("x"))).status_code == 200
    await world.control.write({"maintenance/acme": Maintenance("2026-01-31T12:00:00Z", "it moves")})

    async def stopped() -> bool:
        return (await world("POST", path, "acme", say("y"))).status_code == 503

    await until(stopped)
    answer = await world("POST", path, "acme", say("z"))
    refused(answer, 503, "tenant acme is under maintenance since 2026-01-31", "it moves")
    assert answer.headers["retry-after"] == "30"
    context = await world("GET", "/v1/conversations/kept/context", "acme")
    assert context.json()["count"] >= 1
    assert (await world("POST", path, "beta", say("x"))).status_code == 202
    await world.control.write({"maintenance/acme": None})

    async def goes_on() -> bool:
        return (await world("POST", path, "acme", say("w"))).status_code == 202

    await until(goes_on)


async def test_a_key_without_the_scope_is_403_and_the_scope_is_named(world: World) -> None:
    refused(
        await world("POST", "/v1/conversations/c/events", "reader", say("x")), 403, "append", "read"
    )
    refused(await world("GET", CONTEXT, "root"), 403, "read", "admin")
    for method, path in (
        ("GET", "/v1/tenants"),
        ("POST", "/v1/tenants"),
        ("GET", "/v1/tenants/beta"),
        ("DELETE", "/v1/tenants/beta/keys"),
    ):
        refused(await world(method, path, "acme", {} if method == "POST" else None), 403, "admin")


# -- signed tokens
# ------------------------------------------------------------------------------------------


async def test_a_signed_token_opens_its_tenant(world: World, signer: Signer) -> None:
    said = await world(
        "POST", "/v1/conversations/jwt/events?wait=applied", signer.token(), say("by token")
    )
    assert said.status_code == 200
    assert "by token" in (await world("GET", "/v1/conversations/jwt/context", "acme")).text
    refused(await world("GET", "/v1/conversations/jwt/context", signer.token(tenant="beta")), 404)
    refused(
        await world("GET", "/v1/conversations/jwt/context", signer.token(scope="append")),
        403,
        "read",
    )
    refused(await world("GET", "/v1/tenants", signer.token(scope="admin read")), 403, "admin")


async def test_a_signed_token_that_does_not_hold_says_why(world: World, signer: Signer) -> None:
    cases = (
        (signer.token(exp=1_000), "expired"), (signer.token(aud="x"), "audience"), (signer.token(iss="x"), "issuer"),
        (signer.token(tenant=None), "tenant"), (Signer("k1").token(), "signature"), ("a.b.c", "malformed"),
        (signer.token(headers={"kid": "k2"}), "k2"), ("..", "malformed"),
    )  # fmt: skip
    for token, part in cases:
        refused(await world("GET", CONTEXT, token), 401, part)


async def test_a_key_set_that_cannot_be_fetched_is_503_and_named_while_keys_go_on(
    settings: Settings, world: World, tmp_path: Path
) -> None:
    told = msgspec.structs.replace(
        settings, jwt_issuer=ISSUER, jwt_audience=AUDIENCE, jwt_keys=str(tmp_path / "none.json")
    )
    with pytest.raises(InvalidSettings, match=r"there is no file .*none\.json"):
        create_gateway(told)
    (tmp_path / "none.json").touch()
    app = create_gateway(told)
    (tmp_path / "none.json").unlink()
    async with serving(app) as url, httpx.AsyncClient(base_url=url) as http:

        async def connected() -> bool:
            headers = {"Authorization": f"Bearer {world.keys['acme']}"}
            return (await http.get(CONTEXT, headers=headers)).status_code == 404

        await until(connected)
        answer = await http.get(
            CONTEXT, headers={"Authorization": f"Bearer {Signer('k1').token()}"}
        )
        refused(answer, 503, "none.json", "cannot be fetched")
        assert answer.headers["retry-after"] == "1"


# -- no auth
# ------------------------------------------------------------------------------------------


async def test_without_auth_everybody_is_one_tenant_with_all_scopes_but_admin_on_loopback_only(
    settings: Settings, world: World
) -> None:
    off = msgspec.structs.replace(settings, auth="off", auth_tenant="acme")
    with pytest.raises(InvalidSettings, match="loopback only"):
        serve(msgspec.structs.replace(off, gateway_host="0.0.0.0"))
    await world("POST", "/v1/conversations/open/events?wait=applied", "acme", say("seen by all"))
    async with serving(create_gateway(off)) as url, httpx.AsyncClient(base_url=url) as http:

        async def seen() -> bool:
            return "seen by all" in (await http.get("/v1/conversations/open/context")).text

        await until(seen)
        assert (
            await http.get(
                "/v1/conversations/open/context", headers={"Authorization": "Bearer rubbish"}
            )
        ).status_code == 200
        refused(await http.get("/v1/tenants"), 403, "admin")


# -- administration
# ------------------------------------------------------------------------------------------


async def test_a_tenant_is_made_changed_and_its_keys_come_and_go_seen_by_the_other_gateway_soon(
    world: World,
) -> None:
    new = {
        "name": "newco",
        "policy": {"min_messages": 5},
        "quota": {"requests_per_second": 50},
        "scopes": ["read"],
        "key_name": "first",
    }
    made = await world("POST", "/v1/tenants", "root", new)
    assert made.status_code == 201
    document = made.json()
    key = document["key"]
    assert key.startswith("tf_")
    assert hash_key(key)[:12] == document["keys"][0]["id"]
    assert document["policy"] == {"min_messages": 5}
    assert document["quota"] == {"requests_per_second": 50}

    async def other_sees() -> bool:
        return (await world("GET", CONTEXT, key, gateway=1)).status_code == 404

    await until(other_sees, 10)  # a second and less, but on a busy machine
    refused(await world("POST", "/v1/tenants", "root", new), 409, "newco is known already")

    more = {
        "scopes": ["append", "read"],
        "name": "second",
        "expires_at": "2099-01-01T00:00:00+01:00",
    }
    second = (await world("POST", "/v1/tenants/newco/keys", "root", more)).json()
    assert (second["scopes"], second["expires_at"], second["name"]) == (
        ["append", "read"],
        "2098-12-31T23:00:00Z",
        "second",
    )
    listed = await world("GET", "/v1/tenants/newco/keys", "root", gateway=1)
    assert [each["name"] for each in listed.json()["keys"]] == ["first", "second"]
    for text in (listed.text, (await world("GET", "/v1/tenants", "root")).text):
        assert hash_key(second["key"])[:13] not in text
        assert second["key"] not in text

    changed = (
        await world(
            "PATCH",
            "/v1/tenants/newco",
            "root",
            {"policy": {"min_messages": 6}, "quota": {"streams": 2}},
        )
    ).json()
    assert (changed["policy"], changed["next_policy"]) == ({"min_messages": 5}, {"min_messages": 6})
    assert changed["quota"] == {"requests_per_second": 50, "streams": 2}
    assert changed["quota_in_force"]["streams"] == 2
    shown = (await world("GET", "/v1/tenants/newco", "root", gateway=1)).json()
    assert shown.pop("used_today") == {"summary_tokens": 0, "summary_cost": 0}
    assert {**shown, "keys": []} == {**changed, "keys": []}
    back = (
        await world("PATCH", "/v1/tenants/newco", "root", {"policy": {"min_messages": 5}})
    ).json()
    assert back["next_policy"] is None

    assert (await world("DELETE", f"/v1/tenants/newco/keys/{second['id']}", "root")).json() == {
        "revoked": [second["id"]]
    }

    async def gone() -> bool:
        return (await world("GET", CONTEXT, second["key"], gateway=1)).status_code == 401

    await until(gone, 10)
    assert (await world("GET", CONTEXT, key)).status_code == 404
    assert len((await world("DELETE", "/v1/tenants/newco/keys", "root")).json()["revoked"]) == 1
    refused(await world("GET", CONTEXT, key), 401, "revoked")


async def test_wrong_administration_is_refused_by_name_and_changes_nothing(world: World) -> None:
    tenants = (await world("GET", "/v1/tenants", "root")).json()
    for method, path, body, status, part in (
        ("POST", "/v1/tenants", {"name": "a b"}, 422, "a b"),
        ("POST", "/v1/tenants", {"nam": "x"}, 422, "nam"),
        ("POST", "/v1/tenants", {"name": "x", "scopes": ["fly"]}, 422, "fly is not a scope"),
        ("POST", "/v1/tenants", {"name": "x", "quota": {"speed": 1}}, 422, "speed"),
        ("POST", "/v1/tenants", {"name": "x", "policy": {"budget": 1}}, 422, "budget"),
        ("POST", "/v1/tenants", {"name": "x", "expires_at": "2001-01-01T00:00:00Z"}, 422, "passed"),
        ("POST", "/v1/tenants", [], 422, "object"),
        ("PATCH", "/v1/tenants/beta", {}, 422, "changes nothing"),
        ("PATCH", "/v1/tenants/beta", {"quota": {"streams": -1}}, 422, "streams"),
        ("PATCH", "/v1/tenants/absent", {"quota": {}}, 404, "absent"),
        ("GET", "/v1/tenants/absent", None, 404, "absent"),
        ("GET", "/v1/tenants/a%20b", None, 422, "a b"),
        ("POST", "/v1/tenants/absent/keys", {}, 404, "absent"),
        ("POST", "/v1/tenants/beta/keys", {"scopes": []}, 422, "nothing is not a scope"),
        ("DELETE", "/v1/tenants/beta/keys/abc", None, 404, "'abc'"),
        (
            "DELETE",
            f"/v1/tenants/beta/keys/{hash_key(world.keys['acme'])[:12]}",
            None,
            404,
            "beta has no key",
        ),
    ):
        refused(await world(method, path, "root", body), status, part)
    unknown = await world("DELETE", "/v1/tenants/beta/keys/abc", "root")
    assert unknown.json()["type"] == "urn:threadfold:problem:unknown-key"
    assert (await world("GET", "/v1/tenants", "root")).json() == tenants


# -- quotas and room
# ------------------------------------------------------------------------------------------


async def test_a_tenant_over_its_quota_is_429_at_both_gateways_and_no_other_is(
    world: World,
) -> None:
    await world(
        "PATCH",
        "/v1/tenants/beta",
        "root",
        {"quota": {"requests_per_second": 4, "requests_burst": 1}},
    )

    async def limited(gateway: int) -> httpx.Response | None:
        answer = await world("GET", CONTEXT, "beta", gateway=gateway)
        return answer if answer.status_code == 429 else None

    for gateway in (0, 1):
        answer = await until(lambda gateway=gateway: limited(gateway))
        document = refused(answer, 429, "beta", "requests_per_second (4)")
        assert document["type"] == "urn:threadfold:problem:quota-exceeded"
        assert int(answer.headers["retry-after"]) >= 1
    assert (await world("GET", CONTEXT, "acme")).status_code == 404
    begun = time.monotonic()
    answers = await asyncio.gather(*(world("GET", CONTEXT, "beta") for _ in range(20)))
    refusals = sum(answer.status_code == 429 for answer in answers)
    assert refusals >= 12
    assert time.monotonic() - begun >= 0.1, "refusals are held back"
    changed = (
        await world("PATCH", "/v1/tenants/beta", "root", {"quota": {"requests_per_second": None}})
    ).json()
    assert changed["quota"] == {"requests_burst": 1}
    assert (await world("PATCH", "/v1/tenants/beta", "root", {"quota": None})).json()["quota"] == {}

    async def free() -> bool:
        return all(
            [(await world("GET", CONTEXT, "beta", gateway=i)).status_code == 404 for i in (0, 1)]
        )

    await until(free)


async def test_tokens_are_charged_by_what_was_accepted_and_reads_go_on(world: World) -> None:
    (
        await world(
            "POST",
            "/v1/tenants",
            "root",
            {"name": "wordy", "quota": {"tokens_per_minute": 600, "tokens_burst": 1}},
        )
    ).raise_for_status()
    key = (await world("POST", "/v1/tenants/wordy/keys", "root", {})).json()["key"]
    path = "/v1/conversations/w/events?wait=applied"
    refused(await world("POST", path, key, {"type": "message", "role": "boss"}), 422)
    assert (await world("POST", path, key, say("word " * 500))).status_code == 200
    answer = await world("POST", path, key, say("more"))
    refused(answer, 429, "tokens_per_minute (600)")
    assert 40 <= int(answer.headers["retry-after"]) <= 60, "about 500 tokens at 10 a second"
    refused(await world("POST", "/v1/events", key, {"conversation": "w", **say("more")}), 429)
    assert (await world("GET", "/v1/conversations/w/context", key)).status_code == 200


async def test_lists_that_come_at_once_are_not_all_let_in_on_the_last_token(world: World) -> None:
    new = {
        "name": f"flood-{uuid4().hex}",
        "quota": {"tokens_per_minute": 6_000, "tokens_burst": 10},
    }
    key = (await world("POST", "/v1/tenants", "root", new)).json()["key"]
    answers = await asyncio.gather(
        *(
            world("POST", f"/v1/conversations/f{i}/events", key, [say("word " * 100)] * 5)
            for i in range(40)
        )
    )
    counts = [sum(answer.status_code == status for answer in answers) for status in (202, 429)]
    assert sum(counts) == 40
    # On a busy machine the gateway may count by itself, and then lets one list in at a time.
    assert 1 <= counts[0] <= 8, "1,000 tokens, at about 500 a list, guessed as 350"


async def test_a_tenants_share_of_what_may_be_under_way_is_its_own(
    world: World, settings: Settings
) -> None:
    app = create_gateway(settings)
    transport = httpx.ASGITransport(app)
    begun, release = asyncio.Event(), asyncio.Event()

    async def slow() -> AsyncIterator[bytes]:
        yield json.dumps(say("x" * 500)).encode()
        begun.set()
        await release.wait()

    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://gateway") as http,
    ):
        acme, beta = ({"Authorization": f"Bearer {world.keys[name]}"} for name in ("acme", "beta"))

        async def connected() -> bool:
            return (await http.get(CONTEXT, headers=acme)).status_code == 404

        await until(connected)
        limit = app.concurrency
        limit.limits = Limits(requests=4, body_bytes=4_000)
        first = asyncio.create_task(
            http.post("/v1/conversations/room/events", content=slow(), headers=acme)
        )
        await asyncio.wait_for(begun.wait(), 10)
        answer = await http.get(CONTEXT, headers=acme)
        refused(answer, 429, "acme has 1 requests under way")
        assert answer.headers["retry-after"] == "1"
        assert (await http.get(CONTEXT, headers=beta)).status_code == 404
        limit.limits = Limits(requests=40, body_bytes=4_000)
        refused(
            await http.post("/v1/conversations/room/events", json=say("y" * 800), headers=acme),
            429,
            "MiB of requests",
        )
        assert (
            await http.post("/v1/conversations/room/events", json=say("y" * 800), headers=beta)
        ).status_code == 202
        release.set()
        assert (await first).status_code == 202
        assert (limit.all.requests, limit.all.bytes, limit.tenants) == (0, 0, {})


async def test_rollbacks_have_a_quota_of_their_own_whatever_route_they_come_by(
    world: World,
) -> None:
    new = {"name": "back", "quota": {"rollbacks_per_minute": 3, "rollbacks_burst": 60}}
    key = (await world("POST", "/v1/tenants", "root", new)).json()["key"]
    sent = await world("POST", "/v1/conversations/c/events", key, [say("one"), say("two")])
    to = sent.json()["events"][0]["position"]
    back = {"type": "rollback", "to": to}
    many = await world("POST", "/v1/conversations/c/events", key, [back] * 4)
    assert many.status_code == 429 and "allows 3" in many.json()["detail"]
    answers = [
        await world("POST", "/v1/conversations/c/rollback", key, {"to": to}),
        await world("POST", "/v1/conversations/c/events", key, back),
        await world("POST", "/v1/events", key, [back | {"conversation": "c"}]),
        *[await world("POST", "/v1/conversations/c/rollback", key, {"to": to}) for _ in range(2)],
    ]
    codes = [answer.status_code for answer in answers]
    assert codes[:3] == [202] * 3 and codes[-1] == 429, codes
    assert "rollbacks_per_minute (3)" in answers[-1].json()["detail"]
    assert 1 <= int(answers[-1].headers["retry-after"]) <= 60
    assert (await world("POST", "/v1/conversations/c/events", key, say("on"))).status_code == 202
