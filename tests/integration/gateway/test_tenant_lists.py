"""A tenant lists its conversations, their summaries and what waits for somebody."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import redis.asyncio as aredis

from projections.names import make_key, partition_of
from projections.redis.router import CONNECTIONS
from projections.storage.layout import HEAD
from streams.runtime.keyed_limit import KeyedLimit
from streams.settings.settings import Settings
from tests.support.gateway import Client, is_problem, say
from tests.support.worker import until
from threadfold.gateway import back_pressure
from threadfold.service import lists

# -- compaction on request, and its summaries
# ----------------------------------------------------------------------------------------


async def test_a_summary_that_is_asked_for_comes_and_is_listed_with_those_before_it(
    call: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def ask(n: int, ids: list[str]) -> None:
        flats = [
            say(f"{n}.{i} the order {n}{i} is paid", role)
            for i in range(2)
            for role in ("user", "assistant")
        ]
        await call("POST", "/v1/conversations/asked/events?wait=applied", flats)
        assert (await call("POST", "/v1/conversations/asked/compact")).status_code == 202
        before = ids[-1] if ids else None

        async def summarised() -> bool:
            summary = (await call("GET", "/v1/conversations/asked/context")).json()["summary"]
            return summary is not None and summary["summary_id"] != before

        await until(summarised)
        ids.append(
            (await call("GET", "/v1/conversations/asked/context")).json()["summary"]["summary_id"]
        )

    ids: list[str] = []
    for n in range(3):
        await ask(n, ids)
    page = (await call("GET", "/v1/conversations/asked/summaries?limit=2")).json()
    found = [summary["summary_id"] for summary in page["summaries"]]
    assert (
        page["summaries"][0]["type"] == "summary" and page["summaries"][-1]["reason"] == "explicit"
    )
    rest = (
        await call("GET", f"/v1/conversations/asked/summaries?before={page['next_before']}")
    ).json()
    found += [summary["summary_id"] for summary in rest["summaries"]]
    assert [summary_id for summary_id in found if summary_id in ids] == ids[::-1] and rest[
        "next_before"
    ] is None
    is_problem(
        await call("GET", f"/v1/conversations/order/summaries?before={page['next_before']}"),
        404,
        "not known",
    )
    monkeypatch.setattr(lists, "PAGE_BYTES", 1)
    single, before = list[str](), ""
    while True:
        page = (await call("GET", f"/v1/conversations/asked/summaries{before}")).json()
        assert len(page["summaries"]) == 1, "a page ends after some bytes"
        single.append(page["summaries"][0]["summary_id"])
        if page["next_before"] is None:
            break
        before = f"?before={page['next_before']}"
    assert single == found


async def test_a_conversation_without_a_summary_lists_none(call: Client) -> None:
    await call("POST", "/v1/conversations/plain/events?wait=applied", say("x"))
    assert (await call("GET", "/v1/conversations/plain/summaries")).json() == {
        "summaries": [],
        "next_before": None,
    }
    is_problem(await call("GET", "/v1/conversations/plain/summaries?before=AAAA"), 422, "cursor")


# -- lists
# ------------------------------------------------------------------------------------------


async def test_conversations_are_listed_with_the_latest_first_and_paged(call: Client) -> None:
    for i in range(7):
        await call(
            "POST", f"/v1/conversations/listed-{i}/events?wait=applied", say(str(i)), tenant="rival"
        )
    await call(
        "POST", "/v1/conversations/listed-2/events?wait=applied", say("again"), tenant="rival"
    )
    seen: list[dict[str, Any]] = []
    cursor, pages = None, 0
    while pages < 10:
        query = f"?limit=3{'' if cursor is None else f'&before={cursor}'}"
        page = (await call("GET", f"/v1/conversations{query}", tenant="rival")).json()
        seen += page["conversations"]
        pages, cursor = pages + 1, page["next_before"]
        if cursor is None:
            break
    assert pages == 3
    names = [item["conversation"] for item in seen]
    assert sorted(names) == [f"listed-{i}" for i in range(7)], "and none of another tenant"
    assert names[0] == "listed-2" and seen[0]["count"] == 2 and seen[0]["state"] == "active"
    times = [item["active_at"] for item in seen]
    assert times == sorted(times, reverse=True)


async def test_a_cursor_of_another_list_or_tenant_is_refused(call: Client) -> None:
    for i in range(3):
        await call("POST", f"/v1/conversations/cursor-{i}/events?wait=applied", say(str(i)))
    cursor = (await call("GET", "/v1/conversations?limit=1")).json()["next_before"]
    for tenant, path in (("rival", "/v1/conversations"), ("acme", "/v1/suspensions")):
        is_problem(await call("GET", f"{path}?before={cursor}", tenant=tenant), 422, "cursor")
    is_problem(await call("GET", "/v1/conversations?limit=0"), 422, "limit")


async def test_conversations_are_listed_by_user_channel_state_and_time(call: Client) -> None:
    async def opened(name: str, user: str, channel: str, *more: Any) -> None:
        metadata = {"title": f"About {name}", "long": "x" * 5_000}
        first = {"type": "conversation.opened", "user": user, "channel": channel}
        events = [{**first, "metadata": metadata}, say("hello  there"), *more]
        path = f"/v1/conversations/{name}/events?wait=applied"
        assert (await call("POST", path, events, tenant="rival")).status_code == 200

    async def listed(query: str, limit: int = 50) -> list[str]:
        names, cursor = [], ""
        while True:
            path = f"/v1/conversations?{query}&limit={limit}{cursor}"
            answer = await call("GET", path, tenant="rival")
            assert answer.status_code == 200, answer.text
            page = answer.json()
            names += [item["conversation"] for item in page["conversations"]]
            if page["next_before"] is None:
                return names
            cursor = f"&before={page['next_before']}"

    def waits(kind: str) -> dict[str, Any]:
        return {"type": "suspension", "suspension_id": "s", "kind": kind, "prompt": "Refund?"}

    await opened("of-ann-1", "ann", "web")
    await opened("of-ann-2", "ann", "mail", waits("approval"))
    await opened("of-ben-1", "ben", "web", waits("input"))
    await opened("of-ben-2", "ben", "web", {"type": "session.closed", "reason": "explicit"})
    await opened("of-ann-3", "ann", "web")
    assert await listed("user=ann") == ["of-ann-3", "of-ann-2", "of-ann-1"]
    assert await listed("user=ann", 1) == await listed("user=ann")
    assert await listed("user=an") == await listed("user=ann*") == []
    assert await listed("channel=web") == ["of-ann-3", "of-ben-2", "of-ben-1", "of-ann-1"]
    assert await listed("channel=web&user=ann", 1) == ["of-ann-3", "of-ann-1"]
    assert await listed("state=awaiting_approval") == ["of-ann-2"]
    assert await listed("state=awaiting_input&channel=web") == ["of-ben-1"]
    assert await listed("state=closed&channel=web") == ["of-ben-2"]
    assert "of-ben-2" in await listed("state=closed", 1)
    answer = await call("GET", "/v1/conversations?user=ann", tenant="rival")
    _, two, one = answer.json()["conversations"]
    assert await listed(f"user=ann&since={two['active_at']}") == ["of-ann-3", "of-ann-2"]
    assert await listed(f"user=ann&until={two['active_at']}", 1) == ["of-ann-2", "of-ann-1"]
    between = f"user=ann&since={two['active_at']}&until={two['active_at']}"
    assert await listed(between) == ["of-ann-2"]
    assert (one["user"], one["channel"], one["title"]) == ("ann", "web", "About of-ann-1")
    assert one["metadata"] == {"title": "About of-ann-1"} and one["metadata_cut"]
    assert one["last_message"]["role"] == "user" and one["last_message"]["text"] == "hello there"
    assert two["state"] == "awaiting_approval" and two["count"] == 3
    # Another's conversation, the state that ended, a conversation that is gone: none is listed.
    solved = {"type": "resolution", "suspension_id": "s", "outcome": "approved"}
    given = [{"type": "conversation.opened", "user": "cyd"}, solved]
    await call("POST", "/v1/conversations/of-ann-2/events?wait=applied", given, tenant="rival")
    assert await listed("user=ann") == ["of-ann-3", "of-ann-1"]
    assert await listed("user=cyd") == ["of-ann-2"]
    assert await listed("state=awaiting_approval") == []
    assert await listed("user=ann&state=active") == ["of-ann-3", "of-ann-1"]
    solved = {"type": "resolution", "suspension_id": "s", "outcome": "answered"}
    await call("POST", "/v1/conversations/of-ben-1/events?wait=applied", solved, tenant="rival")
    assert await listed("state=awaiting_input") == []
    for name in (
        "usre=ann",
        "state=asleep",
        "since=yesterday",
        "since=0.5",
        "since=2026-01-01",
        "user=a&user=b",
    ):
        is_problem(await call("GET", f"/v1/conversations?{name}"), 422, "query parameter")
    assert (await call("GET", "/v1/conversations?user=ann")).json()["conversations"] == []


async def test_what_waits_for_somebody_is_listed_until_it_is_resolved(call: Client) -> None:
    for name in ("ask-1", "ask-2"):
        suspension = {
            "type": "suspension",
            "suspension_id": "s",
            "kind": "approval",
            "prompt": f"may {name}?",
        }
        await call("POST", f"/v1/conversations/{name}/events?wait=applied", [say("x"), suspension])
    listed = (await call("GET", "/v1/suspensions")).json()["suspensions"]
    assert [(item["conversation"], item["prompt"]) for item in listed] == [
        ("ask-2", "may ask-2?"),
        ("ask-1", "may ask-1?"),
    ]
    assert (await call("GET", "/v1/suspensions", tenant="rival")).json()["suspensions"] == []
    resolution = {"type": "resolution", "suspension_id": "s", "outcome": "approved"}
    await call("POST", "/v1/conversations/ask-2/events?wait=applied", resolution)
    listed = (await call("GET", "/v1/suspensions")).json()["suspensions"]
    assert [item["conversation"] for item in listed] == ["ask-1"]


async def test_more_lists_at_once_than_there_are_connections_are_all_answered(call: Client) -> None:
    await call("POST", "/v1/conversations/crowd/events?wait=applied", say("hello"))
    # Each asks every partition at the same time.
    answers = await asyncio.gather(
        *(call("GET", "/v1/conversations") for _ in range(2 * CONNECTIONS))
    )
    assert {answer.status_code for answer in answers} == {200}, answers[-1].text


async def test_a_window_that_cannot_be_read_is_marked_and_hides_no_other(
    call: Client, settings: Settings
) -> None:
    suspension = {"type": "suspension", "suspension_id": "s", "kind": "input"}
    for name in ("garbled", "replaced", "whole"):
        path = f"/v1/conversations/{name}/events?wait=applied"
        assert (await call("POST", path, [say("x"), suspension], tenant="rival")).status_code == 200
    client = aredis.Redis.from_url(settings.redis)
    keys = {name: make_key("rival", name) for name in ("garbled", "replaced")}
    stored = {
        name: f"{settings.topic_prefix}:{{1:{partition_of(key, settings.partitions)}}}:w:{key}"
        for name, key in keys.items()
    }
    await client.hset(stored["garbled"], HEAD, b"\xff")
    await client.set(stored["replaced"], b"not a window")
    listed = (await call("GET", "/v1/conversations", tenant="rival")).json()["conversations"]
    shown = {one["conversation"]: (one["state"], one["position"] is None) for one in listed}
    assert {name: shown[name] for name in (*keys, "whole")} == {
        "garbled": ("unreadable", True),
        "replaced": ("unreadable", True),
        "whole": ("awaiting_input", False),
    }
    assert listed[0]["last_message"]["text"] == "x"
    waiting = (await call("GET", "/v1/suspensions", tenant="rival")).json()
    assert [one["conversation"] for one in waiting["suspensions"]] == ["whole"]
    assert sorted(waiting["unreadable"]) == ["garbled", "replaced"]
    for name in keys:
        answer = await call("GET", f"/v1/conversations/{name}/context", tenant="rival")
        is_problem(answer, 503, "verify --repair")
        assert "127.0.0.1" not in answer.text
        await client.delete(stored[name])
    await client.aclose()


async def test_metrics_are_shown_whatever_stands_under_a_key_of_redis(
    call: Client, settings: Settings
) -> None:
    client = aredis.Redis.from_url(settings.redis)
    name = f"{settings.topic_prefix}:set-aside"
    for value in ("not a hash", {"0": "many"}):
        await client.delete(name)
        await (
            client.set(name, value) if isinstance(value, str) else client.hset(name, mapping=value)
        )
        answer = await call("GET", "/metrics", tenant="anon")
        assert answer.status_code == 200 and "threadfold_redis_up 1.0" in answer.text
    await client.delete(name)
    await client.aclose()


async def test_a_list_without_a_turn_is_refused_after_a_while_and_the_refusal_is_held_back(
    call: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(call.backend, "turns_to_list", KeyedLimit(1, 0.05))
    monkeypatch.setattr(back_pressure, "LEAST", 0.5)
    async with call.backend.turns_to_list.of("acme"):
        begin = asyncio.get_running_loop().time()
        refused = await call("GET", "/v1/conversations")
        assert asyncio.get_running_loop().time() - begin > 0.5
        assert refused.headers["Retry-After"] == "1"
        is_problem(refused, 503, "no turn came within 0.05 s")
        assert (await call("GET", "/v1/conversations", tenant="rival")).status_code == 200
    assert (await call("GET", "/v1/conversations")).status_code == 200
