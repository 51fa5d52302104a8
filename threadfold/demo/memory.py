"""The demo's part on long-term memory: what one conversation taught, a second corrects and a third
recalls; it survives the loss of its store, and is gone after erasure.

The worker's encoder reads the closed conversations. All else is done as a gateway does it.
"""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from projections.events.times import time_at
from projections.memory.background import background
from projections.memory.resolution import Record
from streams.settings.settings import Settings
from threadfold.demo.display import Display
from threadfold.demo.watch import PromiseBroken
from threadfold.service.conversations import ConversationService
from threadfold.service.erasure import Eraser
from threadfold.service.memories import Memories
from threadfold.service.question import Question
from threadfold.service.whose import Whose

TENANT, USER = "memories", "ann"
POLICY: dict[str, Any] = {"memory_auto": "sessions"}
MONDAY = ("monday", "Hello! I live in Lisbon.")
FRIDAY = ("friday", "I live in Porto now.")
SUNDAY = ("sunday", "Where do I live?")
RECALL_TOKENS = 200
LIMIT = 60.0
"""Seconds to wait for what the worker makes, also on a machine that is busy with other work."""
LOOK_EVERY = 0.1


class MemoryAct:
    """One run of it, beside a worker."""

    def __init__(self, settings: Settings, folder: Path, show: Display) -> None:
        """Args: ``folder`` gets the memory store."""
        self._folder = folder / "memories"
        self._settings = msgspec.structs.replace(settings, memory_store=str(self._folder))
        self._show = show
        self._whose = Whose(TENANT, USER)

    async def run(self) -> None:
        """Do it all; raises :class:`PromiseBroken` where the memory differs from what was said."""
        async with ConversationService(self._settings) as self._backend:
            async with self._memories() as memories:
                await self._say(*MONDAY)
                learnt = await self._record(memories, "Lisbon")
                await self._say(*FRIDAY)
                await self._record(memories, "Porto")
                await self._recall(memories)
                await self._compare_with_past(memories, learnt)
                before = memories.store.digests()
            shutil.rmtree(self._folder)
            async with self._memories() as memories:
                await self._compare_rebuilt(memories, before)
                await self._erase(memories)

    @asynccontextmanager
    async def _memories(self) -> AsyncIterator[Memories]:
        memories = Memories(self._backend, hold=True)
        try:
            yield memories
        finally:
            await memories.stop()

    async def _say(self, conversation: str, text: str) -> None:
        """A conversation of one message, which is closed."""
        flats: list[dict[str, Any]] = [
            {"type": "conversation.opened", "user": USER},
            {"type": "message", "role": "user", "content": text},
            {"type": "session.closed", "reason": "explicit"},
        ]
        await self._backend.append(TENANT, [(conversation, flat) for flat in flats], operator=True)
        self._show.say(f"  {conversation}: {text}")

    async def _record(self, memories: Memories, place: str) -> Record:
        """The one record there is, once it names the place."""

        async def named() -> Record | None:
            found = (await memories.page(self._whose.filter(), None, 2)).records
            return found[0] if len(found) == 1 and place in found[0].text else None

        record: Record = await _until(named, f"a record that names {place}")
        self._show.say(f"    learnt: {record.text} ({_provenance(record)})")
        return record

    async def _recall(self, memories: Memories) -> None:
        """Ask in a third conversation; the answer is what its context would get."""
        await self._say(*SUNDAY)
        question = Question(self._whose.filter(), SUNDAY[1], kinds=("record",))
        answer = await memories.ask(question)
        found = background(answer.found, RECALL_TOKENS)
        if found is None or len(found.kept) != 1 or "Porto" not in found.text:
            raise PromiseBroken(f"recalled for {SUNDAY[1]!r}: {found}, not what was said on friday")
        self._show.say(f"    recalled: {found.text.splitlines()[-1]}")

    async def _compare_with_past(self, memories: Memories, learnt: Record) -> None:
        then = learnt.confirmed_at
        found = (await memories.page(self._whose.filter(as_of=then), None, 2)).records
        if [one.text for one in found] != [learnt.text]:
            raise PromiseBroken(f"known before friday: {found}, not {learnt.text!r}")
        self._show.say(f"    known at {time_at(then)}: {learnt.text}")

    async def _compare_rebuilt(self, memories: Memories, before: dict[Any, str]) -> None:
        await memories.stats(self._whose)  # waits until the store is fed
        after = memories.store.digests()
        if not before or after != before:
            raise PromiseBroken("the rebuilt memory store differs from the deleted one")
        self._show.say(
            "  the memory store is deleted and rebuilt from its topic:"
            f" digest {next(iter(after.values()))[:16]} as before"
        )

    async def _erase(self, memories: Memories) -> None:
        eraser = Eraser(self._backend, _no_text)
        for conversation, _ in (MONDAY, FRIDAY, SUNDAY):
            await eraser.conversation(TENANT, conversation)

        async def gone() -> bool:
            everything = self._whose.filter(expired=True)
            found = (await memories.page(everything, None, 1)).records
            answer = await memories.ask(Question(self._whose.filter(), SUNDAY[1]))
            return not found and not answer.found

        await _until(gone, "a memory without what was erased")
        self._show.say("  the conversations are erased: nothing is recalled")


def _provenance(record: Record) -> str:
    return f"said by the {record.trust} in {record.conversation} at {', '.join(record.positions)}"


async def _no_text(*_: object) -> None:
    """There is no text in progress."""


async def _until(found: Callable[[], Awaitable[Any]], what: str) -> Any:
    end = time.monotonic() + LIMIT
    while not (one := await found()):
        if time.monotonic() > end:
            raise PromiseBroken(f"no {what} after {LIMIT:g} s")
        await asyncio.sleep(LOOK_EVERY)
    return one
