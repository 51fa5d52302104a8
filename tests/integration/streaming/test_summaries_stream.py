"""The summaries stream, and summaries and states in a conversation's stream, on real Kafka and
Redis over two gateways.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import pytest

from streams.log import kafka_log
from streams.log.kafka_log import KafkaLog
from tests.support.stream_pair import Pair, say
from tests.support.streaming import Subscriber, subscribed
from threadfold.streaming import missed_summaries
from threadfold.streaming.cursor import read_cursor, write_cursor
from threadfold.streaming.live import OPENING_OF_TENANT

LONG = (
    "The parcel left the harbour in Oslo on Tuesday and should arrive by the weekend, or so they"
    " said. " * 3
)


async def talk(pair: Pair, conversation: str, messages: int = 14) -> list[str]:
    """Enough to be summarised under the tests' policy."""
    return await pair.append(
        conversation,
        *(say(f"{i}: {LONG}", "assistant" if i % 2 else "user") for i in range(messages)),
    )


def ids(subscriber: Subscriber) -> list[str]:
    return [data["summary_id"] for data in subscriber.of("summary")]


async def test_a_summary_comes_once_accepted_in_its_place_in_the_log_and_in_the_state(
    pair: Pair,
) -> None:
    path = "/v1/conversations/sums/stream"
    async with (
        subscribed(pair.a, path, pair.keys["acme"]) as one,
        subscribed(pair.b, path, pair.keys["acme"]) as two,
    ):
        positions = await talk(pair, "sums")
        await one.until(
            lambda: one.of("summary") and one.of("state") and one.of("state")[-1]["summary"]
        )
        summary = one.of("summary")[-1]
        (forged,) = await pair.append(
            "sums", {**_again(summary), "id": "forged", "previous": "another"}
        )
        (after,) = await pair.append("sums", say("after"))
        for subscriber in (one, two):
            await subscriber.until(lambda s=subscriber: after in [event.id for event in s.events()])
            got = [event.id for event in subscriber.events()]
            assert got == sorted(got, key=lambda position: int(position.split("-")[1]))
            assert forged not in got
            assert len(set(got)) == len(got)
            assert [event.id for event in subscriber.events() if event.kind == "event"] == [
                *positions,
                after,
            ]
        await one.until(lambda: one.of("state")[-1]["summary"]["summary_id"] == ids(one)[-1])
        assert set(one.of("state")[-1]) == {"state", "position", "tokens", "summary", "suspensions"}
    # What is caught up with says the same: no refused summary, and all accepted ones.
    async with subscribed(pair.b, f"{path}?after={positions[0]}", pair.keys["acme"]) as late:
        await late.until(lambda: after in [event.id for event in late.events()])
        told = [event.id for event in one.events()]
        assert [event.id for event in late.events()][: told.index(after)] == told[
            1 : told.index(after) + 1
        ]


def _again(summary: dict[str, Any]) -> dict[str, Any]:
    fields = {
        name: value for name, value in summary.items() if name not in ("id", "time", "position")
    }
    return {**fields, "summary_id": "forged"}


async def test_the_state_comes_on_joining_and_when_it_changed(pair: Pair) -> None:
    (position,) = await pair.append("state", say("hello"), wait=True)
    async with subscribed(pair.a, "/v1/conversations/state/stream", pair.keys["acme"]) as one:
        await one.until(lambda: one.of("state"))
        first = one.of("state")[0]
        assert (first["state"], first["position"], first["suspensions"]) == ("active", position, [])
        await pair.append(
            "state",
            {"type": "suspension", "suspension_id": "s1", "kind": "approval", "prompt": "Shall I?"},
        )
        await one.until(lambda: one.of("state")[-1]["state"] == "awaiting_approval")
        assert [s["suspension_id"] for s in one.of("state")[-1]["suspensions"]] == ["s1"]
        (last,) = await pair.append(
            "state", {"type": "resolution", "suspension_id": "s1", "outcome": "approved"}
        )
        await one.until(lambda: one.of("state")[-1]["state"] == "active")
        context = (
            await pair.a.http.get(
                f"/v1/conversations/state/context?after={last}", headers=pair.auth()
            )
        ).json()
        assert {name: context[name] for name in ("state", "tokens", "suspensions", "position")} == {
            name: one.of("state")[-1][name]
            for name in ("state", "tokens", "suspensions", "position")
        }


async def test_the_tenants_summaries_come_from_now_on_resume_by_cursor_and_from_the_beginning(
    pair: Pair,
) -> None:
    async with subscribed(pair.a, "/v1/summaries/stream", pair.keys["acme"]) as one:
        await talk(pair, "t1")
        await one.until(lambda: any(data["conversation"] == "t1" for data in one.of("summary")))
        cursor = one.events()[-1].id
        assert cursor is not None
        known = set(ids(one))
    await talk(pair, "t2")
    async with subscribed(
        pair.b, "/v1/summaries/stream", pair.keys["acme"], Last_Event_ID=cursor
    ) as two:
        await two.until(lambda: any(data["conversation"] == "t2" for data in two.of("summary")))
        assert not known & set(ids(two))
        await talk(pair, "t3")
        await two.until(lambda: any(data["conversation"] == "t3" for data in two.of("summary")))
    async with subscribed(
        pair.b, "/v1/summaries/stream?from=beginning", pair.keys["acme"]
    ) as all_of_them:
        wanted = known | set(ids(two))
        await all_of_them.until(lambda: wanted <= set(ids(all_of_them)))
        assert all(
            {"summary_id", "text", "conversation", "span"} <= set(data)
            for data in all_of_them.of("summary")
        )


