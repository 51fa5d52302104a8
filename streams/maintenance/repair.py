"""Repair: windows folded from the log's first event are written into the store, in one step with
all that is kept beside them.

A write is fenced by the revision, as every write is, and bumps it: so a live owner is fenced by it,
drops its caches, loads and goes on, and does no harm to what was repaired nor comes to any. Where
an owner keeps writing in between, it is fenced before the log is read to the end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Container, Iterable, Sequence
from dataclasses import replace

from projections.errors import CorruptWindow, Healing
from projections.fold.timers import next_timer, timed
from projections.names import Key, Position
from projections.policy.policy import Rules
from projections.render.read_header import AWAITING
from projections.storage.listing import Listing, listed, place, places_of
from projections.storage.protocol import WindowStore
from projections.storage.records import NOTHING, Checkpoint, DueChange, Verdict, Write, write_of
from projections.storage.snapshots import encode_snapshot, stamp_of
from projections.window.window import Window
from streams.encryption.payload_cipher import body_sealer
from streams.log.log import Log
from streams.maintenance.compare import has_timer, is_due
from streams.partition.owned import Fenced
from streams.recovery.shadow_fold import ShadowFold
from streams.recovery.snapshot_topic import SnapshotTopic

ATTEMPTS = 60
POLITE = 2
"""So many attempts are made before the owner is fenced first."""
AT_ONCE = 100
"""Windows in one write."""


async def repair_windows(
    log: Log,
    store: WindowStore,
    generation: int,
    rules: Rules,
    partition: int,
    keys: Collection[Key],
    topic: SnapshotTopic | None = None,
    failed: Container[Key] = (),
) -> set[Key]:
    """Write the windows of these conversations as the log gives them; one that the log does not
    have is deleted. Returns those that are left as they are: the log has lost its first events, and
    the stored window is of more of them.

    Args:
        topic: gets the windows' snapshots, too: what was wrong in the store may have been wrong
            there.
        failed: what is in it when the log was folded is not written.

    Raises:
        Healing: the partition is being brought back from the log.
        Fenced: others wrote in between every time.
        KafkaUnavailable, RedisUnavailable, KeyUnusable: as named; what was written is right, and
            the repair may be repeated.
    """
    folded = ShadowFold(log, partition, rules, set(keys))
    order, kept = sorted(keys), set[Key]()
    truncated = (await log.beginning_offsets()).get(partition, 0) > 0
    for i in range(0, len(order), AT_ONCE):
        group = order[i : i + AT_ONCE]
        if truncated:
            kept |= await _of_more_events(folded, store, generation, group)
            group = [key for key in group if key not in kept]
        await _repair_group(folded, store, generation, group, topic, failed)
    return kept


async def _of_more_events(
    folded: ShadowFold, store: WindowStore, generation: int, keys: list[Key]
) -> set[Key]:
    """The conversations whose stored window is whole, and of more events than the log has."""
    number, found = folded.partition, set[Key]()
    for key in keys:
        try:
            checkpoint, (stored,) = await store.reader.read(generation, number, [key])
            window = None if stored is None else stored.load(key, number, folded.rules)
        except CorruptWindow:
            continue
        if checkpoint is None or window is None:
            continue
        await folded.advance(checkpoint.offset)
        ours = folded.windows.get(key)
        if window.meta.events > (0 if ours is None else ours.meta.events):
            found.add(key)
    return found


async def _repair_group(
    folded: ShadowFold,
    store: WindowStore,
    generation: int,
    keys: list[Key],
    topic: SnapshotTopic | None,
    failed: Container[Key],
) -> None:
    number = folded.partition
    for attempt in range(ATTEMPTS):
        checkpoint = await store.checkpoint(generation, number)
        if (
            checkpoint is None
            or checkpoint.healing
            or checkpoint.restoring
            or checkpoint.offset < folded.offset
        ):
            raise Healing(f"partition {number} is healing from the log: repair it afterwards")
        if attempt >= POLITE and checkpoint.offset > folded.offset:
            # Its owner then reads its checkpoint first: meanwhile the log is read to the same
            # place.
            held = await store.apply(generation, number, checkpoint, [])
            if held.verdict is Verdict.APPLIED:
                checkpoint = replace(checkpoint, revision=held.revision)
        await folded.advance(checkpoint.offset)
        keys = [key for key in keys if key not in failed]
        if not keys:
            return
        times = await _times(folded, keys)
        writes = [
            whole_write(key, folded.windows.get(key), times.get(key, checkpoint.timestamp))
            for key in keys
        ]
        if (await store.apply(generation, number, checkpoint, writes)).verdict is Verdict.APPLIED:
            if topic is not None:
                there = [window for key in keys if (window := folded.windows.get(key)) is not None]
                await publish(
                    folded.log, folded.rules, generation, number, checkpoint, there, topic
                )
            return
        await asyncio.sleep(0.01 * min(attempt, 10))
    raise Fenced(
        f"partition {number} could not be repaired: in {ATTEMPTS} attempts its owner wrote in"
        " between: try again when less comes in"
    )


async def _times(folded: ShadowFold, keys: Sequence[Key]) -> dict[Key, int]:
    """When each conversation was last active, by the broker's clock."""
    positions = {
        key: Position(folded.partition, folded.windows[key].meta.position)
        for key in keys
        if key in folded.windows
    }
    rows = await folded.log.read(
        position for position in positions.values() if position.offset >= 0
    )
    return {
        key: rows[position].timestamp for key, position in positions.items() if position in rows
    }


def whole_write(key: Key, window: Window | None, at_ms: int) -> Write:
    """The write after which a store holds this window and all that goes with it, whatever it held
    before; None: nothing of it.

    ``at_ms``: when it was last active. What a former release wrote of it into a former user's list
    stays.
    """
    states = tuple([place("state", key.tenant, name) for name in AWAITING])
    if window is None:
        return Write(
            key,
            True,
            [],
            [],
            [],
            [],
            DueChange.CLEAR,
            NOTHING,
            None,
            Listing(None, False, quarantined=False, left=states),
            anew=True,
            frees=True,
        )
    now = listed(window)
    places = places_of(key.tenant, now)
    return replace(
        write_of(window, NOTHING, at_ms),
        due=DueChange.SET if is_due(window) else DueChange.CLEAR,
        timer=next_timer(timed(window), at_ms, at_ms) if has_timer(window) else None,
        listing=Listing(
            None if now.erased else at_ms,
            now.suspended,
            now.quarantined,
            places,
            tuple([name for name in states if name not in places]),
        ),
    )


async def publish(
    log: Log,
    rules: Rules,
    generation: int,
    partition: int,
    checkpoint: Checkpoint,
    windows: Iterable[Window],
    topic: SnapshotTopic,
) -> None:
    """Write snapshots of windows that somebody else than their owner wrote, as of a checkpoint;
    raises KafkaUnavailable.

    The partition's owner finds these records to be a stranger's, and writes its own before its next
    marker.
    """
    stamp = stamp_of(generation, rules)
    rows: list[tuple[bytes, bytes | None]] = []
    for window in windows:
        name = str(window.key).encode()
        seal = body_sealer(log.seals, name, erased=window.meta.erased)
        rows.append(
            (name, encode_snapshot(window, stamp, checkpoint.offset, checkpoint.digest, seal))
        )
    await topic.put(partition, rows)
