"""Tenants are administered, and their quotas and shares hold at each gateway of a deployment."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from uuid import uuid4

import httpx

from streams.settings.quotas import hash_key
from streams.settings.settings import Settings
from tests.support.access import CONTEXT, World, refused
from tests.support.gateway import say
from tests.support.worker import until
from threadfold.gateway import create_gateway
from threadfold.gateway.concurrency import Limits

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
    refused(await world("POST", "/v1/tenants", "root", new), 409, "newco exists already")

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
        (
            "POST",
            "/v1/tenants",
            {"name": "x", "expires_at": "2001-01-01T00:00:00Z"},
            422,
            "in the past",
        ),
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
