"""A feed whose store cannot be used says so at once to all who wait, logs it once, and goes on."""

from __future__ import annotations

import logging

import pytest

from projections.errors import KafkaUnavailable, MemoryUnavailable, WaitTimedOut
from streams.encryption.payload_cipher import Unsealed
from streams.memory import topic_feed
from streams.memory.feed import MemoryFeed
from streams.memory.sqlite_store import SqliteMemories
from streams.settings.settings import Settings
from tests.support.worker import until
from threadfold.service.patience import BUSY, PATIENCE, STARTING, Patience

FULL = MemoryUnavailable("the disk of its folder is full", "/data/memories")


class Feed(MemoryFeed):
    """A feed of no topic, that fails as the test says."""

    def __init__(self, failure: Exception | None) -> None:
        super().__init__(Settings(), Unsealed(), SqliteMemories())
        self.failure, self.tries = failure, 0

    async def _open(self) -> None:
        self.tries += 1
        self._begun = {0: 0}
        if self.fault is None:
            self.reason = ""

    async def _step(self) -> None:
        if self.failure is not None:
            self._begun = {}
            raise self.failure
        await topic_feed.asyncio.sleep(0.01)

    async def tried(self) -> bool:
        return self.tries > 3

    async def fed(self) -> bool:
        return self.is_fed


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_feed, "AGAIN", 0.01)


@pytest.mark.parametrize(
    ("failure", "cause", "told"),
    [
        (FULL, "the disk of its folder is full", "the disk of /data/memories is full"),
        (TypeError("x"), "an unexpected error (TypeError)", "an unexpected error (TypeError)"),
    ],
)
async def test_a_store_that_cannot_be_used_is_named_at_once_and_logged_once(
    failure: Exception, cause: str, told: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, topic_feed.__name__)
    feed = Feed(failure)
    feed.start()
    for call in (feed.ready, feed.caught_up):
        with pytest.raises(MemoryUnavailable, match="appended events are safe") as raised:
            await call(timeout=60)
        assert raised.value.cause == cause and "/data" not in str(raised.value)
    await until(feed.tried)
    (line,) = caplog.messages
    assert line == f"the long-term memory is not fed: {told}"
    assert feed.is_failing and feed.reason == cause
    feed.failure = None
    await until(feed.fed)
    assert caplog.messages[1:] == ["the long-term memory is fed again"] and feed.fault is None
    await feed.stop()


async def test_while_kafka_is_away_the_store_is_not_blamed() -> None:
    feed = Feed(KafkaUnavailable("Kafka did not answer"))
    feed.start()
    await until(feed.tried)
    assert feed.fault is None and feed.is_failing
    with pytest.raises(WaitTimedOut, match="Kafka did not answer"):
        await feed.ready(timeout=0)
    await feed.stop()


def test_an_answer_does_not_wait_for_a_feed_that_is_known_to_fail(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 100.0
    monkeypatch.setattr("threadfold.service.patience.time.monotonic", lambda: now)
    feed, patience = Feed(None), Patience()
    assert patience.of(feed) == PATIENCE
    feed.reason = "Kafka did not answer"
    assert patience.of(feed) == 0
    feed.reason = ""
    now += STARTING
    assert patience.of(feed) == BUSY
