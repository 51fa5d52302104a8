"""What a stream of summaries says of offsets that have no record."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from projections.names import Position
from streams.log.log import Raw
from streams.runtime.keyed_limit import KeyedLimit
from threadfold.streaming import missed_summaries
from threadfold.streaming.missed_summaries import MissedSummaries, Missing


class Topic:
    """One partition of which some offsets have a record."""

    def __init__(self, *offsets: int, begin: int = 0) -> None:
        self.offsets = list(offsets)
        self.begin = begin
        self.asked = 0
        self.lost_after: int | None = None
        """After this offset is read, the topic loses what is before ``begin``."""

    async def scan(self, partition: int, first: int, last: int) -> AsyncIterator[Raw]:
        for offset in list(self.offsets):
            lost = self.lost_after is None or self.lost_after < first
            if first <= offset <= last and not (lost and offset < self.begin):
                yield Raw(Position(partition, offset), b"acme/c", b"{}", 0)
                if offset == self.lost_after:
                    self.offsets = [at for at in self.offsets if at >= self.begin]

    async def beginning_offsets(self) -> dict[int, int]:
        self.asked += 1
        return {0: self.begin}


async def pages(topic: Topic, since: int, upto: int) -> list[tuple[list[int], list[Missing]]]:
    """Of each page the offsets of its rows, and what is missing."""
    missed = MissedSummaries(topic, KeyedLimit(1), "acme", [since], [upto])  # type: ignore[arg-type]
    found = []
    while (rows := await missed.next_page()) is not None:
        found.append(([row.offset for row in rows], missed.missing))
    assert missed.next == [upto]
    return found


async def test_a_whole_range_is_read_without_a_question() -> None:
    topic = Topic(*range(10))
    assert await pages(topic, 3, 7) == [([3, 4, 5, 6], [])]
    assert topic.asked == 0


async def test_marks_of_a_transactional_producer_are_not_missing() -> None:
    topic = Topic(0, 1, 3, 4, 6, begin=0)
    assert await pages(topic, 0, 8) == [([0, 1, 3, 4, 6], [])]
    assert topic.asked == 1, "once a page"


async def test_what_the_topic_has_lost_is_missing_before_its_first_row() -> None:
    assert await pages(Topic(5, 6, 8, begin=5), 2, 9) == [([5, 6, 8], [Missing(0, 0, 2, 4)])]


async def test_a_mark_behind_what_is_lost_is_not_missing() -> None:
    assert await pages(Topic(7, begin=5), 2, 8) == [([7], [Missing(0, 0, 2, 4)])]


async def test_all_is_missing_of_a_range_before_the_beginning() -> None:
    assert await pages(Topic(9, begin=9), 2, 6) == [([], [Missing(0, 0, 2, 5)])]


async def test_what_is_lost_between_two_pages_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(missed_summaries, "SCAN", 3)
    topic = Topic(*range(10), begin=7)
    topic.lost_after = 2
    assert await pages(topic, 0, 9) == [
        ([0, 1, 2], []),
        ([], [Missing(0, 0, 3, 5)]),
        ([7, 8], [Missing(0, 0, 6, 6)]),
    ]
