"""The bounded memory of event ids."""

from __future__ import annotations

from hashlib import sha256

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from projections.errors import CorruptWindow
from projections.storage.records import NOTHING, Stored, write_of
from projections.window.recent_ids import BLOCK, LIMIT, RecentIds, Seen, first_block
from tests.support.histories import KEY, random_log


def hash_of(i: int) -> bytes:
    return sha256(b"%d" % i).digest()


def test_an_id_is_found_with_its_first_offset_and_whether_it_was_skipped() -> None:
    recent_ids = RecentIds()
    recent_ids.add(hash_of(1), 7)
    recent_ids.add(hash_of(2), 9, rejected=True)
    assert recent_ids.find(hash_of(1)) == Seen(7, False)
    assert recent_ids.find(hash_of(2)) == Seen(9, True)
    assert recent_ids.find(hash_of(3)) is None


def test_the_oldest_of_more_than_1024_is_forgotten() -> None:
    recent_ids = RecentIds()
    for i in range(LIMIT + 3):
        recent_ids.add(hash_of(i), i)
    assert [recent_ids.find(hash_of(i)) is None for i in (0, 1, 2, 3)] == [True, True, True, False]
    assert recent_ids.added == LIMIT + 3
    assert len(recent_ids.packed()) < LIMIT * 10, (
        "8 bytes an id, and a byte or two for the step to its position"
    )


def test_a_match_that_does_not_begin_at_a_record_is_no_match() -> None:
    recent_ids = RecentIds()
    first, second = hash_of(1)[:8], hash_of(2)[:8]
    recent_ids.add(first, 0)
    recent_ids.add(second, 1)
    across = first[4:] + second[:4]
    assert recent_ids.find(across) is None
    recent_ids.add(across, 5)
    assert recent_ids.find(across) == Seen(5, False)


def test_ids_are_known_and_unknown_rightly_over_many_thousands() -> None:
    recent_ids = RecentIds()
    for i in range(5 * LIMIT):
        assert recent_ids.find(hash_of(i)) is None
        recent_ids.add(hash_of(i), 3 * i)
        for back in (0, 1, LIMIT - 1, LIMIT, 2 * LIMIT):
            expected = Seen(3 * (i - back), False) if back < LIMIT and back <= i else None
            if i >= back:
                assert recent_ids.find(hash_of(i - back)) == expected


@given(
    st.lists(
        st.tuples(st.integers(0, 10**6), st.integers(0, 10**18), st.booleans()),
        unique_by=lambda t: t[0],
        max_size=40,
    )
)
def test_packed_records_read_back(items: list[tuple[int, int, bool]]) -> None:
    recent_ids = RecentIds()
    for i, offset, rejected in items:
        recent_ids.add(hash_of(i), offset, rejected=rejected)
    again = RecentIds(recent_ids.packed())
    assert all(again.find(hash_of(i)) == Seen(offset, rejected) for i, offset, rejected in items)
    assert again.packed() == recent_ids.packed() and again.added == len(items)


@given(st.lists(st.integers(1, 400), min_size=1, max_size=12))
def test_the_blocks_a_store_was_given_hold_the_newest_records(batches: list[int]) -> None:
    recent_ids, stored, added = RecentIds(), {}, 0
    for size in batches:
        before = added
        for _ in range(size):
            recent_ids.add(hash_of(added), 2 * added)
            added += 1
        for n in range(max(first_block(added), before // BLOCK), -(-added // BLOCK)):
            stored[n] = recent_ids.block_of(n)
        stored = {n: block for n, block in stored.items() if n >= first_block(added)}
        again = RecentIds.from_blocks([stored[n] for n in sorted(stored)], added)
        assert (again.packed(), again.added) == (recent_ids.packed(), added)


def test_a_copy_goes_its_own_way() -> None:
    recent_ids = RecentIds()
    recent_ids.add(hash_of(1), 1)
    other = recent_ids.copy()
    other.add(hash_of(2), 2)
    assert recent_ids.find(hash_of(2)) is None and (recent_ids.added, other.added) == (1, 2)


def test_recent_ids_with_impossible_positions_are_a_corrupt_window() -> None:
    writer = random_log(5, 20)
    write = write_of(writer.window, NOTHING)
    stored = Stored(dict(write.put), dict(write.id_blocks_put))
    stored.id_blocks[b"0"] = msgspec.msgpack.encode((bytes(8), [-5]))
    with pytest.raises(CorruptWindow):
        stored.recent_ids(KEY)
