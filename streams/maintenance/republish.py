"""The topic of memories made anew from the conversations' logs: what they teach is published again.

It says the same as before, so whoever has it already takes nothing new from it. Nothing is read
from Redis, and no model is called.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing
from typing import NamedTuple

from projections.events.codec import decode_opaque, full_type
from projections.events.types import AnyEvent
from projections.events.untrusted import Undecodable
from projections.fold.outcomes import Outcome, Taught
from projections.names import Key, Position
from projections.policy.policy import Rules
from streams.log.log import Log, Raw
from streams.partition.effects import Effects, EffectSink
from streams.recovery.shadow_fold import ShadowFold

AT_ONCE = 2_000
"""Records published at once."""
_OUTLIVE = frozenset(map(full_type, ("conversation.erased", "memory.deleted")))
"""What is still said of an erased log: it has no text of a memory."""
Progress = Callable[[int, int], None]


class Announced(NamedTuple):
    """A record of the log that changes the long-term memory, and what it changes."""

    key: Key
    raw: Raw
    taught: Taught


async def announced(
    log: Log,
    partition: int,
    rules: Rules,
    end: int,
    progress: Callable[[int], None] | None = None,
) -> AsyncIterator[Announced]:
    """What a partition's conversations announce to the long-term memory up to an offset, in order,
    found by folding them from their first events.

    Of an erased log there are the erasure and deletions, which may be about what other logs taught:
    its texts are not said once more.
    """
    taught: dict[int, tuple[Key, Taught]] = {}

    def heard(key: Key, event: AnyEvent, outcome: Outcome) -> None:
        del event
        if outcome.taught is not None:
            taught[outcome.offset] = key, outcome.taught

    fold = ShadowFold(log, partition, rules, None, heard=heard)
    await fold.advance(end - 1, progress)
    erased = {key for key, window in fold.windows.items() if window.meta.erased}
    fold.windows.clear()
    if not taught:
        return
    async with aclosing(log.stream({partition: (min(taught), max(taught))})) as batches:
        async for _, rows in batches:
            for row in rows:
                if row.offset in taught and row.value is not None:
                    key, change = taught[row.offset]
                    if key not in erased or _outlives_erasure(row.value):
                        at = Position(partition, row.offset)
                        yield Announced(key, Raw(at, row.key, row.value, row.timestamp), change)


def _outlives_erasure(value: bytes) -> bool:
    try:
        return decode_opaque(value).type in _OUTLIVE
    except Undecodable:
        return False


async def republish(
    log: Log, rules: Rules, sink: EffectSink, progress: Progress | None = None
) -> int:
    """Publish everything again that conversations ever taught; returns how many records of their
    logs did.

    Raises:
        KafkaUnavailable: unknown how much is published; it may be repeated.
        KeyUnusable: the log cannot be read without a master key that is missing.
    """
    ends = await log.end_offsets()
    done, count, total = 0, 0, sum(ends.values())

    def tell(at: int) -> None:
        if progress is not None:
            progress(min(done + at, total), total)

    for partition, end in sorted(ends.items()):
        some: list[Announced] = []
        async for one in announced(log, partition, rules, end, tell):
            some.append(one)
            if len(some) == AT_ONCE:
                await _publish(sink, partition, some)
                count, some = count + len(some), []
        await _publish(sink, partition, some)
        count, done = count + len(some), done + end
        tell(0)
    return count


async def _publish(sink: EffectSink, partition: int, some: Sequence[Announced]) -> None:
    taught = [(one.key, one.raw.offset, one.taught) for one in some]
    await sink.publish(partition, Effects(taught=taught), [one.raw for one in some])
