"""Which copies of a window are kept: a bounded number at even intervals, and none of what an operator
took out.
"""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from projections.events import types as events
from projections.fold.apply import apply
from projections.storage import window_copies
from projections.storage.records import NOTHING, write_of
from projections.storage.window_copies import (
    BACK,
    ENDS,
    EVERY,
    FEWEST,
    LARGE,
    MOST,
    NO_CHANGE,
    RECENT,
    CopiesChange,
    changed_copies,
    decode_copies,
    even_copy,
    large_copy,
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
        change = changed_copies(window, before)
        held = (held - set(change.gone)) | {name for name, _ in change.put}
        before = count
        assert len(held) <= MOST + 1 + RECENT
        if count > EVERY:
            places = sorted(int(name) for name in held if name.isdigit())
            assert len(places) >= min(count // EVERY, MOST // 2)
            gaps = {b - a for a, b in zip([0, *places], [*places, count], strict=True)}
            assert max(gaps) <= max(EVERY, 2 * count // MOST) + 70
    assert not changed_copies(grown(EVERY - 1), 0, back=True)


def test_after_rollbacks_into_old_history_the_last_few_copies_are_kept() -> None:
    names = set()
    window = grown(EVERY)
    for offset in range(3 * BACK):
        window.meta.position = offset
        change = changed_copies(window, EVERY, back=True)
        names |= {name for name, _ in change.put}
    assert len(names) == BACK


def test_of_large_events_copies_are_kept_at_any_number_of_events_and_are_bounded() -> None:
    names = set()
    window = grown(FEWEST - 1)
    assert not changed_copies(window, 0, large=True) and large_copy(window) is None
    for count in range(FEWEST, 40 * LARGE, 8):
        window.meta.count = window.meta.position = count
        ((name, copy),) = changed_copies(window, count - 1, large=True).put[:1]
        assert large_copy(window) == (name, copy)
        names.add(name)
    assert LARGE // 2 < len(names) <= LARGE, "also where positions are so many apart each time"
    assert write_of(grown(FEWEST)).copies.clear, "one that is written anew may have had some"


def test_of_large_copies_fewer_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    window = grown(EVERY)
    ((_, copy),) = changed_copies(window, 0).put
    monkeypatch.setattr(window_copies, "KEPT_BYTES", len(copy) // 3)
    held, before = set[bytes](), 0
    for count in range(0, 400 * EVERY, EVERY // 2):
        window.meta.count = window.meta.position = count
        change = changed_copies(window, before, back=count % EVERY == 0)
        held = (held - set(change.gone)) | {name for name, _ in change.put}
        before = count
        assert sum(name.startswith(b"back") for name in held) <= BACK // 4
        assert sum(name.isdigit() for name in held) <= MOST // 2
        assert sum(name.startswith(b"recent") for name in held) <= RECENT // 4
    places = sorted(int(name) for name in held if name.isdigit())
    assert max(b - a for a, b in itertools.pairwise([0, *places, 400 * EVERY])) <= 16 * EVERY
    window.meta.count = 1_000 * EVERY
    assert even_copy(window, 995 * EVERY, 1_000 * EVERY) is None
    window.meta.count = 1_024 * EVERY
    assert even_copy(window, 1_016 * EVERY, 1_024 * EVERY) is not None


def test_no_copy_is_taken_of_a_window_that_is_erased_or_quarantined() -> None:
    window = grown(EVERY)
    window.meta.erased = True
    assert not changed_copies(window, 0, back=True)
    window = grown(EVERY)
    window.quarantine(7, "spoiled")
    assert not changed_copies(window, 0, back=True)
    assert even_copy(window, 0, EVERY) is None


def test_changes_one_after_the_other_are_one_change() -> None:
    def put(*names: bytes, gone: tuple[bytes, ...] = ()) -> CopiesChange:
        return CopiesChange(put=tuple((name, name) for name in names), gone=gone)

    one = put(b"1000", b"2000").then(put(b"3000", gone=(b"1000", b"500")))
    assert dict(one.put).keys() == {b"2000", b"3000"} and set(one.gone) == {b"1000", b"500"}
    assert one.then(put(b"500")).gone == (b"1000",), "put again"
    assert one.then(ENDS) == ENDS
    after = ENDS.then(put(b"4000"))
    assert after.clear and dict(after.put).keys() == {b"4000"}
    assert NO_CHANGE.then(one) == one and one.then(NO_CHANGE) == one


def test_an_erasure_ends_the_copies_of_a_window_whoever_writes_it() -> None:
    window = grown(EVERY)
    stored = write_of(window).after
    apply(window, 9, event_for(KEY, events.Erased(), "e2"))
    assert window.meta.count < EVERY
    # In a generation that nobody folds the window is erased where it lies, or written anew.
    for mark in (stored, NOTHING):
        assert write_of(window, mark).copies.clear


def test_a_copy_that_cannot_be_read_is_left_out() -> None:
    change = changed_copies(grown(EVERY), 0)
    ((_, value),) = change.put
    (copy,) = decode_copies([b"", b"nonsense", value[:-3], value])
    assert (copy.offset, copy.summary) == (5, None)
    assert copy.bare(KEY, PARTITION, RULES).meta.count == EVERY
    spoiled = replace(copy, body=copy.body[:-3])
    for read in (spoiled.refilled, spoiled.bare):
        with pytest.raises(ValueError, match="cannot be read"):
            read(KEY, PARTITION, RULES)
