"""A projection that counts messages, the messages, and what it is to have counted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from projections.events.validation import make_record
from projections.names import Key
from streams.custom.persistence import place_of
from streams.custom.runner import ProjectionRunner
from streams.settings.settings import Settings
from threadfold.custom import Event, Projection, ProjectionReader, Result
from threadfold.custom.access import Parts

TENANTS = ("acme", "sealed")
KEY = "k1:" + "A" * 43 + "="


class Counts(Projection):
    """Messages of each tenant, and what each conversation said last."""

    name = "counts"

    def __init__(self, name: str, version: int = 1, step: int = 1) -> None:
        self.name, self.version, self.step = name, version, step
        self.poison = ""

    async def apply(self, batch: Sequence[Event], result: Result) -> None:
        for event in batch:
            text = event.data.get("content", "")
            if self.poison and self.poison == text:
                raise KeyError(text)
            result.add(event.tenant, "messages", n=self.step)
            result.put(event.tenant, f"last:{event.conversation}", text)


async def append(parts: Parts, count: int, mark: str) -> None:
    """Messages of some conversations of both tenants."""
    for tenant in TENANTS:
        records = [
            make_record(
                Key(tenant, f"c{number % 7}"),
                {"type": "message", "role": "user", "content": f"{mark} {number}"},
                where="it",
                now="2026-01-31T12:00:00Z",
                new_id=f"{mark}-{number}",
            )
            for number in range(count)
        ]
        await parts.log.append(records)


@asynccontextmanager
async def running(
    settings: Settings, parts: Parts, projection: Projection, **how: Any
) -> AsyncIterator[ProjectionRunner]:
    runner = ProjectionRunner(settings, parts.control, parts.log, parts.store, projection, **how)
    task = asyncio.create_task(runner.run())
    try:
        yield runner
    finally:
        runner.stop()
        await asyncio.wait_for(task, 20)


def caught_up(parts: Parts, projection: Projection, generation: int = 1) -> Callable[[], Any]:
    async def look() -> bool:
        for partition, end in (await parts.log.end_offsets()).items():
            checkpoint = await parts.store.checkpoint(
                place_of(projection.name, generation, partition)
            )
            if checkpoint is None or checkpoint.offset < end - 1:
                return False
        return True

    return look


async def message_counts(settings: Settings, projection: Projection) -> dict[str, int]:
    async with ProjectionReader.open(settings, projection) as view:
        found = {tenant: await view.get(tenant, "messages") for tenant in TENANTS}
    return {tenant: value["n"] for tenant, value in found.items()}


async def in_log(parts: Parts) -> dict[str, int]:
    """Distinct ids of each tenant in the log."""
    seen: dict[str, set[tuple[str, str]]] = {tenant: set() for tenant in TENANTS}
    for partition, end in (await parts.log.end_offsets()).items():
        async for raw in parts.log.scan(partition, 0, end - 1):
            tenant, _, conversation = (raw.key or b"").decode().partition("/")
            if tenant in seen and raw.value and raw.value.startswith(b"{"):
                seen[tenant].add((conversation, msgspec.json.decode(raw.value)["id"]))
    return {tenant: len(ids) for tenant, ids in seen.items()}
