"""Turns, conditions on appends, summaries that are asked for, and a tenant's lists, through the
gateway on the real stack.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from projections.redis.router import CONNECTIONS
from streams.settings.settings import Settings
from tests.support.gateway import Client, is_problem, say, serving
from tests.support.worker import until


@pytest.fixture(scope="module")
async def call(settings: Settings) -> AsyncIterator[Client]:
    async with serving(settings) as client:
        yield client


async def begin(call: Client, conversation: str, **body: Any) -> Any:
    return await call("POST", f"/v1/conversations/{conversation}/turns", body)


# -- turns
# ------------------------------------------------------------------------------------------


async def test_two_runs_at_once_are_one_run_and_a_refusal(call: Client) -> None:
    answers = await asyncio.gather(*(begin(call, "race", turn_id=f"t{i}") for i in range(8)))
    assert sorted(answer.status_code for answer in answers) == [202] + [409] * 7
    (won,) = [answer.json() for answer in answers if answer.status_code == 202]
    assert won["status"] == "started" and isinstance(won["fencing_token"], int)
    refused = next(answer for answer in answers if answer.status_code == 409)
    is_problem(refused, 409, "did not begin", f"turn {won['turn_id']} is active")
    again = await begin(call, "race", turn_id=won["turn_id"])
    assert again.json()["fencing_token"] == won["fencing_token"], "asking again tells how it stands"


async def test_a_turn_that_lost_its_lease_appends_nothing_any_more(call: Client) -> None:
    first = (await begin(call, "fence", turn_id="old")).json()["fencing_token"]
    ok = await call(
        "POST",
        "/v1/conversations/fence/events",
        say("by old", "assistant"),
        headers={"Fencing-Token": str(first)},
    )
    assert ok.status_code == 200 and ok.json()["events"][0]["status"] == "applied"
    second = (await begin(call, "fence", turn_id="new", policy="interrupt")).json()["fencing_token"]
    assert second > first
    old = {"Fencing-Token": str(first)}
    late = await call(
        "POST",
        "/v1/conversations/fence/messages",
        {"role": "assistant", "content": "late"},
        headers=old,
    )
    is_problem(late, 409, f"the turn of token {first} is not in force", f"token {second} is")
    is_problem(
        await call("POST", "/v1/conversations/fence/turns/old/end", headers=old),
        409,
        "turn new is active",
    )
    is_problem(
        await call("POST", "/v1/conversations/fence/turns/old/renew", headers=old), 409, "is over"
    )
    context = (await call("GET", "/v1/conversations/fence/context")).json()
    assert [message["content"] for message in context["messages"]] == ["by old"]


async def test_queued_turns_follow_in_order_and_are_waited_for(call: Client) -> None:
    await begin(call, "queue", turn_id="a")
    queued = (await begin(call, "queue", turn_id="b", policy="queue")).json()
    assert (queued["status"], queued["fencing_token"], queued["place"]) == ("queued", None, 1)
    assert (await begin(call, "queue", turn_id="c", policy="queue")).json()["place"] == 2
    shown = (await call("GET", "/v1/conversations/queue/turns")).json()
    assert shown["live"]["turn_id"] == "a" and shown["waiting"] == ["b", "c"]
    waiting = asyncio.create_task(begin(call, "queue", turn_id="b", policy="queue", wait=20))
    assert (await call("POST", "/v1/conversations/queue/turns/a/end")).status_code == 202
    started = (await waiting).json()
    assert (
        started["status"] == "started" and started["fencing_token"] > shown["live"]["fencing_token"]
    )


async def test_the_lease_of_a_run_that_vanished_runs_out_and_the_next_one_begins(
    call: Client,
) -> None:
    await begin(call, "vanished", turn_id="gone", seconds=1)
    started = await begin(call, "vanished", turn_id="next", policy="queue", wait=20)
    assert started.json()["status"] == "started"
    history = (await call("GET", "/v1/conversations/vanished/history")).json()["events"]
    ended = next(event for event in history if event["type"] == "turn.ended")
    assert ended["turn_id"] == "gone" and ended["lease"]["reason"] == "expired"


async def test_a_renewed_lease_holds(call: Client) -> None:
    token = (await begin(call, "renewed", turn_id="long", seconds=1)).json()["fencing_token"]
    path, headers = "/v1/conversations/renewed/turns/long/renew", {"Fencing-Token": str(token)}
    assert (await call("POST", path, {"seconds": 600}, headers=headers)).json()[
        "fencing_token"
    ] == token
    await begin(call, "renewed-clock", turn_id="clock", seconds=1)

    async def clock_ran_out() -> bool:
        return (await call("GET", "/v1/conversations/renewed-clock/turns")).json()["live"] is None

    await until(clock_ran_out)
    assert (await call("GET", "/v1/conversations/renewed/turns")).json()["live"][
        "turn_id"
    ] == "long"


@pytest.mark.parametrize(
    ("body", "part"),
    [
        ({"policy": "take"}, "field policy"),
        ({"seconds": 0}, "field seconds"),
        ({"wait": 99}, "field wait"),
        ({"turn": "x"}, "turn"),
        ([], "turn"),
    ],
)
async def test_a_turn_that_cannot_be_is_refused_by_name(call: Client, body: Any, part: str) -> None:
    is_problem(await call("POST", "/v1/conversations/bad/turns", body), 422, part)


async def test_a_renewal_without_a_token_is_refused(call: Client) -> None:
    is_problem(await call("POST", "/v1/conversations/bad/turns/t/renew"), 422, "Fencing-Token")


# -- conditions
# ------------------------------------------------------------------------------------------


async def test_of_many_appends_that_expect_the_same_position_one_is_applied(call: Client) -> None:
    path = "/v1/conversations/match/events"
    position = (await call("POST", path, say("begin"))).json()["position"]
    answers = await asyncio.gather(
        *(
            call(
                "POST", path, [say(f"{i}"), say(f"{i} more")], headers={"If-Match": f'"{position}"'}
            )
            for i in range(6)
        )
    )
    assert sorted(answer.status_code for answer in answers) == [200] + [409] * 5
    is_problem(
        next(a for a in answers if a.status_code == 409),
        409,
        f"other events came after {position}",
        "read the context again",
    )
    context = (await call("GET", "/v1/conversations/match/context")).json()
    assert context["count"] == 3


async def test_an_append_that_is_repeated_with_its_ids_is_a_duplicate_and_no_conflict(
    call: Client,
) -> None:
    path, headers = "/v1/conversations/retry/events", {"If-None-Match": "*"}
    first = await call("POST", path, {"id": "once", **say("a")}, headers=headers)
    again = await call("POST", path, {"id": "once", **say("a")}, headers=headers)
    assert first.json()["events"][0]["status"] == "applied"
    assert again.status_code == 200 and again.json()["events"][0]["status"] == "duplicate"
    is_problem(await call("POST", path, say("b"), headers=headers), 409, "there are events already")


@pytest.mark.parametrize(
    ("headers", "part"),
    [
        ({"If-Match": ""}, "If-Match"),
        ({"If-Match": "*"}, "If-Match"),
        ({"If-Match": "abc"}, "If-Match"),
        ({"If-None-Match": "0-1"}, "If-None-Match"),
        ({"If-Match": "0-1", "If-None-Match": "*"}, "excludes"),
        ({"Fencing-Token": "-1"}, "Fencing-Token"),
        ({"Fencing-Token": "many"}, "Fencing-Token"),
    ],
)
async def test_a_malformed_condition_is_refused_and_nothing_is_appended(
    call: Client, headers: dict[str, str], part: str
) -> None:
    is_problem(
        await call("POST", "/v1/conversations/malformed/events", say("x"), headers=headers),
        422,
        part,
    )
    assert (await call("GET", "/v1/conversations/malformed/context")).status_code == 404


async def test_conditions_are_of_one_conversation(call: Client) -> None:
    answer = await call(
        "POST", "/v1/events", [{"conversation": "x", **say("a")}], headers={"If-Match": "0-1"}
    )
    is_problem(answer, 422, "by its own route")


# -- compaction on request, and its summaries
# ----------------------------------------------------------------------------------------


async def test_a_summary_that_is_asked_for_comes_and_is_listed_with_those_before_it(
    call: Client,
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


async def test_a_turn_that_its_routes_could_not_name_does_not_begin(call: Client) -> None:
    for turn_id in ("a/b", ".", "..", "x" * 129, "é", "a b", "a\u0000"):
        answer = await begin(call, "named", turn_id=turn_id)
        assert answer.status_code == 422, (turn_id, answer.text)
    assert (await begin(call, "named", turn_id="x" * 128)).status_code == 202


# -- history
# ------------------------------------------------------------------------------------------


async def test_what_was_acknowledged_is_in_the_history_that_waits_for_it(call: Client) -> None:
    path = "/v1/conversations/read-back"
    for i in range(10):
        sent = await call("POST", f"{path}/events", say(f"message {i}"))
        assert sent.status_code == 202
        query = f"after={sent.json()['position']}" if i % 2 else "wait=applied"
        page = (await call("GET", f"{path}/history?limit=1&{query}")).json()
        assert page["events"][0]["position"] == sent.json()["position"]
    closed = {"type": "session.closed", "reason": "explicit"}
    await call("POST", f"{path}/events", [closed, say("again"), closed])
    page = (await call("GET", f"{path}/history?wait=applied&type=session.closed&limit=1")).json()
    assert [event["type"] for event in page["events"]] == ["session.closed"]
    query = f"type=session.closed,rollback&before={page['next_before']}"
    page = (await call("GET", f"{path}/history?{query}")).json()
    assert [event["type"] for event in page["events"]] == ["session.closed"]
    assert page["next_before"] is None
    is_problem(await call("GET", f"{path}/history?type=messages"), 422, "'messages' is not one of")
    is_problem(await call("GET", f"{path}/history?wait=1"), 422, "query parameter wait")


# -- windows for people
# ------------------------------------------------------------------------------------------


async def test_a_window_is_shown_message_by_message_now_and_as_it_was(call: Client) -> None:
    path = "/v1/conversations/inspected"
    first = [say("You help.", "system"), say("one"), say("two", "assistant")]
    await call("POST", f"{path}/events?wait=applied", first)
    then = (await call("GET", f"{path}/context")).json()
    await call("POST", f"{path}/events?wait=applied", [say("three"), say("four", "assistant")])
    now = (await call("GET", f"{path}/context")).json()
    for context, query in ((then, f"?at={then['position']}"), (now, "")):
        answer = await call("GET", f"{path}/window{query}")
        assert answer.status_code == 200, answer.text
        shown = answer.json()
        assert [item["message"] for item in shown["messages"]] == context["messages"]
        for name in ("position", "count", "digest", "render_digest", "tokens", "ceiling"):
            assert shown[name] == context[name], name
        lanes = [item["lane"] for item in shown["messages"]]
        assert lanes == ["system"] + ["tail"] * (len(lanes) - 1)
    found = (await call("GET", f"{path}/positions")).json()
    assert found["all"] and found["positions"] == [p for p in now["positions"] if p]
    newest = (await call("GET", f"{path}/positions?limit=2")).json()
    assert newest == {"positions": found["positions"][-2:], "all": False}


async def test_a_window_of_a_position_that_is_not_there_is_refused(call: Client) -> None:
    path = "/v1/conversations/inspected"
    await call("POST", f"{path}/events?wait=applied", say("here"))
    position = (await call("GET", f"{path}/context")).json()["position"]
    partition = int(position.partition("-")[0])
    is_problem(await call("GET", f"{path}/window?at={partition}-99999"), 422, "the log ends before")
    other = f"{(partition + 1) % 4}-0"
    is_problem(await call("GET", f"{path}/window?at={other}"), 422, "not one of conversation")
    is_problem(await call("GET", "/v1/conversations/never/window"), 404, "not known")


async def test_recorded_model_calls_are_listed_newest_first(call: Client) -> None:
    path = "/v1/conversations/called"
    await call("POST", f"{path}/events?wait=applied", say("a question"))
    context = (await call("GET", f"{path}/context")).json()
    record = {name: context[name] for name in ("render_digest", "position", "tokens")}
    made = [
        await call("POST", f"{path}/renders", {**record, "model": model, "format": "openai"})
        for model in ("m1", "m2")
    ]
    ids = [answer.json()["id"] for answer in made]
    found = (await call("GET", f"{path}/renders")).json()["renders"]
    assert [one["id"] for one in found] == ids[::-1]
    assert [one["record"]["model"] for one in found] == ["m2", "m1"]
    assert len((await call("GET", f"{path}/renders?limit=1")).json()["renders"]) == 1


async def test_a_key_is_shown_whose_it_is(call: Client) -> None:
    me = (await call("GET", "/v1/me", tenant="reader")).json()
    assert (me["tenant"], me["scopes"]) == ("acme", ["read"])
    is_problem(await call("GET", "/v1/me", tenant="anon"), 401)
