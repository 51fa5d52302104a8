"""The topic of summaries has lost its beginning: streams that were to give it say so."""

from __future__ import annotations

from pathlib import Path

from aiokafka import AIOKafkaProducer

from projections.names import make_key, partition_of
from streams.log.kafka_log import KafkaLog
from streams.log.topics import create_topics, lost_summaries
from tests.conftest import fresh_settings
from tests.integration.log.test_truncated_log import eaten
from tests.integration.streaming.test_summaries_stream import talk
from tests.support.commands import ok
from tests.support.moved_logs import folder_of
from tests.support.stream_pair import Pair
from tests.support.streaming import Event, Gateway, Subscriber, subscribed
from threadfold.embedded.stack import EmbeddedStack
from threadfold.streaming.cursor import read_cursor

PATH = "/v1/summaries/stream"


async def heard(pair: Pair, at: Gateway, name: str, cursor: str | None) -> Subscriber:
    """All that a stream after a cursor, or from the beginning, gives up to a conversation's
    summary.
    """
    path = PATH if cursor else f"{PATH}?from=beginning"
    headers = {"Last_Event_ID": cursor} if cursor else {}
    async with subscribed(at, path, pair.keys["acme"], **headers) as one:
        await one.until(lambda: conversation_at(one.events(), name) is not None)
    return one


def conversation_at(events: list[Event], name: str) -> int | None:
    """Where the conversation's first summary is."""
    return next((i for i, e in enumerate(events) if e.data.get("conversation") == name), None)


async def test_a_stream_that_resumes_before_the_topics_beginning_says_what_is_missing(
    pair: Pair,
) -> None:
    topic, count = pair.settings.topic("summaries"), pair.settings.partitions
    partition = partition_of(make_key("acme", "gone"), count)
    stays = next(
        name
        for name in (f"stays{n}" for n in range(999))
        if partition_of(make_key("acme", name), count) == partition
    )
    async with subscribed(pair.a, PATH, pair.keys["acme"]) as one:
        await talk(pair, "before")
        await one.until(lambda: conversation_at(one.events(), "before") is not None)
        before = str(one.events()[-1].id)
        await talk(pair, "gone")
        await one.until(lambda: conversation_at(one.events(), "gone") is not None)
        # Both gateways have read the topic's beginning, and know where it was.
        for gateway in (pair.a, pair.b):
            assert not (await heard(pair, gateway, "gone", None)).of("missing")
        begin = (await ends_of(pair))[partition]
        await eaten(pair.settings, {partition: begin}, "summaries")
        await talk(pair, stays)
        await one.until(lambda: conversation_at(one.events(), stays) is not None)
        assert not one.of("missing"), "it got everything"
    first = read_cursor(topic, "acme", count, before)[partition]
    assert first < begin
    lost = {"partition": partition, "first": first, "last": begin - 1}
    for gateway in (pair.a, pair.b):
        resumed = await heard(pair, gateway, stays, before)
        assert resumed.of("missing") == [lost]
        assert conversation_at(resumed.events(), "gone") is None
        kinds = [event.kind for event in resumed.events()]
        at = kinds.index("missing")
        found = conversation_at(resumed.events(), stays)
        assert found is not None and at < found, "in their place"
        # The stream says it once, and goes on behind it.
        again = await heard(pair, gateway, stays, str(resumed.events()[at].id))
        assert not again.of("missing")
    # A stream from the beginning says it, too.
    assert (await heard(pair, pair.b, stays, None)).of("missing") == [{**lost, "first": 0}]


async def ends_of(pair: Pair) -> dict[int, int]:
    """Where the partitions of the summaries topic end."""
    log = KafkaLog(pair.settings, pair.settings.partitions, "summaries")
    try:
        return await log.end_offsets()
    finally:
        await log.stop()


async def test_the_command_that_prints_from_the_beginning_says_on_stderr_that_it_is_lost(
    stack: EmbeddedStack, tmp_path: Path
) -> None:
    settings = fresh_settings(stack)
    await create_topics(settings)
    data = folder_of(settings, tmp_path / "data")
    producer = AIOKafkaProducer(bootstrap_servers=settings.kafka)
    await producer.start()
    for number in range(3):
        value = b'{"type":"threadfold.summary.v1","id":"%d"}' % number
        await producer.send_and_wait(settings.topic("summaries"), value, b"acme/c", 0)
    await producer.stop()
    whole = await ok("summaries", "--data", data)
    assert len(whole.lines) == 3 and not whole.err

    await eaten(settings, {0: 2}, "summaries")
    lost = await ok("summaries", "--data", data)
    assert lost.lines == whole.lines[2:]
    assert lost.said == await lost_summaries(settings)
    assert "has lost its beginning, in partition 0 (begins at offset 2)" in lost.said
