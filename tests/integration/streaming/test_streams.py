"""A conversation's stream on real Kafka and Redis, over two gateways that share them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable
from functools import partial
from typing import Any

import httpx
import pytest

from projections.names import make_key, parse_position, partition_of
from streams.encryption.payload_cipher import Unsealed
from streams.log.clients import make_producer
from streams.log.log import Row
from streams.runtime.tasks import end_tasks
from tests.support.busy import busy
from tests.support.stream_pair import Pair, post, say
from tests.support.streaming import Heard, Subscriber, subscribed
from tests.support.worker import until
from threadfold.streaming.tail import Tail


async def test_events_come_in_order_on_both_gateways_as_history_gives_them(pair: Pair) -> None:
    await pair.append("order", say("before"))
    path = "/v1/conversations/order/stream"
    async with (
        subscribed(pair.a, path, pair.keys["acme"]) as one,
        subscribed(pair.b, path, pair.keys["acme"]) as two,
    ):
        positions = await pair.append("order", *(say(f"line {i}") for i in range(5)))
        for subscriber in (one, two):
            await subscriber.until(lambda s=subscriber: len(s.events()) >= 5)
            assert [event.id for event in subscriber.events()] == positions
            assert [event.kind for event in subscriber.events()] == ["event"] * 5
    page = await pair.a.http.get(
        f"/v1/conversations/order/context?after={positions[-1]}", headers=pair.auth()
    )
    assert page.status_code == 200
    history = (
        await pair.a.http.get("/v1/conversations/order/history?limit=5", headers=pair.auth())
    ).json()["events"]
    assert [event.data for event in one.events()] == history[::-1]


async def test_a_conversation_parked_at_its_first_event_has_no_state_yet(pair: Pair) -> None:
    producer = make_producer(pair.settings)
    await producer.start()
    try:
        await producer.send_and_wait(pair.settings.topic("events"), b"no event", b"acme/parked")
    finally:
        await producer.stop()
    await pair.append("parked", say("waits"), wait=True)
    async with subscribed(pair.a, "/v1/conversations/parked/stream", pair.keys["acme"]) as one:
        (after,) = await pair.append("parked", say("waits, too"))
        await one.until(lambda: any(event.id == after for event in one.events()))
        assert one.of("state") == []


async def test_a_stream_resumes_after_a_position_by_header_and_by_parameter(pair: Pair) -> None:
    positions = await pair.append("resume", *(say(f"r{i}") for i in range(8)))
    path = "/v1/conversations/resume/stream"
    async with subscribed(pair.b, path, pair.keys["acme"], Last_Event_ID=positions[2]) as one:
        await one.until(lambda: len(one.events()) >= 5)
        assert [event.id for event in one.events()] == positions[3:]
    async with subscribed(pair.a, f"{path}?after={positions[6]}", pair.keys["acme"]) as two:
        await two.until(lambda: len(two.events()) >= 1)
        more = await pair.append("resume", say("more"))
        await two.until(lambda: len(two.events()) >= 2)
        assert [event.id for event in two.events()] == [positions[7], *more]


@pytest.mark.long
async def test_reconnecting_at_random_points_under_appends_misses_and_repeats_nothing(
    pair: Pair,
) -> None:
    rng = random.Random(7)
    positions = await pair.append("random", say("first"))
    path, seen, done = "/v1/conversations/random/stream", [positions[0]], asyncio.Event()

    async def appending() -> None:
        for i in range(60):
            names = [
                f"noise{rng.randrange(20)}" if rng.random() < 0.5 else "random"
                for _ in range(rng.randrange(1, 6))
            ]
            for name in names:
                found = await pair.append(name, say(f"{i}"), gateway=rng.choice([pair.a, pair.b]))
                if name == "random":
                    positions.extend(found)
        done.set()

    task = asyncio.create_task(appending())
    connections = 0
    while not done.is_set() or positions[-1] not in seen:
        connections += 1
        async with subscribed(
            rng.choice([pair.a, pair.b]), path, pair.keys["acme"], Last_Event_ID=seen[-1]
        ) as one:
            wanted = rng.randrange(1, 9)
            await one.until(partial(_enough, one, wanted, done, seen[-1], positions))
            taken = one.events() if rng.random() < 0.5 else one.events()[:wanted]
            seen += [event.id for event in taken]
    await task
    assert connections > 5
    summaries = {event["position"] for event in await _summaries(pair, "random")}
    assert [position for position in seen if position not in summaries] == positions
    assert len(set(seen)) == len(seen)


def _enough(
    one: Subscriber, wanted: int, done: asyncio.Event, last: str, positions: list[str]
) -> bool:
    got = [event.id for event in one.events()]
    return len(got) >= wanted or (done.is_set() and positions[-1] in (last, *got))


async def _summaries(pair: Pair, conversation: str) -> list[dict[str, Any]]:
    """All summary events of a conversation that are in its history."""
    found: list[dict[str, Any]] = []
    cursor = ""
    while cursor is not None:
        page = (
            await pair.a.http.get(
                f"/v1/conversations/{conversation}/history?limit=100{cursor}", headers=pair.auth()
            )
        ).json()
        found += [event for event in page["events"] if event["type"] == "summary"]
        cursor = page["next_before"] and f"&before={page['next_before']}"
    return found


async def test_heart_beats_come_while_nothing_else_does(pair: Pair) -> None:
    async with subscribed(pair.a, "/v1/conversations/quiet/stream", pair.keys["acme"]) as one:
        await one.until(lambda: one.of("").count("heartbeat") >= 2, 5)
        assert one.events() == []


async def test_a_subscriber_that_leaves_leaves_nothing_behind(pair: Pair) -> None:
    live = pair.a.app.state.live
    async with subscribed(pair.a, "/v1/conversations/leave/stream", pair.keys["acme"]):
        assert live.count() == 1

    async def gone() -> bool:
        names = {task.get_name() for task in asyncio.all_tasks()}
        return live.count() == 0 and not names & {
            "stream",
            "stream-client",
            "state-acme/leave",
            "judging-acme/leave",
        }

    await until(gone, 5)
    assert len(live.channels) == 0
    assert live.channels.tail.idle


async def test_a_listener_that_waits_for_the_logs_ends_holds_up_no_other_one(pair: Pair) -> None:
    log, topic = pair.a.app.state.live.backend.log, pair.settings.topic("events")
    key = make_key("acme", "waits")
    partition, asked, go_on = partition_of(key, pair.settings.partitions), [], asyncio.Event()

    async def ends() -> dict[int, int]:
        found: dict[int, int] = await log.end_offsets()
        asked.append(found)
        if len(asked) == 1:
            await go_on.wait()
        return found

    tail = Tail(pair.settings, topic, pair.settings.partitions, ends, log.seals)
    first, second = Heard(), Heard()
    try:
        async with asyncio.timeout(20):
            waiting = asyncio.create_task(tail.join(str(key).encode(), first, [partition]))
            await until(lambda: asyncio.sleep(0, bool(asked)))
            await tail.join(b"acme/other", second, [partition])
            (position,) = await pair.append("waits", say("before"))
            tail.leave(b"acme/other", second, [partition])
            assert not waiting.done() and tail.idle
            go_on.set()
            await waiting
            await until(lambda: asyncio.sleep(0, bool(first.offsets)))
        assert first.offsets == [parse_position(position).offset]
        assert first.why == second.why == ""
    finally:
        await tail.stop()


async def test_a_tail_that_lingers_reads_no_more_some_time_after_its_last_listener_has_left(
    pair: Pair,
) -> None:
    log, topic = pair.a.app.state.live.backend.log, pair.settings.topic("events")
    count, heard = pair.settings.partitions, Heard()
    tail = Tail(pair.settings, topic, count, log.end_offsets, log.seals, linger=0.1)
    try:
        await tail.join(b"acme", heard, range(count))
        tail.leave(b"acme", heard, range(count))
        assert not tail.idle
        await tail.join(b"acme", heard, range(count))
        tail.leave(b"acme", heard, range(count))
        await until(lambda: asyncio.sleep(0, tail.idle))
    finally:
        await tail.stop()


async def test_others_have_their_turn_between_records_that_take_long_to_hand_over(
    pair: Pair,
) -> None:
    log, topic = pair.a.app.state.live.backend.log, pair.settings.topic("events")
    key = make_key("acme", "many-streams")
    partition, steps, seen = partition_of(key, pair.settings.partitions), 0, list[int]()

    class Slow(Heard):
        def deliver(self, row: Row, partition: int) -> None:
            super().deliver(row, partition)
            busy(0.002)
            seen.append(steps)

    async def step() -> None:
        nonlocal steps
        while True:
            await asyncio.sleep(0)
            steps += 1

    tail = Tail(pair.settings, topic, pair.settings.partitions, log.end_offsets, log.seals)
    stepping = asyncio.create_task(step())
    try:
        async with asyncio.timeout(20):
            await tail.join(str(key).encode(), Slow(), [partition])
            await pair.append("many-streams", *(say(f"text {n}") for n in range(30)))
            await until(lambda: asyncio.sleep(0, len(seen) == 30))
    finally:
        await end_tasks([stepping])
        await tail.stop()
    assert len(set(seen)) > 20, seen


async def test_a_listener_gets_all_from_where_it_joined_whatever_came_for_one_that_left(
    pair: Pair,
) -> None:
    log, topic = pair.a.app.state.live.backend.log, pair.settings.topic("events")
    key = make_key("acme", "rejoined")
    name, partition = str(key).encode(), partition_of(key, pair.settings.partitions)
    asked, go_on, ready, decrypted = 0, asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def ends() -> dict[int, int]:
        nonlocal asked
        asked += 1
        found: dict[int, int] = await log.end_offsets()
        if asked == 1:
            await go_on.wait()
        return found

    class Seals(Unsealed):
        async def ready(self, rows: Iterable[object]) -> None:
            ready.set()
            await decrypted.wait()

    tail = Tail(pair.settings, topic, pair.settings.partitions, ends, Seals())
    first, second = Heard(), Heard()
    try:
        async with asyncio.timeout(20):
            waiting = asyncio.create_task(tail.join(name, first, [partition]))
            await until(lambda: asyncio.sleep(0, asked == 1))
            positions = await pair.append("rejoined", say("before the other one joins"))
            await tail.join(b"acme/other", second, [partition])
            positions += await pair.append("rejoined", say("read for the other one"))
            await ready.wait()
            tail.leave(b"acme/other", second, [partition])
            go_on.set()
            await waiting
            decrypted.set()
            offsets = [parse_position(position).offset for position in positions]
            await until(lambda: asyncio.sleep(0, len(first.offsets) >= len(offsets)))
        assert first.offsets == offsets
        assert first.why == second.why == ""
    finally:
        await tail.stop()


async def test_another_tenants_key_position_and_scope_are_refused(pair: Pair) -> None:
    positions = await pair.append("mine", say("secret"))
    async with subscribed(pair.a, "/v1/conversations/mine/stream", pair.keys["rival"]) as other:
        await pair.append("mine", say("secret 2"))
        await other.until(lambda: other.of("").count("heartbeat") >= 2)
        assert other.events() == []
        assert other.of("state") == []
    for path, key, status in (
        (f"mine/stream?after={positions[0]}x", "acme", 422),
        ("mine/stream?after=3-99999999", "acme", 422),
        ("mine/stream", "reader", 403),
    ):
        answer = await pair.a.http.get(f"/v1/conversations/{path}", headers=pair.auth(key))
        assert answer.status_code == status, answer.text
        assert answer.headers["content-type"] == "application/problem+json"
    assert httpx.codes(401) == (await pair.a.http.get("/v1/conversations/mine/stream")).status_code


async def told_after(at: Pair, conversation: str, after: str, last: str) -> list[str]:
    """The ids that a stream resumed after a position gives, up to another."""
    async with subscribed(
        at.b, f"/v1/conversations/{conversation}/stream", at.keys["acme"], Last_Event_ID=after
    ) as one:
        await one.until(lambda: any(event.id == last for event in one.events()))
        return [event.data["id"] for event in one.events() if event.kind == "event"]


@pytest.mark.long
async def test_resuming_from_more_than_1024_ids_back_tells_each_event_once_as_history_does(
    pair: Pair,
) -> None:
    (first,) = await pair.append("far-back", say("first", id="first"), wait=True)
    await pair.append("far-back", say("once", id="once"))
    await pair.append("far-back", say("once", id="once"))
    turn = (await post(pair, "far-back/turns", {"turn_id": "old"})).json()
    assert (
        await post(pair, "far-back/turns/old/end", Fencing_Token=str(turn["fencing_token"]))
    ).status_code == 202
    zombie = await post(
        pair,
        "far-back/events",
        say("zombie", id="zombie"),
        Fencing_Token=str(turn["fencing_token"]),
    )
    assert zombie.status_code == 409
    late = await post(pair, "far-back/events", say("late", id="late"), If_Match=first)
    assert late.status_code == 409
    for page in range(3):
        ids = [f"e{page}-{i}" for i in range(400)]
        positions = await pair.append(
            "far-back", *(say(name, id=name) for name in ids), wait=page == 2
        )
    # More than 1,024 ids ago: none of them is known by its id any more.
    told = await told_after(pair, "far-back", first, positions[-1])
    history: list[str] = []
    before = ""
    while before is not None:
        answer = await pair.a.http.get(
            f"/v1/conversations/far-back/history?limit=500{before and f'&before={before}'}",
            headers=pair.auth(),
        )
        history += [event["id"] for event in answer.json()["events"] if event["type"] != "summary"]
        before = answer.json()["next_before"]
    assert told == history[-2::-1]
    assert told.count("once") == 1
    assert len(told) == 1205
