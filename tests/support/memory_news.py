"""News that teach a memory store, and what it finds of them."""

from __future__ import annotations

from typing import Any

from projections.memory.news import Fact
from projections.memory.words import stems_of
from projections.names import Key
from streams.memory.store import Filter, MemoryStore
from tests.support.memories import USER, saved

C1, C2 = Key("acme", "c1"), Key("acme", "c2")
MINUTE = 60_000_000
ACME = Filter("acme", user=USER)


def fact(offset: int, data: Any, log: Key = C1) -> Fact:
    learnt_from = tuple(int(one.split("-")[1]) for one in data.positions)
    return Fact(log, offset, offset * MINUTE, learnt_from, data)


def said(offset: int, text: str, log: Key = C1, **more: Any) -> Fact:
    return fact(offset, saved(log, text, **more), log)


def feed(store: MemoryStore, *news: Any) -> None:
    store.apply(news, {})


def texts(store: MemoryStore, query: str, only: Filter = ACME) -> list[str]:
    return [hit.record.text for hit in store.search(only, stems_of(query), 10)]
