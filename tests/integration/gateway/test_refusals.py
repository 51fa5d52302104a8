"""The gateway refuses missing rights, another tenant's positions, bad input and excess."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import httpx
import pytest

from streams.settings.settings import Settings
from tests.support.gateway import Client, is_problem, say
from tests.support.worker import until
from threadfold.gateway import create_gateway
from threadfold.gateway.concurrency import Limits

# -- another tenant's
# ------------------------------------------------------------------------------------------


async def test_another_tenants_conversation_is_simply_unknown(call: Client) -> None:
    answer = (
        await call(
            "POST", "/v1/conversations/secret/events?wait=applied", [say("classified"), say("more")]
        )
    ).json()
    cursor = (await call("GET", "/v1/conversations/secret/history?limit=1")).json()["next_before"]
    position = answer["events"][0]["position"]
    for path in ("context", "history", f"history?before={cursor}"):
        is_problem(
            await call("GET", f"/v1/conversations/secret/{path}", tenant="rival"), 404, "secret"
        )
    for path in (f"events/{position}", f"context?after={position}"):
        response = await call("GET", f"/v1/conversations/secret/{path}", tenant="rival")
        assert response.status_code in (404, 422)
        assert "classified" not in response.text
    # With a conversation of the same name of its own, the tenant reaches only that one.
    own = (
        await call(
            "POST", "/v1/conversations/secret/events?wait=applied", say("mine"), tenant="rival"
        )
    ).json()
    rolled = await call(
        "POST",
        "/v1/conversations/secret/rollback?wait=applied",
        {"to": answer["events"][0]["id"]},
        tenant="rival",
    )
    assert rolled.json()["events"][0]["status"] == "rejected"
    context = (
        await call(
            "GET", f"/v1/conversations/secret/context?after={own['position']}", tenant="rival"
        )
    ).json()
    assert [m["content"] for m in context["messages"]] == ["mine"]
    is_problem(
        await call("GET", f"/v1/conversations/secret/history?before={cursor}", tenant="rival"),
        422,
        "cursor",
    )
    is_problem(
        await call("GET", f"/v1/conversations/secret/events/{position}", tenant="rival"),
        422,
        position,
    )
    theirs = (await call("GET", "/v1/conversations/secret/context")).json()
    assert [m["content"] for m in theirs["messages"]] == ["classified", "more"]


async def test_the_tenant_is_the_keys_whatever_the_path_or_body_says(call: Client) -> None:
    is_problem(
        await call(
            "POST", "/v1/events", {"conversation": "acme/secret", **say("x")}, tenant="rival"
        ),
        422,
        "acme/secret",
    )
    is_problem(await call("GET", "/v1/conversations/acme%2Fsecret/context", tenant="rival"), 404)
    is_problem(
        await call(
            "POST", "/v1/conversations/c/events", {"tenant": "acme", **say("x")}, tenant="rival"
        ),
        422,
        "tenant",
        "unknown",
    )
    is_problem(
        await call(
            "POST",
            "/v1/conversations/c/events",
            {"source": "/tenants/acme", **say("x")},
            tenant="rival",
        ),
        422,
        "source",
    )
    is_problem(
        await call("POST", "/v1/conversations/c/events", {"conversation": "d", **say("x")}),
        422,
        "event 1",
        "conversation",
    )


async def test_without_a_known_key_every_route_answers_401(call: Client) -> None:
    routes = [
        ("POST", "/v1/conversations/c/events"), ("POST", "/v1/conversations/c/messages"), ("POST", "/v1/events"),
        ("POST", "/v1/conversations/c/rollback"), ("POST", "/v1/conversations/c/close"), ("GET", "/v1/conversations/c/context"),
        ("GET", "/v1/conversations/c/history"), ("GET", "/v1/conversations/c/events/0-0"),
        ("POST", "/v1/conversations/c/renders"), ("GET", "/v1/renders/AAAA"),
    ]  # fmt: skip
    for method, path in routes:
        for headers in (
            {},
            {"Authorization": "Bearer tf_wrong"},
            {"Authorization": "Basic abc"},
            {"Authorization": "Bearer"},
        ):
            response = await call(
                method, path, b"{" if method == "POST" else None, tenant="anon", headers=headers
            )
            is_problem(response, 401, "key")
            assert response.headers["www-authenticate"].startswith("Bearer")


async def test_a_key_without_the_scope_is_403(call: Client) -> None:
    is_problem(
        await call("POST", "/v1/conversations/c/events", say("x"), tenant="reader"), 403, "append"
    )
    is_problem(await call("GET", "/v1/conversations/never/context", tenant="reader"), 404)


# -- bad input
# ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "part"),
    [
        (b"", "empty"),
        (b'{"type":"message"', "line 1, column"),
        (b'{"type":\n"message",}', "line 2, column"),
        (b"{} {}", "line 1, column"),
        (b'{"type":"message","role":"user","content":"\xff"}', "UTF-8 at byte 43"),
        (b'{"type":"message","role":"user","content":NaN}', "not JSON"),
        (b'{"type":"message","role":"user","content":1e999}', "not JSON"),
        (b'{"type":"message","role":"user","content":' + b"1" * 6000 + b"}", "not JSON"),
        (b'{"type":"message","role":"user","content":"\\ud800"}', "surrogate"),
        (b'{"type":"message","role":"user","content":"\\ud800 x"}', "surrogate"),
        (b"[" * 10_000 + b"]" * 10_000, "deep"),
    ],
)
async def test_malformed_json_is_400_and_says_where(call: Client, body: bytes, part: str) -> None:
    for path in (
        "/v1/conversations/bad/events",
        "/v1/conversations/bad/messages",
        "/v1/events",
        "/v1/conversations/bad/rollback",
    ):
        is_problem(await call("POST", path, body), 400, part)


@pytest.mark.parametrize(
    ("body", "parts"),
    [
        (b"5", ("event 1", "object")),
        (b"[]", ("empty",)),
        (b"{}", ("event 1", "type")),
        (
            b'[{"type":"message","role":"user","content":"a"},{"type":"message","role":"boss","content":"a"}]',
            ("event 2", "role"),
        ),
        (b'{"type":"message","role":"user","content":7}', ("event 1", "content")),
        (b'{"type":"message","role":"user"}', ("event 1", "content")),
        (b'{"type":"nonsense"}', ("event 1", "nonsense")),
        (b'{"type":"conversation.erased"}', ("event 1", "operator")),
        (b'{"type":"message","role":"user","content":"a","id":""}', ("event 1", "id")),
        (b'{"type":"message","role":"user","content":"a","time":"yesterday"}', ("event 1", "time")),
        (b'{"type":"conversation.opened","policy":{"budget":1}}', ("event 1", "policy", "budget")),
        (
            b'{"type":"conversation.opened","policy":{"reserve_tokens":999999}}',
            ("event 1", "policy", "reserve_tokens"),
        ),
        (b'{"type":"conversation.opened","metadata":{"n":' + b"9" * 400 + b"}}", ("event 1",)),
        (
            b'{"type":"conversation.opened","metadata":{"n":' + b"[" * 400 + b"]" * 400 + b"}}",
            ("event 1",),
        ),
        (
            b'{"type":"conversation.opened","tools":[{"n":' + b"[" * 400 + b"]" * 400 + b"}]}",
            ("event 1",),
        ),
    ],
)
async def test_an_invalid_event_is_422_names_event_and_field_and_nothing_lands(
    call: Client, body: bytes, parts: tuple[str, ...]
) -> None:
    before = await call.backend.log.end_offsets()
    is_problem(await call("POST", "/v1/conversations/bad/events", body), 422, *parts)
    assert await call.backend.log.end_offsets() == before


async def test_messages_name_the_message_in_their_errors(call: Client) -> None:
    messages = [{"role": "user", "content": "a"}, {"role": "user", "content": 1}]
    is_problem(
        await call("POST", "/v1/conversations/bad/messages", messages), 422, "message 2", "content"
    )
    is_problem(
        await call("POST", "/v1/conversations/bad/messages", {"role": "boss", "content": "a"}),
        422,
        "message 1",
        "role",
    )


async def test_names_are_checked(call: Client) -> None:
    is_problem(
        await call("POST", "/v1/conversations/b%20d/events", say("x")), 422, "conversation", "b d"
    )
    is_problem(await call("GET", f"/v1/conversations/{'x' * 129}/context"), 422, "conversation")
    is_problem(await call("GET", "/v1/conversations/%F0%9F%98%80/history"), 422, "conversation")


async def test_sizes_are_limited(call: Client) -> None:
    is_problem(
        await call("POST", "/v1/conversations/c/events", [say("x")] * 501), 422, "501", "500"
    )
    long = await call("POST", "/v1/conversations/c/events?wait=applied", [say("x")] * 500)
    assert [event["status"] for event in long.json()["events"]] == ["applied"] * 500
    is_problem(
        await call("POST", "/v1/conversations/c/events", say("x" * (9 << 20))),
        413,
        "event 1",
        "8388608",
    )
    path, limit = "/v1/conversations/c/rollback", f"{1 << 20} bytes"
    is_problem(await call("POST", path, {"to": "x" * (1 << 20)}), 413, limit)

    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(20):
            yield b" " * 100_000

    headers = {"Authorization": f"Bearer {call.keys['acme']}"}
    is_problem(await call.http.post(path, content=chunks(), headers=headers), 413, limit)


async def test_more_than_the_gateway_holds_at_once_is_refused_until_there_is_room_again(
    call: Client, settings: Settings
) -> None:
    app = create_gateway(settings, limits=Limits(requests=2, body_bytes=2000))
    acme, rival = ({"Authorization": f"Bearer {call.keys[name]}"} for name in ("acme", "rival"))
    path = "/v1/conversations/limits/events"
    begun, release = asyncio.Event(), asyncio.Event()

    async def slow() -> AsyncIterator[bytes]:
        yield json.dumps(say("x" * 1500)).encode()
        begun.set()
        await release.wait()

    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(
            transport=httpx.ASGITransport(app), base_url="http://gateway", headers=rival
        ) as http,
    ):

        async def ready() -> bool:
            return (await http.get("/readyz")).status_code == 200

        await until(ready)
        first = asyncio.create_task(http.post(path, content=slow(), headers=acme))
        await asyncio.wait_for(begun.wait(), 10)
        is_problem(
            await http.post(path, json=say("x" * 800)), 503, "MiB of requests are in progress"
        )
        assert (await http.post(path, json=say("small"))).status_code == 202
        second = await asyncio.wait_for(http.post(path, content=slow()), 10)
        is_problem(second, 503, "MiB of requests")
        app.concurrency.limits = Limits(requests=1, body_bytes=2000)
        is_problem(
            await http.get("/v1/conversations/limits/context"), 503, "1 requests are under way"
        )
        assert (await http.get("/healthz")).status_code == 200
        release.set()
        assert (await first).status_code == 202
        assert (await http.post(path, json=say("x" * 1900))).status_code == 202
    assert (app.concurrency.all.requests, app.concurrency.all.bytes) == (0, 0)


async def test_unknown_routes_and_methods_and_parameters_are_problems_too(call: Client) -> None:
    is_problem(await call("GET", "/v1/nothing"), 404, "/docs")
    is_problem(await call("GET", "/v1/conversations/c/events/"), 404, "/docs")
    response = await call("DELETE", "/v1/conversations/c/events")
    is_problem(response, 405, "method")
    assert response.headers["allow"] == "POST"
    is_problem(await call("POST", "/v1/conversations/c/events?wait=maybe", say("x")), 422, "wait")
