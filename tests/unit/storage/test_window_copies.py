"""Which copies of a window are kept: a bounded number at even intervals, and none of what an operator
took out.
"""

from __future__ import annotations

from projections.events import types as events
from projections.fold.apply import apply
from projections.storage.records import NOTHING, write_of
from projections.storage.window_copies import (
    BACK,
    EVERY,
    MOST,
    RECENT,
    changed_copies,
    decode_copies,
)
from projections.window.window import Window
from tests.support.histories import KEY, PARTITION, RULES
from tests.support.talks import event_for


def grown(events_: int) -> Window:
    """A window of one message, with the count of a longer conversation."""
    window = Window(KEY, PARTITION, RULES)
    apply(window, 5, event_for(KEY, events.Message("user", "hello"), "e"))
    window.meta.count = events_
    return window


def test_a_conversation_has_a_bounded_number_of_copies_at_even_intervals() -> None:
    held: set[bytes] = set()
    window, before = grown(0), 0
    for count in range(70, 300_000, 70):
        window.meta.count = count
        change = changed_copies(window, before, back=False, ends=False)
        held = (held - set(change.gone)) | {name for name, _ in change.put}
        before = count
        assert len(held) <= MOST + 1 + RECENT
        if count > EVERY:
            places = sorted(int(name) for name in held if name.isdigit())
            assert len(places) >= min(count // EVERY, MOST // 2)
            gaps = {b - a for a, b in zip([0, *places], [*places, count], strict=True)}
            assert max(gaps) <= max(EVERY, 2 * count // MOST) + 70
    assert not changed_copies(grown(EVERY - 1), 0, back=True, ends=False)


def test_after_rollbacks_into_old_history_the_last_few_copies_are_kept() -> None:
    names = set()
    window = grown(EVERY)
    for offset in range(40):
        window.meta.position = offset
        change = changed_copies(window, EVERY, back=True, ends=False)
        names |= {name for name, _ in change.put}
    assert len(names) == BACK


def test_what_is_taken_out_ends_all_copies() -> None:
    assert changed_copies(grown(EVERY), EVERY, back=False, ends=True).clear
    window = grown(EVERY)
    window.meta.erased = True
    change = changed_copies(window, 0, back=False, ends=True)
    assert change.clear and not change.put
    window = grown(EVERY)
    window.quarantine(7, "spoiled")
    assert not changed_copies(window, 0, back=False, ends=False)


def test_an_erasure_ends_the_copies_of_a_window_whoever_writes_it() -> None:
    window = grown(EVERY)
    stored = write_of(window).after
    apply(window, 9, event_for(KEY, events.Erased(), "e2"))
    assert window.meta.count < EVERY
    # In a generation that nobody folds the window is erased where it lies, or written anew.
    for mark in (stored, NOTHING):
        assert write_of(window, mark).copies.clear


def test_a_copy_that_cannot_be_read_is_left_out() -> None:
    change = changed_copies(grown(EVERY), 0, back=False, ends=False)
    ((_, value),) = change.put
    (copy,) = decode_copies([b"", b"nonsense", value[:-3], value])
    assert (copy.offset, copy.summary) == (5, None)
    assert copy.bare(KEY, PARTITION, RULES).meta.count == EVERY
