"""Many readers of large windows need little memory, and none waits for long."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack

import msgspec
import pytest

from projections.errors import Overloaded
from projections.events import types as events
from projections.fold.replay import replay
from projections.names import Key, Position
from projections.storage.layout import HEAD
from projections.storage.records import Checkpoint, Stored, write_of
from streams.control.state import Generation
from streams.runtime.keyed_limit import KeyedLimit
from streams.runtime.tasks import some_at_a_time
from streams.settings.settings import Settings
from tests.support.histories import make_event
from threadfold.service import conversation_reader
from threadfold.service.conversation_list import AT_A_TIME, conversations
from threadfold.service.conversation_reader import LISTS
from threadfold.service.conversations import ConversationService
from threadfold.service.pages import PAGES
from threadfold.service.stored_windows import LARGE_READS, StoredWindows
from threadfold.streaming.catchup import missed
from threadfold.testing import MemoryLog, MemoryStore

TENANT, READERS = "acme", 40
KEYS = [Key(TENANT, f"c{n}") for n in range(READERS)]


class Counted(MemoryStore):
    """A store that reads whole windows within turns, and counts what it reads."""

    def __init__(self) -> None:
        super().__init__()
        self.turns = KeyedLimit(READERS)
        self.windows = self.fields_now = self.most_fields = self.large = 0
        self.meanwhile: Callable[[], Coroutine[None, None, None]] | None = None
        """What happens before the next read of a message, once."""

    async def read(
        self, generation: int, partition: int, keys: list[Key], *, recent_ids: bool = True
    ) -> tuple[Checkpoint | None, list[Stored | None]]:
        async with self.turns.of(TENANT):
            self.windows += 1
            return await super().read(generation, partition, keys, recent_ids=recent_ids)

    async def fields(
        self, generation: int, partition: int, key: Key, names: list[bytes]
    ) -> tuple[Checkpoint | None, dict[bytes, bytes]]:
        self.fields_now += 1
        message = names[0] == HEAD and names[-1].isdigit()
        self.large += message
        if message and self.meanwhile is not None and key == KEYS[3]:
            happens, self.meanwhile = self.meanwhile, None
            await happens()
        self.most_fields = max(self.most_fields, self.fields_now)
        await asyncio.sleep(0)
        self.fields_now -= 1
        return await super().fields(generation, partition, key, names)


class Hanging(MemoryLog):
    """A log that answers no read."""

    async def read(self, *_: object) -> object:  # type: ignore[override]
        return await asyncio.Event().wait()


async def _service(store: Counted, size: int) -> ConversationService:
    """A service whose conversations have a message with an image of so many bytes each."""
    settings = Settings.load(env={}, kafka="127.0.0.1:1", redis="redis://127.0.0.1:1/0")
    service = ConversationService(settings)
    service.log = MemoryLog(1)  # type: ignore[assignment]
    service.store = store  # type: ignore[assignment]
    store.turns = service.turns_to_read
    service.windows = StoredWindows(
        store, service.control, lambda: service.log, 0, service.turns_to_read
    )
    service.control.state.put(b"generation/1", msgspec.json.encode(Generation(1, 1)))
    service.control.state.put(b"generation/live", b"1")
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * size}}
    content = [{"type": "text", "text": "Look:"}, image]
    said = [(0, make_event(events.Message("user", content), "e0"))]
    writes = [write_of(replay(key, 0, service.live_rules(), said), at_ms=1) for key in KEYS]
    await store.apply(1, 0, Checkpoint("", 0), writes)
    return service


async def _context(service: ConversationService, key: Key) -> None:
    await service.window(*key)


async def _resume(service: ConversationService, key: Key) -> None:
    found = await missed(service, key, 0, -1, upto=2, scan=1)
    assert await found.next_page() is not None


@pytest.mark.parametrize("read", [_context, _resume])
async def test_only_so_many_large_windows_are_read_as_have_a_place_up_to_the_end_of_the_work(
    read: Callable[[ConversationService, Key], Coroutine[None, None, None]],
) -> None:
    store = Counted()
    service = await _service(store, 400_000)
    async with service.turns_to_render.of(TENANT):
        reads = [asyncio.create_task(read(service, key)) for key in KEYS[:READERS]]
        for _ in range(100):
            await asyncio.sleep(0)
        assert store.windows == LARGE_READS
        for one in reads:
            one.cancel()
        await asyncio.gather(*reads, return_exceptions=True)
    await read(service, KEYS[0])


async def test_a_list_reads_some_conversations_at_a_time_and_what_is_large_beside_the_loop() -> (
    None
):
    for size, more in ((40, False), (300_000, True)):
        store = Counted()
        service = await _service(store, size)
        places = set[int]()
        listing = asyncio.create_task(conversations(service, TENANT, limit=READERS))
        while not listing.done():
            places.add(len(service.turns_to_read))
            await asyncio.sleep(0)
        assert [one["last_message"]["role"] for one in listing.result()["conversations"]] == (
            ["user"] * READERS
        )
        assert store.most_fields <= AT_A_TIME
        assert (max(places) == 1) == more


async def test_a_list_reads_large_messages_once_until_their_window_changes() -> None:
    store = Counted()
    service = await _service(store, 300_000)

    async def listed() -> tuple[list[dict[str, str]], int]:
        store.large = 0
        found = await conversations(service, TENANT, limit=READERS)
        return [one["last_message"] for one in found["conversations"]], store.large

    first, reads = await listed()
    assert reads == READERS
    assert await listed() == (first, 0)
    key = KEYS[3]
    said = [(0, make_event(events.Message("user", "Hi"), "e0"))]
    said.append((1, make_event(events.Message("assistant", "Ho"), "e1")))
    written = [write_of(replay(key, 0, service.live_rules(), said), at_ms=1)]
    checkpoint = await store.checkpoint(1, 0)
    assert checkpoint is not None
    await store.apply(1, 0, Checkpoint(checkpoint.revision, 1), written)
    again, reads = await listed()
    assert reads == 1
    assert {"role": "assistant", "text": "Ho", "position": "0-1"} in again
    service.windows.forget(key)
    assert await listed() == (again, 1)


async def test_a_list_does_not_keep_a_message_after_which_another_came_meanwhile() -> None:
    store = Counted()
    service = await _service(store, 300_000)
    key = KEYS[3]
    said = [
        (n, make_event(events.Message("user", f"{n} " + "word " * 2_000), f"e{n}"))
        for n in range(2)
    ]

    async def written(count: int) -> None:
        checkpoint = await store.checkpoint(1, 0)
        assert checkpoint is not None
        window = replay(key, 0, service.live_rules(), said[:count])
        writes = [write_of(window, at_ms=1)]
        await store.apply(1, 0, Checkpoint(checkpoint.revision, count), writes)

    await written(1)
    store.meanwhile = lambda: written(2)
    await conversations(service, TENANT, limit=READERS)
    assert store.meanwhile is None, "the message came between the head and its chunk"
    found = await conversations(service, TENANT, limit=READERS)
    (shown,) = [one for one in found["conversations"] if one["conversation"] == key.conversation]
    assert shown["last_message"]["position"] == "0-1"


async def test_lists_of_a_tenant_take_turns_and_another_tenant_does_not_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(conversation_reader, "PATIENCE", 0.01)
    service = await _service(Counted(), 10)
    async with AsyncExitStack() as stack:
        for _ in range(LISTS):
            await stack.enter_async_context(service.turns_to_list.of(TENANT))
        with pytest.raises(Overloaded, match="no turn came"):
            await conversations(service, TENANT)
        assert (await conversations(service, "other"))["conversations"] == []
    assert len((await conversations(service, TENANT))["conversations"]) == READERS


async def test_single_events_wait_for_their_turn_no_longer_than_the_patience(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(conversation_reader, "PATIENCE", 0.05)
    service = await _service(Counted(), 40)
    service.log = Hanging(1)  # type: ignore[assignment]
    reads = [
        asyncio.create_task(service.event_at(*KEYS[0], str(Position(0, 0)))) for _ in range(PAGES)
    ]
    await asyncio.sleep(0)
    async with asyncio.timeout(60):
        with pytest.raises(Overloaded):
            await service.event_at(*KEYS[0], str(Position(0, 0)))
    for read in reads:
        read.cancel()
    await asyncio.gather(*reads, return_exceptions=True)


async def test_of_some_calls_at_a_time_the_first_that_fails_ends_the_others() -> None:
    begun = list[int]()

    async def call(number: int) -> int:
        begun.append(number)
        if number == 1:
            raise Overloaded("no turn")
        await asyncio.Event().wait()
        return number

    with pytest.raises(Overloaded):
        await some_at_a_time(3, [lambda n=n: call(n) for n in range(9)])  # type: ignore[misc]
    assert begun == [0, 1, 2]
