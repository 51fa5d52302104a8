"""Worker processes on real Kafka and Redis, over conversations that are due for a summary each."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any, Self

from projections.events.types import SummaryEvent
from projections.events.validation import make_record
from projections.names import Key, partition_of
from projections.redis.store import RedisStore
from streams.log.history import event_of
from streams.log.kafka_log import KafkaLog
from streams.runtime.tasks import end_tasks
from streams.settings.settings import Settings
from tests.support.worker import until
from threadfold.embedded.process import GuardedProcess

SUMMARY = (
    "They talk about the garden, the weather of the week and what they would like to plant there"
    " once the rain is over and the soil is warm again."
)
TALKS = 80


class World:
    """A log, and workers on it. As under a supervisor, one that ends by itself is started again."""

    def __init__(self, settings: Settings, folder: Path) -> None:
        self.settings = settings
        self.folder = folder
        self.log = KafkaLog(settings, settings.partitions)
        self.store = RedisStore(settings.redis, settings.topic_prefix)
        self.keys = [Key("acme", f"talk{i}") for i in range(TALKS)]
        self.workers: list[GuardedProcess] = []
        self._killed: set[GuardedProcess] = set()
        self._supervising: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._supervising = asyncio.create_task(self._supervise(), name="supervisor")
        return self

    async def __aexit__(self, *error: object) -> None:
        assert self._supervising is not None
        await end_tasks([self._supervising])
        for worker in self.workers:
            await asyncio.to_thread(worker.stop)
        await self.log.stop()
        await self.store.close()

    async def _supervise(self) -> None:
        while True:
            await asyncio.sleep(0.5)
            for place, worker in enumerate(self.workers):
                if worker not in self._killed and worker.poll() is not None:
                    self.workers[place] = again = GuardedProcess(
                        worker.cmd, env=worker.env, log=worker.log
                    )
                    again.start()

    async def append(self) -> None:
        """Let every conversation become due for one summary."""
        await self.log.append(
            [
                make_record(
                    key,
                    {
                        "type": "message",
                        "role": ("user", "assistant")[i % 2],
                        "content": "the garden and the weather of this week " * 5,
                    },
                    where="event",
                    now="2026-01-01T00:00:00Z",
                    new_id=f"{key}-{i}",
                )
                for key in self.keys
                for i in range(12)
            ]
        )

    def start(
        self, url: str, *only: str, env: dict[str, str] | None = None, **endpoint: Any
    ) -> GuardedProcess:
        names = ["kafka", "redis", "topic_prefix", "group", "partitions", "session_timeout"]
        names += ["summary_time_cap", "watchdog_seconds"]
        options = {"base_url": url, "model": "small", **endpoint}
        env = {
            **os.environ,
            **{f"THREADFOLD_{name.upper()}": str(getattr(self.settings, name)) for name in names},
            "THREADFOLD_SUMMARIZERS": json.dumps({"cheap": options}),
            **(env or {}),
        }
        log = self.folder / f"worker{len(self.workers)}.log"
        process = GuardedProcess(
            [sys.executable, "-m", "threadfold.cli", "worker", *only], env=env, log=log
        )
        process.start()
        self.workers.append(process)
        return process

    def kill(self, number: int) -> None:
        """End a worker with SIGKILL, for good."""
        self._killed.add(self.workers[number])
        self.workers[number].kill()

    async def summaries(self) -> list[tuple[Key, SummaryEvent]]:
        """All summary events that stand in the log."""
        found = []
        for partition, end in (await self.log.end_offsets()).items():
            keys = [key for key in self.keys if partition_of(key, self.log.partitions) == partition]
            async for raw in self.log.scan(partition, 0, end - 1):
                for key in keys:
                    event = event_of(raw, key, self.log.seals)
                    if isinstance(event, SummaryEvent):
                        found.append((key, event))
        return found

    async def all_summarised(self) -> list[tuple[Key, SummaryEvent]]:
        missing: set[Key] = set()

        async def all_are() -> Any:
            found = await self.summaries()
            missing.clear()
            missing.update(set(self.keys) - {key for key, _ in found})
            return found if not missing else None

        try:
            return await until(all_are, 180, "a summary of every conversation")
        except TimeoutError as error:
            error.add_note(f"no summary of {sorted(map(str, missing))}\n{self._logs()}")
            raise

    def _logs(self) -> str:
        """The ends of all workers' logs."""
        logs = [worker.log for worker in self.workers if worker.log is not None]
        return "\n".join(f"{log.name}:\n{log.read_text(errors='replace')[-6_000:]}" for log in logs)
