"""A conversation that teaches the long-term memory: log, store and memory in memory; fold, effects,
compactor and encoder are the real ones.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from projections.errors import WaitTimedOut
from projections.events.codec import decode_event
from projections.events.types import MemorySavedEvent
from projections.events.validation import make_record
from projections.memory.news import read_news
from projections.memory.resolution import Record
from projections.names import Key, Position
from projections.policy.policy import Rules
from projections.storage.records import Checkpoint
from projections.window.window import Window
from streams.compaction.compactor import Compactor
from streams.compaction.requests import request_for
from streams.embeddings.registry import Embeddings
from streams.log.log import Raw
from streams.memory.encoder import Encoder
from streams.memory.extraction_requests import ExtractionRequest, request_of
from streams.memory.neighbours import Neighbours
from streams.memory.sqlite_store import SqliteMemories
from streams.metrics.metrics import Metrics
from streams.partition.effects import Effects
from streams.partition.partition import Partition
from streams.projector.memory_announcements import announcement
from streams.runtime.tasks import end_tasks
from streams.settings.settings import Settings
from tests.support.metrics import read
from threadfold.testing import MemoryLog, MemoryStore
from threadfold.testing.plain_memories import PlainMemories

KEY = Key("acme", "talk")
SETTINGS = Settings(kafka="unused", redis="unused")


class Learning:
    """One partition whose conversations teach. It is the sink of its own fold."""

    def __init__(
        self,
        policy: dict[str, Any],
        embeddings: Embeddings | None = None,
        *,
        model: str = "",
        **options: Any,
    ) -> None:
        """Args: ``model`` is the endpoint that is to extract; ``options`` are the encoder's."""
        self.log, self.store, self.memory = MemoryLog(1), MemoryStore(), PlainMemories()
        self.records = SqliteMemories()
        self.rules, self.metrics = Rules(policy), options.pop("metrics", None) or Metrics()
        self.late = False
        self.erasing: set[Key] = set()
        """The logs whose erasure has begun."""
        self.model = model
        self.requests: list[ExtractionRequest] = []
        self.partition = self._partition(Checkpoint())

        async def rules(generation: int, tenants: set[str]) -> Rules:
            return self.rules

        def encoder() -> Encoder:
            return Encoder(
                SETTINGS,
                self.log,
                lambda: self.store.reader,
                rules,
                lambda: 1,
                Neighbours(self.records, self._has_all, embeddings, self.erasing.__contains__),
                self.metrics,
                **options,
            )

        self.new_encoder = encoder
        """Gives the encoder of another worker."""
        self.encoder = encoder()

    def _partition(self, checkpoint: Checkpoint) -> Partition:
        async def learn(tenant: str) -> None:
            assert tenant

        made = Partition(0, 1, self.store, self.log, self.rules, learn=learn, sink=self)
        made.adopt(checkpoint)
        return made

    # -- the sink

    def report(self, *_: object) -> None:
        """Cuts are of no interest here."""

    async def publish(self, partition: int, effects: Effects, batch: Sequence[Raw]) -> None:
        asked = (request_of(key, partition, due, self.model) for key, due in effects.extractions)
        self.requests += [request for request in asked if request is not None]
        rows = {raw.position.offset: raw for raw in batch}
        for key, offset, taught in effects.taught:
            news = read_news(key, announcement(key, rows[offset], taught))
            self.memory.take([news] if news is not None else [])
            self.records.apply([news] if news is not None else [], {})

    async def _has_all(self, tenant: str, user: str | None) -> None:
        """What is folded is in the memory already, unless a test says that it is ``late``."""
        if self.late:
            raise WaitTimedOut("the memory is being fed")

    # -- what tests do

    async def say(self, *flats: dict[str, Any], key: Key = KEY) -> list[Position]:
        """Append events, and fold them."""
        found = []
        for flat in flats:
            end = (await self.log.end_offsets())[0]
            record = make_record(
                key, flat, where="e", now="2024-05-15T10:00:00Z", new_id=f"e{end}", operator=True
            )
            found += await self.log.append([record])
        await self.fold()
        return found

    async def replay(self) -> None:
        """Fold the log from its beginning into an empty store and memory."""
        self.store, self.memory = MemoryStore(), PlainMemories()
        self.partition = self._partition(Checkpoint())
        await self.fold()

    async def fold(self) -> None:
        """Fold what is new."""
        rows = self.log.rows(0)
        await self.partition.process(rows[self.partition.checkpoint.offset + 1 :])

    async def window(self, key: Key = KEY) -> Window:
        stored = (await self.store.reader.read(1, 0, [key]))[1][0]
        assert stored is not None
        return stored.load(key, 0, self.rules)

    async def summarise(self, key: Key = KEY) -> Position:
        """Have the span that is due summarised, and fold the summary."""
        request = request_for(await self.window(key), 1)
        assert request is not None
        found = await Compactor(SETTINGS, self.log).answer(request)
        await self.fold()
        return found

    @asynccontextmanager
    async def folding(self) -> AsyncIterator[None]:
        """Fold beside, as the projector does."""

        async def go_on() -> None:
            while True:
                await self.fold()
                await asyncio.sleep(0.001)

        task = asyncio.create_task(go_on())
        try:
            yield
        finally:
            await end_tasks([task])

    async def learn(self, *requests: ExtractionRequest) -> list[Position | None]:
        """Answer requests, all that came up where none are named."""
        if not requests:
            requests, self.requests = tuple(self.requests), []
        async with self.folding():
            return [
                await self.encoder.answer_if_due(_as_delivered(request)) for request in requests
            ]

    def known(self, as_of: int | None = None) -> list[Record]:
        """The records that stand, by their text."""
        found = [one for one in self.memory.records(as_of) if one.stands]
        return sorted(found, key=lambda one: one.text)

    def texts(self) -> list[str]:
        return [one.text for one in self.known()]

    def saved(self) -> list[MemorySavedEvent]:
        """The records that stand as events in the log."""
        found = [decode_event(raw.value or b"") for raw in self.log.rows(0)]
        return [one for one in found if isinstance(one, MemorySavedEvent)]

    def counted(self, name: str) -> dict[tuple[str, ...], float]:
        return read(self.metrics.page()).get(f"threadfold_{name}", {})


def _as_delivered(request: ExtractionRequest) -> ExtractionRequest:
    return msgspec.json.decode(msgspec.json.encode(request), type=ExtractionRequest)


def user(text: str, **more: Any) -> dict[str, Any]:
    """A user's message."""
    return {"type": "message", "role": "user", "content": text, **more}


def opened(**policy: Any) -> dict[str, Any]:
    """The begin of a conversation of a user."""
    return {"type": "conversation.opened", "user": "ann", "channel": "web", "policy": policy}


def closed(after: Position | None = None) -> dict[str, Any]:
    """The end of a session."""
    flat = {"type": "session.closed", "reason": "explicit"}
    return flat if after is None else {**flat, "after": str(after)}
