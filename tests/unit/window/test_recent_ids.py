"""The bounded memory of event ids."""

from __future__ import annotations

from hashlib import sha256

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from projections.errors import CorruptWindow
from projections.storage.protocol import NOTHING, Stored, write_of
from projections.window.recent_ids import BLOCK, LIMIT, RecentIds, Seen, first_block
from tests.support.histories import KEY, random_log


def hash_of(i: int) -> bytes:
    return sha256(b"%d" % i).digest()


def test_an_id_is_found_with_its_first_offset_and_whether_it_was_skipped() -> None:
    recents = RecentIds()
    recents.add(hash_of(1), 7)
    recents.add(hash_of(2), 9, rejected=True)
    assert recents.find(hash_of(1)) == Seen(7, False)
    assert recents.find(hash_of(2)) == Seen(9, True)
    assert recents.find(hash_of(3)) is None


def test_the_oldest_of_more_than_1024_is_forgotten() -> None:
    recents = RecentIds()
    for i in range(LIMIT + 3):
        recents.add(hash_of(i), i)
    assert [recents.find(hash_of(i)) is None for i in (0, 1, 2, 3)] == [True, True, True, False]
    assert recents.added == LIMIT + 3
    assert len(recents.packed()) < LIMIT * 10, (
        "8 bytes an id, and a byte or two for the step to its position"
    )


def test_a_match_that_does_not_begin_at_a_record_is_no_match() -> None:
    recents = RecentIds()
    first, second = hash_of(1)[:8], hash_of(2)[:8]
    recents.add(first, 0)
    recents.add(second, 1)
    across = first[4:] + second[:4]
    assert recents.find(across) is None
    recents.add(across, 5)
    assert recents.find(across) == Seen(5, False)


def test_ids_are_known_and_unknown_rightly_over_many_thousands() -> None:
    recents = RecentIds()
    for i in range(5 * LIMIT):
        assert recents.find(hash_of(i)) is None
        recents.add(hash_of(i), 3 * i)
        for back in (0, 1, LIMIT - 1, LIMIT, 2 * LIMIT):
            expected = Seen(3 * (i - back), False) if back < LIMIT and back <= i else None
            if i >= back:
                assert recents.find(hash_of(i - back)) == expected


@given(
    st.lists(
        st.tuples(st.integers(0, 10**6), st.integers(0, 10**18), st.booleans()),
        unique_by=lambda t: t[0],
        max_size=40,
    )
)
def test_packed_records_read_back(items: list[tuple[int, int, bool]]) -> None:
    recents = RecentIds()
    for i, offset, rejected in items:
        recents.add(hash_of(i), offset, rejected=rejected)
    again = RecentIds(recents.packed())
    assert all(again.find(hash_of(i)) == Seen(offset, rejected) for i, offset, rejected in items)
    assert again.packed() == recents.packed() and again.added == len(items)


@given(st.lists(st.integers(1, 400), min_size=1, max_size=12))
def test_the_blocks_a_store_was_given_hold_the_newest_records(batches: list[int]) -> None:
    recents, stored, added = RecentIds(), {}, 0
    for size in batches:
        before = added
        for _ in range(size):
            recents.add(hash_of(added), 2 * added)
            added += 1
        for n in range(max(first_block(added), before // BLOCK), -(-added // BLOCK)):
            stored[n] = recents.block_of(n)
        stored = {n: block for n, block in stored.items() if n >= first_block(added)}
        again = RecentIds.from_blocks([stored[n] for n in sorted(stored)], added)
        assert (again.packed(), again.added) == (recents.packed(), added)


def test_a_copy_goes_its_own_way() -> None:
    recents = RecentIds()
    recents.add(hash_of(1), 1)
    other = recents.copy()
    other.add(hash_of(2), 2)
    assert recents.find(hash_of(2)) is None and (recents.added, other.added) == (1, 2)


def test_recent_ids_with_impossible_positions_are_a_corrupt_window() -> None:
    writer = random_log(5, 20)
    write = write_of(writer.window, NOTHING)
    stored = Stored(dict(write.put), dict(write.recents_put))
    stored.recents[b"0"] = msgspec.msgpack.encode((bytes(8), [-5]))
    with pytest.raises(CorruptWindow):
        stored.recent_ids(KEY)
