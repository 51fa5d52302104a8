"""What end users get of a conversation that is parked, and what becomes of its turns."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

import pytest

from projections.names import Key, Position, partition_of
from streams.control.halts import Halt
from streams.settings.settings import Settings
from tests.support.end_users import Followed, World, follow
from tests.support.gateway import Client, is_problem, say
from tests.support.parking import park
from tests.support.worker import until
from threadfold.service import letters

SECRET = "for bob alone"


@asynccontextmanager
async def following(world: World, path: str) -> AsyncIterator[Followed]:
    seen = Followed()
    task = asyncio.create_task(follow(world, path, {}, seen))
    try:
        await seen.has("event: state")
        yield seen
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def make_operator(world: World) -> None:
    if "operator" not in world.keys:
        world.keys["operator"] = await world.control.add_key("acme", ["admin"])


async def drop(world: World, bad: Position) -> None:
    await make_operator(world)

    async def dropped() -> bool:
        answer = await world("POST", f"/dead-letters/{bad}/drop", "operator", {})
        return bool(answer.status_code == 200 and answer.json()["applied"])

    await until(dropped)  # the key is known to the gateway a moment later


async def add(world: World, name: str, *events: dict[str, Any]) -> list[str]:
    """Append events with the tenant's key to a conversation that is parked; their positions."""
    path = f"/conversations/{name}/events?wait=applied"
    answer = await world("POST", path, "acme", list(events))
    assert [event["status"] for event in answer.json()["events"]] == ["parked"] * len(events)
    return [event["position"] for event in answer.json()["events"]]


async def test_a_former_owner_gets_nothing_of_a_parked_conversation_from_there_on(
    world: World, settings: Settings
) -> None:
    mine, token = await world.begin("ann", "hello"), await world.token("ann")
    path = f"/conversations/{mine}"
    said = await world("POST", f"{path}/events?wait=applied", "acme", say("stands before"))
    before = said.json()["position"]
    async with following(world, f"{path}/stream?token={token}") as seen:
        bad = await park(settings, mine)
        opened = {"type": "conversation.opened", "user": "bob"}
        positions = await add(world, mine, opened, say(SECRET), say(SECRET, "assistant"))
        await asyncio.wait_for(seen.ended.wait(), 10)
    first = (await world("GET", f"{path}/history?limit=500")).json()["events"][-1]["position"]
    resumed = Followed()
    await follow(world, f"{path}/stream?after={first}&token={token}", {}, resumed)
    assert "stands before" in resumed.text
    for stream in (seen, resumed):
        assert "bob" not in stream.text and '"type":"conversation.opened"' not in stream.text
        assert "parked from here on" in stream.text
    for position in positions:
        answer = await world("GET", f"{path}/events/{position}", token)
        is_problem(answer, 503, f"is parked at {bad}", f"the event at {position} is not shown")
    assert (await world("GET", f"{path}/events/{before}", token)).status_code == 200
    for what in ("context", "history?wait=applied", "summaries"):
        answer = await world("GET", f"{path}/{what}", token)
        assert answer.status_code == 200 and SECRET not in answer.text
    await drop(world, bad)
    for what in ("context", f"events/{positions[1]}", "stream"):
        is_problem(await world("GET", f"{path}/{what}", token), 404)
    now = await world("GET", f"{path}/history?limit=500", await world.token("bob"))
    assert SECRET in now.text


async def test_what_waits_in_a_parked_conversation_is_in_no_search_or_recall_before_it_goes_on(
    world: World, settings: Settings
) -> None:
    mine, token = await world.begin("ann", "The walrus stands before."), await world.token("ann")
    other = await world.begin("ann", "Where stands the walrus?")
    query = {"query": "walrus", "kinds": ["turn"]}

    async def found(credential: str) -> str:
        answer = await world("POST", "/memories/search", credential, query)
        assert answer.status_code == 200 and not answer.json()["away"], answer.text
        return answer.text

    async def has_it() -> bool:
        return "stands before" in await found(token)

    await until(has_it)
    bad = await park(settings, mine)
    await add(world, mine, say(f"The walrus stands {SECRET}."))
    for credential in (token, "acme"):
        text = await found(credential)  # it waits until the index has all that was said
        assert "stands before" in text and SECRET not in text
    path = f"/conversations/{other}/context?recall=on"
    context = (await world("GET", path, token)).text
    assert "stands before" in context and SECRET not in context
    await drop(world, bad)
    assert SECRET in await found(token)
    assert SECRET in (await world("GET", path, token)).text


