"""Lists of large memories come in pages that end after some bytes, and hold up nobody."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.memory_routes import World
from threadfold.service.pages import PAGE_BYTES

RECORD = 30 << 10
RECORDS = 190
"""More than one page of them."""


@pytest.fixture
async def saved(world: World, user: str) -> list[str]:
    """Ids of large records of one user, oldest first: those of one list have one time."""
    tags = {"task": [f"word{i:05}" for i in range(1_200)]}
    large = {"user": user, "tags": tags}
    many = [{**large, "text": f"Parcel {i} goes back. " + "x" * 8_000} for i in range(RECORDS)]
    ids = []
    for i in range(0, RECORDS, 30):
        answer = await world.ok("POST", "/memories?wait=applied", many[i : i + 30])
        ids += sorted(one["id"] for one in answer["memories"])
    return ids


@pytest.mark.long
async def test_a_page_of_large_records_ends_after_some_bytes_and_the_next_goes_on(
    world: World, user: str, saved: list[str]
) -> None:
    pages: list[list[str]] = []
    cursor = ""
    while True:
        answer = await world("GET", f"/memories?user={user}&limit=200{cursor}")
        assert answer.status_code == 200, answer.text
        assert len(answer.content) <= PAGE_BYTES + 2 * RECORD
        page: dict[str, Any] = answer.json()
        pages.append([one["id"] for one in page["memories"]])
        if page["next_before"] is None:
            break
        cursor = f"&before={page['next_before']}"
    assert len(pages) == 2
    assert pages[0] + pages[1] == saved[::-1]
    few = await world.ok("GET", f"/memories?user={user}&limit=3")
    assert [one["id"] for one in few["memories"]] == saved[-3:][::-1]


async def test_a_timeline_and_a_search_of_large_records_end_after_some_bytes(
    world: World, user: str, saved: list[str]
) -> None:
    path = f"/memories/{saved[90]}/timeline?before=100&after=100"
    answer = await world("GET", path)
    assert len(answer.content) <= PAGE_BYTES + 4 * RECORD
    found = [one["id"] for one in answer.json()["memories"]]
    begin = saved.index(found[0])
    assert 0 < begin < 90 and found == saved[begin : begin + len(found)]
    asked = {"query": "Which parcel goes back?", "user": user, "kinds": ["record"], "limit": 200}
    answer = await world("POST", "/memories/search", asked)
    assert answer.status_code == 200 and answer.json()["results"]
    assert len(answer.content) <= PAGE_BYTES + len(answer.json()["results"]) * 9_000
