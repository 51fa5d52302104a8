"""What is announced and counted of a batch: a summary that a rollback puts in force again is news of
the rollback, though it was announced long ago itself; nothing is counted twice.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

import pytest

from projections.events.validation import make_record
from projections.names import Key, Position, parse_key
from projections.window.trace_steps import Cut
from streams.log.log import Raw
from streams.metrics.metrics import Metrics
from streams.partition.effects import DeadLetter, Effects
from streams.projector.effect_sink import Publisher
from streams.settings.settings import Settings
from tests.support.metrics import read
from threadfold.testing.memory_log import MemoryLog

KEY = Key("acme", "again")


class Heard(Publisher):
    """A publisher whose last step keeps what would go out."""

    def __init__(self, log: MemoryLog) -> None:
        self.metrics = Metrics()
        settings = Settings.load(env={}, kafka="127.0.0.1:1", redis="redis://127.0.0.1:1/0")
        super().__init__(settings, log, self.metrics)
        self.sent: list[tuple[str, bytes]] = []
        self.keys: list[bytes] = []

    async def _send(
        self, messages: list[tuple[str, bytes, bytes, list[tuple[str, bytes]]]]
    ) -> None:
        self.sent += [(topic, value) for topic, _, value, _ in messages]
        self.keys += [key for _, key, _, _ in messages]


class CountedLog(MemoryLog):
    """A log that counts how often it is read."""

    reads_at_once: list[list[Position]]

    def __init__(self) -> None:
        super().__init__(1)
        self.reads_at_once = []

    async def read(self, positions: Iterable[Position]) -> dict[Position, Raw]:
        self.reads_at_once.append(list(positions))
        return await super().read(self.reads_at_once[-1])


async def test_those_of_one_rollback_are_read_at_once_as_the_partition_waits() -> None:
    log = CountedLog()
    flat = {"type": "com.example.summary.v1"}
    records = [
        make_record(KEY, flat, where="event", now="2026-01-01T00:00:00Z", new_id=f"e{i}")
        for i in range(5)
    ]
    await log.append(records)
    here = Raw(Position(0, 2), str(KEY).encode(), records[2].value, 0)
    publisher = Heard(log)
    again = [(KEY, 4, 0), (KEY, 4, 1), (KEY, 4, 2), (KEY, 4, 3)]
    await publisher.publish(0, Effects(again=again), [here])
    assert [value for _, value in publisher.sent] == [record.value for record in records[:4]]
    # What is in the batch is not read.
    assert log.reads_at_once == [[Position(0, 0), Position(0, 1), Position(0, 3)]]


@pytest.mark.parametrize(("since", "heard"), [(0, True), (2, True), (3, True), (4, False)])
async def test_it_is_said_unless_the_rollback_itself_was_spoken_of_before(
    since: int, heard: bool
) -> None:
    log = MemoryLog(1)
    flat = {"type": "com.example.summary.v1"}
    records = [
        make_record(KEY, flat, where="event", now="2026-01-01T00:00:00Z", new_id=f"e{i}")
        for i in range(4)
    ]
    await log.append(records)
    publisher = Heard(log)
    publisher.announced_before[0] = since
    await publisher.publish(0, Effects(voided=[(KEY, 3, "other")], again=[(KEY, 3, 1)]), [])
    assert [value for _, value in publisher.sent][1:] == ([records[1].value] if heard else [])
    assert len(publisher.sent) == (2 if heard else 0)
    assert all(topic == "summaries" for topic, _ in publisher.sent)


async def test_what_is_published_is_counted_and_what_was_published_before_is_not(
    caplog: pytest.LogCaptureFixture,
) -> None:
    publisher = Heard(MemoryLog(1))
    publisher.announced_before[0] = 5
    dead = [
        DeadLetter(Position(0, offset), b"acme/c", "why", kind)
        for offset, kind in ((4, "poison"), (5, "poison"), (6, "waiting"), (7, "record"))
    ]
    voided = [(KEY, 4, "before"), (KEY, 8, "s1"), (KEY, 9, "s2")]
    refused = [(KEY, 4, "before"), (KEY, 9, "it does not know the latest rollback")]
    with caplog.at_level(logging.INFO):
        await publisher.publish(0, Effects(voided=voided, dead=dead, refused=refused), [])
    (line,) = [one for one in caplog.records if "takes no summary" in one.message]
    assert line.message.endswith("at 0-9: it does not know the latest rollback")
    assert (line.__dict__["tenant"], line.__dict__["position"]) == ("acme", "0-9")
    for at, utilization in ((4, 0.75), (10, 1.1), (11, 3.0)):
        publisher.report(0, KEY, Cut(at, utilization, ()))
    found = read(publisher.metrics.page())
    letters = {("poison",): 1, ("waiting",): 1, ("record",): 1}
    assert found["threadfold_dead_letters_total"] == letters
    summaries = {("accepted",): 0, ("refused",): 1, ("voided",): 2, ("restored",): 0}
    assert found["threadfold_summaries_total"] == summaries
    buckets = found["threadfold_cut_utilization_ratio_bucket"]
    assert buckets["1.0",] == 0 and buckets["1.25",] == 1 and buckets["4.0",] == 2
    assert publisher.take_set_aside() == {0: 1}


@pytest.mark.parametrize("first", [b"acme/", b"\xff\xfe/", b""])
async def test_a_letter_has_the_beginning_of_a_key_that_is_too_long(first: bytes) -> None:
    publisher, key = Heard(MemoryLog(1)), first + b"x" * 900_000
    await publisher.publish(0, Effects(dead=[DeadLetter(Position(0, 1), key, "why")]), [])
    (kept,) = publisher.keys
    assert len(kept) < 1_000 and key.startswith(kept) and parse_key(kept) is None
