"""What counts of a day promise, run against those in memory and those in Redis."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from projections.errors import RedisUnavailable
from projections.redis.daily_counts import Addition, DailyCounts, Ranked
from streams.compaction.summarizers.budgets import Counts
from streams.settings.settings import Settings
from tests.support.ports import closed_port
from threadfold.testing import MemoryDailyCounts


@pytest.fixture(params=["memory", "real", "cluster"])
async def counts(request: pytest.FixtureRequest, settings: Settings) -> AsyncIterator[Counts]:
    if request.param == "memory":
        yield MemoryDailyCounts()
        return
    url = (
        request.getfixturevalue("redis_cluster").url
        if request.param == "cluster"
        else settings.redis
    )
    real = DailyCounts(url, settings.topic_prefix)
    yield real
    await real.close()


async def test_units_add_up_and_are_taken_back_but_never_below_nothing(counts: Counts) -> None:
    first = await counts.add("adds", [Addition("tokens", 10), Addition("cost", 0.25)])
    assert first.added and first.used == {"tokens": 10, "cost": 0.25}
    assert 0 < first.left <= 86_400
    more = await counts.add("adds", [Addition("tokens", 2.5)])
    assert more.used == {"tokens": 12.5} and more.day == first.day
    less = await counts.add("adds", [Addition("tokens", -20), Addition("cost", -0.125)])
    assert less.used == {"tokens": 0, "cost": 0.125}
    assert (await counts.add("another", [Addition("tokens", 0)])).used == {"tokens": 0}


async def test_while_anything_is_left_all_is_added_and_then_nothing(counts: Counts) -> None:
    def units(tokens: float) -> list[Addition]:
        return [Addition("tokens", tokens, 100), Addition("cost", 1)]

    assert (await counts.add("full", units(99))).added
    assert (await counts.add("full", units(50))).used == {"tokens": 149, "cost": 2}
    refused = await counts.add("full", units(1))
    assert not refused.added and refused.used == {"tokens": 149, "cost": 2}
    assert not (await counts.add("full", units(0))).added, "as one that only asks sees"
    assert (await counts.add("full", [Addition("tokens", -60)])).added
    assert (await counts.add("full", units(1))).added


async def test_of_many_that_add_at_once_one_goes_beyond_the_limit(counts: Counts) -> None:
    answers = await asyncio.gather(
        *(counts.add("race", [Addition("tokens", 7, 100)]) for _ in range(50))
    )
    assert sum(answer.added for answer in answers) == 15


async def test_what_belongs_to_another_day_is_passed_over(counts: Counts) -> None:
    today = (await counts.add("days", [Addition("tokens", 5)])).day
    late = await counts.add("days", [Addition("tokens", -3)], today - 1)
    assert not late.added and late.used == {"tokens": 5}
    assert (await counts.add("days", [Addition("tokens", -3)], today)).used == {"tokens": 2}


async def test_each_day_begins_at_nothing() -> None:
    now = [86_400.0 * 20_000 - 1]
    counts = MemoryDailyCounts(lambda: now[0])
    await counts.add("owner", [Addition("tokens", 5)])
    now[0] += 1
    assert (await counts.add("owner", [Addition("tokens", 0)])).used == {"tokens": 0}


async def test_counts_of_another_day_in_redis_are_passed_over(settings: Settings) -> None:
    import redis.asyncio as aredis

    client = aredis.Redis.from_url(settings.redis)
    counts = DailyCounts(settings.redis, settings.topic_prefix)
    await counts.add("old", [Addition("tokens", 5), Addition("cost", 1)])
    name = f"{settings.topic_prefix}:{{old}}:day"
    await client.hincrby(name, "day", -1)
    assert (await counts.add("old", [Addition("tokens", 0, 5)])).used == {"tokens": 0}
    assert (await counts.add("old", [Addition("tokens", 1, 5)])).used == {"tokens": 1}
    assert (await counts.add("old", [Addition("cost", 0)])).used == {"cost": 0}
    assert 0 < await client.ttl(name) <= 172_800
    await client.aclose()
    await counts.close()


async def test_what_members_of_a_board_used_adds_up_and_who_used_most_is_first(
    counts: Counts,
) -> None:
    kinds = ("tokens", "cost")
    assert await counts.ranked("empty", kinds, 3) == Ranked({"tokens": 0, "cost": 0}, [])
    for member, tokens in (("little", 1), ("much", 70), ("some", 8), ("much", 20)):
        assert await counts.rank("board", member, {"tokens": tokens, "cost": tokens / 4})
    found = await counts.ranked("board", kinds, 2)
    assert found.totals == {"tokens": 99, "cost": 24.75}
    assert found.most == [
        ("much", {"tokens": 90, "cost": 22.5}),
        ("some", {"tokens": 8, "cost": 2}),
    ]
    assert await counts.rank("board", "much", {"tokens": -87, "cost": 0})
    assert [member for member, _ in (await counts.ranked("board", kinds, 5)).most] == [
        "some", "much", "little"
    ]  # fmt: skip


async def test_a_board_takes_nothing_of_another_day(counts: Counts) -> None:
    today = (await counts.add("of-a-board", [Addition("tokens", 0)])).day
    assert not await counts.rank("late", "acme", {"tokens": 5}, today - 1)
    assert await counts.rank("late", "acme", {"tokens": 2}, today)
    assert (await counts.ranked("late", ["tokens"], 1)).totals == {"tokens": 2}


async def test_a_board_of_yesterday_in_redis_is_passed_over(settings: Settings) -> None:
    import redis.asyncio as aredis

    client = aredis.Redis.from_url(settings.redis)
    counts = DailyCounts(settings.redis, settings.topic_prefix)
    await counts.rank("old", "acme", {"tokens": 5})
    name = f"{settings.topic_prefix}:{{old}}:ranks"
    await client.hincrby(name, "day", -1)
    assert await counts.ranked("old", ["tokens"], 9) == Ranked({"tokens": 0}, [])
    await counts.rank("old", "nord", {"tokens": 3})
    assert await counts.ranked("old", ["tokens"], 9) == Ranked(
        {"tokens": 3}, [("nord", {"tokens": 3})]
    )
    for key in (name, f"{name}:tokens"):
        assert 0 < await client.ttl(key) <= 172_800
    await client.aclose()
    await counts.close()


async def test_a_redis_that_is_away_is_named() -> None:
    counts = DailyCounts(f"redis://127.0.0.1:{closed_port()}/0", "t", timeout=0.5)
    with pytest.raises(RedisUnavailable, match="counts of the day"):
        await counts.add("owner", [Addition("tokens", 1)])
    await counts.close()
