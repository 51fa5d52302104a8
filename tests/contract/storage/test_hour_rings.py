"""What rings of the last hour promise, in one Redis and in a cluster."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import redis.asyncio as aredis

from projections.errors import RedisUnavailable
from projections.redis.hour_rings import HOUR, HourRings
from streams.settings.settings import Settings
from tests.support.ports import closed_port

SLOW = HOUR
"""Seconds of a slot that does not end within a test, but for one in an hour."""


@pytest.fixture(params=["real", "cluster"])
def url(request: pytest.FixtureRequest, settings: Settings) -> str:
    if request.param == "cluster":
        return str(request.getfixturevalue("redis_cluster").url)
    return settings.redis


@pytest.fixture
async def rings(url: str, settings: Settings) -> AsyncIterator[HourRings]:
    made = HourRings(url, settings.topic_prefix, 10)
    yield made
    await made.close()


async def total(rings: HourRings, owner: str) -> tuple[float, ...]:
    """What an owner has in all slots: a slot may end within a test."""
    slots = (await rings.read(owner)).slots.values()
    return tuple(sum(one or 0.0 for one in figures) for figures in zip(*slots, strict=True))


async def test_what_many_add_in_a_slot_adds_up_for_each_owner(rings: HourRings) -> None:
    await rings.add({f"owner-{i}": [i, 0.25] for i in range(20)})
    await rings.add({"owner-3": [4, 1], "owner-19": [1, 0]})
    await rings.add({})
    assert await total(rings, "owner-3") == (7, 1.25)
    assert await total(rings, "owner-19") == (20, 0.25)
    assert await total(rings, "owner-0") == (0, 0.25)
    assert (await rings.read("nobody")).slots == {}


async def test_one_of_many_claims_a_slot_and_the_next_one_has_its_state(rings: HourRings) -> None:
    first = await rings.claim("claims")
    assert first is not None and first.state == b""
    again = await rings.claim("claims")
    assert again is None or again.slot > first.slot
    await rings.put("claims", first.slot, b'{"seen": 3}', [1.5, None, 0])
    found = await rings.read("claims")
    assert found.slots == {first.slot: (1.5, None, 0)}
    assert found.first < first.slot <= found.last == int(found.now) // 10
    assert found.last - found.first == 359


async def test_a_slot_of_an_hour_ago_is_overwritten_and_none_is_kept_beside_it(
    settings: Settings,
) -> None:
    rings = HourRings(settings.redis, settings.topic_prefix, SLOW)
    client = aredis.Redis.from_url(settings.redis)
    name = f"{settings.topic_prefix}:{{old}}:hour"
    now = (await rings.read("old")).last
    await rings.put("old", now - 1, b"state", [7, 7])
    assert (await rings.read("old")).slots == {now - 1: (7, 7)}
    await rings.add({"old": [2, 3]})
    (kept,) = (await rings.read("old")).slots.items()
    assert kept == ((await rings.read("old")).last, (2, 3))
    claim = await rings.claim("old")
    assert claim is not None and claim.state == b"state"
    assert 0 < await client.ttl(name) <= 2 * HOUR
    await client.aclose()
    await rings.close()


async def test_a_ring_has_a_bounded_number_of_fields(settings: Settings) -> None:
    rings = HourRings(settings.redis, settings.topic_prefix, 60)
    client = aredis.Redis.from_url(settings.redis)
    for slot in range(500):
        await rings.put("bounded", slot, b"", [slot])
    assert await client.hlen(f"{settings.topic_prefix}:{{bounded}}:hour") == 60 + 1
    assert sorted((await rings.read("bounded")).slots) == list(range(440, 500))
    await client.aclose()
    await rings.close()


async def test_a_redis_that_is_away_is_named() -> None:
    rings = HourRings(f"redis://127.0.0.1:{closed_port()}/0", "t", 10)
    with pytest.raises(RedisUnavailable, match="last hour"):
        await rings.add({"owner": [1]})
    with pytest.raises(RedisUnavailable, match="last hour"):
        await rings.read("owner")
    await rings.close()


async def test_what_no_ring_wrote_is_passed_over_and_claims_go_on(settings: Settings) -> None:
    rings = HourRings(settings.redis, settings.topic_prefix, SLOW)
    name = f"{settings.topic_prefix}:{{odd}}:hour"
    now = (await rings.read("odd")).last
    async with aredis.Redis.from_url(settings.redis) as client:
        odd = {"5": "", "6": b"\xff\xfe", "7": "x 1", "8": f"{now} nan", "9": f"{now} 1 inf"}
        await client.hset(name, mapping={**odd, "claimed": "x"})
    assert (await rings.read("odd")).slots == {}
    claim = await rings.claim("odd")
    assert claim is not None
    await rings.put("odd", claim.slot, b"", [3])
    assert (await rings.read("odd")).slots == {claim.slot: (3,)}
    await rings.close()
