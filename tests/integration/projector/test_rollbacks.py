"""A rollback into old history on a real stack: others of its partition go on, and the window is the
log's.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import httpx
import pytest
import redis.asyncio as aredis

from projections.errors import Healing, ThreadfoldError, UnknownUser
from projections.fold.outcomes import History, Outcome
from projections.names import Key, parse_position, partition_of
from projections.window.window import Window
from streams.log.log import Log
from streams.log.rollback_history import Copies
from streams.maintenance.verify import verify
from streams.projector import projector
from streams.settings.settings import Settings
from streams.worker import Runtime
from tests.support.erasure import no_text
from tests.support.generations import open_generation
from tests.support.lost_redis import flush
from tests.support.pipeline import POLICY, folded_from_log
from tests.support.worker import running_worker, until
from threadfold.gateway.app import Gateway
from threadfold.service.conversations import ConversationService
from threadfold.service.erasure import Eraser

_names = itertools.count()


def message(text: str) -> dict[str, str]:
    return {"type": "message", "role": "user", "content": text}


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Until it is set no history of a rollback is read."""
    gate, fetch = asyncio.Event(), projector.fetch_needed

    async def slow(log: Log, window: Window, needs: Outcome, copies: Copies) -> History:
        if needs.target is not None:
            await gate.wait()
        return await fetch(log, window, needs, copies)

    monkeypatch.setattr(projector, "fetch_needed", slow)
    return gate


@pytest.fixture
def key() -> Key:
    """A conversation that no other test uses."""
    return Key("acme", f"long{next(_names)}")


def beside_of(settings: Settings, key: Key) -> str:
    """A conversation of the tenant ``other`` in the partition of the long one."""
    number = partition_of(key, settings.partitions)
    names = (f"beside-{key.conversation}-{i}" for i in range(1000))
    return next(n for n in names if partition_of(Key("other", n), settings.partitions) == number)


async def talk(backend: ConversationService, key: Key) -> str:
    """A long conversation with summaries; returns the position of an old event."""
    texts = [(key.conversation, message(f"number {i} " + "word " * 30)) for i in range(120)]
    sent = await backend.append("acme", texts)
    await backend.wait_applied("acme", key.conversation, sent, 60)

    async def summarised() -> bool:
        window = await backend.window("acme", key.conversation)
        return window.meta.summary is not None and window.meta.due is None

    await until(summarised)
    return str(sent[5].position)


@pytest.mark.long
async def test_others_go_on_while_a_conversation_goes_back_to_an_old_event(
    settings: Settings, gate: asyncio.Event, key: Key
) -> None:
    await open_generation(settings, POLICY)
    beside = beside_of(settings, key)
    async with running_worker(settings) as runtime, ConversationService(settings) as backend:
        old = await talk(backend, key)
        (back,) = await backend.append(
            "acme", [(key.conversation, {"type": "rollback", "to": old})]
        )
        waits = asyncio.create_task(
            backend.wait_applied("acme", key.conversation, [back], timeout=60)
        )
        for i in range(3):
            (appended,) = await backend.append("other", [(beside, message(f"beside {i}"))])
            (applied,) = await backend.wait_applied("other", beside, [appended], 60)
            assert applied.status == "applied"
            assert str(i) in (await backend.context("other", beside)).decode()
            # Nor does a page of the other's history wait for the partition.
            page = await backend.history("other", beside, wait=True)
            assert page["events"][0]["content"] == f"beside {i}"
        # Nor does an erasure of it, or of a user of its tenant.
        eraser = Eraser(backend, no_text)
        with pytest.raises(UnknownUser):
            await eraser.user("other", "nobody")
        assert (await eraser.conversation("other", beside)).conversation == beside
        number = partition_of(key, settings.partitions)
        stored = await runtime.store.checkpoint(1, number)
        assert stored is not None and stored.restoring and not waits.done()
        gate.set()
        # No record comes: the partition goes on by itself.
        ((done,),) = await asyncio.gather(waits)
        assert done.status == "applied"
        window = await backend.window("acme", key.conversation)
        assert b"number 5 " in window.image() and b"number 6 " not in window.image()
        await until_as_in_the_log(runtime, backend, key)


async def until_as_in_the_log(runtime: Runtime, backend: ConversationService, key: Key) -> None:
    async def same() -> bool:
        window = await backend.window("acme", key.conversation)
        return window.image() == (await folded_from_log(runtime, key)).image()

    await until(same)


async def ready(backend: ConversationService) -> httpx.Response:
    transport = httpx.ASGITransport(Gateway.on(backend))
    async with httpx.AsyncClient(transport=transport, base_url="http://gateway") as http:
        return await http.get("/readyz")


async def differing(runtime: Runtime) -> list[str]:
    """What a verify finds that waits for nothing."""
    record = runtime.control.state.generations[1]
    rules = runtime.control.state.rules(record)
    return (await verify(runtime.log, runtime.store, record, rules)).differing


