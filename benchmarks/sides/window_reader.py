"""Sides of `window_read`: reading windows of many conversations in turn, several at a time or one
after another.

``backend`` reads what the gateway answers with, through the backend: the context document's bytes.
``redis_session`` is openai-agents' ``RedisSession.get_items`` with a limit, on sessions that exist
already, all on one client. The clock runs for ``seconds`` after a warm-up.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec
import redis.asyncio as aredis

from benchmarks.harness import percentile
from benchmarks.support.children import answer, read_job
from benchmarks.support.meters import Meter
from projections.formats.context_document import context_document
from projections.render.render import render_openai
from streams.settings.settings import Settings
from threadfold.service.conversations import ConversationService

Read = Callable[[str], Awaitable[Any]]


def context_of(backend: ConversationService, tenant: str) -> Read:
    """How our side reads a context document: by the backend's own way to its bytes where it has
    one.
    """
    direct = getattr(backend, "context", None)
    if direct is not None:

        async def read(conversation: str) -> bytes:
            document: bytes = await direct(tenant, conversation)
            return document

        return read

    async def rendered(conversation: str) -> bytes:
        window = await backend.window(tenant, conversation)
        return context_document(window, render_openai(window))

    return rendered


async def timed(
    read: Read, names: Sequence[str], seconds: float, at_once: int
) -> tuple[float, float, float]:
    """Read the names in turn for ``seconds``; returns reads a second, and p50 and p99 of one read
    in ms.
    """
    times: list[float] = []
    end = time.perf_counter() + seconds

    async def reader(first: int) -> None:
        place = first
        while (begin := time.perf_counter()) < end:
            await read(names[place % len(names)])
            times.append(time.perf_counter() - begin)
            place += at_once

    begin = time.perf_counter()
    await asyncio.gather(*(reader(i) for i in range(at_once)))
    return (
        len(times) / (time.perf_counter() - begin),
        percentile(times, 0.5) * 1e3,
        percentile(times, 0.99) * 1e3,
    )


async def run(settings: Settings, groups: dict[str, list[int]], job: dict[str, Any]) -> None:
    """Read, and answer with the reads a second of ``at_once`` readers, and those of one reader
    beside it.
    """
    names: list[str] = job["names"]
    seconds: float = job["seconds"]
    async with _reader(settings, job) as read:
        size = len(await read(names[0]))
        at_once = job.get("at_once", 1)
        await timed(read, names, min(1.0, seconds / 2), 1)
        meter = Meter(groups)
        rate, p50, p99 = await timed(read, names, seconds, at_once)
        usage = meter.stop()
        more: dict[str, Any] = {}
        if at_once > 1:
            alone, alone_p50, alone_p99 = await timed(read, names, seconds, 1)
            more["one_by_one"] = {
                "reads_s": round(alone),
                "p50_ms": round(alone_p50, 3),
                "p99_ms": round(alone_p99, 3),
            }
        answer(rate, usage=usage, p50_ms=round(p50, 3), p99_ms=round(p99, 3), size=size, **more)


class _reader:  # noqa: N801 (a context manager read as a word)
    """The read of the side asked for, with its connections."""

    def __init__(self, settings: Settings, job: dict[str, Any]) -> None:
        self._settings = settings
        self._job = job
        self._backend: ConversationService | None = None
        self._client: Any = None

    async def __aenter__(self) -> Read:
        if self._job["how"] == "backend":
            settings = msgspec.structs.replace(
                self._settings,
                read_cache_bytes=self._job.get("cache", self._settings.read_cache_bytes),
            )
            self._backend = await ConversationService(settings).start()
            return context_of(self._backend, self._job["tenant"])
        from agents.extensions.memory import RedisSession

        self._client = aredis.Redis.from_url(self._settings.redis)
        sessions = {
            name: RedisSession(name, redis_client=self._client) for name in self._job["names"]
        }
        limit = self._job["limit"]

        async def read(name: str) -> list[Any]:
            items: list[Any] = await sessions[name].get_items(limit=limit)
            return items

        return read

    async def __aexit__(self, *_: object) -> None:
        if self._backend is not None:
            await self._backend.stop()
        if self._client is not None:
            await self._client.aclose()


if __name__ == "__main__":
    settings, groups, job = read_job()
    asyncio.run(run(settings, groups, job))
