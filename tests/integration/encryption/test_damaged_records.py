"""Forged, moved and damaged records of encrypted conversations stop nothing and open nothing; neither
does a process with another master key.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import AsyncIterator
from typing import Any

import httpx
import msgspec
import pytest
import redis.asyncio as aredis

from projections.errors import Erased, KeyUnusable
from projections.names import Key, partition_of
from streams.control.control_topic import Control
from streams.control.state import Generation
from streams.encryption.master_keys import new_master
from streams.maintenance.verify import verify
from streams.recovery.snapshot_topic import KafkaSnapshots
from streams.settings.settings import Settings
from tests.support.erasure import MASTER, SECRET, SMALL, flush, say, stack, talk
from tests.support.grep import raw_records
from tests.support.raw_records import put_raw
from tests.support.worker import until
from threadfold.gateway import create_gateway
from threadfold.service.conversations import ConversationService
from threadfold.service.erasure import Eraser


@pytest.fixture
async def made(settings: Settings) -> AsyncIterator[Settings]:
    """The module's topics, a master key, and tenant `sealed`, whose payloads are encrypted."""
    made = msgspec.structs.replace(
        settings, master_keys=MASTER, snapshot_events=20, max_poison_share=1.0
    )
    control = await Control(made).start()
    if control.state.live is None:
        await control.write(
            {"generation/1": Generation(1, made.partitions, SMALL), "generation/live": 1}
        )
    await control.ensure_tenant("sealed", {"encryption": True})
    await control.stop()
    yield made


