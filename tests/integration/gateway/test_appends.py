"""The gateway appends in order, once, and under the conditions that a request sets."""

from __future__ import annotations

import asyncio

import pytest

from tests.support.gateway import Client, is_problem, say

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


async def test_a_repeat_of_what_the_fold_skipped_is_rejected_too(call: Client) -> None:
    path = "/v1/conversations/rejected-twice/events?wait=applied"
    await call("POST", path, say("hi"))
    resolution = {
        "type": "resolution",
        "id": "second",
        "suspension_id": "none",
        "outcome": "approved",
    }
    (first,) = (await call("POST", path, resolution)).json()["events"]
    (again,) = (await call("POST", path, resolution)).json()["events"]
    assert first["status"] == "rejected" and again == first


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


async def test_an_event_that_is_refused_for_another_reason_than_the_condition_is_no_conflict(
    call: Client,
) -> None:
    path, new = "/v1/conversations/own-reason/events", {"If-None-Match": "*"}
    unknown = {"type": "resolution", "suspension_id": "nowhere", "outcome": "approved"}
    refused = "refused, but not because of the condition"
    is_problem(await call("POST", path, [unknown, say("a")], headers=new), 409, refused)
    position = (await call("POST", path, say("a"))).json()["position"]
    last = {"If-Match": f'"{position}"'}
    is_problem(await call("POST", path, [unknown, say("b")], headers=last), 409, refused)
    listed = await call("POST", path, [say("b"), unknown, say("c")], headers=last)
    statuses = [one["status"] for one in listed.json()["events"]]
    assert listed.status_code == 200 and statuses == ["applied", "rejected", "rejected"]
    is_problem(await call("POST", path, say("d"), headers=last), 409, "other events came after")


async def test_an_append_that_is_repeated_with_its_ids_is_a_duplicate_and_no_conflict(
    call: Client,
) -> None:
    path, headers = "/v1/conversations/retry/events", {"If-None-Match": "*"}
    first = await call("POST", path, {"id": "once", **say("a")}, headers=headers)
    again = await call("POST", path, {"id": "once", **say("a")}, headers=headers)
    assert first.json()["events"][0]["status"] == "applied"
    assert again.status_code == 200 and again.json()["events"][0]["status"] == "duplicate"
    is_problem(await call("POST", path, say("b"), headers=headers), 409, "there are events already")


async def test_a_refused_append_is_refused_again_when_its_answer_was_lost(call: Client) -> None:
    path, headers = "/v1/conversations/lost-answer/events", {"If-None-Match": "*"}
    await call("POST", path, say("a"), headers=headers)
    late = {"id": "late", **say("b")}
    await call("POST", path, late, headers=headers)  # this answer is lost
    again = await call("POST", path, late, headers=headers)
    is_problem(again, 409, "event late was refused at", "give the event another id")
    context = (await call("GET", "/v1/conversations/lost-answer/context")).json()
    assert [message["content"] for message in context["messages"]] == ["a"]


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


# -- pinned text
# ------------------------------------------------------------------------------------------


async def test_a_list_may_pin_what_its_conversations_own_policy_allows(call: Client) -> None:
    """The tenant's limit is 1,000 tokens."""
    long, path = say("word " * 1_200, "system"), "/v1/conversations/roomy/events"
    too_long = "may have 1000 (policy key pinned_max_tokens)"
    for unopened in ("unopened", "roomy"):
        answer = await call("POST", f"/v1/conversations/{unopened}/events", [say("a"), long])
        is_problem(answer, 422, "event 2: its 12", too_long)
    opened = {"type": "conversation.opened", "policy": {"model_window": 8_000}}
    assert (await call("POST", path, opened)).status_code == 202
    assert (await call("POST", path, long)).status_code == 202
    answer = await call("POST", path, [long, long])
    is_problem(answer, 422, "event 2: ", "may have 2000 ")
    several = [{"conversation": name, **long} for name in ("roomy", "unopened")]
    answer = await call("POST", "/v1/events", several)
    is_problem(answer, 422, "event 2: ", too_long)
    messages = [{"role": "system", "content": long["content"]}]
    answer = await call("POST", "/v1/conversations/roomy/messages?wait=applied", messages)
    assert answer.status_code == 200
