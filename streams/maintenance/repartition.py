"""The log with another number of partitions: copied into topics of another prefix, while reads go
on and appends are refused.

Positions are new there (``streams.maintenance.log_copy``). What follows from the log is not copied:
the workers of the new topics announce summaries and memories, and fold windows, from the log.
The source stays as it was, but for appends; so going back is taking the old prefix again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from projections.errors import Conflict, TopicMismatch
from projections.events.times import present
from projections.redis.store import RedisStore
from streams.control.control_topic import Control
from streams.control.key_ring import KeyRing, encrypting
from streams.control.state import Copy, Generation, Maintenance
from streams.log.consumer_group import members
from streams.log.sole_writer import SoleWriter, sole_writer
from streams.log.topic_copies import (
    Copied,
    Extent,
    PartitionWriter,
    extents,
    keep_timestamps,
    read_partition,
)
from streams.log.topics import check_shapes, create_topics, delete_topics, lost_beginning
from streams.maintenance.backup import Progress, each
from streams.maintenance.log_copy import LogCopy, relocated_erasure
from streams.maintenance.position_map import PositionMap
from streams.settings.settings import Settings

QUIET = 2.0
"""Seconds without a new record after which what was under way has come."""
COPY = "copy/"
MAINTENANCE = "maintenance/"
LEFT = ("generation", "halt", "maintenance", "copy")
"""Kinds of control records that speak of the old topics, and stay there."""


class Report(msgspec.Struct):
    """What was copied: events and conversations' keys, and records that belong to nobody."""

    events: int
    keys: int
    strays: int
    resumed: int


async def copy_topics(
    settings: Settings, prefix: str, partitions: int, progress: Progress
) -> Report:
    """Copy the log into topics of another prefix, with so many partitions. An interrupted copy goes
    on. Appends stay refused at the end: the new topics take the old ones' place.

    Raises:
        Conflict: workers run, or another command writes the log.
        TopicMismatch: the target has records of its own, or was begun with another count; the
            source is not whole.
        InvalidBackup: what was written is not what was read.
        KeyUnusable: a master key that is in use is not configured.
        KafkaUnavailable: ask again.
    """
    target = msgspec.structs.replace(settings, topic_prefix=prefix, partitions=partitions)
    if prefix == settings.topic_prefix:
        raise TopicMismatch(
            f"the log already has the prefix {prefix}: choose another prefix for the copy"
        )
    await refuse_workers(settings)
    if wrong := await check_shapes(settings) + await lost_beginning(settings):
        raise TopicMismatch(wrong[0])
    async with sole_writer(settings) as sole:
        control = await Control(settings).start()
        try:
            live = control.state.live_generation
            await _prepare(target, settings.topic_prefix)
            if "" not in control.state.maintenance:
                record = Maintenance(present("seconds"), f"its log is copied to {prefix}", prefix)
                await control.write({MAINTENANCE: record})
            report = await _copy(settings, target, control, live, sole, progress)
        finally:
            await control.stop()
    if wrong := await check_shapes(target):
        raise TopicMismatch(f"copied, but {wrong[0]}")
    return report


async def refuse_workers(settings: Settings) -> None:
    """Raise Conflict while workers run: they append summaries and ends of sessions."""
    if await members(settings):
        raise Conflict(
            f"workers of the group {settings.group} run: stop them first (one that was killed"
            f" counts for {settings.session_timeout:g} s)"
        )


async def _prepare(target: Settings, source: str) -> None:
    """Create the topics, and note in them that they are being filled; or find that they are."""
    await create_topics(target, filled=["events"])
    found = await extents(target, "events")
    control = await Control(target).start()
    try:
        copy = control.state.copies.get("")
        mark = Copy(source, [0] * target.partitions)
        if (copy is None or copy.ends) and (
            control.state.live or any(extent.end for extent in found)
        ):
            raise TopicMismatch(
                f"topics of {target.topic_prefix} exist and are in use: choose another prefix"
            )
        if len(found) != target.partitions or copy not in (None, mark):
            raise TopicMismatch(
                f"topics of {target.topic_prefix} were begun with {len(found)} partitions, or as a"
                " copy of another log: drop them (`threadfold topics drop`), or name another prefix"
            )
        if copy is None:
            await control.write({COPY: mark})
    finally:
        await control.stop()


