"""Bytes that another process takes from where they lie, once, and nobody else's; what it makes of
them comes back in their place.
"""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from streams.runtime.process_pool import ProcessPool, WorkerLost
from streams.runtime.shared_bytes import SharedBytes


@pytest.fixture
def shared() -> SharedBytes:
    made = SharedBytes()
    made.write(b"one ")
    made.write(b"two")
    return made


def taken(shared: SharedBytes) -> bytes:
    return shared.take()


async def test_another_process_takes_them(shared: SharedBytes) -> None:
    assert len(shared) == 7
    pool = ProcessPool(1)
    try:
        assert await pool.run(taken, shared) == b"one two"
        # Their memory is free again, and a process that is to do it once more finds them gone.
        with pytest.raises(WorkerLost, match="try again"):
            await pool.run(taken, shared)
    finally:
        await pool.close()
        shared.close()


def doubled(shared: SharedBytes) -> bytes:
    """What is put back: a value with large and small bytes, one of them twice."""
    content = shared.take()
    large = content * 10_000
    return shared.put_back({"small": content, "large": [large, large[1:]], "again": large})


async def test_what_another_process_makes_of_them_comes_back_in_their_place(
    shared: SharedBytes,
) -> None:
    pool = ProcessPool(1)
    try:
        rest = await pool.run(doubled, shared)
    finally:
        await pool.close()
    assert len(rest) < 1_000, "large bytes do not go by the pipe"
    large = b"one two" * 10_000
    assert shared.received(rest) == {
        "small": b"one two",
        "large": [large, large[1:]],
        "again": large,
    }
    # They are no content: nobody takes them for a body.
    with pytest.raises(WorkerLost):
        shared.take()
    shared.close()


def test_nothing_is_put_where_another_has_its_bytes_now(shared: SharedBytes) -> None:
    there = pickle.loads(pickle.dumps(shared))
    with pytest.raises(WorkerLost):
        there.put_back(b"x" * 10_000)  # it was not taken
    assert there.take() == b"one two"
    shared.close()
    others = SharedBytes()  # gets the same file descriptor
    others.write(b"another tenant's")
    with pytest.raises(WorkerLost):
        there.put_back(b"x" * 10_000)
    assert others.take() == b"another tenant's"
    others.close()


def test_what_was_closed_is_gone_whoever_has_its_number_now(shared: SharedBytes) -> None:
    there = pickle.loads(pickle.dumps(shared))
    shared.close()
    shared.close()
    with pytest.raises(WorkerLost):
        there.take()
    others = SharedBytes()  # gets the same file descriptor
    others.write(b"another tenant's")
    with pytest.raises(WorkerLost):
        there.take()
    assert others.take() == b"another tenant's"
    others.close()


def test_nothing_is_left_of_what_was_closed(shared: SharedBytes) -> None:
    open_files = Path("/proc/self/fd")
    if not open_files.exists():
        pytest.skip("this system does not list a process' files")
    before = len(list(open_files.iterdir()))
    shared.close()
    assert len(list(open_files.iterdir())) == before - 1
