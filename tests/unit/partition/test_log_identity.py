"""Whether records that come are those of the log that was folded, as the watch beside a consumer
tells.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from aiokafka.client import ConnectionGroup

from projections.storage.records import Checkpoint
from streams.log.log import Raw
from streams.partition import log_identity
from streams.partition.log_identity import (
    StoredPlace,
    Watch,
    find_start,
    identity,
    settled_end,
    stored_place,
    why_other,
)
from threadfold.testing import MemoryLog


class Client:
    """As much of aiokafka's client as is asked: who leads, over which connection."""

    def __init__(self) -> None:
        self.cluster = self
        self.leader = 1
        self._conns: dict[Any, object] = {(1, ConnectionGroup.DEFAULT): object()}

    def leader_for_partition(self, _: object) -> int:
        return self.leader

    def reconnect(self) -> None:
        self._conns = {(self.leader, ConnectionGroup.DEFAULT): object()}


class Consumer:
    def __init__(self, client: Client) -> None:
        self._client = client


class ShortLog(MemoryLog):
    """A log in memory that loses its tail or its beginning."""

    first = 0

    def lose_tail(self, end: int) -> None:
        del self._rows[0][end:]

    async def beginning_offsets(self) -> dict[int, int]:
        return {0: self.first}


@pytest.fixture
def log() -> ShortLog:
    made = ShortLog(1)
    for n in range(10):
        made.put(0, b"acme/c", b"%d" % n)
    return made


async def rows(log: ShortLog, first: int, last: int) -> list[Raw]:
    return [raw async for raw in log.scan(0, first, last)]


def at(raw: Raw) -> Checkpoint:
    return Checkpoint("r", raw.offset, raw.timestamp, identity(raw), -1)


async def fed(log: ShortLog, upto: int) -> tuple[Watch, Client]:
    """A watch of a partition that is fed from after the offset ``upto``."""
    client = Client()
    watch = Watch(log, "events", Consumer(client))
    (last,) = await rows(log, upto, upto)
    watch.begin(0, at(last), 0, watch.way(0))
    return watch, client


async def test_what_follows_is_handed_on(log: ShortLog) -> None:
    watch, _ = await fed(log, 3)
    assert await watch.follows(0, await rows(log, 4, 6))
    assert await watch.follows(0, await rows(log, 7, 9))


async def test_what_follows_after_a_reconnection_is_handed_on_while_the_log_is_the_same(
    log: ShortLog,
) -> None:
    watch, client = await fed(log, 3)
    client.reconnect()
    assert await watch.follows(0, await rows(log, 4, 6))
    client.leader = 2
    client.reconnect()
    assert await watch.follows(0, await rows(log, 7, 9))


async def test_records_from_further_back_are_not_handed_on(log: ShortLog) -> None:
    watch, _ = await fed(log, 5)
    assert not await watch.follows(0, await rows(log, 0, 9))


async def test_a_gap_is_handed_on_unless_the_log_has_lost_its_beginning(log: ShortLog) -> None:
    watch, _ = await fed(log, 3)
    assert await watch.follows(0, await rows(log, 6, 7)), (
        "a transaction's marker has an offset, too"
    )
    watch, _ = await fed(log, 3)
    log.first = 6
    assert not await watch.follows(0, await rows(log, 6, 7))


async def test_other_records_at_the_offsets_that_were_folded_are_noticed_after_a_reconnection(
    log: ShortLog,
) -> None:
    watch, client = await fed(log, 3)
    assert await watch.follows(0, await rows(log, 4, 6))
    log.lose_tail(5)
    for n in range(20):
        log.put(0, b"acme/c", b"another %d" % n)
    client.reconnect()
    assert not await watch.follows(0, await rows(log, 7, 9))


async def test_records_of_the_lost_tail_that_were_under_way_are_noticed_after_a_reconnection(
    log: ShortLog,
) -> None:
    watch, client = await fed(log, 3)
    under_way = await rows(log, 4, 9)
    log.lose_tail(6)
    client.reconnect()
    assert not await watch.follows(0, under_way)
    log.put(0, b"acme/c", b"another")
    assert not await watch.follows(0, under_way)


