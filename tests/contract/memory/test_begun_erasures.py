"""What every memory store reads no more once the erasure of a log has begun."""

from __future__ import annotations

import random
from dataclasses import replace

from streams.memory.store import Filter, MemoryStore
from streams.runtime.steps import at_once
from tests.support.memories import OWN, random_logs
from tests.support.memory_news import ACME, C1, C2, MINUTE, feed, said, texts
from threadfold.testing.plain_memories import PlainMemories

KINDS = ("record", "composite", "skill")


def test_what_a_log_says_whose_erasure_has_begun_is_read_no_more(store: MemoryStore) -> None:
    feed(store, said(1, "Lives in Lyon.", C2, topic="home"), said(2, "Likes tea."))
    feed(store, said(3, "Likes gin.", C2), said(4, "Likes gin."), said(5, "Owns a kayak.", OWN))
    feed(store, said(6, "Lives in Oslo.", topic="home"), said(7, "Likes rum.", C2))
    begun = replace(ACME, erased={C1}.__contains__)
    assert texts(store, "tea") == ["Likes tea."] and texts(store, "oslo") == ["Lives in Oslo."]
    assert texts(store, "tea", begun) == texts(store, "oslo", begun) == []
    assert texts(store, "lyon", begun) == ["Lives in Lyon."]
    assert store.get(begun, said(2, "Likes tea.").memory_id) is None
    (gin,) = store.search(begun, ["gin"], 10)
    assert (gin.record.conversation, gin.record.duplicates) == ("c2", 0)
    left = ["Likes rum.", "Owns a kayak.", "Likes gin.", "Lives in Lyon."]
    assert [one.text for one in at_once(store.page(begun, None, 10))] == left
    then = replace(begun, as_of=6 * MINUTE)
    assert [one.text for one in at_once(store.page(then, None, 10))] == left[1:]
    assert texts(store, "tea", then) == []
    near = at_once(store.neighbours(begun, gin.record.id, 3, 3))
    assert near is not None and [one.text for one in near] == left[::-1]
    assert (at_once(store.stats(ACME)).records, at_once(store.stats(begun)).records) == (5, 4)
    own = replace(ACME, erased={C1, OWN}.__contains__)
    assert [one.text for one in at_once(store.page(own, None, 10))] == [left[0], *left[2:]]


def test_pages_are_whole_where_earlier_statements_are_read_no_more(store: MemoryStore) -> None:
    feed(store, *(said(n, f"Fact {n}.") for n in range(1, 9)))
    feed(store, *(said(20 + n, f"Fact {n}.", C2) for n in range(1, 9, 2)))
    for as_of in (None, 40 * MINUTE):
        begun = replace(ACME, as_of=as_of, erased={C1}.__contains__)
        found, after = list[str](), None
        while page := at_once(store.page(begun, after, 1)):
            found, after = [*found, page[0].text], (page[0].created, page[0].id)
        assert found == ["Fact 7.", "Fact 5.", "Fact 3.", "Fact 1."]
        assert at_once(store.stats(begun)).records == 4


def test_of_any_history_only_other_logs_statements_are_read_once_an_erasure_has_begun(
    store: MemoryStore,
) -> None:
    for seed in range(8):
        logs = random_logs(random.Random(seed), 40)
        plain = PlainMemories()
        plain.take(news := [one for log in logs for one in log.told()])
        store.drop()
        feed(store, *news)
        facts = plain.facts.values()
        for gone in [log.key for log in logs]:
            only = Filter("acme", kinds=KINDS, expired=True, erased={gone}.__contains__)
            said_still = {
                (fact.scope, fact.memory_id, getattr(fact.data, "text", None))
                for fact in facts
                if fact.log != gone
            }
            shown = at_once(store.page(only, None, 1_000))
            records = [one for one in shown if one.kind != "composite"]
            assert all((one.scope, one.id, one.text) in said_still for one in records), seed
            assert all(one.log != gone for one in records), seed
            parts = {(one.scope, one.id): one.text for one in records if one.stands}
            for whole in (one for one in shown if one.kind == "composite"):
                assert whole.text == " ".join(parts[whole.scope, one] for one in whole.sources)


def test_a_search_finds_what_stands_beside_many_records_of_a_log_whose_erasure_has_begun(
    store: MemoryStore,
) -> None:
    feed(store, *(said(n, f"Tea, tea, tea with lemon {n}.") for n in range(1, 500)))
    feed(store, said(1, "The office of the harbour of Oslo serves cups of hot tea at noon.", C2))
    begun = replace(ACME, erased={C1}.__contains__, erasing=True)
    assert texts(store, "tea", begun) == [
        "The office of the harbour of Oslo serves cups of hot tea at noon."
    ]
