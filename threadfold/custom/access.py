"""Running, rebuilding, verifying and dropping a projection, each with connections of its own: what
the commands call, and a service may.
"""

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
    """Keep a projection's results up with the log until the task is cancelled, or (``signals``)
    SIGTERM or SIGINT comes.

    A raised version is built beside the live one, which is served until the new one is complete.
    Raises as ``ProjectionRunner.run`` says.
    """
    check_projection(projection)
    async with opened(settings) as parts:
        await _until_done(
            ProjectionRunner(settings, parts.control, parts.log, parts.store, projection), signals
        )


class Rebuilt(NamedTuple):
    """A generation that was built, and whether readers see it; not yet when the building was
    stopped before its end.
    """

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

    One that was cut off goes on where it was; processes that run the projection go over to the new
    one by themselves.
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
        LogTruncated: the log has lost its beginning, so a fold of it says nothing.
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
    """Delete the results of all generations but the live one and those that are being built (or of
    all); returns their numbers.

    Raises:
        UnknownProjection: there are none of that name.
    """
    async with opened(settings) as parts:
        if not parts.control.state.projections.get(name, ProjectionRecord()).generations:
            raise UnknownProjection(
                f"no projection {name} has results here: see `threadfold projection list`"
            )
        record = parts.control.projection(name)
        gone = {
            number for number in record.generations if everything or number < (record.live or 0)
        }
        # The record goes first, so that nobody begins to read what is being deleted.
        if everything:
            await parts.control.change_projection(
                name, lambda before: before.emptied() if before.generations else None
            )
        else:
            await parts.control.change_projection(
                name,
                lambda before: before.without(gone) if gone & before.generations.keys() else None,
            )
        for number in sorted(gone):
            for partition in range(len(record.generations[number].ends)):
                await parts.store.drop(place_of(name, number, partition))
        return sorted(gone)


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
