"""Bytes that another process takes from where they lie, once, and nobody else's."""

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
