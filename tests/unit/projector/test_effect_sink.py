"""A summary that a rollback puts in force again is news of the rollback: it is announced though it
was announced long ago itself.
"""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from projections.events.validation import make_record
from projections.names import Key, Position
from streams.log.log import Raw
from streams.partition.effects import Effects
from streams.projector.effect_sink import Publisher
from streams.settings.settings import Settings
from threadfold.testing.memory_log import MemoryLog

KEY = Key("acme", "again")


class Heard(Publisher):
    """A publisher whose last step keeps what would go out."""

    def __init__(self, log: MemoryLog) -> None:
        super().__init__(
            Settings.load(env={}, kafka="127.0.0.1:1", redis="redis://127.0.0.1:1/0"), log
        )
        self.sent: list[tuple[str, bytes]] = []

    async def _send(
        self, messages: list[tuple[str, bytes, bytes, list[tuple[str, bytes]]]]
    ) -> None:
        self.sent += [(topic, value) for topic, _, value, _ in messages]


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