async def test_an_end_user_appends_nothing_to_a_parked_conversation(
    world: World, settings: Settings
) -> None:
    mine, token = await world.begin("ann", "hello"), await world.token("ann")
    bad = await park(settings, mine)
    await add(world, mine, say("waits"))
    path = f"/conversations/{mine}"
    for what, body in (
        ("messages", {"role": "user", "content": "by ann"}),
        ("events", say("by ann")),
    ):
        for wait in ("", "?wait=applied"):
            answer = await world("POST", f"{path}/{what}{wait}", token, body)
            is_problem(answer, 503, f"is parked at {bad}", "nothing was appended")
    memory = {"text": "by ann, too", "conversation": mine}
    is_problem(await world("POST", "/memories", token, memory), 503, f"is parked at {bad}")
    assert (await world("POST", f"{path}/events", "acme", say("tenant"))).status_code == 202
    await drop(world, bad)
    shown = (await world("GET", f"{path}/context")).text
    assert "waits" in shown and "tenant" in shown and "by ann" not in shown
    again = await world("POST", f"{path}/events?wait=applied", token, say("by ann"))
    assert again.json()["events"][0]["status"] == "applied"


async def test_no_memory_is_saved_for_a_parked_conversation_whose_user_may_change(
    world: World, settings: Settings
) -> None:
    mine = await world.begin("ann", "hello")
    bad = await park(settings, mine)
    await add(world, mine, {"type": "conversation.opened", "user": "bob"})
    memory = {"text": "Collects stamps.", "conversation": mine}
    for wait in ("", "?wait=applied"):
        answer = await world("POST", f"/memories{wait}", "acme", memory)
        is_problem(answer, 503, f"is parked at {bad}", "memory 1 was not saved")
    await drop(world, bad)
    saved = await world("POST", "/memories?wait=applied", "acme", memory)
    assert saved.json()["memories"][0]["status"] == "created"
    found = (await world("GET", f"/memories?conversation={mine}", "acme")).json()["memories"]
    assert [(one["text"], one["user"]) for one in found] == [("Collects stamps.", "bob")]


async def test_nothing_is_done_about_a_memory_whose_log_is_parked(
    world: World, settings: Settings
) -> None:
    name = f"c-{uuid4().hex[:12]}"
    answer = await world("POST", f"/conversations/{name}/events?wait=applied", "acme", say("hi"))
    assert answer.status_code == 200
    memory = {"text": "Collects coins.", "conversation": name}
    saved = await world("POST", "/memories?wait=applied", "acme", memory)
    path = f"/memories/{saved.json()['memories'][0]['id']}"
    bad = await park(settings, name)
    await add(world, name, say("waits"))
    for method, what, body in (
        ("POST", "/outcome", {"succeeded": True}),
        ("DELETE", "?hard=true", None),
        ("DELETE", "", None),
    ):
        answer = await world(method, path + what, "acme", body)
        is_problem(answer, 503, f"is parked at {bad}", "nothing was done about memory")
    await drop(world, bad)
    found = await world("GET", path, "acme")
    assert found.status_code == 200 and not found.json()["use"]["succeeded"]
    assert (await world("DELETE", path, "acme")).status_code == 200


async def test_no_context_is_given_out_as_one_that_includes_what_waits(
    world: World, settings: Settings
) -> None:
    mine = await world.begin("ann", "hello")
    path = f"/conversations/{mine}"
    said = await world("POST", f"{path}/events?wait=applied", "acme", say("stands before"))
    before, bad = said.json()["position"], await park(settings, mine)
    (waits,) = await add(world, mine, say("no, stop"))
    for more in ("", "&recall=on", "&format=anthropic"):
        answer = await world("GET", f"{path}/context?after={waits}{more}", "acme")
        is_problem(answer, 503, f"is parked at {bad}", f"does not include {waits}")
        for other in (f"after={before}", "max_tokens=9000"):
            answer = await world("GET", f"{path}/context?{other}{more}", "acme")
            assert "stands before" in answer.text and "no, stop" not in answer.text
    await drop(world, bad)
    assert "no, stop" in (await world("GET", f"{path}/context?after={waits}", "acme")).text


async def test_an_end_user_appends_nothing_while_the_partition_is_halted(
    world: World, settings: Settings
) -> None:
    mine, token = await world.begin("ann", "hello"), await world.token("ann")
    path, number = f"/conversations/{mine}", partition_of(Key("acme", mine), settings.partitions)
    async with halted(world, number):
        answer = await world("POST", f"{path}/events", token, say("by ann"))
        is_problem(answer, 503, f"partition {number}, which is halted", "nothing was appended")
        assert (await world("POST", f"{path}/events", "acme", say("tenant"))).status_code == 202
        assert (await world("GET", f"{path}/context", token)).status_code == 200
    await until(lambda: _appends(world, path, token))


