"""What processes report of themselves, by way of Redis."""

from __future__ import annotations

import asyncio

import pytest
import redis.asyncio as aredis

from projections.errors import RedisUnavailable
from projections.redis.process_reports import SECONDS, ProcessReports
from streams.settings.settings import Settings
from tests.support.ports import closed_port


@pytest.mark.parametrize("servers", ["real", "cluster"])
async def test_all_see_the_last_report_of_each(
    servers: str, settings: Settings, request: pytest.FixtureRequest
) -> None:
    url = request.getfixturevalue("redis_cluster").url if servers == "cluster" else settings.redis
    one = ProcessReports(url, settings.topic_prefix, "metrics")
    other = ProcessReports(url, settings.topic_prefix, "another kind")
    assert await one.all() == {}
    await asyncio.gather(one.put("a", b"old"), one.put("b", b"\xff\x00"))
    await one.put("a", b"new")
    assert await one.all() == {"a": b"new", "b": b"\xff\x00"}
    assert await other.all() == {}
    await one.remove("b")
    await one.remove("never there")
    assert await one.all() == {"a": b"new"}
    await one.close()
    await other.close()


async def test_who_reports_no_more_is_forgotten(settings: Settings) -> None:
    reports = ProcessReports(settings.redis, settings.topic_prefix, "ends")
    await reports.put("gone", b"1")
    await reports.put("there", b"1")
    client = aredis.Redis.from_url(settings.redis)
    times = f"{settings.topic_prefix}:{{ends}}:times"
    await client.zincrby(times, -SECONDS, "gone")
    assert await reports.all() == {"there": b"1"}
    assert 0 < await client.ttl(times) <= 2 * SECONDS
    await client.aclose()
    await reports.close()


async def test_a_redis_that_is_away_is_named() -> None:
    reports = ProcessReports(f"redis://127.0.0.1:{closed_port()}/0", "t", "metrics", timeout=0.5)
    with pytest.raises(RedisUnavailable, match="what processes report"):
        await reports.all()
    await reports.close()
