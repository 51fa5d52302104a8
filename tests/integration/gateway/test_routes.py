"""The gateway's routes on real Kafka and Redis, a worker running beside it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from streams.settings.settings import Settings
from tests.support.gateway import Client, is_problem, say, serving
from tests.support.worker import until
from threadfold.gateway import create_gateway
from threadfold.gateway.concurrency import Limits


@pytest.fixture(scope="module")
async def call(settings: Settings) -> AsyncIterator[Client]:
    async with serving(settings) as client:
        yield client


# -- appending and reading back
# ------------------------------------------------------------------------------------------


async def test_a_list_of_events_lands_in_order_and_its_context_holds_it(call: Client) -> None:
    flats = [say("You help.", "system"), *(say(f"line {i}") for i in range(5))]
    answer = await call("POST", "/v1/conversations/order/events", flats)
    assert answer.status_code == 202
    document = answer.json()
    positions = [event["position"] for event in document["events"]]
    assert document["position"] == positions[-1]
    offsets = [int(position.partition("-")[2]) for position in positions]
    assert offsets == sorted(offsets)
    assert all(set(event) == {"id", "position"} for event in document["events"])

    context = await call("GET", f"/v1/conversations/order/context?after={positions[-1]}")
    assert context.status_code == 200
    found = context.json()
    assert [m["content"] for m in found["messages"]] == [
        "You help.",
        *(f"line {i}" for i in range(5)),
    ]
    assert found["position"] == positions[-1]
    assert found["count"] == 6
    assert found["tokens"] <= found["ceiling"]
    assert found["state"] == "active"


async def test_whether_an_event_is_a_repeat_is_unknown_without_wait(call: Client) -> None:
    path = "/v1/conversations/unwaited/events"
    first = await call("POST", f"{path}?wait=applied", {"id": "r1", **say("once")})
    (applied,) = first.json()["events"]
    again = await call("POST", path, [{"id": "r1", **say("once")}, say("new")])
    assert again.status_code == 202
    repeat, new = again.json()["events"]
    assert repeat["status"] == "unknown"
    assert repeat["position"] != applied["position"]
    assert set(new) == {"id", "position"}
    waited = await call("POST", f"{path}?wait=applied", {"id": "r1", **say("once")})
    assert waited.json()["events"] == [{**applied, "status": "duplicate"}]
    keyed = await call("POST", path, say("keyed"), headers={"Idempotency-Key": "k1"})
    assert keyed.json()["events"][0]["status"] == "unknown"


async def test_one_event_alone_needs_no_list_and_wait_answers_200(call: Client) -> None:
    answer = await call(
        "POST", "/v1/conversations/single/events?wait=applied", {"id": "e1", **say("hello")}
    )
    assert answer.status_code == 200
    (event,) = answer.json()["events"]
    assert event["id"] == "e1"
    assert event["status"] == "applied"


async def test_a_repeated_id_is_a_duplicate_that_answers_its_first_position_and_changes_nothing(
    call: Client,
) -> None:
    path = "/v1/conversations/repeats/events?wait=applied"
    first = (await call("POST", path, {"id": "once", **say("hello")})).json()["events"][0]
    again = (
        await call(
            "POST",
            path,
            [
                {"id": "once", **say("hello again")},
                {"id": "twice", **say("b")},
                {"id": "twice", **say("c")},
            ],
        )
    ).json()
    assert again["events"][0] == {
        "id": "once",
        "position": first["position"],
        "status": "duplicate",
    }
    assert again["events"][1]["status"] == "applied"
    assert again["events"][2] == {**again["events"][1], "status": "duplicate"}
    context = (await call("GET", "/v1/conversations/repeats/context")).json()
    assert [m["content"] for m in context["messages"]] == ["hello", "b"]
    history = (await call("GET", "/v1/conversations/repeats/history")).json()
    assert [event["id"] for event in history["events"]] == ["twice", "once"]


async def test_what_the_fold_skips_is_reported_as_rejected(call: Client) -> None:
    resolution = {"type": "resolution", "suspension_id": "nobody", "outcome": "approved"}
    answer = await call(
        "POST", "/v1/conversations/rejected/events?wait=applied", [say("hi"), resolution]
    )
    assert [event["status"] for event in answer.json()["events"]] == ["applied", "rejected"]


async def test_an_idempotency_key_makes_a_repeated_request_a_duplicate(call: Client) -> None:
    path = "/v1/conversations/idempotent/events?wait=applied"
    first, second = [
        (await call("POST", path, [say("a"), say("b")], headers={"Idempotency-Key": "k1"})).json()
        for _ in range(2)
    ]
    other = (
        await call("POST", path, [say("a"), say("b")], headers={"Idempotency-Key": "k2"})
    ).json()
    assert [event["status"] for event in first["events"]] == ["applied", "applied"]
    assert second["events"] == [{**event, "status": "duplicate"} for event in first["events"]]
    assert [event["status"] for event in other["events"]] == ["applied", "applied"]
    is_problem(
        await call("POST", path, say("x"), headers={"Idempotency-Key": "k" * 256}),
        422,
        "Idempotency-Key",
    )


async def test_messages_in_openai_format_come_back_as_they_were(call: Client) -> None:
    tool_call = {
        "id": "c1",
        "type": "function",
        "function": {"name": "weather", "arguments": '{"city":"Oslo"}'},
    }
    messages = [
        {"role": "user", "content": "Weather? 🌦 <|endoftext|>"},
        {"role": "assistant", "content": None, "tool_calls": [tool_call]},
        {"role": "tool", "tool_call_id": "c1", "content": "rain"},
        {"role": "assistant", "content": "It rains."},
    ]
    answer = await call(
        "POST", "/v1/conversations/chat/messages?format=openai&wait=applied", messages
    )
    assert answer.status_code == 200, answer.text
    context = (await call("GET", "/v1/conversations/chat/context?format=openai")).json()
    assert context["messages"] == messages


async def test_unknown_formats_are_refused(call: Client) -> None:
    message = {"role": "user", "content": "x"}
    is_problem(
        await call("POST", "/v1/conversations/f/messages?format=events", message),
        422,
        "events",
        "openai, anthropic",
    )
    is_problem(
        await call("GET", "/v1/conversations/f/context?format=nonsense"),
        422,
        "nonsense",
        "openai, anthropic, events",
    )


async def test_events_of_several_conversations_are_each_reported(call: Client) -> None:
    names = ["m1", "m2", "m1", "m3", "m2"]
    flats = [{"conversation": name, **say(f"{name} {i}")} for i, name in enumerate(names)]
    answer = await call("POST", "/v1/events?wait=applied", flats)
    assert answer.status_code == 200
    document = answer.json()
    assert [(e["conversation"], e["status"]) for e in document["events"]] == [
        (name, "applied") for name in names
    ]
    assert document["positions"]["m1"] == document["events"][2]["position"]
    context = (
        await call("GET", f"/v1/conversations/m2/context?after={document['positions']['m2']}")
    ).json()
    assert [m["content"] for m in context["messages"]] == ["m2 1", "m2 4"]
    is_problem(
        await call("POST", "/v1/events", [say("x")]), 422, "event 1", "conversation", "missing"
    )
    is_problem(
        await call("POST", "/v1/events", [{"conversation": "c", **say("x")}, None]),
        422,
        "event 2",
        "object",
    )


async def test_rollback_and_close_move_the_window(call: Client) -> None:
    path = "/v1/conversations/back"
    events = (
        await call(
            "POST",
            f"{path}/events",
            [say("one"), {"id": "two", **say("two")}, say("three"), say("four")],
        )
    ).json()["events"]
    rolled = await call("POST", f"{path}/rollback?wait=applied", {"to": "two"})
    assert rolled.json()["events"][0]["status"] == "applied"
    assert [m["content"] for m in (await call("GET", f"{path}/context")).json()["messages"]] == [
        "one",
        "two",
    ]
    await call("POST", f"{path}/rollback?wait=applied", {"to": events[0]["position"]})
    assert [m["content"] for m in (await call("GET", f"{path}/context")).json()["messages"]] == [
        "one"
    ]
    closed = await call("POST", f"{path}/close")
    assert closed.status_code == 202
    assert (await call("GET", f"{path}/context?after={closed.json()['position']}")).json()[
        "state"
    ] == "closed"
    foreign = str(int(events[0]["position"].partition("-")[0]) + 1) + "-0"
    is_problem(await call("POST", f"{path}/rollback", {"to": foreign}), 422, "to", foreign)
    is_problem(await call("POST", f"{path}/rollback", {}), 422, "to", "missing")
    is_problem(await call("POST", f"{path}/rollback", ["x"]), 422, "object")


# -- context
# ------------------------------------------------------------------------------------------


async def test_context_stays_under_ceiling_and_max_tokens_while_summaries_come(
    call: Client,
) -> None:
    path = "/v1/conversations/long"
    for turn in range(12):
        flats = [
            say(
                f"turn {turn} part {i}: the parcel 4711 of Alice was late in Oslo, because of snow."
            )
            for i in range(10)
        ]
        position = (await call("POST", f"{path}/events", flats)).json()["position"]
    await call("GET", f"{path}/context?after={position}")

    async def summarised() -> dict[str, Any] | None:
        found: dict[str, Any] = (await call("GET", f"{path}/context")).json()
        return found if found["summary"] and found["tokens"] < 1000 else None

    context = await until(summarised)
    assert context["tokens"] <= context["ceiling"]
    assert context["messages"][0]["role"] == "assistant"
    assert context["summary"]["text"] in context["messages"][0]["content"]
    small = (await call("GET", f"{path}/context?max_tokens=400")).json()
    assert small["tokens"] <= 400
    is_problem(await call("GET", f"{path}/context?max_tokens=1"), 422, "cannot be rendered")
    is_problem(await call("GET", f"{path}/context?max_tokens=0"), 422, "max_tokens")


async def test_after_must_be_a_position_of_the_conversation(call: Client) -> None:
    position = (await call("POST", "/v1/conversations/mine/events", say("x"))).json()["position"]
    partition, _, offset = position.partition("-")
    is_problem(await call("GET", "/v1/conversations/mine/context?after=nonsense"), 422, "nonsense")
    is_problem(
        await call("GET", f"/v1/conversations/mine/context?after={int(partition) + 1}-{offset}"),
        422,
        "mine",
    )


async def test_a_position_not_reached_in_time_answers_503(call: Client) -> None:
    from projections.errors import WaitTimedOut

    position = (await call("POST", "/v1/conversations/far/events?wait=applied", say("x"))).json()[
        "position"
    ]
    partition, _, offset = position.partition("-")
    with pytest.raises(WaitTimedOut) as caught:
        await call.backend.window(
            "acme", "far", after=f"{partition}-{int(offset) + 10_000}", timeout=0.1
        )
    assert caught.value.problem == 503


async def test_an_unknown_conversation_is_404(call: Client) -> None:
    is_problem(await call("GET", "/v1/conversations/never/context"), 404, "never")
    is_problem(await call("GET", "/v1/conversations/never/history"), 404, "never")


async def test_an_erased_conversation_is_410_for_every_read(call: Client) -> None:
    appended = await call.backend.append(
        "acme", [("gone", say("secret")), ("gone", {"type": "conversation.erased"})], operator=True
    )
    await call.backend.wait_for(appended[-1].position)
    for path in ("context", "history", f"events/{appended[0].position}"):
        is_problem(await call("GET", f"/v1/conversations/gone/{path}"), 410, "gone")


# -- history
# ------------------------------------------------------------------------------------------


async def test_history_pages_hold_every_event_once_newest_first_across_summaries(
    call: Client,
) -> None:
    path = "/v1/conversations/pages"
    sent = []
    for turn in range(15):
        flats = [
            {
                "id": f"p{turn}-{i}",
                **say(f"turn {turn} part {i}: the harbour in Oslo, order 4711, snow and wind."),
            }
            for i in range(8)
        ]
        answer = (await call("POST", f"{path}/events?wait=applied", flats)).json()
        sent += [(event["id"], event["position"]) for event in answer["events"]]

    async def calm() -> bool:
        window = await call.backend.window("acme", "pages")
        return (
            window.meta.due is None
            and window.meta.summary is not None
            and window.meta.summary.previous is not None
        )

    await until(calm)
    found, cursor, pages = [], None, 0
    while True:
        page = (
            await call("GET", f"{path}/history?limit=17" + (f"&before={cursor}" if cursor else ""))
        ).json()
        assert len(page["events"]) <= 17
        assert pages < 100, "the cursor does not move on"
        found += page["events"]
        cursor, pages = page["next_before"], pages + 1
        if cursor is None:
            break
    assert pages > 5
    offsets = [int(event["position"].partition("-")[2]) for event in found]
    assert offsets == sorted(set(offsets), reverse=True)
    messages = [(event["id"], event["position"]) for event in found if event["type"] == "message"]
    assert messages == sent[::-1]
    assert {event["type"] for event in found} == {"message", "summary"}
    assert found[-1]["content"].startswith("turn 0 part 0")
    assert {"id", "type", "time", "position", "role", "content"} <= set(found[-1])
    one = await call("GET", f"{path}/events/{found[-1]['position']}")
    assert one.json() == found[-1]


async def test_a_cursor_or_position_of_another_conversation_is_refused(call: Client) -> None:
    for name in ("ca", "cb"):
        position = (
            await call(
                "POST", f"/v1/conversations/{name}/events?wait=applied", [say("x"), say("y")]
            )
        ).json()["position"]
    cursor = (await call("GET", "/v1/conversations/cb/history?limit=1")).json()["next_before"]
    assert cursor
    is_problem(await call("GET", f"/v1/conversations/ca/history?before={cursor}"), 422, "cursor")
    is_problem(await call("GET", "/v1/conversations/ca/history?before=%C3%A9!"), 422, "cursor")
    is_problem(await call("GET", f"/v1/conversations/ca/events/{position}"), 422, position)
    is_problem(await call("GET", "/v1/conversations/ca/events/0-99999999"), 422, "0-99999999")
    for limit in ("0", "501", "x"):
        is_problem(await call("GET", f"/v1/conversations/ca/history?limit={limit}"), 422, "limit")


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
        is_problem(await http.post(path, json=say("x" * 800)), 503, "MiB of requests are under way")
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


async def test_the_openapi_document_lists_the_routes(call: Client) -> None:
    assert (await call("GET", "/docs", tenant="anon")).status_code == 200
    document = (await call("GET", "/openapi.json", tenant="anon")).json()
    assert "/v1/conversations/{conversation}/context" in document["paths"]
    assert document["paths"]["/v1/events"]["post"]["requestBody"]
