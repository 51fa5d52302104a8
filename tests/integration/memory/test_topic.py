"""What reaches the topic of memories, on real Kafka and Redis: accepted events, sealed as they are
in their log, to the user's key; and what a rollback and an erasure mean.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pytest

from projections.errors import QuotaExceeded, WaitTimedOut
from projections.events.codec import full_type
from projections.events.types import MemorySaved
from projections.memory.identity import Scope
from projections.memory.news import Fact, LogErased, News, WentBack, read_news
from projections.names import Key, parse_key, users_log
from streams.control.control_topic import Control
from streams.control.state import Generation
from streams.encryption.master_keys import new_master
from streams.encryption.payload_cipher import Unsealed, is_sealed, kid_in, open_value
from streams.memory.feed import MemoryFeed
from streams.memory.sqlite_store import SqliteMemories
from streams.settings.settings import Settings
from tests.support.erasure import no_text
from tests.support.grep import raw_records
from tests.support.memories import saved
from tests.support.ports import closed_port
from tests.support.worker import running_worker, until
from threadfold.service import fold_progress, unstored
from threadfold.service.conversations import ConversationService
from threadfold.service.erasure import Eraser
from threadfold.service.memories import Memories
from threadfold.service.whose import Whose

ANN = "ann"


def flat(key: Key, text: str, **more: Any) -> dict[str, Any]:
    data = saved(key, text, user=ANN, **more)
    return {"type": "memory.saved", **msgspec.to_builtins(data)}


async def sealed_records(settings: Settings) -> list[tuple[bytes, bytes | None]]:
    found = await raw_records(settings, "memories")
    return [(key, value) for key, value in found if key.startswith(b"sealed/")]


async def told(settings: Settings, backend: ConversationService) -> list[tuple[bytes, News | None]]:
    found = []
    for key, value in await sealed_records(settings):
        assert value is not None
        source = msgspec.json.decode(value)["source"].split("/")
        log = Key(source[2], source[4])
        if (kid := kid_in(value)) is not None:
            await backend.keys.find([(str(log).encode(), kid)])
        opened = open_value(backend.keys, str(log).encode(), value)
        found.append((key, None if opened is None else read_news(log, opened)))
    return found


async def digests_of(settings: Settings, backend: ConversationService) -> dict[Scope, str]:
    """What a store comes to that is fed from the topic's beginning."""
    store = SqliteMemories()
    feed = MemoryFeed(settings, backend.keys, store)
    feed.start()
    await feed.ready(60)
    assert feed.passed_over == 0
    found = store.digests()
    await feed.stop()
    store.close()
    return found


async def begin(settings: Settings) -> None:
    """Make the generation that is live, where there is none."""
    control = await Control(settings).start()
    if control.state.live is None:
        await control.write(
            {"generation/1": Generation(1, settings.partitions, {}), "generation/live": 1}
        )
    await control.stop()


async def test_a_store_that_is_lost_is_fed_again_to_the_same_digests(settings: Settings) -> None:
    await begin(settings)
    async with running_worker(settings), ConversationService(settings) as backend:
        memories = Memories(backend)
        backend.on_stop = memories.stop
        keys = [Whose("acme", f"u-{n % 3}", conversation=f"talk-{n}") for n in range(6)]
        for whose in keys:
            opened = {"type": "conversation.opened", "user": whose.user}
            said = {"type": "message", "role": "user", "content": "hello"}
            appended = await backend.append("acme", [(str(whose.conversation), opened)])
            appended += await backend.append("acme", [(str(whose.conversation), said)])
            await backend.wait_applied("acme", str(whose.conversation), appended)
            records = [(whose, record(f"Fact {n} of {whose.user}.")) for n in range(5)]
            await memories.save(records, lambda _: None, wait=True)
            back = {"type": "rollback", "to": str(appended[-1].position)}
            if whose.conversation in ("talk-1", "talk-5"):
                done = await backend.append("acme", [(str(whose.conversation), back)])
                await backend.wait_applied("acme", str(whose.conversation), done)
        gone = (await memories.page(Whose("acme", "u-0").filter(), None, 1))[0][0]
        await memories.delete(Whose("acme"), gone.id, lambda _: None, hard=True)
        live = memories.store.digests()
        assert len(live) == 3
        assert await digests_of(settings, backend) == live
        await asyncio.to_thread(memories.store.drop)
        assert await digests_of(settings, backend) == live


async def test_a_tenant_that_saves_faster_than_the_store_takes_in_waits_and_another_does_not(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unstored, "PATIENCE", 0.2)
    monkeypatch.setattr(fold_progress, "STILL", 60.0)  # on a busy machine the fold takes seconds
    await begin(settings)
    async with running_worker(settings), ConversationService(settings) as backend:
        memories = Memories(backend)
        backend.on_stop = memories.stop
        much, little = Whose("much", "u"), Whose("little", "u")
        for whose in (much, little):
            await memories.save([(whose, record("First."))], lambda _: None, wait=True)
        goes_on, batches = threading.Event(), []
        apply = memories.store.apply

        def slow_apply(news: Sequence[News], checkpoints: Mapping[int, int]) -> None:
            batches.append(len(news))
            goes_on.wait(60)
            apply(news, checkpoints)

        async def behind() -> bool:
            return memories.feed.behind > 0

        async def stored() -> bool:
            return (await memories.stats(much)).records == 1 + unstored.MOST + 1

        monkeypatch.setattr(memories.store, "apply", slow_apply)
        many = [(much, record(f"Fact {n}.")) for n in range(unstored.MOST + 1)]
        await memories.save(many, lambda _: None)
        await until(behind)
        with pytest.raises(QuotaExceeded, match="saves memories faster than the memory store"):
            await memories.save([(much, record("One more."))], lambda _: None)
        await memories.save([(little, record("Mine."))], lambda _: None)
        goes_on.set()
        await until(stored)
        monkeypatch.setattr(unstored, "PATIENCE", 60.0)
        await memories.save([(much, record("One more."))], lambda _: None, wait=True)
        # What a gateway answers meanwhile waits for a batch at most.
        assert max(batches) <= memories.feed.at_once < unstored.MOST


