"""A worker on real Kafka and Redis with a memory store that lasts, and how commands and saves reach
it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from projections.events.types import MemorySaved
from projections.memory.identity import Scope
from streams.control.control_topic import Control
from streams.control.state import Generation
from streams.memory.sqlite_store import SqliteMemories
from streams.memory.store_folder import StoreFolder
from streams.settings.settings import Settings
from tests.support.commands import Ran, cli, ok
from tests.support.erasure import no_text
from tests.support.worker import running_worker, until
from threadfold.cli.common import CONFIG_FILE
from threadfold.cli.configuration import write_config
from threadfold.service.conversations import ConversationService
from threadfold.service.erasure import Eraser
from threadfold.service.memories import Memories
from threadfold.service.whose import Whose

TENANTS = ("acme", "rival")


class MemoryStack:
    """Its settings, and the folder whose configuration commands read."""

    def __init__(self, settings: Settings, data: Path) -> None:
        self.settings, self.data = settings, data

    async def run(self, *args: str) -> Ran:
        """What `threadfold memories …` says."""
        return await cli("memories", *args, "--data", str(self.data))

    async def rebuilt(self, *args: str) -> str:
        """Rebuild the store; returns its digest."""
        done = await ok("memories", "rebuild", *args, "--data", str(self.data))
        return done.lines[-1].rpartition(" ")[2]


@asynccontextmanager
async def memory_stack(settings: Settings, data: Path, **more: Any) -> AsyncIterator[MemoryStack]:
    """A live generation, two tenants and a worker. ``more`` are further settings."""
    made = msgspec.structs.replace(settings, **more)
    write_config(data / CONFIG_FILE, made)
    control = await Control(made).start()
    await control.write({"generation/1": Generation(1, made.partitions, {}), "generation/live": 1})
    for name in TENANTS:
        await control.ensure_tenant(name)
    await control.stop()
    async with running_worker(made):
        yield MemoryStack(made, data)


@asynccontextmanager
async def holding(settings: Settings) -> AsyncIterator[tuple[ConversationService, Memories]]:
    """A gateway's service, and its memories, which feed the store."""
    async with ConversationService(settings) as backend:
        memories = Memories(backend, hold=True)
        yield backend, memories
        await memories.stop()


def record(text: str, **more: Any) -> MemorySaved:
    """A record as a caller saves it."""
    return MemorySaved(
        memory_id="", memory_type="fact", text=text, normalized_text="", trust="user", **more
    )


def free(appended: object) -> None:
    """A save that costs nothing."""
    del appended


async def save(memories: Memories, whose: Whose, *texts: str) -> None:
    """Save records, and wait until the store has them."""
    await memories.save([(whose, record(text)) for text in texts], free, wait=True)


async def texts_of(memories: Memories, user: str, tenant: str = "acme") -> list[str]:
    """What a user's records say, newest first."""
    found = (await memories.page(Whose(tenant, user).filter(), None, 50)).records
    return [one.text for one in found]


async def save_and_erase(
    backend: ConversationService, memories: Memories, text: str, kept: Callable[[], Awaitable[bool]]
) -> None:
    """Save a text that eva said, check that it is ``kept``, and erase its conversation: it is kept
    no more then.
    """
    opened = {"type": "conversation.opened", "user": "eva"}
    appended = await backend.append("acme", [("talk", opened)])
    await backend.wait_applied("acme", "talk", appended)
    await save(memories, Whose("acme", "eva", conversation="talk"), text)
    assert await kept()
    await erase(backend, "acme", "talk")

    async def gone() -> bool:
        return not await kept()

    await until(gone)
    assert await texts_of(memories, "eva") == []


async def erase(backend: ConversationService, tenant: str, conversation: str) -> None:
    """Erase a conversation of which no gateway keeps text."""
    await Eraser(backend, no_text).conversation(tenant, conversation)


@asynccontextmanager
async def read_on(count: Callable[[], Awaitable[int]], expected: int) -> AsyncIterator[None]:
    """Read all the while; fails when another number is found at any time."""

    async def read() -> None:
        while True:
            assert await count() == expected
            await asyncio.sleep(0.01)

    reading = asyncio.create_task(read())
    try:
        yield
    finally:
        reading.cancel()
        (ended,) = await asyncio.gather(reading, return_exceptions=True)
    assert isinstance(ended, asyncio.CancelledError), ended


class LocalStack(MemoryStack):
    """A stack with a store folder."""

    @property
    def folder(self) -> StoreFolder:
        return StoreFolder(Path(self.settings.memory_store))

    def file_digests(self) -> dict[Scope, str]:
        assert self.folder.live is not None
        store = SqliteMemories.copied(self.folder.live)
        assert store is not None
        found = store.digests()
        store.close()
        return found


@asynccontextmanager
async def local_stack(settings: Settings, data: Path) -> AsyncIterator[LocalStack]:
    """A :func:`memory_stack` with a store folder."""
    async with memory_stack(settings, data, memory_store=str(data / "memories")) as stack:
        yield LocalStack(stack.settings, data)


async def taught(backend: ConversationService, memories: Memories, name: str) -> list[str]:
    """A conversation that teaches, goes back and teaches again; returns its positions."""
    whose = Whose("acme", f"u-{name}", conversation=name)
    opened = {"type": "conversation.opened", "user": whose.user}
    said = {"type": "message", "role": "user", "content": "hello"}
    appended = await backend.append("acme", [(name, opened), (name, said)])
    await backend.wait_applied("acme", name, appended)
    await memories.save([(whose, record(f"Fact {n} of {name}.")) for n in range(4)], free)
    back = {"type": "rollback", "to": str(appended[-1].position)}
    await backend.append("acme", [(name, back)])
    await memories.save([(whose, record(f"Later fact of {name}."))], free, wait=True)
    return [str(one.position) for one in appended]
