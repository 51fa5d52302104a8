"""Keys of conversations: wrapped anew, lost, wrong, changed."""

from __future__ import annotations

import asyncio
import json

import msgspec
import pytest

from projections.errors import KeyUnusable
from projections.names import Key, partition_of
from streams.encryption.master_keys import new_master
from streams.settings.settings import Settings
from streams.worker_parts import Runtime
from tests.support.erasure import MASTER, SECRET, flush, healed, no_text, say, stack, talk
from tests.support.grep import raw_records
from tests.support.raw_records import put_raw
from tests.support.worker import running_worker, until
from threadfold.service.conversations import ConversationService
from threadfold.service.erasure import Eraser


async def test_a_wrong_master_key_stops_the_worker_and_is_503_in_the_gateway(
    made: Settings,
) -> None:
    async with stack(made) as (_, backend):
        await say(backend, "sealed", "locked", talk(1))
    wrong = msgspec.structs.replace(made, master_keys=new_master("first"))
    runtime = Runtime(wrong)
    with pytest.raises(KeyUnusable, match="cannot be unwrapped"):
        await runtime.start()
    await runtime.stop()
    async with ConversationService(wrong) as backend:
        with pytest.raises(KeyUnusable):
            await backend.append(
                "sealed", [("locked", {"type": "message", "role": "user", "content": "x"})]
            )
        with pytest.raises(KeyUnusable):
            await backend.history("sealed", "locked")
    none = msgspec.structs.replace(made, master_keys="")
    async with ConversationService(none) as backend:
        with pytest.raises(KeyUnusable, match="no master key is configured"):
            await backend.append(
                "sealed", [("fresh", {"type": "message", "role": "user", "content": "x"})]
            )
        (appended,) = await backend.append(
            "plain", [("fresh", {"type": "message", "role": "user", "content": "x"})]
        )
        assert appended.position
    assert KeyUnusable.problem == 503


async def test_a_worker_that_meets_a_key_it_cannot_unwrap_stops_and_folds_nothing_of_it(
    settings: Settings, made: Settings
) -> None:
    second = msgspec.structs.replace(made, master_keys=f"{new_master('second')},{MASTER}")
    with pytest.raises(KeyUnusable, match="'second', which is not configured"):
        async with running_worker(made) as runtime, ConversationService(second) as backend:
            await until(lambda: healed(runtime, made))
            await backend.append(
                "sealed", [("unknown-master", {"type": "message", "role": "user", "content": "x"})]
            )
            projector = runtime.projector
            assert projector is not None
            await until(lambda: asyncio.sleep(0, projector.runtime.failure is not None))
    async with stack(second) as (_, backend):
        await backend.caught_up(range(made.partitions), 30)
        window = await backend.window("sealed", "unknown-master")
        assert window.meta.unknown == 0
        assert window.meta.count == 1
        await Eraser(backend, no_text).conversation(
            "sealed", "unknown-master"
        )  # other tests have the first key only


async def test_rotating_wraps_all_keys_anew_and_the_old_master_key_may_go(made: Settings) -> None:
    old = new_master("older")
    before = msgspec.structs.replace(made, master_keys=f"{old},{MASTER}")
    async with stack(before) as (_, backend):
        await say(backend, "sealed", "rotated", talk(1))
        context = await backend.context("sealed", "rotated")
        assert backend.keys.table.of(b"sealed/rotated")[0].master == "older"
    after = msgspec.structs.replace(made, master_keys=f"{MASTER},{old}")
    async with ConversationService(after) as backend:
        assert await backend.keys.rotate(batch=1) >= 1
        assert await backend.keys.rotate() == 0
    await flush(made)
    async with stack(made) as (_, backend):
        await backend.caught_up(range(made.partitions), 30)
        assert await backend.context("sealed", "rotated") == context
        assert all(one.master == "first" for _, one in backend.keys.table.all())


async def test_two_gateways_that_begin_with_a_conversation_at_once_read_each_others_events(
    made: Settings,
) -> None:
    async with stack(made) as (_, backend), ConversationService(made) as other:
        flats = [
            [{"type": "message", "role": "user", "content": f"from {name} {i}"} for i in range(5)]
            for name in ("a", "b")
        ]
        both = await asyncio.gather(
            *(
                at.append("sealed", [(f"both{i}", flat) for flat in part])
                for i in range(5)
                for at, part in zip((backend, other), flats, strict=True)
            )
        )
        assert len(both) == 10
        await backend.caught_up(range(made.partitions))
        for i in range(5):
            window = await other.window("sealed", f"both{i}")
            assert (window.meta.count, window.meta.unknown) == (10, 0)


@pytest.mark.long
async def test_a_key_that_is_gone_without_an_erasure_makes_events_opaque_and_counted(
    made: Settings,
) -> None:
    async with stack(made) as (_, backend):
        (first,) = await backend.append(
            "sealed",
            [("lost", {"type": "message", "role": "user", "content": SECRET, "id": "one"})],
        )
        await backend.wait_applied("sealed", "lost", [first])
    rows = [
        key for key, value in await raw_records(made, "keys") if key.startswith(b"sealed/lost/")
    ]
    async with ConversationService(made) as backend:
        await backend.keys.write(dict.fromkeys(rows))
    await flush(made)
    fresh = msgspec.structs.replace(made, snapshot_events=0, group=f"{made.group}.lost")
    async with stack(fresh) as (_, backend):
        await backend.append(
            "sealed", [("lost", {"type": "message", "role": "user", "content": "and on"})]
        )
        await backend.caught_up(range(made.partitions), 30)
        window = await backend.window("sealed", "lost")
        assert (window.meta.count, window.meta.unknown) == (2, 1)
        page = await backend.history("sealed", "lost")
        assert [event.get("opaque", False) for event in page["events"]] == [False, True]
        assert SECRET not in json.dumps(page)
    letters = [
        value for key, value in await raw_records(made, "dead-letters") if key == b"sealed/lost"
    ]
    assert letters == []


async def test_a_payload_that_was_changed_is_a_dead_letter_that_says_nothing_of_it(
    made: Settings,
) -> None:
    async with stack(made) as (_, backend):
        await say(backend, "sealed", "forged", talk(1))
        rows = [
            value
            for key, value in await raw_records(made, "events")
            if key == b"sealed/forged" and value and b'"ciphertext"' in value
        ]
        forged = rows[1].replace(b'"id":"', b'"id":"x', 1)
        partition = partition_of(Key("sealed", "forged"), made.partitions)
        await put_raw(made, "events", (partition, b"sealed/forged", forged))

        async def told() -> list[bytes]:
            return [
                value or b""
                for key, value in await raw_records(made, "dead-letters")
                if key == b"sealed/forged"
            ]

        (letter,) = await until(told)
        assert b"does not authenticate" in letter
        assert SECRET.encode() not in letter