@pytest.mark.long
async def test_saves_count_from_their_append_on_though_the_store_has_all_of_the_topic(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unstored, "PATIENCE", 0.2)
    monkeypatch.setattr(fold_progress, "STILL", 60.0)
    await begin(settings)
    async with ConversationService(settings) as backend:
        memories = Memories(backend)
        backend.on_stop = memories.stop
        much, little = Whose("much", "u"), Whose("little", "u")
        many = [(much, record(f"Fact {n}.")) for n in range(unstored.MOST + 1)]
        async with running_worker(settings):
            for whose in (much, little):
                await memories.save([(whose, record("First."))], lambda _: None, wait=True)
        await memories.save(many, lambda _: None)
        assert memories.feed.is_fed
        assert not memories.feed.behind
        with pytest.raises(QuotaExceeded, match="saves memories faster than the memory store"):
            await memories.save([(much, record("One more."))], lambda _: None)
        await memories.save([(little, record("Mine."))], lambda _: None)
        async with running_worker(settings):
            monkeypatch.setattr(unstored, "PATIENCE", 60.0)
            await memories.save([(much, record("One more."))], lambda _: None, wait=True)


def record(text: str) -> MemorySaved:
    return MemorySaved(
        memory_id="", memory_type="fact", text=text, normalized_text="", trust="user"
    )


async def test_accepted_events_reach_the_users_key_and_an_erasure_takes_their_text(
    settings: Settings,
) -> None:
    made = msgspec.structs.replace(settings, master_keys=new_master("first"))
    control = await Control(made).start()
    await control.write({"generation/1": Generation(1, made.partitions, {}), "generation/live": 1})
    await control.ensure_tenant("sealed", {"encryption": True})
    await control.stop()
    own, talk = users_log("sealed", ANN), Key("sealed", "talk")
    async with running_worker(made), ConversationService(made) as backend:

        async def append(key: Key, *flats: dict[str, Any]) -> list[str]:
            sent = [(key, {"id": f"{key}-{i}-{len(done)}", **one}) for i, one in enumerate(flats)]
            appended = await backend.append("sealed", sent, operator=True)
            done.extend(appended)
            return [one.status for one in await backend.wait_applied("sealed", key, appended)]

        done: list[object] = []
        opened = {"type": "conversation.opened", "user": ANN}
        said = {"type": "message", "role": "user", "content": "I like tea."}
        other = {**flat(talk, "Likes gin."), "user": "bob"}
        statuses = await append(talk, opened, said, flat(talk, "Likes tea."), other)
        assert statuses == ["applied", "applied", "applied", "rejected"]
        assert await append(own, flat(own, "Lives in Oslo.")) == ["applied"]
        target = str(done[1].position)  # type: ignore[attr-defined]
        assert await append(talk, {"type": "rollback", "to": target}) == ["applied"]

        async def all_told() -> bool:
            return len(await told(made, backend)) == 3

        await until(all_told)
        found = await told(made, backend)
        assert {key for key, _ in found} == {str(own).encode()}
        news = [one for _, one in found]
        texts = {one.data.text for one in news if isinstance(one, Fact)}  # type: ignore[attr-defined]
        assert texts == {"Likes tea.", "Lives in Oslo."}
        assert [one.log for one in news if isinstance(one, WentBack)] == [talk]
        rows = await sealed_records(made)
        assert sum(is_sealed(value or b"") for _, value in rows) == 2
        # whole sentences: three letters turn up in what was encrypted now and then
        told_in_full = [text.encode() for text in texts]
        assert not any(text in (value or b"") for _, value in rows for text in told_in_full)

        fed = await digests_of(made, backend)
        assert {scope for scope in fed if scope.tenant == "sealed"} == {Scope("sealed", ANN)}

        # -- what nobody may reach by a name, and no list shows
        assert parse_key(str(own).encode()) == own
        receipts = await Eraser(backend, no_text).user("sealed", ANN)
        assert [one.conversation for one in receipts] == ["talk", own.conversation]
        assert receipts[0].stores["memories"].state == "opaque"

        async def erased() -> bool:
            return sum(isinstance(one, LogErased) for _, one in await told(made, backend)) == 2

        await until(erased)
        left = [one for _, one in await told(made, backend)]
        assert not any(isinstance(one, Fact) for one in left)
        assert {one.log for one in left if isinstance(one, LogErased)} == {talk, own}
        left_in_a_store = await digests_of(made, backend)
        assert not any(scope.tenant == "sealed" for scope in left_in_a_store)
        kind = full_type("memory.saved").encode()
        assert sum(kind in (value or b"") for _, value in await sealed_records(made)) == 2


async def test_a_read_waits_for_a_memory_that_is_not_fed_no_longer_than_for_an_append() -> None:
    settings = Settings(kafka=f"127.0.0.1:{closed_port()}", append_timeout=0.3)
    feed = MemoryFeed(settings, Unsealed(), SqliteMemories())
    feed.start()
    begun = time.monotonic()
    with pytest.raises(WaitTimedOut):
        await feed.has_all_of("acme", ANN)
    assert time.monotonic() - begun < 5
    await feed.stop()
