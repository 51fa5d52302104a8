"""Owners of a partition that take each other's place at any moment, while conversations go back
beside its flow: the windows are the plain fold's, what they announce together is what the log
teaches, no more and no less, and readers see nothing go back.
"""

from __future__ import annotations

import pytest

from streams.maintenance.republish import announced
from tests.support.owners_world import NUMBER, World


@pytest.mark.long
@pytest.mark.parametrize("seed", range(40))
async def test_owners_in_turn_write_and_announce_what_one_alone_would(seed: int) -> None:
    world = World(seed)
    await world.run()
    end = len(world.rows)
    taught = {
        (one.key, one.raw.offset, one.taught.users, one.taught.to)
        async for one in announced(world.log, NUMBER, world.rules, end)
    }
    assert world.announced == taught
    assert not await world.differing()


@pytest.mark.parametrize(
    "seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 8))]
)
async def test_what_a_server_that_lost_writes_has_to_make_good_is_not_served_before(
    seed: int,
) -> None:
    world = World(seed, loses=True)
    await world.run()
    assert not await world.differing()
    assert world.served_beside > 0
