"""Conversations that are due for summaries, in a log in memory, and a dispatcher for their requests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from projections.events.codec import decode_event
from projections.events.types import SummaryEvent
from projections.events.validation import make_record
from projections.fold.replay import replay
from projections.names import Key, partition_of
from projections.policy.policy import Rules
from streams.compaction.compactor import Compactor
from streams.compaction.dispatcher import Dispatcher
from streams.compaction.requests import request_for
from streams.compaction.summarizers.budgets import Budgets
from streams.compaction.summarizers.registry import Summarizers
from streams.metrics.metrics import Metrics
from streams.runtime.processor import Processor
from streams.settings.settings import Settings
from tests.support.compaction import SMALL
from tests.support.metrics import read
from tests.support.worker import until
from threadfold.testing import MemoryLog

SUMMARY = "They talk about the garden, the weather of the week and what they would like to plant."


class World:
    """Conversations that are due, and a dispatcher for their requests."""

    def __init__(
        self,
        log: MemoryLog,
        endpoints: dict[str, Any],
        processor: Processor | None = None,
        budgets: Budgets | None = None,
        weight: Callable[[str], float] = lambda tenant: 1.0,
        attempts: int = 3,
    ) -> None:
        self.log = log
        settings = Settings.load(
            env={},
            kafka="h:1",
            redis="redis://h:1/0",
            summarizers=endpoints or None,
            summary_attempts=attempts,
        )
        self.metrics = Metrics()
        self.summarizers = Summarizers(
            settings, processor=processor, budgets=budgets, weight=weight, metrics=self.metrics
        )
        self.compactor = Compactor(settings, log, self.summarizers.get, metrics=self.metrics)
        self.dispatcher = Dispatcher(
            self.compactor, self.summarizers.limits, 1, weight, self.metrics
        )
        self.done: list[str] = []

    async def request(self, tenant: str, name: str, summarizer: str) -> bytes:
        """The request of a conversation that has just become due."""
        key = Key(tenant, name)
        for i in range(16):
            await MemoryLog.append(
                self.log,
                [
                    make_record(
                        key,
                        {
                            "type": "message",
                            "role": ("user", "assistant")[i % 2],
                            "content": "the garden and the weather of this week " * 4,
                        },
                        where="e",
                        now="2026-01-01T00:00:00Z",
                        new_id=f"{key}-{i}",
                    )
                ],
            )
        partition = partition_of(key, self.log.partitions)
        end = (await self.log.end_offsets())[partition]
        rows = [
            (raw.position.offset, decode_event(raw.value or b""))
            async for raw in self.log.scan(partition, 0, end - 1)
            if raw.key == str(key).encode()
        ]
        rules = Rules(SMALL | {"summarizer": summarizer})
        request = request_for(replay(key, partition, rules, rows), 1)
        assert request is not None
        return msgspec.json.encode(request)

    async def ask(self, tenant: str, name: str, summarizer: str = "extractive") -> bytes:
        value = await self.request(tenant, name, summarizer)
        await self.dispatcher.take(value, lambda: self.done.append(f"{tenant}/{name}"))
        return value

    async def until_done(self, *names: str, limit: float = 30.0) -> None:
        async def all_are() -> bool:
            return set(names) <= set(self.done)

        await until(all_are, limit, f"{names}")

    async def made_by(self) -> dict[str, list[str]]:
        """Who made the summaries of each conversation that are in the log."""
        found: dict[str, list[str]] = {}
        for partition, end in (await self.log.end_offsets()).items():
            async for raw in self.log.scan(partition, 0, end - 1):
                event = decode_event(raw.value or b"")
                if isinstance(event, SummaryEvent):
                    found.setdefault((raw.key or b"").decode(), []).append(event.data.summarizer)
        return found

    def samples(self, name: str) -> dict[tuple[str, ...], float]:
        """A metric's values by its labels' values, in the order of the labels' names."""
        return read(self.metrics.page()).get(f"threadfold_{name}", {})

    async def close(self) -> None:
        await self.dispatcher.close()
        await self.summarizers.close()


def endpoint(url: str, **options: Any) -> dict[str, Any]:
    return {"base_url": url, "model": "small", **options}
