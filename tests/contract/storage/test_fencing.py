"""Of two writers of a partition one is applied; batches repeated, stale or from before a loss are not."""

from __future__ import annotations

import asyncio
import random
import time
from dataclasses import replace
from importlib.resources import files

import redis.asyncio as aredis

from projections.redis.node import Script
from projections.redis.store import RedisStore
from projections.storage.protocol import WindowStore
from projections.storage.records import (
    Applied,
    Checkpoint,
    DueChange,
    Verdict,
)
from streams.settings.settings import Settings
from tests.support.store import A, B, at, begin, fields_of, generations, write
from tests.support.taken_over import take_over
from threadfold.testing import MemoryStore


async def test_what_another_server_holds_is_not_served_before_its_writer_confirms_that_it_is_the_latest(
    store: WindowStore, generation: int
) -> None:
    revision = await begin(store, generation, write(put={b"0": b"1"}))
    before = await store.checkpoint(generation, 0)
    assert before is not None and not before.healing
    await take_over(store, generation)
    seen = [
        await store.checkpoint(generation, 0),
        (await store.read(generation, 0, [A]))[0],
        (await store.fields(generation, 0, A, [b"h"]))[0],
    ]
    assert seen == [replace(before, unverified=True)] * 3 and all(
        checkpoint is not None and checkpoint.healing for checkpoint in seen
    )
    # Somebody who does not know it either writes: it stays so.
    answer = await store.apply(generation, 0, replace(at(revision, 0), unverified=True), [])
    checkpoint = await store.checkpoint(generation, 0)
    assert (
        checkpoint is not None and checkpoint.unverified and checkpoint.revision == answer.revision
    )
    # A stranger is fenced, and does not change it.
    assert (await store.apply(generation, 0, at(revision, 7), [])).verdict is Verdict.FENCED
    checkpoint = await store.checkpoint(generation, 0)
    assert checkpoint is not None and checkpoint.unverified
    await store.apply(generation, 0, at(answer.revision, 0), [])
    checkpoint = await store.checkpoint(generation, 0)
    assert checkpoint is not None and not checkpoint.unverified and not checkpoint.healing


async def test_until_when_readers_are_not_served_is_as_it_was_written_last(
    store: WindowStore, generation: int
) -> None:
    revision = await begin(store, generation, write(put={b"0": b"1"}))
    now = replace(at(revision, 0), withheld_until=1_234_567)
    answer = await store.apply(generation, 0, now, [])
    for checkpoint in (
        await store.checkpoint(generation, 0),
        (await store.read(generation, 0, [A]))[0],
        (await store.fields(generation, 0, A, [b"h"]))[0],
        (await store.head(generation, 0, A))[0],
    ):
        assert checkpoint == replace(now, revision=answer.revision)
    await store.apply(generation, 0, at(answer.revision, 0), [])
    after = await store.checkpoint(generation, 0)
    assert after is not None and after.withheld_until == 0


async def test_every_write_has_a_revision_of_its_own(store: WindowStore, generation: int) -> None:
    revisions = [await begin(store, generation)]
    for i in range(1, 6):
        answer = await store.apply(generation, 0, at(revisions[-1], i), [])
        revisions.append(answer.revision)
    assert len(set(revisions)) == 6 and "" not in revisions
    assert [int(r) for r in revisions] == sorted(int(r) for r in revisions)


async def test_a_writer_with_another_revision_is_fenced_and_writes_nothing(
    store: WindowStore, generation: int
) -> None:
    first = await begin(store, generation, write(put={b"0": b"1"}))
    second = (await store.apply(generation, 0, at(first, 5), [write(put={b"1": b"2"})])).revision
    for stale in (first, "", "no-revision"):
        answer = await store.apply(
            generation,
            0,
            at(stale, 9),
            [write(meta=b"wrong", put={b"0": b"x"}, due=DueChange.SET, timer=1), write(B)],
        )
        assert answer == Applied(Verdict.FENCED, second)
    assert await fields_of(store, generation) == {b"0": b"1", b"1": b"2"}
    assert (await store.read(generation, 0, [B]))[1] == [None]
    assert await store.due(generation, 0, 10**15, 10) == []
    assert await store.timers(generation, 0, 10**15, 10) == []
    checkpoint = await store.checkpoint(generation, 0)
    assert checkpoint is not None and (checkpoint.revision, checkpoint.offset) == (second, 5)


async def test_the_same_batch_again_is_a_duplicate_and_writes_nothing(
    store: WindowStore, generation: int
) -> None:
    first = await begin(store, generation)
    batch = (at(first, 5), [write(put={b"0": b"1"})])
    applied = await store.apply(generation, 0, *batch)
    assert applied.verdict is Verdict.APPLIED
    assert await store.apply(generation, 0, *batch) == Applied(Verdict.DUPLICATE, applied.revision)
    assert await fields_of(store, generation) == {b"0": b"1"}


async def test_the_first_batch_again_is_a_duplicate(store: WindowStore, generation: int) -> None:
    revision = await begin(store, generation, write(put={b"0": b"1"}))
    assert await store.apply(generation, 0, at("", 0), [write(put={b"0": b"1"})]) == Applied(
        Verdict.DUPLICATE, revision
    )
    assert await fields_of(store, generation) == {b"0": b"1"}


