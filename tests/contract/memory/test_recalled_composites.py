"""A search over a store with composites: they stand above their sources, and are counted apart."""

from __future__ import annotations

from projections.memory.news import Fact
from projections.names import Key
from streams.memory.sqlite_store import SqliteMemories
from streams.memory.store import Filter
from tests.support.memories import USER, fused, saved
from threadfold.service.question import Question
from threadfold.service.recall import Recall
from threadfold.service.recall_answers import given_out

C1, C2 = Key("acme", "c1"), Key("acme", "c2")
MINUTE = 60_000_000
NIGHT, SUNDAYS = "Never flies at night.", "Does not fly at night or on Sundays."
BOTH = f"{NIGHT} {SUNDAYS}"


def store_of_two() -> SqliteMemories:
    """Two conversations say much the same."""
    one, other = saved(C1, NIGHT), saved(C2, SUNDAYS)
    store = SqliteMemories()
    said = [(C1, 1, one), (C2, 2, other), (C2, 3, fused(C2, one, other))]
    store.apply([Fact(log, at, at * MINUTE, (), data) for log, at, data in said], {})
    return store


async def found(only: Filter, max_tokens: int | None = None) -> list[str]:
    store = store_of_two()
    answer = await Recall(store, None).ask(Question(only, "Does she fly at night?"))
    store.close()
    return [one.found.text for one in given_out(answer, max_tokens).found]


async def test_a_search_finds_a_composite_above_its_sources() -> None:
    first, *others = await found(Filter("acme", user=USER))
    assert first == BOTH and sorted(others) == sorted([NIGHT, SUNDAYS])


async def test_a_composite_that_is_too_long_is_left_to_its_sources() -> None:
    texts = await found(Filter("acme", user=USER), max_tokens=12)
    assert texts and BOTH not in texts


async def test_nobody_finds_a_composite_who_may_not_see_all_of_it() -> None:
    alone = frozenset({"c1"})
    assert await found(Filter("acme", user=USER, conversations=alone)) == [NIGHT]
    assert await found(Filter("acme", user=USER, conversation="c2")) == [SUNDAYS]
    assert await found(Filter("acme", user="u-2")) == []
    assert await found(Filter("rival", user=USER)) == []
