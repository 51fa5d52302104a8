"""What time calls for: ``session.closed`` when a session was idle for long enough, ``resolution``
when a suspension expired, ``turn.ended`` when the lease of a turn ran out.

The owner of a live partition appends them to the log; the fold makes of them what they are. A timer
that rang is put off before its events are appended, so an event that got lost is sent again, with
the same id, and one that arrived has made the timer go. Which moment is meant is the worker's clock
against the broker's: a clock that is ahead closes sessions early by as much.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import islice, zip_longest
from typing import Any

from projections.errors import InvalidEvent, KafkaUnavailable, Overloaded
from projections.events.times import present
from projections.events.validation import Record, make_record
from projections.fold.timers import fired, next_timer, timed
from projections.names import Key, Position, partition_of
from projections.window.window import Window
from streams.partition.partition import Partition
from streams.runtime.log_fields import about

logger = logging.getLogger(__name__)

LIMIT, SECONDS = 100, 0.1
"""Conversations looked at in one round of a partition, and after how many seconds it begins with no
more of them: the next round, after those of the other partitions, takes the next ones.
"""
SEEN = 1_000
"""Of the timers that rang, so many of the earliest and of the latest are seen by a round, which
takes their tenants in turns: who lets thousands ring at once delays no other's.
"""
FIRST, LONG = 10, 0.02
"""Of those, how many are looked at first in one turn of the partition; twice as many as before in
the turn after one that took less than so many seconds. What is folded waits for the turn.
"""
AGAIN_MS = 30_000
"""How long an event may be on its way before it is sent again: twice the time after which an append
is unknown.
"""


async def fire_timers(partition: Partition, now_ms: int) -> None:
    """Append the events that a live partition's timers call for by ``now_ms``, and set each timer
    to when it matters next.

    Only for the live generation's owner, and without ``partition.turn``, which is taken here (the
    append itself is outside of it: nothing folds or waits for it). ``now_ms`` is the present for a
    partition that is folded to its end, and its checkpoint's time for one that is behind: what is
    not folded yet may be the message that keeps a session open. Conversations that are being
    restored wait, others do not wait for them.

    Raises:
        Fenced: the partition is another's now; nothing was appended.
        CorruptWindow, RedisUnavailable: as named; what rang rings again. Kafka being away is
            logged, and tried again after ``AGAIN_MS``.
    """
    keys, size = await _rang(partition, now_ms), FIRST
    ends = time.perf_counter() + SECONDS
    while keys:
        async with partition.turn:
            begun = time.perf_counter()
            await partition.check()
            due = await _look(partition, now_ms, keys[:size])
            took = time.perf_counter() - begun
        if not await _append(partition, due) or time.perf_counter() > ends:
            return
        del keys[:size]
        size = 2 * size if took < LONG else FIRST


async def _rang(partition: Partition, now_ms: int) -> list[Key]:
    """The conversations of a round: their tenants take turns, each one's earliest first."""
    read = partial(partition.store.timers, partition.generation, partition.number, now_ms)
    seen = await read(SEEN)
    if len(seen) == SEEN:
        seen += await read(SEEN, latest=True)
    lines: dict[str, list[Key]] = {}
    for key in dict.fromkeys(seen):
        lines.setdefault(key.tenant, []).append(key)
    taken = (key for turn in zip_longest(*lines.values()) for key in turn if key is not None)
    return list(islice(taken, LIMIT))


async def _append(partition: Partition, due: Sequence[tuple[Key, dict[str, Any]]]) -> bool:
    """Append these events; False where Kafka takes none now."""
    seals = partition.log.seals
    records = [record for record in _records(due) if not seals.is_erased(str(record.key).encode())]
    try:
        if records:
            await partition.log.append(records)
    except (KafkaUnavailable, Overloaded) as error:
        logger.warning(
            "%d events of timers of partition %d wait: %s", len(records), partition.number, error
        )
        return False
    return True


async def _look(
    partition: Partition, now_ms: int, keys: Sequence[Key]
) -> list[tuple[Key, dict[str, Any]]]:
    """The events that these conversations' timers call for by now, and the timers put off; whoever
    calls holds the turn.
    """
    windows = await partition.windows(keys)
    times = await _times(partition, [window for window in windows if window is not None])
    due: list[tuple[Key, dict[str, Any]]] = []
    later: dict[Key, int] = {}
    for key, window in zip(keys, windows, strict=True):
        later[key] = now_ms + AGAIN_MS
        if (
            window is None
            # A message that keeps its session open may wait behind its rollback.
            or not partition.checkpoint.includes(partition.checkpoint.latest, key)
            # Of a record that somebody put into another partition than its key's: what is appended
            # would never come here.
            or partition_of(key, partition.log.partitions) != partition.number
            # By which timers its sessions end is not known here.
            or key.tenant in partition.rules.unusable
        ):
            continue
        now = timed(window)
        last_ms, turn_from_ms = times.get(now.last), times.get(now.turn)
        events = fired(window, last_ms, now_ms, turn_from_ms)
        due += [(key, flat) for flat in events]
        if (
            not events
            and (last_ms is not None or not now.idle_ms)
            and (turn_from_ms is not None or not now.turn_ms)
        ):
            # It was set before the events' own times were known.
            later[key] = next_timer(now, last_ms or 0, turn_from_ms or 0) or later[key]
    await partition.store.put_off(partition.generation, partition.number, later)
    return due


async def _times(partition: Partition, windows: Sequence[Window]) -> dict[int, int]:
    """The broker's times of what timers count from, by offset, in ms: last messages where a session
    may close, and begins of leases.
    """
    timers = [timed(window) for window in windows]
    positions = [Position(partition.number, now.last) for now in timers if now.idle_ms]
    positions += [Position(partition.number, now.turn) for now in timers if now.turn_ms]
    rows = await partition.log.read(positions) if positions else {}
    return {position.offset: row.timestamp for position, row in rows.items()}


def _records(due: Iterable[tuple[Key, dict[str, Any]]]) -> Iterable[Record]:
    now = present()
    for key, flat in due:
        try:
            yield make_record(key, flat, where=f"timer of {key}", now=now, new_id=flat["id"])
        except InvalidEvent as error:
            # A suspension of another producer whose id no event of ours may carry: it stays open,
            # and holds nobody else up.
            logger.warning("a suspension cannot expire: %s", error, extra=about(key))