def forged(value: bytes) -> list[bytes]:
    """What may become of a sealed event's record, each as an event of its own (but for the first
    ones).
    """
    whole = json.loads(value)
    data = whole["data"]

    def other(number: int, **fields: Any) -> bytes:
        return json.dumps(
            {**whole, "id": f"forged{number}", "data": {**data, **fields}}, separators=(",", ":")
        ).encode()

    unknown = base64.urlsafe_b64encode(os.urandom(12)).decode()
    text = data["ciphertext"]
    changes: list[dict[str, Any]] = [
        {},
        {"ciphertext": ("B" if text[0] == "A" else "A") + text[1:]},
        {"ciphertext": ""},
        {"ciphertext": "é" * 8},
        {"nonce": ""},
        {"nonce": "AA=="},
        {"nonce": base64.b64encode(b"x" * 400).decode()},
        {"nonce": "\u0000"},
        {"kid": ""},
        {"kid": "é" * 8},
        {"kid": "\ud7ff" * 16},
        {"kid": "!" * 16},
        {"kid": unknown},
        {"kid": unknown, "nonce": "", "ciphertext": ""},
        {"kid": None},
        {"more": {"kid": unknown}},
    ]
    made = [other(number, **change) for number, change in enumerate(changes)]
    made.append(
        value.replace(b'"ciphertext":"', b'"ciphertext": "').replace(
            whole["id"].encode(), b"spaced"
        )
    )
    made.append(value[:-1] + b',"x":{"kid":"' + unknown.encode() + b'","ciphertext":"x"}}')
    made.append(value[: len(value) // 2])
    made.append(b'{"ciphertext":"' * 5000)
    made.append(b'{"data":{"ciphertext":"\xff\xfe"}}')
    return made


async def ready(client: httpx.AsyncClient) -> bool:
    return (await client.get("/readyz")).status_code == 200


async def answers(settings: Settings, key: str, paths: list[str]) -> list[httpx.Response]:
    app = create_gateway(settings)
    transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://g") as client,
    ):
        await until(lambda: ready(client))
        return [
            await client.get(path, headers={"Authorization": f"Bearer {key}"}) for path in paths
        ]


async def key_of(settings: Settings) -> str:
    control = await Control(settings).start()
    key = await control.add_key("sealed", ["append", "read", "subscribe"])
    await control.stop()
    return key


async def the_same_as_the_log(backend: ConversationService) -> None:
    live = backend.control.state.live_generation
    report = await verify(backend.log, backend.store, live, backend.control.state.rules(live))
    assert report.differing == []


@pytest.mark.long
async def test_forged_and_moved_payloads_are_dead_letters_or_opaque_and_nothing_stands_still(
    made: Settings,
) -> None:
    key = await key_of(made)
    async with stack(made) as (_, backend):
        await say(backend, "sealed", "forged", talk(2))
        await say(backend, "sealed", "other", talk(1))
        rows = [(k, v) for k, v in await raw_records(made, "events") if v and b'"ciphertext"' in v]
        rows_to_put: list[tuple[int, bytes, bytes | None]] = []

        def put(conversation: str, value: bytes) -> None:
            partition = partition_of(Key("sealed", conversation), made.partitions)
            rows_to_put.append((partition, f"sealed/{conversation}".encode(), value))

        for _, value in rows[:60:7]:
            for one in forged(value):
                put("forged", one)
        for k, value in rows:
            if k == b"sealed/forged":
                put("other", value)
                put("other", value.replace(b"conversations/forged", b"conversations/other"))
                put(
                    "never-seen",
                    value.replace(b"conversations/forged", b"conversations/never-seen"),
                )
        await put_raw(made, "events", *rows_to_put)
        await say(backend, "sealed", "forged", talk(1))
        await backend.caught_up(range(made.partitions), 30)
        names = ("forged", "other", "never-seen")
        paths = [
            f"/v1/conversations/{name}/{what}"
            for name in names
            for what in ("context", "history?limit=500", "summaries")
        ]
        ends = await backend.log.end_offsets()
        some = [f"{p}-{offset}" for p, end in ends.items() for offset in range(0, end, 3)]
        paths += [f"/v1/conversations/forged/events/{at}" for at in some]
        found = await answers(made, key, paths)
        assert {answer.status_code for answer in found} <= {200, 404, 422}, [
            answer.text for answer in found
        ]
        assert all(answer.status_code == 200 for answer in found[:2])
        assert SECRET not in found[3 * 2].text + found[3 * 2 + 1].text
        windows = {name: await backend.window("sealed", name) for name in names[:2]}
        await the_same_as_the_log(backend)
    assert windows["other"].meta.unknown and windows["forged"].meta.quarantine is not None
    letters = [value or b"" for _, value in await raw_records(made, "dead-letters")]
    assert letters and not any(SECRET.encode() in letter for letter in letters)
    await flush(made)
    async with stack(made) as (_, backend):
        await backend.caught_up(range(made.partitions), 30)
        for name, window in windows.items():
            meta = (await backend.window("sealed", name)).meta
            assert (meta.count, meta.unknown, meta.quarantine) == (
                window.meta.count,
                window.meta.unknown,
                window.meta.quarantine,
            )
        await the_same_as_the_log(backend)


async def test_damaged_records_of_the_keys_topic_and_of_snapshots_are_passed_over(
    made: Settings,
) -> None:
    async with stack(made) as (_, backend):
        await say(backend, "sealed", "keyed", talk(3))
        keys = [
            (k, v)
            for k, v in await raw_records(made, "keys")
            if v and k.startswith(b"sealed/keyed/")
        ]
        value = keys[0][1]
        junk: dict[bytes, bytes | None] = {
            b"sealed/keyed/" + base64.urlsafe_b64encode(os.urandom(12)): b"{",
            b"sealed/keyed/" + base64.urlsafe_b64encode(os.urandom(12)) + b"A": value,
            b"sealed/keyed/" + base64.urlsafe_b64encode(b"short"): value,
            b"sealed/keyed/"
            + base64.urlsafe_b64encode(b"\x01" * 12): b'{"master":"first","wrapped":"AAAA"}',
            b"sealed/keyed/"
            + base64.urlsafe_b64encode(b"\x02" * 12): b'{"master":"first","wrapped":"\xc3\xa9"}',
            b"sealed/keyed/" + base64.urlsafe_b64encode(b"\x03" * 12): b"\xff\xfe",
            b"sealed/keyed/erased": b'{"state":"maybe"}',
            b"sealed/keyed/later-kind": b"{}",
            b"\xff\xfe/\xff": b"x",
            b"": b"x",
            b"/": b"x",
            b"a/b/c/d/erased": b"\x00",
        }
        await backend.keys.write(junk)
        await backend.keys.sync()
        await say(backend, "sealed", "keyed", talk(1))
        window = await backend.window("sealed", "keyed")
        snapshots = [
            (k, v) for k, v in await raw_records(made, "snapshots") if v and b"sealed\x00" in v
        ]
        assert snapshots
    damaged: list[tuple[int, bytes, bytes | None]] = []
    for k, v in snapshots:
        at = v.index(b"sealed\x00") + 7 + 12 + 12
        for bad in (v[: at + 3] + bytes([v[at + 3] ^ 1]) + v[at + 4 :], v[:at], v[: at - 15]):
            damaged += [(partition, k, bad) for partition in range(made.partitions)]
    await put_raw(made, "snapshots", *damaged)
    await flush(made)
    async with stack(made) as (_, backend):
        await backend.caught_up(range(made.partitions), 30)
        assert (await backend.window("sealed", "keyed")).meta.unknown == window.meta.unknown == 0
        await the_same_as_the_log(backend)


async def test_a_process_with_another_master_key_makes_no_keys_that_would_stop_the_workers(
    made: Settings,
) -> None:
    hello = {"type": "message", "role": "user", "content": "x"}
    async with stack(made) as (_, backend):
        await backend.append("sealed", [("before", hello)])
    before = await raw_records(made, "keys")
    for wrong in (new_master("first"), new_master("second")):
        async with ConversationService(msgspec.structs.replace(made, master_keys=wrong)) as backend:
            with pytest.raises(KeyUnusable):
                await backend.append("sealed", [("new-one", hello)])
            with pytest.raises(KeyUnusable):
                await backend.keys.rotate()
    assert await raw_records(made, "keys") == before
    async with stack(
        msgspec.structs.replace(made, master_keys=f"{new_master('second')},{MASTER}")
    ) as (_, backend):
        appended = await backend.append("sealed", [("new-one", hello)])
        await backend.wait_applied("sealed", "new-one", appended)
        await backend.keys.write(
            {
                key: None
                for key, _ in await raw_records(made, "keys")
                if key.startswith(b"sealed/new-one/")
            }
        )


async def test_windows_of_sealed_and_erased_conversations_are_mended_and_nothing_of_them_is_written_openly(
    made: Settings,
) -> None:
    async with stack(made) as (_, backend):
        await say(backend, "sealed", "mended", talk(2))
        await say(backend, "sealed", "erased-then-mended", talk(1))

        async def forget(key: Key, _: object) -> None:
            assert key.conversation == "erased-then-mended"

        await Eraser(backend, forget).conversation("sealed", "erased-then-mended")
        await backend.caught_up(range(made.partitions), 30)
        live, topic = backend.control.state.live_generation, KafkaSnapshots(made, made.partitions)
        client = aredis.Redis.from_url(made.redis)
        for name in ("mended", "erased-then-mended"):
            key = Key("sealed", name)
            tag = f"{made.topic_prefix}:{{{live.number}:{partition_of(key, made.partitions)}}}"
            await client.hset(f"{tag}:w:{key}", "b", b"spoiled")
        await client.aclose()
        rules = backend.control.state.rules(live)
        try:
            report = await verify(
                backend.log, backend.store, live, rules, snapshots=topic, repair=True
            )
        finally:
            await topic.stop()
        assert sorted(report.differing) == sorted(report.repaired)
        # The one whose data key a test above has deleted differs as well.
        assert set(report.differing) - {"sealed/new-one"} == {
            "sealed/erased-then-mended",
            "sealed/mended",
        }
        await the_same_as_the_log(backend)
        assert SECRET in str(await backend.context("sealed", "mended"))
        with pytest.raises(Erased):
            await backend.window("sealed", "erased-then-mended")
    written = [
        value or b""
        for key, value in await raw_records(made, "snapshots")
        if key == b"sealed/mended"
    ]
    assert written and not any(SECRET.encode() in value for value in written)
