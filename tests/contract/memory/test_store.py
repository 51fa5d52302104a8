"""What every memory store does, held against the same tests."""

from __future__ import annotations

import random
import time
from pathlib import Path

import msgspec
import pytest

from projections.events import types as events
from projections.memory.identity import Scope
from projections.memory.news import Dropped, LogErased, Used, WentBack
from projections.memory.text_scores import WORDS
from projections.memory.words import tag_word
from projections.names import Key
from streams.memory import by_time
from streams.memory.sqlite_store import SqliteMemories
from streams.memory.store import Filter, MemoryStore, Stats
from streams.runtime.steps import at_once
from tests.support.local_stores import contents
from tests.support.memories import OWN, USER, random_logs, saved
from tests.support.memory_news import ACME, C1, C2, MINUTE, fact, feed, said, texts
from threadfold.testing.plain_memories import PlainMemories

KINDS = ("record", "composite", "skill")
encode = msgspec.json.Encoder(order="deterministic").encode


def used(offset: int, counts: dict[str, tuple[int, int]], log: Key = OWN) -> Used:
    """Use counts of the user's records that are of no channel."""
    each = tuple((name, *both) for name, both in counts.items())
    return Used(log, offset, offset * MINUTE, Scope("acme", USER), each)


def test_a_record_is_found_by_the_stems_of_its_words_best_first(store: MemoryStore) -> None:
    feed(store, said(1, "Prefers trains."), said(2, "The train to Oslo leaves at six."))
    feed(store, said(3, "Likes tea."))
    assert texts(store, "When does my train leave?") == [
        "The train to Oslo leaves at six.",
        "Prefers trains.",
    ]
    assert texts(store, "nothing of it") == []
    assert texts(store, '" OR scope: *') == []
    assert all(hit.score > 0 for hit in store.search(ACME, ["train"], 10))


def test_nobody_finds_or_gets_what_is_another_tenants_or_users(store: MemoryStore) -> None:
    strangers = [
        (Key("other", "c1"), {}),
        (C2, {"user": "u-2"}),
        (C2, {"user": None}),
        (C2, {"channel": "web"}),
    ]
    feed(store, *(said(n, "Likes tea.", log, **more) for n, (log, more) in enumerate(strangers)))
    mine = Filter("acme", user=USER, channel="mail")
    assert texts(store, "tea", mine) == []
    assert texts(store, "tea", Filter("acme", user="u-9")) == []
    for log, more in strangers[:3]:
        memory_id = saved(log, "Likes tea.", **more).memory_id
        assert store.get(ACME, memory_id) is None
    assert at_once(store.page(mine, None, 10)) == []
    assert len(store.search(Filter("acme"), ["tea"], 10)) == 3
    assert at_once(store.stats(Filter("other"))).records == 1


def test_a_rollback_hides_what_it_took_and_a_rollback_of_it_brings_it_back(
    store: MemoryStore,
) -> None:
    feed(store, said(4, "Likes tea."), WentBack(C1, 5, 2, 5 * MINUTE))
    assert texts(store, "tea") == [] and at_once(store.page(ACME, None, 10)) == []
    assert texts(store, "tea", Filter("acme", as_of=4 * MINUTE)) == ["Likes tea."]
    feed(store, WentBack(C1, 8, 4, 8 * MINUTE))
    assert texts(store, "tea") == ["Likes tea."]
    assert texts(store, "tea", Filter("acme", as_of=6 * MINUTE)) == []


def test_a_dropped_event_takes_what_was_learnt_from_it(store: MemoryStore) -> None:
    feed(store, said(4, "Likes tea.", positions=["0-1", "0-2"]), said(5, "Likes gin."))
    feed(store, Dropped(C1, 1), Dropped(C1, 5))
    assert at_once(store.page(ACME, None, 10)) == []


def test_a_revised_topic_is_found_by_its_present_text_alone(store: MemoryStore) -> None:
    feed(store, said(1, "Tea at six.", topic="t"), said(90, "Tea at seven.", topic="t"))
    assert texts(store, "six") == []
    assert texts(store, "seven") == ["Tea at seven."]
    assert texts(store, "six", Filter("acme", as_of=50 * MINUTE)) == ["Tea at six."]
    (record,) = at_once(store.page(ACME, None, 10))
    assert (record.revision, record.topic) == (2, "t")