@pytest.mark.long
async def test_streams_from_the_beginning_share_one_reader_and_come_page_by_page(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    def one_more(*_: object) -> None:
        raise AssertionError("a connection of its own")

    monkeypatch.setattr(kafka_log, "sequential_consumer", one_more)
    monkeypatch.setattr(missed_summaries, "PAGE_BYTES", 1)
    monkeypatch.setattr(missed_summaries, "SCAN", 3)
    path = "/v1/summaries/stream?from=beginning"
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(subscribed(pair.a, path, pair.keys["acme"]))
        for name in ("page1", "page2", "page3"):
            await talk(pair, name)
            await first.until(
                lambda name=name: any(data["conversation"] == name for data in first.of("summary"))
            )
        wanted = set(ids(first))
        for _ in range(12):
            stream = subscribed(pair.a, path, pair.keys["acme"])
            late = await stack.enter_async_context(stream)
            await late.until(lambda late=late: wanted <= set(ids(late)))
            assert len(set(ids(late))) == len(ids(late))
        # Every event's cursor goes on behind it.
        for at, event in enumerate(late.events()):
            before, behind = set(ids(late)[: at + 1]), wanted - set(ids(late)[: at + 1])
            stream = subscribed(pair.a, path, pair.keys["acme"], Last_Event_ID=str(event.id))
            async with stream as rest:
                await rest.until(lambda rest=rest, behind=behind: behind <= set(ids(rest)))
                assert not before & set(ids(rest))


async def test_a_voided_summary_is_reported(pair: Pair) -> None:
    async with subscribed(pair.a, "/v1/summaries/stream", pair.keys["acme"]) as one:
        positions = await talk(pair, "void")
        await one.until(lambda: any(data["conversation"] == "void" for data in one.of("summary")))
        answer = await pair.a.http.post(
            "/v1/conversations/void/rollback", json={"to": positions[0]}, headers=pair.auth()
        )
        assert answer.status_code == 202
        await one.until(lambda: one.of("voided"))
        told = one.of("voided")[0]
        assert told["type"] == "summary.voided"
        assert told["conversation"] == "void"
        assert told["summary_id"] in ids(one)


async def test_another_tenant_sees_no_summary_and_its_cursor_is_refused(pair: Pair) -> None:
    async with subscribed(
        pair.a, "/v1/summaries/stream?from=beginning", pair.keys["rival"]
    ) as rival:
        async with subscribed(pair.a, "/v1/summaries/stream", pair.keys["acme"]) as one:
            await talk(pair, "ours")
            await one.until(lambda: one.of("summary"))
            cursor = one.events()[-1].id
        await rival.until(lambda: rival.of("").count("heartbeat") >= 3)
        assert rival.events() == []
    topic, count = pair.settings.topic("summaries"), pair.settings.partitions
    ends = read_cursor(topic, "acme", count, str(cursor))
    ahead = write_cursor(topic, "rival", [end + 1_000 for end in ends])
    for given in (cursor, "AAAA", "ä", "3-1", ahead):
        answer = await pair.a.http.get(
            "/v1/summaries/stream", headers=pair.auth("rival"), params={"cursor": given}
        )
        assert answer.status_code == 422, answer.text


@pytest.fixture
def questions(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The topics of which a gateway asks Kafka from now on where they end."""
    asked: list[str] = []
    real = KafkaLog.end_offsets

    async def counted(log: KafkaLog) -> dict[int, int]:
        asked.append(log.topic)
        return await real(log)

    monkeypatch.setattr(KafkaLog, "end_offsets", counted)
    return asked


async def test_streams_of_summaries_that_are_opened_and_left_at_once_do_not_each_ask_kafka(
    pair: Pair, questions: list[str]
) -> None:
    live = pair.b.app.state.live
    topic = pair.settings.topic("summaries")

    async def opened_and_left(cursor: str | None = None) -> str:
        stream = await live.open_summaries("acme", cursor)
        stream.close()
        return write_cursor(topic, "acme", [0] * pair.settings.partitions)

    cursors = await asyncio.gather(*(opened_and_left() for _ in range(40)))
    assert questions.count(topic) <= OPENING_OF_TENANT
    questions.clear()
    for cursor in (None, *cursors):
        await opened_and_left(cursor)
    assert topic not in questions, "the topic is read on for a while"


async def test_a_stream_that_asks_kafka_nothing_begins_no_later_than_it_was_opened(
    pair: Pair, questions: list[str]
) -> None:
    topic, live = pair.settings.topic("summaries"), pair.a.app.state.live
    (await live.open_summaries("acme")).close()
    questions.clear()
    for n in range(3):
        async with subscribed(pair.a, "/v1/summaries/stream", pair.keys["acme"]) as one:
            await talk(pair, f"opened{n}")
            await one.until(
                lambda name=f"opened{n}", one=one: (
                    name in [d["conversation"] for d in one.of("summary")]
                )
            )
    assert topic not in questions
