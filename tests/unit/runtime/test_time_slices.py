"""Long computations of one event loop take turns, and others run between them."""

from __future__ import annotations

import asyncio

import pytest

from streams.runtime.time_slices import TimeSlices


async def compute(slices: TimeSlices, name: str, steps: int, done: list[str]) -> None:
    with slices.begin() as part:
        for _ in range(steps):
            done.append(name)
            if part.over:
                await part.rest()


async def test_computations_take_turns_and_others_run_between_two_slices() -> None:
    slices, done = TimeSlices(0.0), list[str]()

    async def other() -> None:
        for _ in range(5):
            done.append("other")
            await asyncio.sleep(0)

    await asyncio.gather(compute(slices, "a", 50, done), compute(slices, "b", 50, done), other())
    assert max(i for i, name in enumerate(done) if name == "other") < 30
    assert abs(done[:60].count("a") - done[:60].count("b")) <= 2


async def test_what_is_done_within_its_first_slice_waits_for_no_turn() -> None:
    slices, done = TimeSlices(10.0), list[str]()
    async with slices.turn, asyncio.timeout(1):
        await compute(slices, "short", 1_000, done)
    assert len(done) == 1_000


async def test_the_turn_is_given_up_where_a_computation_waits_fails_or_ends() -> None:
    slices = TimeSlices(0.0)
    with slices.begin() as part:
        await part.rest()
        assert slices.turn.locked()
        part.give_up()
        assert not slices.turn.locked()
        await part.rest()
    assert not slices.turn.locked()
    with pytest.raises(RuntimeError), slices.begin() as part:
        await part.rest()
        raise RuntimeError
    assert not slices.turn.locked()
