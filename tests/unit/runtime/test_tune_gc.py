"""A process whose collector rests still frees what refers to itself."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from streams.runtime.tune_gc import Sweep


class Cycle:
    """An object that only the collector can free."""

    def __init__(self) -> None:
        self.me = self


@pytest.fixture(autouse=True)
def no_collector() -> Iterator[None]:
    """Nothing is collected but by a sweep."""
    gc.collect()
    gc.freeze()
    gc.disable()
    yield
    gc.enable()
    gc.unfreeze()


def looks(sweep: Sweep, number: int) -> None:
    for _ in range(number * sweep.EVERY):
        sweep.dropped()


def test_a_dropped_fetch_is_freed_at_the_next_look() -> None:
    sweep, made = Sweep(), Cycle()
    freed = weakref.ref(made)
    del made
    looks(sweep, 1)
    assert freed() is None


def test_what_a_look_found_alive_and_died_later_is_freed_as_well() -> None:
    sweep, made = Sweep(), Cycle()
    freed = weakref.ref(made)
    looks(sweep, 1)
    del made
    looks(sweep, sweep.OLDER)
    assert freed() is None


def test_what_was_alive_in_many_looks_is_freed_in_the_end() -> None:
    sweep, made = Sweep(), Cycle()
    freed = weakref.ref(made)
    looks(sweep, 3 * sweep.OLDER)
    del made
    looks(sweep, sweep.ALL)
    assert freed() is None
