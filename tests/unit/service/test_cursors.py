"""Cursors of lists, whoever wrote them: their check is no secret."""

from __future__ import annotations

import pytest

from projections.errors import InvalidPosition
from streams.memory.store import Filter
from threadfold.service import lists
from threadfold.service.cursors import write_cursor
from threadfold.service.memory_cursors import cursor_of, place_of

NAMES = [f"c{n}" for n in range(100)]


def test_a_cursor_does_not_depend_on_the_order_of_the_conversations_that_a_token_names() -> None:
    here = Filter("acme", "ann", conversations=frozenset(NAMES))
    there = Filter("acme", "ann", conversations=frozenset(reversed(NAMES)))
    assert place_of(there, cursor_of(here, 5, "m1")) == (5, "m1")


def test_a_cursor_of_another_list_is_refused() -> None:
    cursor = cursor_of(Filter("acme", "ann", conversations=frozenset(NAMES)), 5, "m1")
    for other in (
        Filter("acme", "ann"),
        Filter("acme", "ann", conversations=frozenset(NAMES[1:])),
        Filter("acme", "bob", conversations=frozenset(NAMES)),
        Filter("other", "ann", conversations=frozenset(NAMES)),
    ):
        with pytest.raises(InvalidPosition):
            place_of(other, cursor)


@pytest.mark.parametrize("created", [1 << 63, (1 << 64) - 1])
def test_a_cursor_with_a_time_that_no_store_has_is_refused(created: int) -> None:
    only = Filter("acme")
    with pytest.raises(InvalidPosition):
        place_of(only, cursor_of(only, created, "m1"))


NO_TEXT = b"\x92\x01\xa2\xff\xfe"  # msgpack: a time, and a name that is not UTF-8


def test_a_cursor_whose_name_is_no_text_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    only, mine = Filter("acme"), write_cursor("memories", NO_TEXT)
    with pytest.raises(InvalidPosition):
        lists.place_of("memories", mine, "this list")
    monkeypatch.setattr("threadfold.service.memory_cursors.read_cursor", lambda *_: NO_TEXT)
    with pytest.raises(InvalidPosition):
        place_of(only, mine)
