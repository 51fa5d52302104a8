"""The topic of memories made anew from the logs gives an equal store."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from projections.events import types as events
from projections.memory.identity import Scope
from projections.memory.news import Fact, News, read_news
from projections.names import Key
from streams.log.log import Raw
from streams.maintenance.republish import republish
from streams.partition.effects import Effects
from streams.projector.effect_sink import NullSink
from streams.projector.memory_announcements import announcement
from tests.support.memories import PARTITIONS, RULES, TaughtLog, random_logs, saved
from tests.support.profiles import examples
from threadfold.testing import MemoryLog
from threadfold.testing.plain_memories import PlainMemories


class Topic(NullSink):
    """What is published."""

    def __init__(self) -> None:
        self.values: list[tuple[Key, bytes]] = []

    async def publish(self, partition: int, effects: Effects, batch: Sequence[Raw]) -> None:
        rows = {raw.offset: raw for raw in batch}
        for key, offset, taught in effects.taught:
            value = announcement(key, rows[offset], taught)
            self.values += [(key, value)] * len(taught.users)

    @property
    def news(self) -> list[News]:
        found = (read_news(key, value) for key, value in self.values)
        return [one for one in found if one is not None]


def log_of(logs: list[TaughtLog]) -> MemoryLog:
    """One log with all records where they stood, and records of nobody between."""
    made = MemoryLog(PARTITIONS)
    for partition in range(made.partitions):
        raws = sorted(raw for log in logs if log.partition == partition for raw in log.raws)
        at = 0
        for raw in raws:
            while at < raw.offset:
                at = made.put(partition, None, None, 0).offset + 1
            at = made.put(partition, raw.key, raw.value, raw.timestamp).offset + 1
    return made


def republished(logs: list[TaughtLog]) -> Topic:
    topic = Topic()
    asyncio.run(republish(log_of(logs), RULES, topic))
    return topic


def digests(news: list[News]) -> dict[Scope, str]:
    plain = PlainMemories()
    plain.take(news)
    return plain.digests()


@given(st.integers(0, 2**32), st.integers(2, 40))
@settings(max_examples=examples(200), deadline=None)
def test_a_topic_made_anew_gives_an_equal_store(seed: int, length: int) -> None:
    logs = random_logs(random.Random(seed), length)
    live = [one for log in logs for one in log.told()]
    assert digests(republished(logs).news) == digests(live)


def test_what_an_erased_log_taught_is_not_published_again() -> None:
    key = Key("acme", "c1")
    log, other = TaughtLog(key, 2), TaughtLog(Key("acme", "c2"), 0)
    for one in (log, other):
        one.put(events.Opened(user="u-1"))
        one.put(saved(one.key, "Hides marmalade."))
    log.put(events.Erased())
    topic = republished([log, other])
    assert [one.log.conversation for one in topic.news if isinstance(one, Fact)] == ["c2"]
    assert sum(b"marmalade" in value for _, value in topic.values) == 1
    assert digests(topic.news) == digests(log.told() + other.told())


def test_a_hard_deletion_in_an_erased_log_still_holds_for_what_another_taught() -> None:
    log, other = TaughtLog(Key("acme", "c1"), 2), TaughtLog(Key("acme", "c2"), 0)
    for one in (other, log):
        one.put(events.Opened(user="u-1"))
    said = saved(other.key, "Hides marmalade.")
    other.put(said)
    log.put(events.Message("user", "Forget it."))
    log.put(events.MemoryDeleted(memory_id=said.memory_id, user="u-1", hard=True))
    log.put(events.Erased())
    assert digests(republished([log, other]).news) == digests(log.told() + other.told()) == {}
