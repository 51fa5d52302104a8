"""The index of raw turns: what it finds, for whom, and what it has after the log went on."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from projections.errors import Healing
from projections.events import types as events
from projections.events.times import parse_micros
from projections.fold.apply import Status
from projections.memory.raw_turns import turn_text
from projections.memory.words import stems_of
from projections.names import Key, Position
from projections.window.entry import Kind
from projections.window.recent_ids import LIMIT as RECENT_IDS
from streams.memory.store import Filter
from streams.memory.turns import Said, SqliteTurns
from tests.support.histories import KEY, PARTITION, Writer
from tests.support.profiles import examples
from tests.support.raw_turns import ANN, LARGE, MINUTE, opened, said, texts, user


def test_a_turn_is_found_by_its_words_with_its_position_and_who_said_it(
    turns: SqliteTurns,
) -> None:
    turns.apply(
        [
            said(0, opened()),
            said(1, user("My sister Ida plays the cello.")),
            said(2, events.Message("assistant", "A cello is a fine thing.")),
            said(3, user("We drove to the coast.")),
        ],
        {0: 3},
    )
    hits = turns.search(ANN, stems_of("Who is playing a cello?"), 10)
    assert [(hit.turn.position, hit.turn.trust) for hit in hits] == [
        ("0-1", "user"),
        ("0-2", "model"),
        ("0-3", "user"),  # it stands behind one that has the word
    ]
    assert hits[0].turn.conversation == "c1" and hits[0].turn.at == MINUTE
    assert hits[0].score > hits[1].score > hits[2].score
    assert hits[0].relevance > 0.6 and hits[2].relevance == 0
    assert texts(turns, "zebra") == [] and texts(turns, "") == []
    assert turns.checkpoints() == {0: 3}


@pytest.mark.parametrize("time", ["0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59"])
def test_a_time_that_no_calendar_has_in_utc_is_taken_in(time: str, turns: SqliteTurns) -> None:
    at = parse_micros(time)
    assert at is not None
    strange = said(1, user("Likes tea."))._replace(at=at)
    turns.apply([said(0, opened()), strange, said(2, user("Drinks tea."))], {0: 2})
    assert set(texts(turns, "tea")) == {"Likes tea.", "Drinks tea."}


def test_a_speaker_whom_the_question_names_comes_first(turns: SqliteTurns) -> None:
    turns.apply(
        [
            said(0, opened()),
            said(1, user("I like jazz.", "bob")),
            said(2, user("I like jazz.", "eve")),
        ],
        {},
    )
    assert (
        turns.search(ANN, stems_of("Which music does Eve like, jazz?"), 1)[0].turn.speaker == "eve"
    )


def test_nobody_finds_what_is_another_tenants_users_channels_or_a_strangers(
    turns: SqliteTurns,
) -> None:
    strangers = [
        (Key("other", "c1"), opened()),
        (Key("acme", "c2"), opened("bob")),
        (Key("acme", "c3"), opened(None)),
        (Key("acme", "c4"), opened("ann", "web")),
        (Key("acme.ann", "c5"), opened("ann")),
    ]
    for n, (log, data) in enumerate(strangers):
        turns.apply([said(n * 10, data, log), said(n * 10 + 1, user("Likes tea."), log)], {})
    mail = Filter("acme", user="ann", channel="mail")
    assert texts(turns, "tea", mail) == []
    assert [hit.turn.conversation for hit in turns.search(ANN, ["tea"], 10)] == ["c4"]
    assert {hit.turn.conversation for hit in turns.search(Filter("acme"), ["tea"], 10)} == {
        "c2",
        "c3",
        "c4",
    }
    assert texts(turns, "tea", Filter("acme", conversation="c1")) == []
    assert texts(turns, "tea", Filter("acme", conversations=frozenset({"c9"}))) == []
    assert len(turns.search(Filter("acme", conversation="c3"), ["tea"], 10)) == 1


def test_what_others_said_changes_neither_scores_nor_order(turns: SqliteTurns) -> None:
    turns.apply([said(0, opened()), said(1, user("Likes tea.")), said(2, user("Tea house."))], {})
    before = turns.search(ANN, ["tea", "hous"], 10)
    for n in range(3, 90):
        log = Key("acme" if n % 2 else "other", f"c{n}")
        turns.apply(
            [said(n * 10, opened("bob"), log), said(n * 10 + 1, user("Tea house."), log)], {}
        )
    assert turns.search(ANN, ["tea", "hous"], 10) == before


def test_many_rollbacks_of_one_conversation_take_no_time_that_grows_with_their_square(
    turns: SqliteTurns,
) -> None:
    turns.apply([said(0, opened()), said(1, user("Likes tea."))], {})
    took = []
    for first in range(2, 6_002, 1_000):
        both = [(user("Tea?"), events.Rollback("0-1"))] * 500
        log = [
            said(first + n, data) for n, data in enumerate(data for pair in both for data in pair)
        ]
        begun = time.process_time()
        turns.apply(log, {})
        took.append(time.process_time() - begun)
    assert took[-1] < 4 * took[0] + 0.1
    assert texts(turns, "tea") == ["Likes tea."]


@pytest.mark.parametrize("between", [RECENT_IDS - 1, RECENT_IDS])
def test_an_id_is_a_repeat_as_long_as_the_fold_knows_it(between: int, turns: SqliteTurns) -> None:
    filler = [said(n, events.Suspension(f"s{n}", "input")) for n in range(2, between + 2)]
    turns.apply([said(0, opened("ann")), said(1, opened("ann"), id_="open"), *filler], {})
    turns.apply([said(5_000, opened("bob"), id_="open"), said(5_001, user("Likes tea."))], {})
    known = between < RECENT_IDS
    assert texts(turns, "tea") == (["Likes tea."] if known else [])
    assert texts(turns, "tea", Filter("acme", user="bob")) == ([] if known else ["Likes tea."])


@pytest.mark.parametrize("between", [RECENT_IDS - 1, RECENT_IDS])
def test_a_rollback_finds_an_id_as_long_as_the_fold_knows_it(
    between: int, turns: SqliteTurns
) -> None:
    filler = [said(n, events.Suspension(f"s{n}", "input")) for n in range(2, between + 1)]
    turns.apply([said(0, opened()), said(1, opened(), id_="there"), *filler], {})
    turns.apply([said(5_000, user("Likes tea.")), said(5_001, events.Rollback("there"))], {})
    assert texts(turns, "tea") == ([] if between < RECENT_IDS else ["Likes tea."])


def test_a_rollback_hides_and_brings_back_and_a_time_shows_what_was_known_then(
    turns: SqliteTurns,
) -> None:
    turns.apply(
        [
            said(0, opened()),
            said(1, user("Likes tea.")),
            said(2, user("No: likes gin."), id_="gin"),
            said(3, events.Rollback("0-1")),
        ],
        {},
    )
    assert texts(turns, "gin") == [] and texts(turns, "tea") == ["Likes tea."]
    assert texts(turns, "gin", Filter("acme", as_of=2 * MINUTE)) == ["No: likes gin."]
    turns.apply([said(4, events.Rollback("gin"))], {})
    assert texts(turns, "gin") == ["No: likes gin."]
    turns.apply([said(5, events.Rollback("0-77")), said(6, events.Rollback("unknown"))], {})
    assert texts(turns, "gin") == ["No: likes gin."]
    only = Filter("acme", since=2 * MINUTE, until=3 * MINUTE)
    assert texts(turns, "likes", only) == ["No: likes gin."]


def test_what_is_dropped_erased_or_private_leaves_nothing(turns: SqliteTurns) -> None:
    turns.apply([said(0, opened()), said(1, user("Likes tea.")), said(2, user("Drinks tea."))], {})
    turns.apply([said(3, user("Tea <private>and marmalade</private>."))], {})
    assert texts(turns, "marmalade") == []
    turns.apply([said(4, events.EventDropped("0-1"))], {})
    assert set(texts(turns, "tea")) == {"Drinks tea.", "Tea ."}
    turns.apply([said(5, events.Erased()), said(6, user("Tea again."))], {})
    assert turns.search(Filter("acme"), ["tea"], 10) == [] and turns.count() == 0
    turns.drop()
    assert turns.checkpoints() == {}


def test_turns_of_a_conversation_whose_erasure_has_begun_are_found_no_more(
    turns: SqliteTurns,
) -> None:
    turns.apply([said(0, opened()), said(1, user("Likes tea."))], {})
    assert texts(turns, "tea") == ["Likes tea."]
    for only in (ANN, Filter("acme"), Filter("acme", conversation="c1"), Filter("acme", since=0)):
        assert texts(turns, "tea", replace(only, erased={Key("acme", "c2")}.__contains__))
        assert texts(turns, "tea", replace(only, erased={Key("acme", "c1")}.__contains__)) == []


def test_a_file_goes_on_where_it_was_and_a_copy_goes_its_own_way(tmp_path: Path) -> None:
    path = tmp_path / "turns.db"
    first = SqliteTurns(path)
    assert first.belongs_to("a topic")
    first.apply([said(0, opened()), said(1, user("Likes tea.")), said(2, user("No tea."))], {0: 2})
    first.close()
    again = SqliteTurns(path)
    assert again.checkpoints() == {0: 2} and again.belongs_to("a topic")
    assert not again.belongs_to("a topic made anew")
    copy = SqliteTurns.copied(path)
    assert copy is not None
    # The rollback names an event from before the restart, and what follows stands behind it.
    again.apply([said(3, events.Rollback("e1")), said(4, user("More of it."))], {0: 4})
    assert texts(again, "tea") == ["Likes tea.", "More of it."]
    assert set(texts(copy, "tea")) == {"Likes tea.", "No tea."} and copy.checkpoints() == {0: 2}
    again.apply([said(5, events.Erased())], {0: 5})
    again.close()
    copy.close()
    other = SqliteTurns(path)
    other.apply([said(6, user("Tea after all."))], {0: 6})
    assert texts(other, "tea", Filter("acme")) == []
    other.close()


def test_a_search_of_a_file_does_not_wait_for_who_writes_it(tmp_path: Path) -> None:
    turns, writes, may_go_on = (
        SqliteTurns(tmp_path / "turns.db"),
        threading.Event(),
        threading.Event(),
    )

    class Slow(list[Said]):
        def __iter__(self) -> Iterator[Said]:
            yield from super().__iter__()
            writes.set()
            assert may_go_on.wait(60)

    turns.apply([said(1, opened()), said(2, user("I like tea"))], {0: 2})
    with ThreadPoolExecutor(2) as threads:
        try:
            written = threads.submit(turns.apply, Slow([said(3, user("Tea is out"))]), {0: 3})
            assert writes.wait(60)
            assert threads.submit(texts, turns, "tea").result(30) == ["I like tea"]
        finally:
            may_go_on.set()
        written.result(60)
    assert sorted(texts(turns, "tea")) == ["I like tea", "Tea is out"]
    turns.close()


def test_what_is_erased_is_in_no_byte_of_the_files(tmp_path: Path) -> None:
    turns = SqliteTurns(tmp_path / "turns.db")
    kept = Key("acme", "kept")
    for n in range(0, 4_000, 10):
        words = [said(n + i, user(f"Words of turn {n + i}."), kept) for i in range(8)]
        turns.apply([*words, said(n + 8, user(f"Hides marmalade {n}."))], {})
    turns.apply([said(4_001, events.Erased())], {0: 4_001})
    assert turns.count() == 3_200
    for path in tmp_path.glob("turns.db*"):
        assert b"armalad" not in path.read_bytes(), path.name
    turns.close()
    for path in tmp_path.glob("turns.db*"):
        assert b"armalad" not in path.read_bytes(), path.name


def test_a_damaged_file_says_so_and_can_be_fed_anew(tmp_path: Path) -> None:
    path = tmp_path / "turns.db"
    log = [said(n, user(f"Turn {n} of many words.")) for n in range(1_000)]
    first = SqliteTurns(path)
    first.apply(log, {0: 999})
    first.close()
    content = bytearray(path.read_bytes())
    middle = len(content) // 2
    content[middle:] = b"\xff" * (len(content) - middle)
    path.write_bytes(content)
    again = SqliteTurns(path)
    with pytest.raises(Healing, match="file of the index of turns is damaged"):
        again.search(Filter("acme"), ["turn", "word"], 300)
    assert again.damaged
    again.drop()
    assert again.checkpoints() == {} and not again.damaged
    again.apply(log, {0: 999})
    assert again.count() == 1_000
    again.close()
    path.write_bytes(b"no database at all, but something else of some length" * 20)
    other = SqliteTurns(path)
    assert other.checkpoints() == {}
    other.close()


@given(st.integers(0, 2**32), st.integers(5, 90))
@settings(max_examples=examples(200), deadline=None)
def test_the_index_has_the_turns_that_the_fold_has(seed: int, length: int) -> None:
    rng = random.Random(seed)
    writer = Writer(rng, LARGE)
    for _ in range(length):
        writer.random_event()
    void = {
        at
        for (at, event), status in zip(writer.log, writer.outcomes, strict=True)
        if isinstance(event, events.ResolutionEvent) and status is Status.REJECTED
    }
    # The index does not know suspensions, so conditions may see a void resolution.
    after = [event for at, event in writer.log if void and at > min(void)]
    assume(all(event.expect is None for event in after))
    turns = SqliteTurns()
    left = [Said(KEY, Position(PARTITION, at), at, event) for at, event in writer.log]
    words = {
        stem
        for one in left
        if isinstance(one.event, events.MessageEvent)
        for stem in stems_of(turn_text(one.event.data))
    }
    while left:
        size = rng.randint(1, len(left))
        turns.apply(left[:size], {})
        left = left[size:]
    texts_of = {
        at: event.data for at, event in writer.log if isinstance(event, events.MessageEvent)
    }
    folded = {
        str(Position(PARTITION, entry.offset))
        for entry in writer.window.tail
        if entry.kind in (Kind.USER, Kind.ASSISTANT) and stems_of(turn_text(texts_of[entry.offset]))
    }
    found = {hit.turn.position for hit in turns.search(Filter(KEY.tenant), words, 10_000)}
    turns.close()
    # A dropped event is gone for good, also where a rollback takes the drop back.
    dropped = {
        event.data.position
        for _, event in writer.log
        if isinstance(event, events.EventDroppedEvent)
    }
    assert found <= folded and folded - found <= dropped