def test_an_erased_log_leaves_nothing_and_what_another_taught_stays(
    store: MemoryStore, tmp_path: Path
) -> None:
    feed(store, said(1, "Hides marmalade."), said(2, "Likes tea."), said(3, "Likes tea.", C2))
    feed(store, LogErased(C1))
    feed(store, said(1, "Hides marmalade."))
    assert [one.text for one in at_once(store.page(ACME, None, 10))] == ["Likes tea."]
    assert texts(store, "marmalade") == []
    store.close()
    for path in tmp_path.glob("memories.*"):
        assert not any(b"armalade" in content for content in contents(path))


def test_a_store_in_any_order_is_what_the_news_come_to_now_and_at_any_time(
    store: MemoryStore,
) -> None:
    for seed in range(8):
        rng = random.Random(seed)
        logs = random_logs(rng, 30)
        news = [one for log in logs for one in log.told()]
        plain = PlainMemories()
        plain.take(news)
        again = news + rng.sample(news, len(news) // 2)
        rng.shuffle(again)
        store.drop()
        for start in range(0, len(again), 7):
            store.apply(again[start : start + 7], {})
        assert store.digests() == plain.digests(), seed
        for as_of in sorted({fact.at for fact in plain.facts.values()})[::5]:  # noqa: F402 (its own)
            there = [one for one in plain.records(as_of) if one.scope.tenant == "acme"]
            only = Filter("acme", kinds=KINDS, expired=True, as_of=as_of)
            found = at_once(store.page(only, None, 1_000))
            assert sorted(map(encode, found)) == sorted(map(encode, there)), (seed, as_of)


def test_a_hard_deletion_is_for_good_and_a_soft_one_is_not(
    store: MemoryStore, tmp_path: Path
) -> None:
    tea, gin = saved(C1, "Likes tea."), saved(C1, "Likes gin.")
    feed(store, said(1, "Likes tea."), said(2, "Likes gin."))
    feed(store, fact(3, events.MemoryDeleted(memory_id=tea.memory_id, user=USER), OWN))
    hard = events.MemoryDeleted(memory_id=gin.memory_id, user=USER, hard=True)
    feed(store, fact(4, hard, OWN), said(2, "Likes gin."))
    assert at_once(store.page(ACME, None, 10)) == []
    shown = at_once(store.page(Filter("acme", expired=True), None, 10))
    assert [(one.text, one.expired_reason) for one in shown] == [("Likes tea.", "deleted")]
    assert texts(store, "gin", Filter("acme", as_of=2 * MINUTE, expired=True)) == []
    feed(store, said(9, "Likes tea."), said(9, "Likes gin.", C2))
    assert {one.text for one in at_once(store.page(ACME, None, 10))} == {"Likes tea.", "Likes gin."}


def test_turns_that_taught_what_was_corrected_or_deleted_are_known(store: MemoryStore) -> None:
    tea, gin = saved(C1, "Likes tea."), saved(C1, "Likes gin.")
    later = events.MemorySuperseded(memory_id=tea.memory_id, by=gin.memory_id, user=USER)
    hard = events.MemoryDeleted(memory_id=gin.memory_id, user=USER, hard=True)
    turns = {(C1, n) for n in (1, 2, 3, 4)} | {(C2, 1)}
    news = [
        said(5, "Likes tea.", positions=["0-1", "0-2"]),
        said(6, "Likes gin.", positions=["0-3"]),
        fact(7, later, OWN),
        fact(8, hard, OWN),
    ]
    feed(store, *news[:2])
    assert store.superseded_turns("acme", turns, None) == set()
    feed(store, *news[2:])
    gone = {(C1, 1), (C1, 2), (C1, 3)}
    assert store.superseded_turns("acme", turns, None) == gone
    assert store.superseded_turns("acme", turns, 6 * MINUTE) == {(C1, 3)}
    assert store.superseded_turns("other", turns, None) == set()
    store.drop()
    feed(store, *reversed(news))
    assert store.superseded_turns("acme", turns, None) == gone
    feed(store, LogErased(C1))
    assert store.superseded_turns("acme", turns, None) == set()


def test_turns_that_taught_what_a_topic_said_before_are_known(store: MemoryStore) -> None:
    feed(
        store,
        said(5, "Tea at six.", topic="t", positions=["0-1"]),
        said(6, "Tea at seven.", topic="t", positions=["0-2"]),
        said(7, "TEA at seven!", topic="t", positions=["0-3"]),
    )
    turns = {(C1, n) for n in (1, 2, 3)}
    assert store.superseded_turns("acme", turns, None) == {(C1, 1)}
    assert store.superseded_turns("acme", turns, 5 * MINUTE) == set()
    feed(store, WentBack(C1, 8, 1, 8 * MINUTE))
    assert store.superseded_turns("acme", turns, None) == set()


def test_tags_find_a_record_and_others_texts_change_no_score(store: MemoryStore) -> None:
    tags = events.MemoryTags(tool=["web search"], constraint=["no-meat"])
    feed(store, said(1, "Ask it in English.", tags=tags), said(2, "Likes tea."))
    found = store.search(ACME, [tag_word("tool", "Web_Search")], 10)
    assert [hit.record.text for hit in found] == ["Ask it in English."]
    assert store.search(ACME, [tag_word("task", "web search")], 10) == []
    before = store.search(ACME, ["tea"], 10)
    feed(store, *(said(n, f"Tea {n}.", Key("acme", f"c{n}"), user="u-2") for n in range(3, 60)))
    assert store.search(ACME, ["tea"], 10) == before and before[0].relevance > 0.6


def test_a_text_that_is_said_again_is_found_by_what_it_is_now_in_whatever_order_it_came(
    store: MemoryStore,
) -> None:
    tags = events.MemoryTags(tool=["web search"])
    news = [
        said(1, "Ask it in English."),
        said(2_000, "Ask it in English.", C2, tags=tags, memory_type="constraint"),
    ]
    asked = [tag_word("tool", "web search")], ["english"], ["1970"]
    typed = Filter("acme", types=["constraint"])
    found = []
    for ordered in (news, news[::-1]):
        store.drop()
        for one in ordered:
            feed(store, one)
        found.append([store.search(only, words, 10) for only in (ACME, typed) for words in asked])
    assert found[0] == found[1]
    assert all(len(hits) == 1 for hits in found[0])
    feed(store, said(3_000, "Ask it in English."))
    assert store.search(ACME, asked[0], 10) == []
    assert len(store.search(Filter("acme", as_of=2_500 * MINUTE), asked[0], 10)) == 1


def test_of_very_many_words_the_first_are_looked_for(store: MemoryStore) -> None:
    feed(store, said(1, "Likes tea."), said(2, "Likes gin."))
    many = [f"w{n}" for n in range(WORDS - 1)]
    assert [hit.record.text for hit in store.search(ACME, [*many, "tea", "gin"], 10)] == [
        "Likes tea."
    ]


def test_pages_and_neighbours_are_in_the_order_of_time(store: MemoryStore) -> None:
    feed(store, *(said(n, f"Fact {n}.") for n in (5, 1, 4, 2, 3)))
    feed(store, said(3, "Of another.", C2, user="u-2"))
    first = at_once(store.page(ACME, None, 2))
    last = first[-1]
    rest = at_once(store.page(ACME, (last.created, last.id), 10))
    assert [one.text for one in first + rest] == [f"Fact {n}." for n in (5, 4, 3, 2, 1)]
    middle = saved(C1, "Fact 3.").memory_id
    around = at_once(store.neighbours(ACME, middle, 1, 5))
    assert around is not None
    assert [one.text for one in around] == [f"Fact {n}." for n in (2, 3, 4, 5)]
    assert at_once(store.neighbours(ACME, "0" * 64, 1, 1)) is None


def test_neighbours_are_of_the_conversations_that_may_be_seen_and_not_deleted(
    store: MemoryStore,
) -> None:
    feed(store, *(said(n, f"Fact {n}.") for n in range(1, 8)))
    feed(store, said(4, "Of another conversation.", C2))
    for at, n in ((20, 2), (21, 3), (22, 5)):
        about = saved(C1, f"Fact {n}.").memory_id
        feed(store, fact(at, events.MemoryDeleted(memory_id=about, user=USER)))
    middle = saved(C1, "Fact 4.").memory_id
    only = Filter("acme", user=USER, expired=True, conversations=frozenset({"c1"}))
    around = at_once(store.neighbours(only, middle, 1, 2))
    assert around is not None
    assert [one.text for one in around] == [f"Fact {n}." for n in (1, 4, 6, 7)]


def test_a_list_that_passes_over_most_records_looks_at_a_part_of_them_at_a_time(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(by_time, "LOOKED_AT", 3)
    kinds = ("fact", "fact", "event", "fact", "fact", "fact", "fact", "event", "event", "fact")
    feed(store, *(said(n, f"Said {n}.", memory_type=kind) for n, kind in enumerate(kinds)))
    only = Filter("acme", user=USER, types=("event",))
    assert [one.text for one in at_once(store.page(only, None, 9))] == [
        "Said 8.",
        "Said 7.",
        "Said 2.",
    ]
    (first, second) = at_once(store.page(only, None, 2))
    rest = at_once(store.page(only, (second.created, second.id), 2))
    assert [one.text for one in (first, *rest)] == ["Said 8.", "Said 2."]


def test_a_record_is_read_by_its_id_however_many_its_tenant_has() -> None:
    store, took = SqliteMemories(), []
    asked = saved(C1, "Fact 1.").memory_id
    for first, many in ((0, 100), (100, 8_000)):
        feed(store, *(said(n, f"Fact {n}.") for n in range(first, many)))
        begun = time.process_time()
        assert all(store.get(ACME, asked) for _ in range(300))
        took.append(time.process_time() - begun)
    store.close()
    assert took[1] < 5 * took[0] + 0.02


def test_of_very_many_records_a_part_at_a_time_is_counted(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(by_time, "LOOKED_AT", 3)
    feed(store, *(said(n, f"Fact {n}.") for n in range(8)), said(8, "Of another.", C2, user="u-2"))
    gone = saved(C1, "Fact 4.").memory_id
    feed(store, fact(9, events.MemoryDeleted(memory_id=gone, user=USER)))
    assert at_once(store.stats(ACME)) == Stats(7, 1, {"fact": 7})
    assert at_once(store.stats(Filter("acme"))) == Stats(8, 1, {"fact": 8})


def test_use_counts_are_summed_once_each_whatever_comes_first(store: MemoryStore) -> None:
    tea = saved(C1, "Likes tea.")
    counted = [used(at, {tea.memory_id: (at - 10, 1)}) for at in (12, 14)]
    feed(store, counted[0])
    assert store.get(ACME, tea.memory_id) is None and store.digests() == {}
    feed(store, said(1, "Likes tea."), *counted)
    record = store.get(ACME, tea.memory_id)
    assert record is not None
    assert (record.use.retrieved, record.use.hits) == (6, 2)
    assert record.last_retrieved_at == 14 * MINUTE
    then = store.get(Filter("acme", as_of=13 * MINUTE), tea.memory_id)
    assert then is not None and (then.use.retrieved, then.last_retrieved_at) == (2, 12 * MINUTE)
    digests = store.digests()
    store.drop()
    feed(store, *reversed([said(1, "Likes tea."), *counted]))
    assert store.digests() == digests


def test_use_counts_are_of_one_scope_and_go_with_their_log(store: MemoryStore) -> None:
    tea, other = saved(C1, "Likes tea."), saved(C1, "Likes tea.", channel="web")
    feed(store, said(1, "Likes tea."), said(2, "Likes tea.", channel="web"))
    feed(store, used(3, {tea.memory_id: (1, 0), other.memory_id: (5, 5)}), WentBack(C1, 4, 2, 4))
    assert [one.use.retrieved for one in at_once(store.page(ACME, None, 10))] == [0, 1]
    feed(store, used(6, {tea.memory_id: (1, 1)}), Dropped(OWN, 3))
    assert [one.use.retrieved for one in at_once(store.page(ACME, None, 10))] == [0, 1]
    feed(store, LogErased(OWN), used(7, {tea.memory_id: (1, 1)}))
    assert [one.use.retrieved for one in at_once(store.page(ACME, None, 10))] == [0, 0]


def test_skills_and_composites_are_kinds_of_their_own(store: MemoryStore) -> None:
    skill = events.SkillSaved(
        memory_id="5" * 64,
        intent="Return a parcel",
        normalized_text="return a parcel",
        doc_markdown="1. Ask.",
        trust="user",
        user=USER,
    )
    feed(store, fact(1, skill, OWN), said(2, "Returned a parcel."))
    assert texts(store, "parcel return") == ["Returned a parcel."]
    assert texts(store, "parcel", Filter("acme", kinds=("skill",))) == ["Return a parcel"]


def test_checkpoints_are_written_with_the_news_and_a_dropped_store_is_empty(
    store: MemoryStore,
) -> None:
    store.apply([said(1, "Likes tea.")], {0: 7, 3: 1})
    store.apply([], {0: 9})
    assert store.checkpoints() == {0: 9, 3: 1}
    before = store.digests()
    store.drop()
    assert store.checkpoints() == {} and store.digests() == {}
    store.apply([said(1, "Likes tea.")], {})
    assert store.digests() == before
