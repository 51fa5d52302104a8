"""Run, rebuild, verify or drop a projection. Each call has connections of its own."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import NamedTuple

from projections.errors import TopicMismatch, UnknownProjection
from streams.control.control_topic import Control
from streams.control.custom_projections import ProjectionRecord
from streams.control.key_ring import KeyRing, encrypting
from streams.custom.memory_store import MemoryProjectionStore
from streams.custom.persistence import place_of
from streams.custom.projection import Projection, check_projection
from streams.custom.runner import ProjectionRunner
from streams.custom.store import RedisProjectionStore
from streams.custom.verify import ProjectionReport, verify_view
from streams.log.kafka_log import KafkaLog
from streams.log.retention import check_whole
from streams.log.topics import partition_count
from streams.settings.settings import Settings

Progress = Callable[[int, int], None]


class Parts(NamedTuple):
    """The open parts that a projection is run on."""

    control: Control
    log: KafkaLog
    store: RedisProjectionStore


@asynccontextmanager
async def opened(settings: Settings) -> AsyncIterator[Parts]:
    """The parts, connected, and closed at the end.

    Raises:
        KafkaUnavailable, TopicMismatch, KeyUnusable: as named.
    """
    async with AsyncExitStack() as stack:
        partitions = await partition_count(settings.require())
        control = Control(settings)
        await control.start()
        stack.push_async_callback(control.stop)
        keys = KeyRing(settings, encrypting(control))
        await keys.start()
        stack.push_async_callback(keys.stop)
        keys.check()
        if control.state.live is not None:
            control.state.live_generation.check_partitions(settings.topic("events"), partitions)
        log = KafkaLog(settings, partitions, seals=keys)
        stack.push_async_callback(log.stop)
        store = RedisProjectionStore(settings.redis, settings.topic_prefix)
        stack.push_async_callback(store.close)
        yield Parts(control, log, store)


async def run(settings: Settings, projection: Projection, *, signals: bool = False) -> None:
    """Fold the log into a projection's results until the task is cancelled or, with ``signals``,
    until SIGTERM or SIGINT.

    A higher version is built beside the live one, which is served until the new one is complete.
    Raises like ``ProjectionRunner.run``.
    """
    check_projection(projection)
    async with opened(settings) as parts:
        await _until_done(
            ProjectionRunner(settings, parts.control, parts.log, parts.store, projection), signals
        )


class Rebuilt(NamedTuple):
    """A generation, and whether it is live: it is not if the rebuild was stopped before its end."""

    generation: int
    live: bool


async def rebuild(
    settings: Settings,
    projection: Projection,
    *,
    signals: bool = False,
    progress: Progress | None = None,
) -> Rebuilt:
    """Fold the whole log into a new generation beside the live one, and make it live.

    An interrupted rebuild continues. Processes that run the projection switch by themselves.
    """
    check_projection(projection)
    async with opened(settings) as parts:
        runner = ProjectionRunner(
            settings, parts.control, parts.log, parts.store, projection, anew=True
        )
        runner.on_progress = progress
        await _until_done(runner, signals)
        return Rebuilt(
            runner.generation, parts.control.projection(projection.name).live == runner.generation
        )


async def verify(
    settings: Settings, projection: Projection, *, progress: Progress | None = None
) -> ProjectionReport:
    """Compare all values with a fold of the log from zero, while traffic runs.

    Raises:
        UnknownProjection: it has no results.
        LogTruncated: the log lost its beginning, so it cannot be folded from zero.
        TopicMismatch: the live results are of another version than this code.
        Healing, ProjectionFailed: as named.
    """
    check_projection(projection)
    async with opened(settings) as parts:
        record = parts.control.projection(projection.name)
        await check_whole(parts.log, settings.topic("events"), accept=settings.accept_truncated_log)
        number = record.live or 0
        if record.generations[number].version != projection.version:
            raise TopicMismatch(
                f"projection {projection.name}: version {record.generations[number].version} is"
                f" live, this code is version {projection.version}: verify with the code that is"
                " live, or run this one first"
            )
        return await verify_view(
            parts.log, parts.store, MemoryProjectionStore(), projection, number, progress
        )


async def drop(settings: Settings, name: str, *, everything: bool = False) -> list[int]:
    """Delete the results of old generations, or with ``everything`` of all; returns their numbers.

    Raises:
        UnknownProjection: no projection of that name has results.
    """
    async with opened(settings) as parts:
        if not parts.control.state.projections.get(name, ProjectionRecord()).generations:
            raise UnknownProjection(
                f"no projection {name} has results here: see `threadfold projection list`"
            )
        record = parts.control.projection(name)
        live = 0 if record.live is None else record.live
        old = {number for number in record.generations if everything or number < live}
        # The record first, so that no reader begins to read what is being deleted.
        if everything:
            await parts.control.change_projection(
                name, lambda before: before.emptied() if before.generations else None
            )
        else:
            await parts.control.change_projection(
                name,
                lambda before: before.without(old) if old & before.generations.keys() else None,
            )
        for number in sorted(old):
            for partition in range(len(record.generations[number].ends)):
                await parts.store.drop(place_of(name, number, partition))
        return sorted(old)


async def _until_done(runner: ProjectionRunner, signals: bool) -> None:
    loop = asyncio.get_running_loop()
    caught = (signal.SIGTERM, signal.SIGINT) if signals else ()
    for number in caught:
        loop.add_signal_handler(number, runner.stop)
    try:
        await runner.run()
    finally:
        for number in caught:
            loop.remove_signal_handler(number)