@pytest.mark.long
async def test_who_is_served_last_after_a_lost_redis_is_counted_and_named_as_what_it_is(
    settings: Settings, gate: asyncio.Event, key: Key, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streams.maintenance.verify.PATIENCE", 0.2)
    await open_generation(settings, POLICY)
    beside, number = beside_of(settings, key), partition_of(key, settings.partitions)
    waits = rf"older events are still read for conversations of it \(1: {key}\)"
    async with ConversationService(settings) as backend:
        async with running_worker(settings) as runtime:
            old = await talk(backend, key)
            back = await backend.append(
                "acme", [(key.conversation, {"type": "rollback", "to": old})]
            )
            sent = await backend.append("other", [(beside, message("beside"))])
            await backend.wait_applied("other", beside, sent, 60)
            # The window as it was is served until the rollback is done.
            await backend.context("acme", key.conversation)
            assert "restoring" not in (await ready(backend)).json()
            with pytest.raises(Healing, match=f"partition {number} is not folded .*{waits}"):
                await differing(runtime)
        await flush(settings)
        async with running_worker(settings) as runtime:

            async def served() -> bool:
                with suppress(Healing):
                    return b"beside" in await backend.context("other", beside)
                return False

            await until(served)
            with pytest.raises(Healing):
                await backend.context("acme", key.conversation)
            answer = await ready(backend)
            assert answer.status_code == 200 and answer.json()["restoring"] == 1
            with pytest.raises(Healing, match=f"partition {number} is healing .*{waits}"):
                await differing(runtime)
            gate.set()
            await backend.wait_applied("acme", key.conversation, back, 60)
            assert "restoring" not in (await ready(backend)).json()
            assert await differing(runtime) == []


@asynccontextmanager
async def readers(settings: Settings, conversation: str) -> AsyncIterator[list[int]]:
    """Two gateways that read a conversation all the time; yields the offsets they were served."""
    served: list[int] = []

    async def read(backend: ConversationService) -> None:
        mine = -1
        while True:
            try:
                document = json.loads(await backend.context("other", conversation))
                offset = parse_position(document["position"]).offset
                assert offset >= mine
                mine = offset
                served.append(offset)
            except ThreadfoldError:
                pass  # refused: nothing older was served
            await asyncio.sleep(0.005)

    async with ConversationService(settings) as one, ConversationService(settings) as two:
        tasks = [asyncio.create_task(read(backend)) for backend in (one, two)]
        yield served
        assert all(not task.done() for task in tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def copy_of(client: aredis.Redis) -> dict[bytes, bytes]:
    return {key: await client.dump(key) async for key in client.scan_iter(count=1000)}


@pytest.mark.long
@pytest.mark.parametrize("fault", ["lost", "older copy", "another worker", "worker and Redis"])
async def test_no_window_goes_back_when_something_fails_while_a_conversation_is_restored(
    settings: Settings, gate: asyncio.Event, key: Key, fault: str
) -> None:
    await open_generation(settings, POLICY)
    beside = beside_of(settings, key)
    client = aredis.Redis.from_url(settings.redis)
    async with ConversationService(settings) as backend, readers(settings, beside) as served:

        async def say(text: str) -> int:
            (appended,) = await backend.append("other", [(beside, message(text))])
            await backend.wait_applied("other", beside, [appended], 60)
            return appended.position.offset

        async def seen(offset: int) -> None:
            async def reached() -> bool:
                return bool(served) and served[-1] >= offset

            await until(reached)

        async with running_worker(settings) as runtime:
            old = await talk(backend, key)
            await say("before")
            if fault == "older copy":
                older = await copy_of(client)
            back = await backend.append(
                "acme", [(key.conversation, {"type": "rollback", "to": old})]
            )
            for i in range(3):
                await seen(await say(f"beside {i}"))
            last = served[-1]
            if fault == "lost":
                await client.flushdb()
            if fault == "older copy":
                await client.flushdb()
                for name, value in older.items():
                    await client.restore(name, 0, value)
            if "worker" not in fault:
                # It comes back by itself, the rollback included, before anything is served.
                gate.set()
                await seen(await say("after"))
                (done,) = await backend.wait_applied("acme", key.conversation, back, 60)
                assert done.status == "applied", done
                await until_as_in_the_log(runtime, backend, key)
        if "worker" in fault:
            if "Redis" in fault:
                await client.flushdb()
                gate.set()
            async with running_worker(settings) as runtime:
                await seen(await say("after"))
                gate.set()
                (done,) = await backend.wait_applied("acme", key.conversation, back, 60)
                assert done.status == "applied", done
                await until_as_in_the_log(runtime, backend, key)
        assert served.index(last) < len(served) - 1
        window = await backend.window("acme", key.conversation)
        assert b"number 5 " in window.image() and b"number 6 " not in window.image()
    await client.aclose()
