"""How streams end, and what they do while Kafka or Redis is away: slow readers, revoked keys,
erasure, a gateway's stop, outages.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from projections.errors import InvalidPosition, TooFarBehind
from projections.names import Key, make_key, parse_position, partition_of
from streams.control.control_topic import Control
from streams.log.topics import create_topics
from streams.settings.settings import Settings
from tests.support.stream_pair import Pair, say
from tests.support.streaming import serving, subscribed
from tests.support.worker import running_worker, until
from threadfold.embedded.kafka import EmbeddedKafka
from threadfold.embedded.redis import EmbeddedRedis
from threadfold.streaming import Live
from threadfold.streaming.catchup import missed
from threadfold.streaming.live import OPENING


@pytest.mark.long
async def test_a_reader_that_takes_nothing_is_let_go_with_a_reason_and_the_others_get_everything(
    pair: Pair,
) -> None:
    live = pair.a.app.state.live
    host, port = pair.a.url.removeprefix("http://").split(":")
    path = "/v1/conversations/slow/stream"
    with socket.socket() as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        slow.connect((host, int(port)))
        slow.sendall(
            f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {pair.keys['acme']}\r\n\r\n".encode()
        )
        await until(lambda: _is(live.count() == 1))
        async with subscribed(pair.a, path, pair.keys["acme"]) as quick:
            positions: list[str] = []
            for _ in range(32):
                positions += await pair.append(
                    "slow", *({"type": "acme.blob.v1", "blob": "x" * 20_000} for _ in range(25))
                )
                sent = len(positions)
                await quick.until(lambda sent=sent: len(quick.events()) >= sent)
            assert [event.id for event in quick.events()] == positions
            # Its queue holds 4 MiB, the system's buffers some more: 16 MB were sent.
            await until(
                lambda: _is(any(r.ended is not None for r in live.readers) or live.count() == 1)
            )
        slow.settimeout(20)
        got = bytearray()
        while not got.endswith(b"0\r\n\r\n"):
            got += await asyncio.to_thread(slow.recv, 1 << 20)
    assert b": too slow" in got
    last = got.rpartition(b"\nid: ")[2].split(b"\n")[0].decode()
    async with subscribed(pair.a, path, pair.keys["acme"], Last_Event_ID=last) as again:
        await again.until(lambda: again.events() and again.events()[-1].id == positions[-1])
        assert [event.id for event in again.events()] == positions[positions.index(last) + 1 :]


async def _is(value: bool) -> bool:
    return value


async def test_the_stream_in_this_process_goes_on_by_itself_when_it_fell_behind(pair: Pair) -> None:
    live = await Live(pair.a.app.state.live.backend, most=4).start()
    try:
        (first,) = await pair.append("behind", say("0"))
        stream = live.conversation("acme", "behind", first)
        got = []
        positions = await pair.append("behind", say("1"))
        async for sent in stream:
            if sent.id is not None:
                got.append(sent.id)
            if len(got) == 1 and len(positions) == 1:
                for i in range(40):
                    positions += await pair.append("behind", say(str(i)))
                    await asyncio.sleep(0)
            if got and got[-1] == positions[-1]:
                break
        await stream.aclose()
        assert got == positions
    finally:
        await live.stop()
        pair.a.app.state.live.backend.on_appended = pair.a.app.state.live.partials.appended


async def test_one_tenants_streams_that_wait_to_be_opened_keep_out_no_other_tenants(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    live = await Live(pair.a.app.state.live.backend).start()
    acquire, slow = live.channels.acquire, asyncio.Event()

    async def acquired(key: Key) -> object:
        if key.tenant == "noisy":
            await slow.wait()
        return await acquire(key)

    monkeypatch.setattr(live.channels, "acquire", acquired)
    waiting = [asyncio.create_task(live.open("noisy", f"c{i}")) for i in range(2 * OPENING)]
    try:
        async with asyncio.timeout(20):
            (await live.open("acme", "c")).close()
        assert not any(task.done() for task in waiting)
    finally:
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        await live.stop()
        pair.a.app.state.live.backend.on_appended = pair.a.app.state.live.partials.appended


async def test_a_stream_whose_client_leaves_is_opened_no_further(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    live = pair.a.app.state.live
    reading, ended = asyncio.Event(), asyncio.Event()

    async def read(key: Key) -> None:
        reading.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    monkeypatch.setattr(live.store, "read", read)
    async with asyncio.timeout(20):
        asking = asyncio.create_task(
            pair.a.http.get("/v1/conversations/leaves/stream", headers=pair.auth())
        )
        await reading.wait()
        asking.cancel()
        await ended.wait()
        await until(lambda: _is(not len(live.channels) and not live.count()))


async def test_who_waits_for_the_same_opening_gets_it_when_the_first_leaves(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    live = pair.a.app.state.live
    read, reading, go_on = live.store.read, asyncio.Event(), asyncio.Event()

    async def later(key: Key) -> object:
        reading.set()
        await go_on.wait()
        return await read(key)

    monkeypatch.setattr(live.store, "read", later)
    async with asyncio.timeout(20):
        first = asyncio.create_task(live.open("acme", "shared"))
        await reading.wait()
        second = asyncio.create_task(live.open("acme", "shared"))
        await until(lambda: _is(live.channels.users(make_key("acme", "shared")) == 2))
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        go_on.set()
        (await second).close()
    assert not len(live.channels)


async def test_a_key_that_is_revoked_ends_its_stream_and_no_other(pair: Pair) -> None:
    control = await Control(pair.settings).start()
    await control.ensure_tenant("leaving")
    key = await control.add_key("leaving")
    async with subscribed(pair.b, "/v1/conversations/r/stream", pair.keys["acme"]) as stays:

        async def known() -> bool:
            return pair.a.app.state.live.backend.control.state.key_of(key) is not None

        await until(known)
        async with (
            subscribed(pair.a, "/v1/conversations/r/stream", key) as one,
            subscribed(pair.a, "/v1/summaries/stream", key) as two,
        ):
            await control.revoke_keys("leaving")
            for subscriber in (one, two):
                await subscriber.until(lambda s=subscriber: s.ended.is_set(), 10)
                assert subscriber.got[-1].data == "the key is not valid any more"
        assert not stays.ended.is_set()
    await control.stop()


async def test_erasing_ends_the_stream_with_its_event_and_who_comes_later_is_reported_410(
    pair: Pair,
) -> None:
    path = "/v1/conversations/erased/stream"
    (position,) = await pair.append("erased", say("forget me"))
    async with (
        subscribed(pair.a, path, pair.keys["acme"]) as one,
        subscribed(pair.b, path, pair.keys["acme"]) as two,
    ):
        await pair.a.app.state.live.backend.append(
            "acme", [("erased", {"type": "conversation.erased"})], operator=True
        )
        for subscriber in (one, two):
            await subscriber.until(subscriber.ended.is_set)
            assert subscriber.events()[-1].data["type"] == "conversation.erased"
            assert subscriber.got[-1].data == "the conversation is erased"

    async def gone() -> bool:
        return (
            await pair.a.http.get(f"{path}?after={position}", headers=pair.auth())
        ).status_code == 410

    await until(gone)
    piece = await pair.a.http.post(
        "/v1/conversations/erased/partial",
        content=b'{"turn_id":"t","delta":"x"}',
        headers=pair.auth(),
    )
    assert piece.status_code == 410


async def test_an_id_that_was_used_before_does_not_keep_an_erasure_from_ending_streams(
    pair: Pair,
) -> None:
    path = "/v1/conversations/guessed/stream"
    await pair.append("guessed", say("hello", id="guessed"), wait=True)
    async with subscribed(pair.a, path, pair.keys["acme"]) as one:
        erasure = {"type": "conversation.erased", "id": "guessed"}
        await pair.a.app.state.live.backend.append("acme", [("guessed", erasure)], operator=True)
        await one.until(one.ended.is_set)
        assert one.events()[-1].data["type"] == "conversation.erased"


async def test_a_repeated_event_is_sent_once(pair: Pair) -> None:
    await pair.append("twice", say("known before", id="early"), wait=True)
    async with subscribed(pair.a, "/v1/conversations/twice/stream", pair.keys["acme"]) as one:
        await pair.append("twice", say("known before", id="early"), say("a", id="one"))
        await pair.append("twice", say("a", id="one"), gateway=pair.b)
        (last,) = await pair.append("twice", say("end", id="two"))
        await one.until(lambda: one.events() and one.events()[-1].id == last)
        assert [event.data["id"] for event in one.events()] == ["one", "two"]


async def test_far_behind_the_past_is_found_through_the_window_and_too_far_is_refused(
    pair: Pair,
) -> None:
    backend = pair.a.app.state.live.backend
    key = make_key("acme", "far")
    partition = partition_of(key, backend.log.partitions)
    positions: list[str] = []
    for i in range(12):
        positions += await pair.append(
            "far",
            *(say(f"{i} {j}: {'word ' * 30}", "assistant" if j % 2 else "user") for j in range(10)),
        )
        await pair.append(f"other{i}", say("noise"), wait=i % 4 == 3)
    await backend.wait_for(parse_position(positions[-1]))
    upto = (await backend.log.end_offsets())[partition]
    for after, scan in ((positions[3], 20), (positions[50], 1), (positions[-1], 5)):
        found = await missed(backend, key, partition, parse_position(after).offset, upto, scan)
        offsets = []
        while (page := await found.next_page()) is not None:
            offsets += [row.offset for row in page]
        assert offsets == sorted(set(offsets))
        expected = [parse_position(p).offset for p in positions[positions.index(after) + 1 :]]
        summaries = set(offsets) - set(expected)
        assert set(expected) <= set(offsets)
        rows = await backend.log.read(
            type(parse_position(after))(partition, offset) for offset in summaries
        )
        assert all(b"summary" in (raw.value or b"") for raw in rows.values())
    with pytest.raises(TooFarBehind, match="read its history first"):
        await missed(backend, key, partition, parse_position(positions[0]).offset, upto, 5, most=30)
    with pytest.raises(InvalidPosition):
        await pair.a.app.state.live.open("acme", "far", f"{partition}-{upto + 5}")


async def test_a_gateway_that_stops_ends_its_streams_at_once_and_the_other_goes_on_from_there(
    pair: Pair,
) -> None:
    path = "/v1/conversations/stopping/stream"
    async with serving(pair.settings) as third:  # noqa: SIM117
        async with (
            subscribed(third, path, pair.keys["acme"]) as one,
            subscribed(third, "/v1/summaries/stream", pair.keys["acme"]) as two,
        ):
            (position,) = await pair.append("stopping", say("a"))
            await one.until(lambda: one.events())
            began = time.monotonic()
            await third.stop()
            for subscriber in (one, two):
                await subscriber.until(subscriber.ended.is_set)
                assert "stopping" in subscriber.got[-1].data
            assert time.monotonic() - began < 5  # the grace is 10
    (more,) = await pair.append("stopping", say("b"))
    async with subscribed(pair.a, path, pair.keys["acme"], Last_Event_ID=position) as again:
        await again.until(lambda: again.events())
        assert [event.id for event in again.events()] == [more]


@pytest.fixture
async def own(tmp_path: Path) -> AsyncIterator[tuple[Settings, EmbeddedKafka, EmbeddedRedis]]:
    """A Kafka and a Redis of the test's own, which it may stop."""
    kafka, redis = EmbeddedKafka(tmp_path / "kafka"), EmbeddedRedis(tmp_path / "redis")
    await asyncio.to_thread(kafka.start)
    await asyncio.to_thread(redis.start)
    try:
        made = Settings.load(
            env={},
            kafka=kafka.address,
            redis=redis.url,
            partitions=2,
            replication=1,
            min_isr=1,
            stream_heartbeat=0.3,
            partial_timeout=60,
        )
        await create_topics(made)
        yield made, kafka, redis
    finally:
        await asyncio.to_thread(redis.stop)
        await asyncio.to_thread(kafka.stop)


