"""Where events stand in a copy of their log, and in which order a copy reads partitions."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import AsyncIterator

import pytest

from projections.events.relocation import NOWHERE
from projections.names import Key, Position, partition_of
from streams.log.clients import kafka_errors
from streams.log.topic_copies import Copied
from streams.maintenance.log_copy import by_time
from streams.maintenance.position_map import FAR, PositionMap
from streams.settings.settings import Settings

KEY = Key("acme", "c1")
OLD, NEW = partition_of(KEY, 4), partition_of(KEY, 7)


def test_an_event_is_found_and_what_is_none_is_nowhere() -> None:
    places = PositionMap([10] * 4)
    places.put(Position(OLD, 2), Position(NEW, 40))
    places.put(Position(OLD, 3), Position(NEW + 1, 41))
    moves = places.of(KEY, 7)
    assert moves.partition == OLD
    assert moves.event(Position(OLD, 2)) == Position(NEW, 40)
    for other in (Position(OLD, 3), Position(OLD, 4), Position(OLD, 10), Position(OLD + 1, 2)):
        assert moves.event(other) == NOWHERE, "another conversation's, or nobody's"
    places.close()


def test_what_is_compared_is_compared_with_the_last_event_at_or_before_it() -> None:
    places = PositionMap([10] * 4)
    places.put(Position(OLD, 2), Position(NEW, 40))
    moves = places.of(KEY, 7)
    assert moves.until(Position(OLD, 2)) == moves.until(Position(OLD, 9)) == Position(NEW, 40)
    assert moves.until(Position(OLD, 10)) == Position(NEW, FAR), "what is to come"
    assert moves.until(Position(OLD, 1)) == moves.until(Position(OLD + 1, 2)) == NOWHERE
    places.close()


async def test_a_temporary_folder_without_room_is_named_and_kafka_is_not_blamed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def full(*_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(OSError, match="No space left") as raised:
        async with kafka_errors(Settings.load(env={}, kafka="127.0.0.1:1")):
            PositionMap([10])
    assert raised.value.filename == tempfile.gettempdir()


def test_the_first_offset_of_the_first_partition_is_a_place() -> None:
    places = PositionMap([1, 0])
    assert places.get(Position(0, 0)) is None and places.get(Position(1, 0)) is None
    places.put(Position(0, 0), Position(0, 0))
    assert places.get(Position(0, 0)) == Position(0, 0)
    places.close()


async def batches(*batches: list[int]) -> AsyncIterator[list[Copied]]:
    for batch in batches:
        yield [Copied(0, timestamp, b"", b"", ()) for timestamp in batch]


async def test_partitions_are_read_by_time_and_each_in_its_order() -> None:
    parts = [batches([1, 9], [], [3]), batches(), batches([2], [2, 10])]
    found = [(number, record.timestamp) async for number, record in by_time(parts)]
    assert found == [(0, 1), (2, 2), (2, 2), (0, 9), (0, 3), (2, 10)]
