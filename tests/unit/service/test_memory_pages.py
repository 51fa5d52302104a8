"""A large page of memories is made beside others' requests, one of its tenant at a time."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Coroutine
from typing import Any, cast

import msgspec
import pytest

from projections.memory.identity import Scope
from projections.memory.resolution import Record
from streams.memory.by_time import FIRST, read_within
from streams.memory.store import Filter
from streams.runtime.keyed_limit import KeyedLimit
from streams.runtime.steps import Steps, at_once
from threadfold.service.memories import Memories
from threadfold.service.memory_cursors import Page
from threadfold.service.memory_pages import LARGE, MANY, page_document, timeline_document
from threadfold.service.whose import Whose

ONLY = Filter("acme")


def record(number: int, size: int) -> Record:
    name, scope, text = f"id-{number}", Scope("acme"), "x" * size
    return Record(name, "record", scope, "fact", text, "", "user", number, number)


class Listed:
    """A store's list, newest first, which counts what is read of it."""

    def __init__(self, sizes: list[int]) -> None:
        self.records = [record(i, size) for i, size in enumerate(sizes)][::-1]
        self.read: list[int] = []

    def __call__(self, after: tuple[int, str] | None, limit: int) -> Steps[list[Record]]:
        yield
        behind = [one for one in self.records if after is None or (one.created, one.id) < after]
        self.read.append(len(behind[:limit]))
        return behind[:limit]

    async def page(self, only: Filter, before: str | None, limit: int, most: int) -> Page:
        found = at_once(read_within(self, None, limit, most))
        return Page(found.records, "next" if found.more else None, found.size, 0.001)

    async def timeline(
        self, whose: Whose, memory_id: str, before: int, after: int
    ) -> tuple[list[Record], float]:
        return self.records[: before + after + 1], 0.001


async def made_beside(making: Coroutine[Any, Any, bytes], turns: KeyedLimit, large: bool) -> bytes:
    """The document, and others were served meanwhile, if it is large."""
    task = asyncio.create_task(making)
    passes = 0
    while not task.done():
        await asyncio.sleep(0)
        passes += 1
    assert (passes > 1) == large
    assert len(turns) == large, "its tenant's next one waits"
    return task.result()


@pytest.mark.parametrize("limit", [1, 19, 20, 21, 50, 99, 100, 101, 200])
def test_a_part_of_small_records_is_read_at_most_twice(limit: int) -> None:
    listed = Listed([100] * 100)
    part = at_once(read_within(listed, None, limit, sys.maxsize))
    assert part.records == listed.records[:limit] and part.more == (limit < 100)
    assert len(listed.read) <= 2


@pytest.mark.parametrize("sizes", [[1_000] * 60, [9_000, 10] * 30, [60_000] * 60, [10, 9_000] * 30])
def test_parts_end_after_some_bytes_and_nothing_is_lost_or_doubled(sizes: list[int]) -> None:
    listed, most = Listed(sizes), 50_000
    found: list[Record] = []
    after, more = None, True
    while more:
        part = at_once(read_within(listed, after, 200, most))
        assert part.records, "each has one at least"
        assert sum(len(one.text) for one in part.records[:-1]) < most
        found += part.records
        after, more = (found[-1].created, found[-1].id), part.more
    assert found == listed.records


def test_only_a_first_part_is_read_before_it_is_known_how_large_records_are() -> None:
    listed = Listed([100_000] * 300)
    assert len(at_once(read_within(listed, None, 200, 1_000_000)).records) == 10
    assert sum(listed.read) <= FIRST + 1


@pytest.mark.parametrize(("size", "large"), [(100, False), (LARGE // 10, True), (LARGE, True)])
async def test_others_are_served_while_a_large_page_is_made(size: int, large: bool) -> None:
    turns, listed = KeyedLimit(1), Listed([size] * 12)
    memories = cast("Memories", listed)
    document = await made_beside(page_document(memories, turns, ONLY, None, 11), turns, large)
    page: dict[str, Any] = msgspec.json.decode(document)
    shown = [msgspec.json.encode(one.document()) for one in listed.records[:11]]
    assert [msgspec.json.encode(one) for one in page["memories"]] == shown
    assert page["next_before"] == "next"


@pytest.mark.parametrize(("neighbours", "large"), [(MANY - 1, False), (MANY, True)])
async def test_others_are_served_while_a_long_timeline_is_made(
    neighbours: int, large: bool
) -> None:
    turns, listed = KeyedLimit(1), Listed([100] * 100)
    memories = cast("Memories", listed)
    making = timeline_document(memories, turns, Whose("acme"), "id-50", neighbours, 0)
    found = msgspec.json.decode(await made_beside(making, turns, large))["memories"]
    assert [one["id"] for one in found] == [one.id for one in listed.records[: neighbours + 1]]


async def test_what_waits_for_its_turn_is_not_in_memory_and_is_read_again() -> None:
    turns, listed = KeyedLimit(1), Listed([LARGE] * 4)
    memories = cast("Memories", listed)
    async with turns.of("acme"):
        waiting = asyncio.create_task(page_document(memories, turns, ONLY, None, 3))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        del listed.records[0]  # erased meanwhile
    page = msgspec.json.decode(await waiting)
    assert [one["id"] for one in page["memories"]] == ["id-2", "id-1", "id-0"]
