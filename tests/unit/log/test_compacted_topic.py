"""The follower of a compacted topic: what it cannot read it skips, and where it fails it says so
and tries again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, NamedTuple

import pytest

from projections.errors import TopicStuck
from streams.log import compacted_topic
from streams.log.compacted_topic import CompactedTopic, TopicRecord
from streams.settings.settings import Settings


class Row(NamedTuple):
    offset: int
    key: bytes | None = b"key"
    value: bytes | None = b"value"
    timestamp: int = 0


class Broker:
    """A consumer of a topic that is in memory."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.at = 0

    async def start(self) -> None: ...
    async def stop(self) -> None: ...
    async def seek_to_beginning(self) -> None: ...
    def assign(self, places: Sequence[Any]) -> None: ...

    def partitions_for_topic(self, topic: str) -> set[int]:
        return {0}

    def seek(self, place: Any, offset: int) -> None:
        self.at = offset

    async def position(self, place: Any) -> int:
        return self.at

    async def ends(self, consumer: Any, places: list[Any]) -> dict[Any, int]:
        return dict.fromkeys(places, len(self.rows))

    async def getmany(self, place: Any, timeout_ms: int) -> dict[Any, list[Row]]:
        await asyncio.sleep(0.001)
        rows = self.rows[self.at :]
        self.at = len(self.rows)
        return {place: rows} if rows else {}


@pytest.fixture
async def broker(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Broker]:
    made = Broker()
    monkeypatch.setattr(compacted_topic, "make_consumer", lambda settings: made)
    monkeypatch.setattr(compacted_topic, "end_offsets", made.ends)
    monkeypatch.setattr(compacted_topic, "PAUSE", 0.001)
    yield made


async def until(reached: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not reached():  # noqa: ASYNC110 (the follower has no event for it)
            await asyncio.sleep(0.001)


async def test_a_record_that_cannot_be_read_is_skipped_and_named(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    taken: list[int] = []

    def apply(row: TopicRecord) -> None:
        if row.offset == 1:
            raise ValueError("it is nested too deep")
        taken.append(row.offset)

    broker.rows += [Row(0), Row(1), Row(2)]
    topic = CompactedTopic(Settings(), "control", apply)
    await topic.start()
    topic.check()
    await topic.stop()
    assert taken == [0, 2]
    said = [text for text in caplog.messages if "cannot be read" in text]
    assert len(said) == 1 and "offset=1" in said[0]


async def test_a_failure_of_the_follower_is_named_as_itself_and_tried_again_until_it_ends(
    broker: Broker,
) -> None:
    """Such a record ended the follower, and errors blamed Kafka."""
    taken: list[int] = []
    broken = True

    def apply(row: TopicRecord) -> None:
        if broken and row.offset == 1:
            raise KeyError("surprise")
        taken.append(row.offset)

    broker.rows += [Row(0), Row(1), Row(2)]
    topic = CompactedTopic(Settings(), "control", apply)
    try:
        with pytest.raises(TopicStuck, match=r"control from offset 1 on \(KeyError: 'surprise'\)"):
            await topic.start()
        with pytest.raises(TopicStuck):
            await topic.sync()
        with pytest.raises(TopicStuck):
            topic.check()
        assert taken == [0], "what may matter is not passed over"
        broken = False
        await until(lambda: 2 in taken)
        await topic.sync()
        topic.check()
        assert taken == [0, 1, 2]
    finally:
        await topic.stop()


async def test_a_failure_of_what_is_done_when_nothing_comes_stops_nothing(broker: Broker) -> None:
    taken: list[int] = []
    failures = 0

    async def idle() -> None:
        nonlocal failures
        failures += 1
        if failures == 1:
            raise RuntimeError("once")

    topic = CompactedTopic(Settings(), "keys", lambda row: taken.append(row.offset), idle=idle)
    await topic.start()
    try:
        await until(lambda: failures >= 2)
        broker.rows.append(Row(0))
        await until(lambda: bool(taken))
        topic.check()
    finally:
        await topic.stop()