async def test_a_partition_that_is_not_fed_hands_nothing_on(log: ShortLog) -> None:
    watch, _ = await fed(log, 3)
    watch.end(0)
    assert not await watch.follows(0, await rows(log, 4, 6))


async def test_a_checkpoint_is_of_another_log_when_its_record_is_not_there_as_it_was(
    log: ShortLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_identity, "SETTLE", 0.05)
    (record,) = await rows(log, 7, 7)
    checkpoint = at(record)
    assert await why_other(log, 0, checkpoint, 0, 10) is None
    assert await why_other(log, 0, None, 0, 10) is None
    later = Checkpoint("r", record.offset, record.timestamp + 1, identity(record), -1)
    assert await why_other(log, 0, later, 0, 10) is not None, "the same event, appended once more"
    assert await why_other(log, 0, checkpoint, 8, 10) is None, (
        "its record went with the log's beginning"
    )
    log.lose_tail(5)
    assert await settled_end(log, 0, 8) == 5
    assert (
        await why_other(log, 0, checkpoint, 0, 5)
        == "the log ends at offset 5, but its windows were folded up to 7"
    )
    for n in range(5):
        log.put(0, b"acme/c", b"another %d" % n)
    assert (
        await why_other(log, 0, checkpoint, 0, 10)
        == "another record stands at offset 7, up to which its windows were folded"
    )


async def test_after_its_topic_was_made_anew_only_a_checkpoint_whose_record_is_there_is_kept(
    log: ShortLog,
) -> None:
    async def place(checkpoint: Checkpoint, recreated: bool) -> StoredPlace:
        async def stored() -> Checkpoint:
            return checkpoint

        return await stored_place(log, 0, stored(), recreated=recreated, name="projector")

    (record,) = await rows(log, 7, 7)
    folded, nothing = at(record), Checkpoint()
    assert await place(folded, True) == StoredPlace(folded, 0, 10, other=False)
    assert await place(nothing, False) == StoredPlace(nothing, 0, 10, other=False)
    assert await place(nothing, True) == StoredPlace(None, 0, 10, other=True)
    log.first = 8
    assert await place(folded, True) == StoredPlace(None, 8, 10, other=True)


async def test_a_partition_that_is_shorter_than_its_checkpoint_is_reported(log: ShortLog) -> None:
    watch, _ = await fed(log, 3)
    assert watch.behind({0: 9}, {0: 10}) == []
    assert watch.behind({0: 10}, {0: 10}) == [0]
    assert watch.behind({0: -1}, {0: 0}) == []


RESTORING = Checkpoint("r", 100, 0, "", -1, ahead=150, rollbacks=(("acme/c", 101),))


@pytest.mark.parametrize(
    ("stored", "committed", "served", "target"),
    [
        (RESTORING, 101, -1, 100),
        (RESTORING, 101, 150, 100),
        (replace(RESTORING, ahead=140), 101, 150, 150),
        (replace(RESTORING, offset=90, ahead=95), 101, -1, 100),
        (replace(RESTORING, unverified=True), 101, 150, 199),
        (None, 101, 150, 199),
        (replace(RESTORING, target=120), 101, 150, 120),
    ],
)
def test_a_partition_with_a_restore_under_way_heals_only_where_windows_went_back(
    stored: Checkpoint | None, committed: int, served: int, target: int
) -> None:
    place = StoredPlace(stored, 0, 200, other=False)
    start = find_start(0, place, committed=committed, served=served, accept=False)
    assert start.target == target
    assert start.checkpoint == (
        Checkpoint() if stored is None else replace(stored, unverified=False)
    )


def test_who_goes_on_with_a_partition_serves_it_again() -> None:
    withheld = replace(RESTORING, withheld_until=10**15)
    start = find_start(
        0, StoredPlace(withheld, 0, 200, other=False), committed=101, served=-1, accept=False
    )
    assert start.checkpoint == RESTORING


async def test_a_log_that_is_shorter_than_windows_that_are_ahead_is_another_one(
    log: ShortLog,
) -> None:
    (third,) = await rows(log, 3, 3)
    checkpoint = replace(at(third), ahead=8)
    assert await why_other(log, 0, checkpoint, 0, 10) is None
    log.lose_tail(6)
    assert "folded up to 8" in (await why_other(log, 0, checkpoint, 0, 6) or "")