async def test_another_record_at_the_same_offset_is_fenced(
    store: WindowStore, generation: int
) -> None:
    first = await begin(store, generation)
    await store.apply(generation, 0, at(first, 5, "mine"), [])
    assert (
        await store.apply(generation, 0, at(first, 5, "another topic's"), [])
    ).verdict is Verdict.FENCED


async def test_partitions_and_generations_do_not_fence_each_other(
    store: WindowStore, generation: int
) -> None:
    await begin(store, generation, write(put={b"0": b"1"}))
    assert (
        await store.apply(generation, 1, at("", 0), [write(put={b"0": b"2"})])
    ).verdict is Verdict.APPLIED
    assert (
        await store.apply(next(generations), 0, at("", 0), [write(put={b"0": b"3"})])
    ).verdict is Verdict.APPLIED
    assert await fields_of(store, generation) == {b"0": b"1"}


async def test_a_writer_from_before_everything_was_lost_is_fenced_for_good(
    store: WindowStore, settings: Settings, generation: int
) -> None:
    old = await begin(store, generation, write(put={b"0": b"old"}))
    if isinstance(store, MemoryStore):
        store.lose_everything()
    else:
        assert isinstance(store, RedisStore)
        for node in await store.servers.each():
            await node.redis.flushdb()
    assert (await store.apply(generation, 0, at(old, 5), [write(put={b"0": b"x"})])) == Applied(
        Verdict.FENCED, ""
    )
    assert (await store.read(generation, 0, [A]))[1] == [None]
    revision = await begin(store, generation, write(put={b"0": b"new"}))
    for offset in range(1, 6):
        assert revision != old
        assert (
            await store.apply(generation, 0, at(old, 50), [write(put={b"0": b"x"})])
        ).verdict is Verdict.FENCED
        revision = (await store.apply(generation, 0, at(revision, offset), [])).revision
    assert await fields_of(store, generation) == {b"0": b"new"}


async def test_of_racing_writers_exactly_one_is_applied_a_revision(
    store: WindowStore, generation: int
) -> None:
    steps, writers = 40, 6
    won: list[tuple[int, int]] = []

    async def race(me: int) -> None:
        rng = random.Random(me)
        while True:
            checkpoint = await store.checkpoint(generation, 0) or Checkpoint(offset=-1)
            n = checkpoint.offset + 1
            if n >= steps:
                return
            await asyncio.sleep(rng.random() * 0.002)
            answer = await store.apply(
                generation, 0, at(checkpoint.revision, n, f"{me}"), [write(put={b"%d" % n: b"x"})]
            )
            if answer.verdict is Verdict.APPLIED:
                won.append((n, me))

    await asyncio.gather(*(race(me) for me in range(writers)))
    assert [n for n, _ in won] == list(range(steps))
    assert sorted(await fields_of(store, generation), key=int) == [b"%d" % n for n in range(steps)]
    assert len({me for _, me in won}) > 1


async def test_a_zombie_is_fenced_after_an_older_copy_of_redis_was_put_back(
    settings: Settings, generation: int
) -> None:
    store, client = (
        RedisStore(settings.redis, settings.topic_prefix),
        aredis.Redis.from_url(settings.redis),
    )
    copied = await begin(store, generation)
    state = f"{settings.topic_prefix}:{{{generation}:0}}:state"
    copy = await client.dump(state)
    zombie = (await store.apply(generation, 0, at(copied, 1), [])).revision
    await client.restore(state, 0, copy, replace=True)
    assert (
        await store.apply(generation, 0, at(copied, 0, "digest0", 1), [])
    ).verdict is Verdict.APPLIED
    assert (await store.apply(generation, 0, at(zombie, 2), [write()])).verdict is Verdict.FENCED
    await client.aclose()
    await store.close()


async def test_dropping_a_partition_spares_what_its_next_owner_has_written_meanwhile(
    settings: Settings, generation: int
) -> None:
    store, client = (
        RedisStore(settings.redis, settings.topic_prefix),
        aredis.Redis.from_url(settings.redis),
    )
    await store.drop_partition(generation, 0)
    await begin(store, generation)
    window = f"{settings.topic_prefix}:{{{generation}:0}}:w:acme/new"
    await client.set(window, b"the next owner's")
    state = f"{settings.topic_prefix}:{{{generation}:0}}:state"
    (node,) = await store.servers.each()
    unlink = Script(files("projections.redis").joinpath("unlink.lua").read_text())
    assert await unlink(node, [state, window]) == -1
    assert await client.get(window) == b"the next owner's"
    await client.delete(state)
    assert await unlink(node, [state, window]) == 1
    await client.aclose()
    await store.close()


async def test_a_generation_is_held_by_one_at_a_time_until_it_lets_go_or_its_time_is_over(
    store: WindowStore, generation: int
) -> None:
    assert await store.hold(generation, "a", 30)
    assert await store.hold(generation, "a", 30)
    assert not await store.hold(generation, "b", 30)
    assert await store.hold(next(generations), "b", 30)
    assert not await store.hold(generation, "b", 0)
    assert not await store.hold(generation, "b", 30), "b gave back what a has"
    assert await store.hold(generation, "a", 0)
    assert await store.hold(generation, "b", 0.05)
    limit = time.monotonic() + 5
    while not await store.hold(generation, "a", 30):
        assert time.monotonic() < limit
        await asyncio.sleep(0.01)
