"""What every window store promises, run against the one in memory and the one in Redis."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
import redis.asyncio as aredis

from projections.names import Key
from projections.redis.store import RedisStore
from projections.storage.listing import QUARANTINED, Found, Listing, place
from projections.storage.protocol import WindowStore
from projections.storage.records import (
    NOTHING,
    Checkpoint,
    DueChange,
    Index,
    Stored,
    Verdict,
    Write,
)
from projections.storage.window_copies import CopiesChange
from streams.settings.settings import Settings
from tests.support.store import A, B, at, begin, fields_of, generations, write


async def test_an_unknown_partition_has_no_checkpoint_and_no_windows(
    store: WindowStore, generation: int
) -> None:
    assert await store.checkpoint(generation, 0) is None
    assert (await store.read(generation, 0, [A, B]))[1] == [None, None]
    assert await store.read(generation, 0, [A]) == (None, [None])
    assert (await store.read(generation, 0, []))[1] == []
    assert await store.due(generation, 0, 10**15, 10) == []
    assert await store.timers(generation, 0, 10**15, 10) == []


async def test_what_was_written_is_read_back_in_the_order_asked(
    store: WindowStore, generation: int
) -> None:
    fields = {b"0": b"1\x00", b"1": b"\xff" * 70_000}
    id_blocks = {b"0": b"r", b"1": b"\xfe" * 70_000}
    revision = await begin(
        store,
        generation,
        write(A, meta=b"\x00\xff", put=fields, id_blocks=id_blocks),
        write(B, meta=b"b"),
    )
    b, unknown, a = (await store.read(generation, 0, [B, Key("acme", "c"), A]))[1]
    assert unknown is None and a is not None and b is not None
    assert (a.fields, a.id_blocks) == ({b"h": b"\x00\xff", **fields}, id_blocks)
    assert (b.fields, b.id_blocks) == ({b"h": b"b"}, {})
    _, (bare,) = await store.read(generation, 0, [A], recent_ids=False)
    assert bare is not None and (bare.fields, bare.id_blocks) == (a.fields, {})
    checkpoint = await store.checkpoint(generation, 0)
    assert checkpoint == Checkpoint(revision, 0, 1_000, "digest0", -1)


async def test_a_checkpoint_keeps_its_target(store: WindowStore, generation: int) -> None:
    await store.apply(generation, 0, at("", 5, target=9), [])
    checkpoint = await store.checkpoint(generation, 0)
    assert checkpoint is not None and checkpoint.target == 9 and checkpoint.healing


async def test_what_was_compressed_takes_less_and_is_read_by_a_store_that_does_not_compress(
    settings: Settings, generation: int
) -> None:
    plain, packed = (
        RedisStore(settings.redis, settings.topic_prefix, compress=on) for on in (False, True)
    )
    client = aredis.Redis.from_url(settings.redis)
    fields = {b"0": b"the same words again, " * 400, b"1": b"short"}
    revision = await begin(packed, generation, write(put=fields))
    name = f"{settings.topic_prefix}:{{{generation}:0}}:w:{A}"
    assert (
        await client.hstrlen(name, "0") < len(fields[b"0"]) / 5
        and await client.hget(name, "1") == b"short"
    )
    assert await fields_of(plain, generation) == await fields_of(packed, generation) == fields
    await client.hset(name, "0", b"\x28\xb5\x2f\xfd not zstd")
    assert (await fields_of(plain, generation))[b"0"] == b"\x28\xb5\x2f\xfd not zstd", (
        "left for the window's own check"
    )
    assert (
        await plain.apply(generation, 0, at(revision, 1), [write(put=fields)])
    ).verdict is Verdict.APPLIED
    assert await client.hget(name, "0") == fields[b"0"]
    await client.aclose()
    await plain.close()
    await packed.close()


async def test_fields_are_put_replaced_and_deleted(store: WindowStore, generation: int) -> None:
    revision = await begin(
        store, generation, write(put={b"0": b"1", b"1": b"2"}, id_blocks={b"7": b"x"})
    )
    change = write(
        put={b"1": b"3", b"2": b"4"}, gone=[b"0", b"unknown"], id_blocks={b"8": b"y"}, forget=[b"7"]
    )
    revision = (await store.apply(generation, 0, at(revision, 1), [change])).revision
    assert await fields_of(store, generation) == {b"1": b"3", b"2": b"4"}
    stored = (await store.read(generation, 0, [A]))[1][0]
    assert stored is not None and stored.id_blocks == {b"8": b"y"}
    await store.apply(generation, 0, at(revision, 2), [write(gone=[b"1", b"2"])])
    assert await fields_of(store, generation) == {}


async def test_large_fields_are_read_with_the_checkpoint(
    store: WindowStore, generation: int
) -> None:
    large = {b"0": b"\x00" + b"a" * 100_000, b"1": b"b" * 100_000}
    revision = await begin(store, generation, write(meta=b"head", put=large))
    checkpoint, fields = await store.fields(generation, 0, A, [b"h", b"1", b"7", b"0"])
    assert checkpoint == Checkpoint(revision, 0, 1_000, "digest0", -1)
    assert fields == {b"h": b"head", **large}
    assert await store.fields(generation, 0, B, [b"h", b"1"]) == (checkpoint, {})


async def test_reads_of_whole_windows_and_of_large_fields_take_their_tenants_turns(
    settings: Settings, generation: int
) -> None:
    turns: list[str] = []

    @asynccontextmanager
    async def turn(tenant: str) -> AsyncIterator[None]:
        turns.append(tenant)
        yield

    store = RedisStore(settings.redis, settings.topic_prefix, turns=turn)
    await begin(store, generation, write(put={b"0": b"a" * 200_000}))
    turns.clear()
    await store.fields(generation, 0, A, [b"h"])
    await store.head(generation, 0, A)
    assert turns == []
    await store.fields(generation, 0, A, [b"h", b"0"])
    await store.read(generation, 0, [A])
    assert turns == [A.tenant, A.tenant]
    await store.close()


async def test_some_fields_are_read_with_the_checkpoint(
    store: WindowStore, generation: int
) -> None:
    assert await store.fields(generation, 0, A, [b"h", b"0"]) == (None, {})
    revision = await begin(store, generation, write(put={b"0": b"1" * 5_000, b"1": b"2"}))
    checkpoint, fields = await store.fields(generation, 0, A, [b"h", b"0", b"7"])
    assert checkpoint == Checkpoint(revision, 0, 1_000, "digest0", -1) and fields == {
        b"h": b"meta",
        b"0": b"1" * 5_000,
    }
    assert (await store.fields(generation, 0, B, [b"h"]))[1] == {}


async def test_the_head_is_read_with_the_recent_ids_and_without_the_rest(
    store: WindowStore, generation: int
) -> None:
    assert await store.head(generation, 0, A) == (None, None)
    id_blocks = {b"7": b"x", b"8": b"long enough to be compressed, " * 100}
    change = write(put={b"h": b"head", b"0": b"1" * 5_000}, id_blocks=id_blocks)
    revision = await begin(store, generation, change)
    checkpoint, stored = await store.head(generation, 0, A)
    assert checkpoint == Checkpoint(revision, 0, 1_000, "digest0", -1)
    assert stored == Stored({b"h": b"head"}, id_blocks)
    assert (await store.head(generation, 0, B))[1] is None
    asleep = replace(write(reset=True, forget=list(id_blocks)), put=[(b"s", b"stub")])
    await store.apply(generation, 0, at(revision, 1), [asleep])
    assert (await store.head(generation, 0, A))[1] == Stored({b"s": b"stub"}, {})


async def test_a_window_that_is_reset_holds_only_what_came_with_it_and_its_recent_ids(
    store: WindowStore, generation: int
) -> None:
    revision = await begin(
        store, generation, write(put={b"1": b"1", b"2": b"2"}, id_blocks={b"0": b"a"})
    )
    await store.apply(generation, 0, at(revision, 1), [write(reset=True, put={b"9": b"9"})])
    stored = (await store.read(generation, 0, [A]))[1][0]
    assert stored is not None and (stored.fields, stored.id_blocks) == (
        {b"h": b"meta", b"9": b"9"},
        {b"0": b"a"},
    )


@pytest.mark.parametrize("n", [499, 500, 501, 4_500])
async def test_thousands_of_fields_at_once_are_all_written(
    store: WindowStore, generation: int, n: int
) -> None:
    fields = {b"%d" % i: b"v%d" % i for i in range(n)}
    revision = await begin(store, generation, write(A, put=fields), write(B, put={b"0": b"b"}))
    assert await fields_of(store, generation) == fields
    assert await fields_of(store, generation, B) == {b"0": b"b"}
    await store.apply(generation, 0, at(revision, 1), [write(A, gone=list(fields))])
    assert await fields_of(store, generation) == {}


async def test_a_large_batch_of_conversations_is_one_write(
    store: WindowStore, generation: int
) -> None:
    keys = [Key("acme", f"c{i}") for i in range(600)]
    await begin(
        store, generation, *(write(key, meta=str(key).encode(), put={b"0": b"1"}) for key in keys)
    )
    found = (await store.read(generation, 0, keys))[1]
    assert [s.fields[b"h"] for s in found if s is not None] == [str(key).encode() for key in keys]


async def test_checkpoint_and_windows_are_read_as_of_one_moment(
    store: WindowStore, generation: int
) -> None:
    keys = [Key("acme", f"c{i}") for i in range(20)]
    stop = False

    async def writing() -> int:
        revision, n = "", 0
        while not stop or n < 3:
            answer = await store.apply(
                generation, 0, at(revision, n), [write(key, meta=b"%d" % n) for key in keys]
            )
            revision, n = answer.revision, n + 1
            await asyncio.sleep(0)
        return n

    writer = asyncio.create_task(writing())
    seen = set()
    for _ in range(150):
        checkpoint, found = await store.read(generation, 0, keys)
        if checkpoint is not None:
            assert {s.fields[b"h"] for s in found if s is not None} == {b"%d" % checkpoint.offset}
            assert None not in found
            seen.add(checkpoint.offset)
        await asyncio.sleep(0)
    stop = True
    await writer
    assert len(seen) > 1


async def test_dropping_a_generation_leaves_the_others(store: WindowStore) -> None:
    # 1 and 11 and 110: a pattern that matched by beginnings would take the wrong ones along.
    base = next(generations) * 1_000_000
    three = [base + 1, base + 11, (base + 1) * 10]
    for generation in three:
        for partition in (0, 1, 10):
            writes = [
                write(A, put={b"0": b"1"}, id_blocks={b"0": b"r"}, due=DueChange.SET, timer=1)
            ]
            assert (
                await store.apply(generation, partition, at("", 0), writes)
            ).verdict is Verdict.APPLIED
    assert await store.drop_partition(three[0], 1) == 5
    assert await store.checkpoint(three[0], 0) is not None
    assert await store.checkpoint(three[0], 10) is not None
    assert await store.checkpoint(three[0], 1) is None
    assert (await store.read(three[0], 1, [A]))[1] == [None]
    assert await store.drop_generation(three[0], 11) == 10
    assert await store.due(three[0], 0, 10**15, 10) == []
    assert await store.timers(three[0], 0, 10**15, 10) == []
    for generation in three[1:]:
        assert await store.checkpoint(generation, 0) is not None
        assert (await store.read(generation, 10, [A]))[1][0] is not None
        assert await store.timers(generation, 10, 10**15, 10) == [A]
    assert await store.drop_generation(three[0], 11) == 0


async def test_conversations_and_index_tell_all_there_is_as_of_one_checkpoint(
    store: WindowStore, generation: int
) -> None:
    a, b = Key("acme", "a"), Key("other", "b")
    places = (place("user", "acme", "u"), place("channel", "acme", "web"))
    first = replace(write(a, due=DueChange.SET, timer=77), listing=Listing(50, True, True, places))
    revision = await begin(
        store, generation, first, replace(write(b), listing=Listing(60, quarantined=True))
    )
    assert await store.conversations(generation, 0) == {a, b}
    checkpoint, index = await store.index(generation, 0)
    assert checkpoint is not None and checkpoint.revision == revision
    assert (index.due, index.timers) == ({a: 0}, {a: 77})
    assert index.lists == {
        "recent:acme": {"a": 50},
        "recent:other": {"b": 60},
        "waiting:acme": {"a": 50},
        places[0]: {"a": 50},
        places[1]: {"a": 50},
        QUARANTINED: {"acme/a": 50, "other/b": 60},
    }
    assert [
        found.conversation for found in await store.listed(generation, 0, QUARANTINED, None, 10)
    ] == ["other/b", "acme/a"]
    await store.apply(
        generation, 0, at(revision, 1), [replace(write(a), listing=Listing(70, quarantined=False))]
    )
    assert (await store.index(generation, 0))[1].lists[QUARANTINED] == {"other/b": 60}
    assert await store.index(generation, 1) == (None, Index({}, {}, {}))
    assert await store.conversations(generation, 1) == set()


async def test_records_that_are_nobodys_are_counted_by_partition(store: WindowStore) -> None:
    before = await store.set_aside()
    await store.count_set_aside({1: 2, 7: 400})
    await store.count_set_aside({7: 1})
    after = await store.set_aside()
    assert [after[number] - before.get(number, 0) for number in (1, 7)] == [2, 401]


async def test_a_list_is_read_between_two_times_and_left_by_its_name(
    store: WindowStore, generation: int
) -> None:
    where = place("state", "acme", "awaiting_input")
    keys = [Key("acme", name) for name in "abcd"]
    writes = [
        replace(write(key), listing=Listing(10 * i, places=(where,))) for i, key in enumerate(keys)
    ]
    revision = await begin(store, generation, *writes)

    async def names(before: Found | None = None, limit: int = 9, since: int = 0) -> str:
        found = await store.listed(generation, 0, where, before, limit, since)
        return "".join(one.conversation for one in found)

    assert await names() == "dcba"
    assert await names(since=10) == "dcb"
    assert await names(Found(20, "c"), since=10) == "b"
    assert await names(Found(21, ""), limit=2) == "cb"
    await store.apply(
        generation,
        0,
        at(revision, 1),
        [replace(write(keys[2]), listing=Listing(99, left=(where,)))],
    )
    assert await names() == "dba"


async def test_a_write_that_begins_anew_leaves_nothing_of_what_was_there(
    store: WindowStore, generation: int
) -> None:
    revision = await begin(
        store, generation, write(A, put={b"0": b"old"}, id_blocks={b"7": b"old"}), write(B)
    )
    anew = replace(write(A, meta=b"new", id_blocks={b"1": b"new"}), anew=True)
    gone = Write(B, True, [], [], [], [], DueChange.CLEAR, NOTHING, None, anew=True)
    await store.apply(generation, 0, at(revision, 1), [anew, gone])
    _, (stored,) = await store.read(generation, 0, [A])
    assert stored is not None and (stored.fields, stored.id_blocks) == (
        {b"h": b"new"},
        {b"1": b"new"},
    )
    assert (await store.read(generation, 0, [B]))[1] == [None]
    assert await store.conversations(generation, 0) == {A}


async def test_copies_of_a_window_are_written_with_it_and_go_with_what_they_are_of(
    store: WindowStore, generation: int
) -> None:
    async def held() -> set[bytes]:
        return set(await store.copies(generation, 0, A))

    async def put(copies: CopiesChange, revision: str, offset: int) -> str:
        one = replace(write(), copies=copies)
        applied = await store.apply(generation, 0, at(revision, offset), [one])
        assert applied.verdict is Verdict.APPLIED
        return applied.revision

    assert await held() == set()
    revision = await put(CopiesChange(put=((b"1000", b"one"), (b"2000", b"two"))), "", 0)
    assert await held() == {b"one", b"two"}
    revision = await put(CopiesChange(put=((b"3000", b"three"),), gone=(b"1000",)), revision, 1)
    assert await held() == {b"two", b"three"}
    revision = await put(CopiesChange(clear=True, put=((b"4000", b"four"),)), revision, 2)
    assert await held() == {b"four"}
    assert await store.conversations(generation, 0) == {A}
    await put(CopiesChange(clear=True), revision, 3)
    assert await held() == set()
