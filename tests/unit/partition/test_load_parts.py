"""How many windows a batch loads before others have their turn."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count

import pytest

from projections.names import Key
from streams.partition import load_parts
from streams.partition.load_parts import LoadParts


class Clock:
    """A time that passes only while windows are loaded."""

    def __init__(self) -> None:
        self.now = 0.0

    def perf_counter(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(load_parts, "time", made)
    return made


def keys(**tenants: int) -> Mapping[bytes, Key]:
    """So many conversations of each tenant, one tenant after the other."""
    made = [Key(tenant, f"c{i}") for tenant, n in tenants.items() for i in range(n)]
    return {str(key).encode(): key for key in made}


def load(parts: LoadParts, clock: Clock, each: float) -> list[bytes]:
    """Load the windows, each in so many seconds."""
    loaded: list[bytes] = []
    for part in parts:
        clock.now += each * len(part)
        loaded += part
    return loaded


def test_others_first_windows_are_loaded_before_the_rest_of_a_tenant_that_has_many(
    clock: Clock,
) -> None:
    parts = LoadParts(keys(big=300, small=2), room=400)
    loaded = load(parts, clock, each=0.01)
    assert {b"small/c0", b"small/c1"} <= set(loaded)
    assert len(loaded) < 10 and len(loaded) + len(parts.left) == 302
    assert parts.left == [b"big/c%d" % i for i in range(len(loaded) - 2, 300)]


@pytest.mark.parametrize(("windows", "each"), [(400, 0.0005), (20, 0.01)])
def test_what_takes_little_time_is_all_loaded_and_in_few_parts(
    clock: Clock, windows: int, each: float
) -> None:
    parts = LoadParts(keys(one=windows), room=400)
    taken = count()
    for part in parts:
        next(taken)
        clock.now += each * len(part)
    assert parts.left == [] and next(taken) < 8


@pytest.mark.parametrize("room", [0, 100])
def test_no_more_are_left_than_there_is_room_for(clock: Clock, room: int) -> None:
    parts = LoadParts(keys(one=1_000), room)
    load(parts, clock, each=1.0)
    assert len(parts.left) == room
