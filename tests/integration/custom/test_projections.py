"""Projections of one's own on real Kafka and Redis: shared, fenced, lost, rebuilt, verified; each
event counts exactly once.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest
import redis.asyncio as aredis

from projections.errors import (
    Healing,
    InvalidProjection,
    ProjectionFailed,
    TopicMismatch,
    UnknownProjection,
)
from streams.custom.persistence import place_of
from streams.custom.runner import ProjectionRunner
from streams.custom.verify import ProjectionReport
from streams.log.clients import admin_client
from streams.log.topics import create_topics
from streams.settings.settings import Settings
from tests.support.custom_projections import (
    TENANTS,
    Counts,
    append,
    caught_up,
    in_log,
    message_counts,
    running,
)
from tests.support.worker import until
from threadfold.custom import Projection, ProjectionReader, drop, rebuild, verify
from threadfold.custom.access import Parts, opened


async def test_every_event_counts_once_sealed_repeated_and_whoever_applies_it(
    parts: tuple[Settings, Parts],
) -> None:
    settings, open_ = parts
    projection = Counts("shared")
    await append(open_, 60, "first")
    async with running(settings, open_, projection) as one:
        await until(caught_up(open_, projection))
        async with running(settings, open_, Counts("shared")) as two:
            await until(
                lambda: _truth(
                    one.partitions
                    and two.partitions
                    and len(one.partitions) + len(two.partitions) == 4
                ),
                40,
            )
            await append(open_, 60, "first")  # a producer's repeat of all of it
            await append(open_, 60, "second")
            await until(caught_up(open_, projection))
        await append(open_, 30, "third")
        await until(caught_up(open_, projection), 120)
    assert (
        await message_counts(settings, projection)
        == await in_log(open_)
        == {"acme": 150, "sealed": 150}
    )
    async with ProjectionReader.open(settings, projection) as view:
        assert await view.get("sealed", "last:c1") == "third 29"
        assert len(await view.all("acme")) == 8
    report = await verify(settings, projection)
    assert (report.verified, report.differing) == (
        8 + 8 + sum(len(p) - 1 for p in await _spread(open_, "shared")),
        [],
    )


async def _spread(parts: Parts, name: str) -> list[set[int]]:
    """Of each tenant the partitions that count for it."""
    return [
        {
            p
            for p in range(4)
            if (await parts.store.all(place_of(name, 1, p), tenant))[1].get("messages")
        }
        for tenant in TENANTS
    ]


async def _truth(value: Any) -> bool:
    return bool(value)


async def test_lost_values_are_folded_anew_and_nothing_is_read_meanwhile(
    parts: tuple[Settings, Parts],
) -> None:
    settings, open_ = parts
    projection = Counts("lost")
    await append(open_, 20, "lost")
    client = aredis.Redis.from_url(settings.redis)
    async with (
        running(settings, open_, projection) as runner,
        ProjectionReader.open(settings, projection) as view,
    ):
        await until(caught_up(open_, projection))
        before = await message_counts(settings, projection)
        await client.flushdb()
        with pytest.raises(Healing, match="try again"):
            await view.get("acme", "messages")
        await until(caught_up(open_, projection), 120)
        assert await message_counts(settings, projection) == before == await in_log(open_)
        # Another incarnation of the topic: what is at the checkpoint's offset is another record.
        place = place_of(projection.name, 1, 0)
        await client.hset(
            f"{settings.topic_prefix}:view:{{{place}}}:state", mapping={"hash": "0" * 64}
        )
        await client.hset(
            f"{settings.topic_prefix}:view:{{{place}}}:t:acme", mapping={"messages": b'{"n":999}'}
        )
        runner.runtime.prepare_again(0)
        await until(lambda: _digest_is_right(open_, place), 120)
        assert await message_counts(settings, projection) == before
    await client.aclose()


async def _digest_is_right(parts: Parts, place: str) -> bool:
    checkpoint = await parts.store.checkpoint(place)
    return (
        checkpoint is not None
        and checkpoint.digest != "0" * 64
        and not checkpoint.healing
        and checkpoint.offset >= 0
    )


async def test_an_older_copy_of_the_values_is_folded_on_before_anybody_reads_it(
    parts: tuple[Settings, Parts],
) -> None:
    settings, open_ = parts
    projection = Counts("restored")
    client = aredis.Redis.from_url(settings.redis)
    await append(open_, 20, "old")
    async with running(settings, open_, projection):
        await until(caught_up(open_, projection))
        names = [
            name
            async for name in client.scan_iter(match=f"{settings.topic_prefix}:view:{{restored:*")
        ]
        copies = {name: await client.dump(name) for name in names}
        await append(open_, 20, "new")
        await until(caught_up(open_, projection))
        truth = await in_log(open_)
    async with client.pipeline() as pipe:
        for name, raw in copies.items():
            pipe.restore(name, 0, raw, replace=True)
        await pipe.execute()
    read: list[dict[str, int]] = []
    async with (
        running(settings, open_, projection) as runner,
        ProjectionReader.open(settings, projection) as view,
    ):
        await until(lambda: _truth(len(runner.partitions) == 4), 120)
        while len(read) < 3:
            try:
                read.append(
                    {tenant: (await view.get(tenant, "messages"))["n"] for tenant in TENANTS}
                )
            except Healing:
                await asyncio.sleep(0.01)
    assert read == [truth] * 3, "values of the older copy were served"
    await client.aclose()


async def test_a_raised_version_is_built_beside_the_old_one_which_serves_until_then(
    parts: tuple[Settings, Parts],
) -> None:
    settings, open_ = parts
    await append(open_, 20, "version")
    old, new = Counts("versions"), Counts("versions", version=2, step=10)
    async with running(settings, open_, old) as first:
        await until(caught_up(open_, old))
        truth = await in_log(open_)
        async with running(settings, open_, new):
            assert await message_counts(settings, old) in (
                truth,
                {tenant: 10 * n for tenant, n in truth.items()},
            )
            await until(lambda: _live(open_, "versions", 2), 120)
            assert await message_counts(settings, new) == {
                tenant: 10 * n for tenant, n in truth.items()
            }
            await append(open_, 5, "after")
            await until(caught_up(open_, new, 2))
            await until(lambda: _truth(first.outdated))
            assert open_.control.state.projections["versions"].live == 2, (
                "the old version switched back"
            )
    with pytest.raises(TopicMismatch, match="version 2 is live, this code is version 1"):
        await verify(settings, old)
    assert (await verify(settings, new)).differing == []
    assert await drop(settings, "versions") == [1]
    assert await open_.store.checkpoint(place_of("versions", 1, 0)) is None
    assert (await message_counts(settings, new))["acme"] == 10 * (await in_log(open_))["acme"]


async def _live(parts: Parts, name: str, number: int) -> bool:
    return parts.control.state.projections[name].live == number


async def test_a_rebuild_mends_values_and_running_processes_go_over(
    parts: tuple[Settings, Parts],
) -> None:
    settings, open_ = parts
    await append(open_, 20, "rebuild")
    projection = Counts("mended")
    client = aredis.Redis.from_url(settings.redis)
    async with running(settings, open_, projection) as runner:
        await until(caught_up(open_, projection))
        (partition, *_), _ = await _spread(open_, "mended")
        await client.hset(
            f"{settings.topic_prefix}:view:{{mended:1:{partition}}}:t:acme",
            mapping={"messages": b'{"n":7}'},
        )
        assert (await verify(settings, projection)).differing == ["acme/messages"]
        built = await rebuild(settings, projection)
        assert built == (2, True)
        assert await message_counts(settings, projection) == await in_log(open_)
        await until(lambda: _truth(runner.generation == 2))
        await append(open_, 5, "later")
        await until(caught_up(open_, projection, 2), 120)
    assert await message_counts(settings, projection) == await in_log(open_)
    assert (await verify(settings, projection)).differing == []
    assert await drop(settings, "mended", everything=True) == [1, 2]
    with pytest.raises(UnknownProjection, match="no results yet"):
        await message_counts(settings, projection)
    await client.aclose()


async def test_an_error_stops_it_there_and_mended_it_goes_on(parts: tuple[Settings, Parts]) -> None:
    settings, open_ = parts
    projection = Counts("failing")
    await append(open_, 3, "poison")
    projection.poison = "poison 2"
    runner = ProjectionRunner(settings, open_.control, open_.log, open_.store, projection)
    with pytest.raises(
        ProjectionFailed,
        match=r"failed at position \d-\d+ \(message of (acme|sealed)/c2\): KeyError",
    ):
        await asyncio.wait_for(runner.run(), 30)
    projection.poison = ""
    async with running(settings, open_, projection):
        await until(caught_up(open_, projection), 120)
    assert await message_counts(settings, projection) == await in_log(open_)


@pytest.mark.long
async def test_a_topic_that_is_made_anew_is_not_taken_for_the_one_before(
    parts: tuple[Settings, Parts],
) -> None:
    settings, open_ = parts
    projection = Counts("anew")
    await append(open_, 60, "before")
    async with running(settings, open_, projection):
        await until(caught_up(open_, projection))
        async with admin_client(settings) as admin:
            await admin.delete_topics([settings.topic("events")])
        await until(lambda: _created(settings))
        async with opened(settings) as fresh:
            for count, mark, expected in ((3, "few", 3), (90, "many", 93)):
                await append(fresh, count, mark)
                await until(lambda expected=expected: _counted(settings, projection, expected), 120)
            # Its results are dropped once more when the topic's new id is noticed.
            report = await until(lambda: _verified(settings, projection), 120)
            assert report.differing == []


async def _verified(settings: Settings, projection: Projection) -> ProjectionReport | None:
    with suppress(Healing):
        return await verify(settings, projection)
    return None


async def _created(settings: Settings) -> bool:
    """Make the topics; refused as long as the one that was deleted is not gone everywhere."""
    async with admin_client(settings) as admin:
        if settings.topic("events") in await admin.list_topics():
            return False
    await create_topics(settings)
    return True


async def _counted(settings: Settings, projection: Projection, expected: int) -> bool:
    try:
        return await message_counts(settings, projection) == dict.fromkeys(TENANTS, expected)
    except (Healing, TypeError):
        return False  # folded anew, or nothing of a tenant yet


async def test_a_rebuild_of_what_never_ran_folds_all_of_the_log(
    parts: tuple[Settings, Parts],
) -> None:
    settings, open_ = parts
    projection = Counts("first")
    await append(open_, 40, "of-first")
    built = await rebuild(settings, projection)
    assert built.live
    assert await message_counts(settings, projection) == await in_log(open_)
    assert (await verify(settings, projection)).differing == []


async def test_a_process_whose_results_are_dropped_ends_and_leaves_nothing_to_another_version(
    parts: tuple[Settings, Parts],
) -> None:
    settings, open_ = parts
    await append(open_, 20, "of-dropped")
    runner = ProjectionRunner(settings, open_.control, open_.log, open_.store, Counts("dropped"))
    task = asyncio.create_task(runner.run())
    await until(caught_up(open_, Counts("dropped")))
    assert await drop(settings, "dropped", everything=True) == [1]
    with pytest.raises(
        InvalidProjection, match="generation 1, which this process kept up, was dropped"
    ):
        await asyncio.wait_for(task, 20)
    with pytest.raises(UnknownProjection):
        await verify(settings, Counts("dropped"))
    newer = Counts("dropped", version=2, step=2)
    assert await rebuild(settings, newer) == (2, True)
    assert (await verify(settings, newer)).differing == []
    with pytest.raises(InvalidProjection, match="version 2 is live, and this code is version 1"):
        await ProjectionRunner(
            settings, open_.control, open_.log, open_.store, Counts("dropped")
        ).run()
