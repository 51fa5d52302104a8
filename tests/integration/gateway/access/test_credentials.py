"""Keys, signed tokens and no auth: who is let in, as whom, and to do what."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path

import httpx
import msgspec
import pytest

from projections.errors import InvalidSettings
from projections.events.times import rfc3339
from streams.control.state import Maintenance
from streams.settings.quotas import ApiKey, hash_key, key_id
from streams.settings.settings import Settings
from tests.support.access import CONTEXT, World, refused
from tests.support.gateway import say
from tests.support.serving import serving
from tests.support.tokens import AUDIENCE, ISSUER, Signer
from tests.support.worker import until
from threadfold.gateway import create_gateway, serve

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
