"""A conversation has one turn at a time, under a lease and with a fencing token."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from tests.support.gateway import Client, is_problem, say
from tests.support.worker import until
from threadfold.service import turns as turns_module

KEY = {"Idempotency-Key": "k1"}


async def begin(call: Client, conversation: str, **body: Any) -> Any:
    return await call("POST", f"/v1/conversations/{conversation}/turns", body)


async def begin_with_key(call: Client, conversation: str, **body: Any) -> Any:
    return await call("POST", f"/v1/conversations/{conversation}/turns", body, headers=KEY)


async def end(call: Client, conversation: str, turn_id: str, **headers: str) -> Any:
    path = f"/v1/conversations/{conversation}/turns/{turn_id}/end"
    return await call("POST", path, headers=headers)


async def turns(call: Client, conversation: str) -> Any:
    return (await call("GET", f"/v1/conversations/{conversation}/turns")).json()


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
    is_problem(late, 409, f"the turn of token {first} is not active", f"token {second} is")
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


async def test_a_queued_turn_is_looked_at_less_often_the_longer_it_waits(
    call: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[float] = []
    original = turns_module.standing

    async def standing(*args: Any) -> Any:
        looks.append(time.monotonic())
        return await original(*args)

    await begin(call, "patient", turn_id="a")
    monkeypatch.setattr(turns_module, "standing", standing)
    monkeypatch.setattr(turns_module, "WAITED_PART", 2)
    answer = await begin(call, "patient", turn_id="b", policy="queue", wait=2)
    assert answer.json()["status"] == "queued"
    # Every 0.05 s they would be 40, and of these pauses each is half of all before it.
    assert 5 <= len(looks) <= 16 and looks[-1] - looks[0] > 1.5


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


@pytest.mark.parametrize("policy", ["reject", "queue", "interrupt"])
@pytest.mark.parametrize("active", [True, False], ids=["another is active", "none is active"])
async def test_a_begin_that_comes_after_the_end_with_its_key_begins_nothing(
    call: Client, policy: str, active: bool
) -> None:
    name = f"overtaken-{policy}-{active}"
    if active:
        await begin(call, name, turn_id="other")
    assert (await end(call, name, "t", **KEY)).status_code == (409 if active else 202)
    before = await turns(call, name)
    late = await begin_with_key(call, name, turn_id="t", policy=policy)
    is_problem(late, 409, "did not begin")
    assert await turns(call, name) == before
    await end(call, name, "other")
    assert (await begin(call, name, turn_id="t")).json()["status"] == "started", "a new begin may"


@pytest.mark.parametrize("policy", ["reject", "queue"])
async def test_an_end_with_the_key_of_its_begin_ends_what_began(call: Client, policy: str) -> None:
    name = f"keyed-end-{policy}"
    if policy == "queue":
        await begin(call, name, turn_id="other")
    first = await begin_with_key(call, name, turn_id="t", policy=policy)
    assert first.status_code == 202
    again = await begin_with_key(call, name, turn_id="t", policy=policy)
    assert again.json() == first.json(), "a repeat begins it once"
    await end(call, name, "t", **KEY)
    shown = await turns(call, name)
    assert shown["waiting"] == [] and (shown["live"] or {"turn_id": "other"})["turn_id"] == "other"
    late = await begin_with_key(call, name, turn_id="t", policy=policy)
    is_problem(late, 409, "did not begin: it has ended")
    assert await turns(call, name) == shown


async def test_an_end_with_another_key_than_its_begin_ends_the_turn(call: Client) -> None:
    token = (await begin(call, "other-key", turn_id="t")).json()["fencing_token"]
    await begin(call, "other-key", turn_id="next", policy="queue")
    ended = await end(call, "other-key", "t", **KEY, **{"Fencing-Token": str(token)})
    assert ended.status_code == 202
    assert (await turns(call, "other-key"))["live"]["turn_id"] == "next"


async def test_a_begin_that_was_refused_uses_its_key_up_and_says_so(call: Client) -> None:
    await begin(call, "used-key", turn_id="other")
    refused = await begin_with_key(call, "used-key", turn_id="t")
    is_problem(refused, 409, "turn other is active")
    await end(call, "used-key", "other")
    is_problem(await begin_with_key(call, "used-key", turn_id="t"), 409, "give another one")


async def test_a_begin_without_an_id_makes_one_turn_of_its_key(call: Client) -> None:
    first, again = [(await begin_with_key(call, "keyed")).json() for _ in range(2)]
    assert again == first and first["status"] == "started"


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


async def test_a_turn_that_its_routes_could_not_name_does_not_begin(call: Client) -> None:
    for turn_id in ("a/b", ".", "..", "x" * 129, "é", "a b", "a\u0000"):
        answer = await begin(call, "named", turn_id=turn_id)
        assert answer.status_code == 422, (turn_id, answer.text)
    assert (await begin(call, "named", turn_id="x" * 128)).status_code == 202
