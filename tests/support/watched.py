"""Readers and writers that never pause, while something happens to Redis: what must not be seen is
collected as it is seen.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from projections.errors import Healing, RedisUnavailable, ThreadfoldError
from projections.names import make_key
from streams.control.control_topic import Control
from streams.log.kafka_log import KafkaLog
from streams.maintenance.verify import verify
from streams.settings.settings import Settings
from tests.support.gateway import Client, say
from tests.support.worker import until
from threadfold.service.conversations import ConversationService

PAUSE = 0.01
"""Seconds between two readings of one reader."""


class Watched:
    """Conversations that are appended to and read all the time, by a gateway over HTTP and by
    readers who have never read before.

    ``wrong`` is what must never be seen: an answer to a read that is neither 200 nor a 503 with
    Retry-After, a window that is older than one that was served before it was asked for (by
    whomever), an append that is not acknowledged.
    """

    def __init__(
        self,
        call: Client,
        fresh: ConversationService,
        conversations: Sequence[str],
        *,
        appends: bool = True,
    ) -> None:
        self.call = call
        self.fresh = fresh
        self.conversations = list(conversations)
        self.appends = appends
        self.over_http = True
        self.wrong: list[str] = []
        self.served: dict[str, tuple[int, int]] = dict.fromkeys(conversations, (-1, 0))
        """The latest window served of each conversation, as (offset, count)."""
        self.refused: dict[str, list[float]] = {name: [] for name in conversations}
        """When reads were answered by 503."""
        self.told: set[str] = set()
        """The errors behind them, as readers of their own see them."""
        self.appended = 0
        self.read: dict[str, int] = dict.fromkeys(conversations, 0)
        """How often each was served."""

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Watched]:
        loops: list[Callable[[], Awaitable[None]]] = [
            self._read_fresh,
            *[self._read_http] * self.over_http,
            *[self._append] * self.appends,
        ]
        ended = asyncio.Event()

        async def forever(step: Callable[[], Awaitable[None]]) -> None:
            while not ended.is_set():
                await step()

        tasks = [asyncio.create_task(forever(step)) for step in loops]
        try:
            yield self
        finally:
            ended.set()
            for result in await asyncio.gather(*tasks, return_exceptions=True):
                if isinstance(result, BaseException):
                    self.wrong.append(f"a loop ended: {result!r}")

    async def append(self, conversation: str, n: int = 1, query: str = "") -> None:
        body = [say(f"message {self.appended + i}") for i in range(n)]
        answer = await self.call(
            "POST", f"/v1/conversations/{conversation}/events{query}", json.dumps(body).encode()
        )
        self.appended += n
        if answer.status_code not in (200, 202):
            self.wrong.append(f"append to {conversation}: {answer.status_code} {answer.text}")

    async def all_served(self, since: float = 0.0, limit: float = 60.0) -> float:
        """Wait until every conversation was served after ``since`` (time.monotonic) and is not
        refused now; returns when.
        """
        behind = set(self.conversations)

        async def reached() -> bool:
            for name in list(behind):
                if await self._one(name) == 200:
                    behind.discard(name)
            return not behind

        await until(reached, limit, "all conversations are served again")
        return time.monotonic()

    async def _read_http(self) -> None:
        for name in self.conversations:
            await self._one(name)
            await asyncio.sleep(PAUSE)

    async def _one(self, name: str) -> int:
        floor = self.served[name]
        answer = await self.call("GET", f"/v1/conversations/{name}/context")
        if answer.status_code == 200:
            found = answer.json()
            self._saw(
                name, floor, (int(found["position"].rpartition("-")[2]), found["count"]), "gateway"
            )
        elif answer.status_code == 503 and "retry-after" in answer.headers:
            self.refused[name].append(time.monotonic())
        else:
            self.wrong.append(f"{name}: {answer.status_code} {answer.text}")
        return answer.status_code

    async def _read_fresh(self) -> None:
        for name in self.conversations:
            floor = self.served[name]
            # As a gateway that has just been started: it knows of nothing that was served.
            self.fresh.windows.forget_all()
            try:
                window = await self.fresh.window("acme", name)
            except (Healing, RedisUnavailable) as error:
                self.refused[name].append(time.monotonic())
                self.told.add(type(error).__name__)
            except ThreadfoldError as error:
                self.wrong.append(f"{name}, read for the first time: {error!r}")
            else:
                self._saw(name, floor, (window.meta.position, window.meta.count), "first reader")
            await asyncio.sleep(PAUSE)

    async def _append(self) -> None:
        for name in self.conversations:
            await self.append(name)
            await asyncio.sleep(PAUSE)

    def _saw(self, name: str, floor: tuple[int, int], seen: tuple[int, int], who: str) -> None:
        if seen[0] < floor[0] or seen[1] < floor[1]:
            self.wrong.append(f"{who} saw {name} at {seen} after {floor} was served")
        self.read[name] += 1
        self.served[name] = max(self.served[name], seen)


def names_where(wanted: Callable[[str], bool], n: int) -> list[str]:
    """The first conversations that fit."""
    return list(
        itertools.islice((name for name in (f"c{i}" for i in itertools.count()) if wanted(name)), n)
    )


def state_key(settings: Settings, conversation: str, generation: int = 1) -> str:
    """The key that holds the checkpoint of a conversation's partition."""
    from projections.names import partition_of

    return f"{settings.topic_prefix}:{{{generation}:{partition_of(make_key('acme', conversation), settings.partitions)}}}:state"


async def nothing_differs(
    settings: Settings, backend: ConversationService, conversations: int, generation: int = 1
) -> None:
    """Once everything is applied, each window is the log's fold."""
    log = KafkaLog(settings, settings.partitions)
    control = await Control(settings).start()
    try:

        async def applied() -> Any:
            ends = await log.end_offsets()
            found = {p: await backend.store.checkpoint(generation, p) for p in ends}
            return all(
                c is not None and not c.healing and c.offset == ends[p] - 1
                for p, c in found.items()
            )

        await until(applied, 60, "all is applied")
        record = control.state.generations[generation]
        report = await verify(log, backend.store, record, control.state.rules(record))
        assert (report.verified, report.differing) == (conversations, [])
    finally:
        await control.stop()
        await log.stop()
