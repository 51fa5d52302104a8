"""Composites in a store: what they say, how they are found, and what leaves with their sources."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from projections.events import types as events
from projections.memory.news import Fact, LogErased
from streams.memory.store import Filter, MemoryStore
from streams.runtime.steps import at_once
from tests.support.local_stores import contents
from tests.support.memories import OWN, USER, fused, saved
from tests.support.memory_news import ACME, C1, C2, MINUTE, fact, feed, said, texts


def whole(offset: int, *sources: events.MemorySaved, **more: Any) -> Fact:
    return fact(offset, fused(C1, *sources, **more))


def composites(store: MemoryStore, only: Filter = ACME) -> list[str]:
    return [one.text for one in at_once(store.page(only, None, 10)) if one.kind == "composite"]


def test_a_composite_says_what_its_sources_say_whatever_comes_first(store: MemoryStore) -> None:
    tea, gin = saved(C1, "Likes tea."), saved(C2, "Likes gin.")
    news = [whole(9, tea, gin), said(2, "Likes gin.", C2), said(1, "Likes tea.")]
    feed(store, news[0])
    assert composites(store) == []
    feed(store, *news[1:])
    assert composites(store) == ["Likes tea. Likes gin."]
    assert composites(store, Filter("acme", as_of=8 * MINUTE)) == []
    digests = store.digests()
    store.drop()
    feed(store, *reversed(news))
    assert store.digests() == digests
    feed(store, fact(10, events.MemoryDeleted(memory_id=gin.memory_id, user=USER), OWN))
    assert composites(store) == [] and store.digests() != digests
    assert composites(store, Filter("acme", as_of=9 * MINUTE)) == ["Likes tea. Likes gin."]


def test_composites_are_found_by_their_sources_the_outermost_alone(store: MemoryStore) -> None:
    several = [saved(C1, f"Likes tea {n}.") for n in range(3)]
    feed(store, *(said(n, f"Likes tea {n}.") for n in range(3)))
    inner = whole(5, *several[:2])
    outer = whole(6, *several, child_composite_ids=[inner.memory_id])
    feed(store, inner)
    asked = {several[0].memory_id}
    assert [one.id for one in store.composites_of(ACME, asked)] == [inner.memory_id]
    feed(store, outer)
    assert [one.id for one in store.composites_of(ACME, asked)] == [outer.memory_id]
    assert store.composites_of(ACME, {"0" * 64}) == []
    for other in (Filter("acme", user="u-2"), Filter("rival"), Filter("acme", kinds=("record",))):
        assert store.composites_of(other, asked) == []
    assert len(texts(store, "tea")) == 3, "they have no text of their own to be found by"
    assert len(composites(store)) == 2


def test_a_composite_keeps_nothing_of_an_erased_or_deleted_source(
    store: MemoryStore, tmp_path: Path
) -> None:
    tea, gin = saved(C1, "Likes tea."), saved(C1, "Likes gin.")
    feed(store, said(1, "Likes tea."), said(2, "Likes gin."))
    feed(store, said(3, "Hides marmalade.", C2), said(4, "Hoards zirconium."))
    hidden, hoard = saved(C2, "Hides marmalade."), saved(C1, "Hoards zirconium.")
    feed(store, whole(9, tea, gin, hidden, hoard))
    assert composites(store) == ["Likes tea. Likes gin. Hides marmalade. Hoards zirconium."]
    hard = events.MemoryDeleted(memory_id=hoard.memory_id, user=USER, hard=True)
    feed(store, LogErased(C2), fact(10, hard, OWN))
    assert composites(store) == ["Likes tea. Likes gin."]
    store.close()
    for path in tmp_path.glob("memories.*"):
        for held in contents(path):
            assert b"armalade" not in held and b"irconium" not in held, path.name


def test_a_composite_says_nothing_of_a_source_whose_erasure_has_begun(store: MemoryStore) -> None:
    names = ("tea", "gin", "rum")
    own = [saved(log, f"Likes {name}.") for name, log in zip(names, (C1, OWN, C2), strict=True)]
    feed(store, fact(1, own[0]), fact(2, own[1], OWN), fact(3, own[2], C2))
    feed(store, fact(9, fused(OWN, *own), OWN))
    begun = replace(ACME, erased={C2}.__contains__)
    assert composites(store) == ["Likes tea. Likes gin. Likes rum."]
    assert composites(store, begun) == ["Likes tea. Likes gin."]
    found = store.composites_of(begun, {own[0].memory_id})
    assert [one.text for one in found] == ["Likes tea. Likes gin."]
    assert store.composites_of(begun, {own[2].memory_id}) == []
    assert composites(store, replace(begun, erased={C1, C2}.__contains__)) == []
    assert composites(store, replace(begun, erased={OWN}.__contains__)) == []


def test_a_deleted_composite_leaves_its_sources_turns_to_be_recalled(store: MemoryStore) -> None:
    tea, gin = (saved(C1, f"Likes {name}.", positions=["0-1"]) for name in ("tea", "gin"))
    both = whole(9, tea, gin, positions=["0-1"])
    feed(store, fact(2, tea), fact(3, gin), both)
    feed(store, fact(10, events.MemoryDeleted(memory_id=both.memory_id, user=USER), OWN))
    assert composites(store) == []
    assert store.superseded_turns("acme", {(C1, 1)}, None) == set()
