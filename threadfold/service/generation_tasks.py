"""Builds, switches and drops of generations that operators begin at a gateway: one at a time, in a
process of its own, so that the gateway serves meanwhile.

What became of them is reported to Redis while their gateway lives: whichever gateway is asked shows
it. How far a build is follows from the checkpoints, which are there whoever builds.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from contextlib import suppress
from typing import Any

import msgspec

from projections.errors import Conflict, RedisUnavailable, ThreadfoldError
from projections.events.times import present
from projections.events.untrusted import Undecodable, json_decoder
from projections.redis.process_reports import ProcessReports
from streams.control.generations import LiveGeneration, begin, compared_generation, known_generation
from streams.log.retention import check_whole
from streams.rebuild.build import left_to_fold
from streams.rebuild.generation_task import GenerationTask, run_task
from streams.rebuild.rebuild import Loss, WouldLose
from streams.rebuild.sample import Wanted, compare_sample
from streams.rebuild.side_by_side import WantedWindow, compare_window
from streams.runtime.process_pool import ProcessPool
from streams.runtime.tasks import end_tasks
from threadfold.service.conversations import ConversationService

logger = logging.getLogger(__name__)
KIND = "generations"
"""Under which the reports are in Redis."""
EVERY = 10.0
"""Seconds between two reports."""
NAMED = 100
"""Conversations that a report names: it is written again and again."""


class TaskReport(msgspec.Struct):
    """What is or was done with a generation, since when, and why it failed. ``would_lose``: a
    switch was refused because conversations would forget what their windows hold. Of how many it
    would lose or lost something is ``lost``, and ``losses`` are the first ``NAMED`` of them.
    """

    generation: int
    doing: str
    begun: str
    ended: str | None = None
    error: str | None = None
    would_lose: bool = False
    lost: int = 0
    losses: tuple[Loss, ...] = ()

    def name_losses(self, losses: tuple[Loss, ...]) -> None:
        self.lost, self.losses = len(losses), losses[:NAMED]


_reports_in = json_decoder(list[TaskReport])


class GenerationTasks:
    """The tasks of one gateway, and the reports of all."""

    def __init__(self, backend: ConversationService) -> None:
        self._backend = backend
        self._process = secrets.token_hex(8)
        self._mine: dict[int, TaskReport] = {}
        settings = backend.settings
        self._reports = ProcessReports(settings.redis, settings.topic_prefix, KIND)
        self._running: asyncio.Task[None] | None = None
        self._reporting: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()
        self._comparing = asyncio.Lock()

    async def stop(self) -> None:
        """End what runs: what a build has written stays, and the same task goes on with it."""
        await end_tasks([self._running, self._reporting])
        with suppress(RedisUnavailable):
            if self._reporting is not None:
                await self._reports.remove(self._process)
        await self._reports.close()

    async def build(self, policy: dict[str, Any] | None) -> tuple[int, bool]:
        """Begin to build a generation under a policy (None: the live one's); returns its number,
        and whether it was begun before.

        Raises:
            InvalidPolicy: the policy does not hold.
            LogTruncated: the log has lost its first events, and that is not accepted.
            Conflict: another task of this gateway runs.
            KafkaUnavailable: as named.
        """
        self._check_free()
        settings, log = self._backend.settings, self._backend.log
        await check_whole(log, settings.topic("events"), accept=settings.accept_truncated_log)
        generation, resumed = await begin(self._backend.control, policy)
        self._start(GenerationTask("build", generation.number))
        return generation.number, resumed

    async def compare(self, tenant: str, wanted: Wanted) -> dict[str, Any]:
        """What another policy would change, on a sample, as ``streams.rebuild.sample`` says; one
        comparison at a time, where the backend's processor works. ``tenant`` asks for it.

        Raises:
            InvalidPolicy, UnknownGeneration: there is no such policy or generation.
            Others: as ``compare_sample`` says.
        """
        await self._check_other(wanted)
        async with self._comparing:
            settings = self._backend.settings
            return await self._backend.processor.run(tenant, compare_sample, settings, wanted)

    async def compare_window(self, tenant: str, wanted: WantedWindow) -> dict[str, Any]:
        """The windows of one conversation under both policies, as ``streams.rebuild.side_by_side``
        says; otherwise as :meth:`compare`.
        """
        await self._check_other(wanted)
        async with self._comparing:
            settings = self._backend.settings
            return await self._backend.processor.run(tenant, compare_window, settings, wanted)

    async def switch(self, number: int, *, accept_loss: bool) -> None:
        """Begin to make a generation live; raises UnknownGeneration, LiveGeneration, Conflict,
        KafkaUnavailable.
        """
        await self._check(number)
        self._start(GenerationTask("switch", number, accept_loss))

    async def drop(self, number: int) -> None:
        """Begin to delete a generation; raises like :meth:`switch`."""
        await self._check(number)
        self._start(GenerationTask("drop", number))

    async def listed(self) -> list[dict[str, Any]]:
        """All generations, the newest first, as documents: how each stands, what is done with it,
        and for one that may become live, how many of the log's events it has not folded yet.

        ``left`` and ``task`` are null where Kafka or Redis cannot say.

        Raises:
            KafkaUnavailable: the control topic cannot be read.
        """
        backend = self._backend
        state = await backend.control.sync()
        reports = await self._all()
        listed = []
        for one in sorted(state.generations.values(), key=lambda one: -one.number):
            stage, left = state.stage_of(one), None
            if stage in ("building", "ready"):
                with suppress(ThreadfoldError):
                    found = await left_to_fold(
                        backend.control, backend.log, backend.store, one.number
                    )
                    left = sum(found.values())
            listed.append(
                {
                    "number": one.number,
                    "stage": stage,
                    "partitions": one.partitions,
                    "created": one.created,
                    "live_at": one.live_at,
                    "policy": one.policy,
                    "left": left,
                    "task": reports.get(one.number),
                }
            )
        return listed

    # -- parts

    async def _check(self, number: int) -> None:
        self._check_free()
        state = await self._backend.control.sync()
        if known_generation(state, number).number == state.live:
            raise LiveGeneration(f"generation {number} is live: choose another")

    async def _check_other(self, wanted: Wanted | WantedWindow) -> None:
        state = await self._backend.control.sync()
        compared_generation(state, wanted.policy, wanted.number)

    def _check_free(self) -> None:
        if self._running is not None and not self._running.done():
            raise Conflict("this gateway works on a generation already: wait until it is done")

    def _start(self, task: GenerationTask) -> None:
        self._check_free()
        report = TaskReport(task.number, task.doing, present("seconds"))
        self._mine[task.number] = report
        self._running = asyncio.create_task(
            self._run(task, report), name=f"{task.doing}-generation"
        )
        if self._reporting is None:
            self._reporting = asyncio.create_task(self._report(), name="generation-reports")
        self._changed.set()

    async def _run(self, task: GenerationTask, report: TaskReport) -> None:
        pool = ProcessPool(1)
        try:
            report.name_losses(await pool.run(run_task, self._backend.settings, task))
        except ThreadfoldError as error:
            report.error, report.would_lose = str(error), isinstance(error, WouldLose)
            if isinstance(error, WouldLose):
                report.name_losses(error.losses)
        except Exception as error:
            logger.exception("generation %d: %s failed", task.number, task.doing)
            report.error = f"an unexpected error ({type(error).__name__})"
        finally:
            await pool.close(wait=False)
            report.ended = present("seconds")
            self._changed.set()

    async def _report(self) -> None:
        while True:
            self._changed.clear()
            try:
                await self._reports.put(
                    self._process, msgspec.json.encode(list(self._mine.values()))
                )
            except RedisUnavailable as error:
                logger.debug("work on generations is not reported: %s", error)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), EVERY)

    async def _all(self) -> dict[int, TaskReport]:
        """The newest report on each generation, of all gateways."""
        others: list[TaskReport] = []
        with suppress(RedisUnavailable):
            for process, value in (await self._reports.all()).items():
                if process != self._process:
                    # A report of another release that cannot be read is passed over.
                    with suppress(Undecodable):
                        others += _reports_in(value)
        found: dict[int, TaskReport] = {}
        for report in sorted([*others, *self._mine.values()], key=lambda one: one.begun):
            found[report.generation] = report
        return found