async def test_a_drop_does_not_wait_for_a_halted_partition(
    world: World, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(letters, "WAIT", 60.0)
    mine, token = await world.begin("ann", "hello"), await world.token("ann")
    path, number = f"/conversations/{mine}", partition_of(Key("acme", mine), settings.partitions)
    bad = await park(settings, mine)
    async with halted(world, number):
        drop = world("POST", f"/dead-letters/{bad}/drop", "operator", {})
        answer = await asyncio.wait_for(drop, 30)
        assert answer.json()["applied"] is False and answer.json()["event"]
    await until(lambda: _appends(world, path, token))


@asynccontextmanager
async def halted(world: World, number: int) -> AsyncIterator[None]:
    """A partition is halted, and the gateway knows it."""
    await make_operator(world)
    live = world.control.state.live
    halt = Halt(live, 10**9, 1, 1, 10**9, "a test", "2026-01-31T12:00:00Z")
    await world.control.write({f"halt/{number}": halt})

    async def known() -> bool:
        answer = await world("GET", "/dead-letters", "operator")
        return answer.status_code == 200 and bool(answer.json()["halted"])

    await until(known)
    yield
    await world.control.write({f"halt/{number}": halt.accept()})


async def _appends(world: World, path: str, token: str) -> bool:
    return (await world("POST", f"{path}/events", token, say("by ann"))).status_code == 202


async def test_the_stream_of_an_owner_goes_on_where_it_ended_once_the_record_is_dropped(
    world: World, settings: Settings
) -> None:
    mine, token = await world.begin("ann", "hello"), await world.token("ann")
    path = f"/conversations/{mine}"
    async with following(world, f"{path}/stream?token={token}") as seen:
        await world("POST", f"{path}/events?wait=applied", "acme", say("stands before"))
        await seen.has("stands before")
        bad = await park(settings, mine)
        await add(world, mine, say("waits one"), say("waits two"))
        await asyncio.wait_for(seen.ended.wait(), 10)
    assert "waits" not in seen.text
    last = [line for line in seen.text.splitlines() if line.startswith("id: ")][-1][4:]
    await drop(world, bad)
    async with following(world, f"{path}/stream?after={last}&token={token}") as resumed:
        await resumed.has("waits two")
        await world("POST", f"{path}/events", "acme", say("after all"))
        await resumed.has("after all")
    assert resumed.text.count("waits one") == 1 and "stands before" not in resumed.text


async def test_a_stream_that_had_nothing_to_send_stays_open_until_the_record_is_dropped(
    world: World, settings: Settings
) -> None:
    mine, token = await world.begin("ann", "hello"), await world.token("ann")
    path = f"/conversations/{mine}"
    async with following(world, f"{path}/stream?token={token}") as seen:
        bad = await park(settings, mine)
        await drop(world, bad)
        await world("POST", f"{path}/events", "acme", say("after all"))
        await seen.has("after all")
        assert not seen.ended.is_set()


async def test_no_text_in_progress_of_a_parked_conversation_reaches_an_end_user(
    world: World, settings: Settings
) -> None:
    mine, token = await world.begin("ann", "hello"), await world.token("ann")
    path = f"/conversations/{mine}"

    async def parked() -> bool:
        return "parked" in (await world("GET", f"{path}/context")).json()

    async with (
        following(world, f"{path}/stream?token={token}") as seen,
        following(world, f"{path}/stream?token={token}") as other,
    ):
        await park(settings, mine)
        await until(parked)
        piece = {"turn_id": "t", "offset": 0, "delta": SECRET}
        assert (await world("POST", f"{path}/partial", "acme", piece)).status_code == 202
        for stream in (seen, other):
            await asyncio.wait_for(stream.ended.wait(), 10)
            assert SECRET not in stream.text and "parked from here on" in stream.text
    late = Followed()
    await follow(world, f"{path}/stream?token={token}", {}, late)
    assert SECRET not in late.text and "parked from here on" in late.text


async def test_no_turn_begins_while_its_conversation_is_parked_nor_later_by_itself(
    call: Client, settings: Settings
) -> None:
    name = f"parked-{uuid4().hex[:8]}"
    path = f"/v1/conversations/{name}"
    await call("POST", f"{path}/events?wait=applied", say("hello"))
    bad = await park(settings, name)
    waits = (await call("POST", f"{path}/events?wait=applied", say("waits"))).json()
    assert waits["events"][0]["status"] == "parked"
    for policy in ("reject", "queue", "interrupt"):
        for headers in ({}, {"Idempotency-Key": policy}):
            body = {"turn_id": f"t-{policy}", "policy": policy}
            answer = await call("POST", f"{path}/turns", body, headers=headers)
            is_problem(answer, 409, f"parked at {bad}: nothing was appended")
    assert (await call("GET", f"{path}/context")).json()["parked"]["waiting"] == 1
    await goes_on(call, name, bad)
    assert (await call("GET", f"{path}/turns")).json() == {"live": None, "waiting": []}
    key = {"Idempotency-Key": "reject"}
    begun = await call("POST", f"{path}/turns", {"turn_id": "t-reject"}, headers=key)
    assert begun.json()["status"] == "started", "a request that was refused used no key up"


@pytest.mark.parametrize("keyed", [False, True])
async def test_a_turn_whose_conversation_is_parked_meanwhile_does_not_begin_later(
    call: Client, settings: Settings, monkeypatch: pytest.MonkeyPatch, keyed: bool
) -> None:
    name = f"raced-{uuid4().hex[:8]}"
    path = f"/v1/conversations/{name}"
    await call("POST", f"{path}/events?wait=applied", say("hello"))
    append, places = call.backend.append, list[Position]()

    async def late(*args: Any, **options: Any) -> Any:
        if not places:
            places.append(await park(settings, name))
        return await append(*args, **options)

    monkeypatch.setattr(call.backend, "append", late)
    body, headers = {"turn_id": "t", "seconds": 600}, {"Idempotency-Key": "k"} if keyed else {}
    answer = await call("POST", f"{path}/turns", body, headers=headers)
    is_problem(answer, 409, f"was parked at {places[0]} meanwhile")
    await goes_on(call, name, places[0])
    assert (await call("GET", f"{path}/turns")).json() == {"live": None, "waiting": []}
    other = await call("POST", f"{path}/turns", {"turn_id": "other"})
    assert other.json()["status"] == "started"


async def test_a_turn_that_waits_is_asked_for_again_while_its_conversation_is_parked(
    call: Client, settings: Settings
) -> None:
    name = f"queued-{uuid4().hex[:8]}"
    path = f"/v1/conversations/{name}"
    first = (await call("POST", f"{path}/turns", {"turn_id": "a"})).json()
    queued = {"turn_id": "b", "policy": "queue"}
    await call("POST", f"{path}/turns", queued)
    bad = await park(settings, name)
    await call("POST", f"{path}/events?wait=applied", say("waits"))
    again = (await call("POST", f"{path}/turns", queued)).json()
    assert (again["status"], again["place"]) == ("queued", 1)
    held = (await call("POST", f"{path}/turns", {"turn_id": "a"})).json()
    assert held["fencing_token"] == first["fencing_token"]
    assert (await call("GET", f"{path}/context")).json()["parked"]["waiting"] == 1
    await call("POST", f"{path}/turns/a/end")
    await goes_on(call, name, bad)
    assert (await call("POST", f"{path}/turns", queued)).json()["status"] == "started"


async def test_a_turn_that_ends_while_its_conversation_is_parked_is_over_once_it_goes_on(
    call: Client, settings: Settings
) -> None:
    name = f"ends-{uuid4().hex[:8]}"
    path = f"/v1/conversations/{name}"
    token = (await call("POST", f"{path}/turns", {"turn_id": "t"})).json()["fencing_token"]
    bad, fence = await park(settings, name), {"Fencing-Token": str(token)}
    renewed = await call("POST", f"{path}/turns/t/renew", {"seconds": 300}, headers=fence)
    assert renewed.status_code == 202
    assert (await call("POST", f"{path}/turns/t/end", headers=fence)).status_code == 202
    await goes_on(call, name, bad)
    assert (await call("GET", f"{path}/turns")).json() == {"live": None, "waiting": []}


async def goes_on(call: Client, name: str, bad: Position) -> None:
    """Drop the record at which a conversation is parked, as ``dead-letters drop`` does."""
    dropping = {"type": "event.dropped", "position": str(bad)}
    appended = await call.backend.append("acme", [(name, dropping)], operator=True)
    await call.backend.wait_applied("acme", name, appended)
    assert "parked" not in (await call("GET", f"/v1/conversations/{name}/context")).json()
