"""Where a window says that its conversation's events stand, since a text in progress began."""

from __future__ import annotations

from projections.names import make_key
from projections.policy.policy import Rules
from projections.storage.layout import Mark, changes_of
from projections.storage.records import Stored
from projections.window.log_progress import MAX_WAITING
from projections.window.window import Window
from threadfold.streaming.text_endings import SCAN, places_of

KEY = make_key("acme", "c1")


def stored(window: Window) -> Stored:
    changes = changes_of(window, Mark())
    return Stored(dict(changes.put), dict(changes.id_blocks_put))


def counted(*offsets: int) -> Window:
    window = Window(KEY, 0, Rules())
    for offset in offsets:
        window.count_event(offset, offset.to_bytes(32, "little"))
    return window


def test_events_stand_where_the_window_counted_them_up_to_what_is_applied() -> None:
    window = counted(3, 7, 9, 20)
    window.count_rejected(30, b"r" * 32)
    places = places_of(KEY, stored(window), 7, 30)
    assert (places.since, places.offsets, places.complete) == (7, [7, 9, 20, 30], True)
    assert places_of(KEY, stored(window), 8, 19).offsets == [9]


def test_what_waits_in_a_parked_conversation_is_among_them() -> None:
    window = counted(3)
    window.quarantine(5, "poison")
    for offset in (6, 9):
        window.add_waiting(offset)
    places = places_of(KEY, stored(window), 4, 9)
    assert (places.offsets, places.complete) == ([5, 6, 9], True)
    for offset in range(10, 10 + MAX_WAITING):
        window.add_waiting(offset)
    assert not places_of(KEY, stored(window), 4, 600).complete
    assert places_of(KEY, stored(window), 600, 600).complete, "all of it came before"


def test_events_before_the_last_1024_are_looked_for_in_the_log_if_they_are_not_far() -> None:
    window = counted(*range(SCAN, SCAN + 1_024))
    near = places_of(KEY, stored(window), 0, SCAN + 2_000)
    assert (near.since, len(near.offsets), near.complete) == (SCAN, 1_024, True)
    window = counted(*range(SCAN + 1, SCAN + 1_025))
    assert not places_of(KEY, stored(window), 0, SCAN + 2_000).complete


def test_an_erased_conversation_has_ended_its_text() -> None:
    window = counted(3)
    window.erase(8)
    assert places_of(KEY, stored(window), 4, 9).erased == 8
