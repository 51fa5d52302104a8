"""What waits for its own append, and who reads one event, reads a window's head and not its tail."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

import msgspec
import pytest

from projections.errors import Erased, UnknownConversation
from projections.events.codec import decode_event
from projections.events.validation import Record, make_record
from projections.fold.apply import apply
from projections.names import Key, Position
from projections.storage.layout import HEAD
from projections.storage.records import Checkpoint, Stored, stub_write, write_of
from projections.storage.stubs import Stub
from projections.window.window import Window
from streams.control.state import Generation
from streams.log.log import Raw
from streams.settings.settings import Settings
from tests.support.histories import RULES
from threadfold.service.append_result import Appended
from threadfold.service.conversations import ConversationService
from threadfold.service.pages import PAGES
from threadfold.service.stored_windows import StoredWindows
from threadfold.testing import MemoryLog, MemoryStore

KEY = Key("acme", "c")
TEXTS = ("one", "two", "two", "three")
IDS = ("a", "b", "b", "c")


class Heads(MemoryStore):
    """A store that gives out heads and recent ids alone."""

    async def read(
        self, generation: int, partition: int, keys: list[Key], *, recent_ids: bool = True
    ) -> tuple[Checkpoint | None, list[Stored | None]]:
        raise AssertionError("a whole window was read")


class Service(ConversationService):
    """The service over a log and a store in memory, which is at the log's end."""

    def __init__(self) -> None:
        super().__init__(Settings.load(env={}, kafka="127.0.0.1:1", redis="redis://127.0.0.1:1/0"))
        self.log = MemoryLog(1)  # type: ignore[assignment]
        self.heads = Heads()
        self.windows = StoredWindows(self.heads, self.control, lambda: self.log, 0)
        self.control.state.put(b"generation/1", msgspec.json.encode(Generation(1, 1)))
        self.control.state.put(b"generation/live", b"1")

    async def wait_for(
        self,
        position: Position,
        timeout: float = 10.0,  # noqa: ASYNC109
        *,
        whose: Key | None = None,
    ) -> None:
        del position, timeout

    async def fold(self, records: Sequence[Record]) -> list[Appended]:
        """Append records, fold them, and store the window."""
        positions = await self.log.append(records)
        window = Window(KEY, 0, RULES)
        for record, position in zip(records, positions, strict=True):
            apply(window, position.offset, decode_event(record.value))
        await self.heads.apply(1, 0, Checkpoint("", positions[-1].offset), [write_of(window)])
        return [Appended(r.id, at) for r, at in zip(records, positions, strict=True)]


def record(flat: dict[str, object]) -> Record:
    return make_record(
        KEY, flat, where="event", now="2026-01-01T00:00:00Z", new_id="x", operator=True
    )


def message(id_: str, text: str) -> Record:
    return record({"type": "message", "id": id_, "role": "user", "content": text})


@pytest.fixture
def service() -> Service:
    return Service()


async def test_each_event_is_reported_with_what_the_fold_did(service: Service) -> None:
    appended = await service.fold(list(map(message, IDS, TEXTS)))
    found = await service.wait_applied("acme", "c", appended)
    assert [(one.status, one.position.offset) for one in found] == [
        ("applied", 0),
        ("applied", 1),
        ("duplicate", 1),
        ("applied", 3),
    ]


async def test_one_event_is_read_also_while_its_conversation_sleeps(service: Service) -> None:
    appended = await service.fold(list(map(message, IDS, TEXTS)))
    assert (await service.event_at("acme", "c", str(appended[1].position)))["content"] == "two"
    checkpoint = await service.heads.checkpoint(1, 0)
    assert checkpoint is not None
    stub = Stub(0, b"", 3, 4, b"", "active", 9)
    await service.heads.apply(1, 0, checkpoint, [stub_write(KEY, stub)])
    assert HEAD not in (await service.heads.fields(1, 0, KEY, [HEAD]))[1]
    assert (await service.event_at("acme", "c", str(appended[3].position)))["content"] == "three"


async def test_few_events_of_a_tenant_are_read_at_a_time(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    (appended,) = await service.fold([message("a", "one")])
    read, under_way, most = service.log.read, 0, 0

    async def counted(positions: Iterable[Position]) -> dict[Position, Raw]:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0)
        under_way -= 1
        return await read(positions)

    monkeypatch.setattr(service.log, "read", counted)
    at = str(appended.position)
    found = await asyncio.gather(*(service.event_at("acme", "c", at) for _ in range(40)))
    assert {one["content"] for one in found} == {"one"} and most == PAGES


async def test_waiting_history_reads_hold_no_windows_in_memory(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, full, under_way, most = asyncio.Event(), asyncio.Event(), 0, 0

    async def window(tenant: str, conversation: str) -> Window:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        if under_way == PAGES:
            full.set()
        await gate.wait()
        under_way -= 1
        raise UnknownConversation("there is none")

    monkeypatch.setattr(service, "window", window)
    reading = [asyncio.create_task(service.history("acme", "c")) for _ in range(40)]
    await full.wait()
    gate.set()
    found = await asyncio.gather(*reading, return_exceptions=True)
    assert {type(one) for one in found} == {UnknownConversation} and most == PAGES


async def test_an_erased_conversation_answers_neither(service: Service) -> None:
    erasure = record({"type": "conversation.erased", "id": "e"})
    appended = await service.fold([message("a", "one"), erasure])
    with pytest.raises(Erased):
        await service.wait_applied("acme", "c", appended[:1])
    with pytest.raises(Erased):
        await service.event_at("acme", "c", str(appended[0].position))