@pytest.mark.long
async def test_kafka_and_redis_away_the_stream_stays_open_and_goes_on_without_gap(
    own: tuple[Settings, EmbeddedKafka, EmbeddedRedis],
) -> None:
    settings, kafka, redis = own
    control = await Control(settings).start()
    await control.ensure_generation(settings.partitions)
    await control.ensure_tenant("acme")
    keys = {"acme": await control.add_key("acme")}
    await control.stop()
    async with AsyncExitStack() as open_still:
        async with running_worker(settings):
            gateway = await open_still.enter_async_context(serving(settings))
            pair = Pair(gateway, gateway, keys, settings)
            positions = await pair.append("away", say("a"), wait=True)
        async with subscribed(gateway, "/v1/conversations/away/stream", keys["acme"]) as one:
            positions = await pair.append("away", say("b"))
            await one.until(lambda: len(one.events()) == 1)
            # Without Redis events go on; a state cannot be told.
            redis.wanted_port = redis.port
            await asyncio.to_thread(redis.kill)
            positions += await pair.append("away", say("c"))
            await one.until(lambda: len(one.events()) == 2)
            await asyncio.to_thread(redis.start)
            # Without Kafka nothing comes but heart-beats.
            kafka.wanted_port = kafka.port
            await asyncio.to_thread(kafka.kill)
            beats = one.of("").count("heartbeat")
            await one.until(lambda: one.of("").count("heartbeat") >= beats + 2)
            await asyncio.to_thread(kafka.start)

            async def appended() -> bool:
                try:
                    positions.extend(await pair.append("away", say("d", id="d")))
                except AssertionError:
                    return False
                return True

            await until(appended, 60)
            positions += await pair.append("away", say("e"))
            await one.until(lambda: one.events()[-1].id == positions[-1], 60)
            assert [event.data["content"] for event in one.events()] == ["b", "c", "d", "e"]
            states = len(one.of("state"))
            async with running_worker(settings):
                await one.until(
                    lambda: (
                        len(one.of("state")) > states
                        and one.of("state")[-1]["position"] == positions[-1]
                    ),
                    60,
                )
            assert not one.ended.is_set()
