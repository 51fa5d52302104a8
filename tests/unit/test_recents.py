"""The bounded memory of event ids."""

from __future__ import annotations

from hashlib import sha256

from hypothesis import given
from hypothesis import strategies as st

from projections.recents import LIMIT, RECORD, Recents, Seen


def hash_of(i: int) -> bytes:
    return sha256(b"%d" % i).digest()


def test_an_id_is_found_with_its_first_offset_and_whether_it_was_skipped() -> None:
    recents = Recents()
    recents.add(hash_of(1), 7)
    recents.add(hash_of(2), 9, rejected=True)
    assert recents.find(hash_of(1)) == Seen(7, False)
    assert recents.find(hash_of(2)) == Seen(9, True)
    assert recents.find(hash_of(3)) is None


def test_the_oldest_of_more_than_1024_is_forgotten() -> None:
    recents = Recents()
    for i in range(LIMIT + 3):
        recents.add(hash_of(i), i)
    assert [recents.find(hash_of(i)) is None for i in (0, 1, 2, 3)] == [True, True, True, False]
    assert recents.added == LIMIT + 3
    assert len(recents.packed()) == LIMIT * RECORD


def test_a_match_that_does_not_begin_at_a_record_is_no_match() -> None:
    recents = Recents()
    first, second = hash_of(1)[:16], hash_of(2)[:16]
    recents.add(first, 0)
    recents.add(second, 0)
    across = recents.packed()[8:24]
    assert recents.find(across) is None
    recents.add(across, 5)
    assert recents.find(across) == Seen(5, False)


@given(st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 2**62), st.booleans()), unique_by=lambda t: t[0], max_size=40))
def test_packed_records_read_back(items: list[tuple[int, int, bool]]) -> None:
    recents = Recents()
    for i, offset, rejected in items:
        recents.add(hash_of(i), offset, rejected=rejected)
    again = Recents(recents.packed())
    assert all(again.find(hash_of(i)) == Seen(offset, rejected) for i, offset, rejected in items)
    assert again.packed() == recents.packed() and again.added == len(items)


@given(st.integers(0, 2 * LIMIT), st.integers(-1, 2 * LIMIT))
def test_the_newest_records_are_given_oldest_first(n: int, wanted: int) -> None:
    recents = Recents()
    for i in range(n):
        recents.add(hash_of(i), i)
    last = recents.last(wanted)
    assert len(last) == max(0, min(n, wanted, LIMIT))
    assert b"".join(last) == recents.packed()[len(recents.packed()) - len(last) * RECORD :]


def test_a_copy_goes_its_own_way() -> None:
    recents = Recents()
    recents.add(hash_of(1), 1)
    other = recents.copy()
    other.add(hash_of(2), 2)
    assert recents.find(hash_of(2)) is None and (recents.added, other.added) == (1, 2)