async def _copy(
    settings: Settings,
    target: Settings,
    control: Control,
    live: Generation,
    sole: SoleWriter,
    progress: Progress,
) -> Report:
    resumed: int | None = None
    async with _opened_keys(settings, control) as keys, sole.producer(target) as producer:
        keys.check()
        await keep_timestamps(target, ["events"], keep=True)
        while True:
            parts = await _quiet(settings)
            places = PositionMap([part.end for part in parts])
            try:
                copy = LogCopy(target, producer, keys, places, [0] * target.partitions, alone=True)
                found = await copy.resume(await extents(target, "events"))
                resumed = found if resumed is None else resumed
                await _write_events(settings, copy, parts, progress)
                if await extents(settings, "events") != parts:
                    continue  # an append came that was under way: the copy goes on
                events = await copy.compare(await extents(target, "events"))
                count = await _write_keys(settings, target, producer, places)
                await _write_control(settings, target, producer, live)
                break
            finally:
                places.close()
        sole.check()
        await keep_timestamps(target, ["events"], keep=False)
    return Report(events, count, copy.strays, resumed)


async def _quiet(settings: Settings) -> list[Extent]:
    """The log's partitions once nothing comes any more."""
    parts = await extents(settings, "events")
    while True:
        await asyncio.sleep(QUIET)
        now = await extents(settings, "events")
        if now == parts:
            return parts
        parts = now


async def _write_events(
    settings: Settings, copy: LogCopy, parts: Sequence[Extent], progress: Progress
) -> None:
    topic, total = settings.topic("events"), sum(part.end for part in parts)
    batches = [read_partition(settings, topic, n, part.end) for n, part in enumerate(parts)]
    await copy.write_all(batches, total, progress)


@asynccontextmanager
async def _opened_keys(settings: Settings, control: Control) -> AsyncIterator[KeyRing]:
    keys = KeyRing(settings, encrypting(control))
    try:
        yield await keys.start()
    finally:
        await keys.stop()


async def _write_keys(
    settings: Settings, target: Settings, producer: Any, places: PositionMap
) -> int:
    """Copy the keys topic; an erasure's position is given its new one."""
    writer = PartitionWriter(producer, target.topic("keys"), 0, exact=False)
    end = (await extents(settings, "keys"))[0].end
    count = 0
    async for record in each(read_partition(settings, settings.topic("keys"), 0, end)):
        await writer.write([relocated_erasure(record, places)])
        count += 1
    await writer.flush()
    return count


async def _write_control(
    settings: Settings, target: Settings, producer: Any, live: Generation
) -> None:
    """Copy tenants, keys and claims; then the live generation; last, that the copy is done."""
    writer = PartitionWriter(producer, target.topic("control"), 0, exact=False)
    end = (await extents(settings, "control"))[0].end
    async for record in each(read_partition(settings, settings.topic("control"), 0, end)):
        kind = (record.key or b"").partition(b"/")[0].decode("utf-8", "replace")
        if kind not in LEFT:
            await writer.write([record])
    generation = msgspec.structs.replace(live, partitions=target.partitions)
    now = int(time.time() * 1000)
    ends = [extent.end for extent in await extents(target, "events")]
    last: dict[str, Any] = {
        f"generation/{live.number}": generation,
        "generation/live": live.number,
        COPY: Copy(settings.topic_prefix, [0] * len(ends), ends),
    }
    for key, value in last.items():
        await writer.write([Copied(0, now, key.encode(), msgspec.json.encode(value), ())])
    await writer.flush()


async def drop_topics(settings: Settings, prefix: str) -> list[str]:
    """Delete the topics of a prefix, and what Redis has of them; returns their names.

    Raises:
        Conflict: it is the prefix in use, or its log is neither an unfinished copy nor one that was
            copied elsewhere.
        TopicMismatch: there are no such topics.
    """
    target = msgspec.structs.replace(settings, topic_prefix=prefix)
    if prefix == settings.topic_prefix:
        raise Conflict(f"{prefix} is the topic_prefix of these settings: its topics are in use")
    try:
        control = await Control(target).start()
    except TopicMismatch:
        raise TopicMismatch(f"there are no topics of prefix {prefix}: none is deleted") from None
    try:
        state = control.state
        moved, copy = state.maintenance.get(""), state.copies.get("")
        unfinished = copy is not None and copy.ends is None
        if not unfinished and (moved is None or moved.copied_to is None):
            raise Conflict(
                f"the log of {prefix} is neither an unfinished copy, nor copied to another prefix:"
                " its topics stay"
            )
        generations = list(state.generations.values())
    finally:
        await control.stop()
    store = RedisStore(settings.redis, prefix)
    try:
        for generation in generations:
            await store.drop_generation(generation.number, generation.partitions)
    finally:
        await store.close()
    return await delete_topics(target)
