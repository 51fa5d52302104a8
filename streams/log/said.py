"""Events read back for what was said in them: in steps, and without the bytes of images and files.

What a reader holds is bounded by the text, however large the records are.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from projections.events.types import AnyEvent, FilePart, ImagePart, MessageEvent, ToolResultEvent
from projections.fold.replay import Logged
from projections.names import Key, Position
from streams.log.history import event_of
from streams.log.log import Log
from streams.runtime.time_slices import TimeSlices

STEP_BYTES = 16 << 20
"""Bytes of records that are read at once, by the mean size of those read before."""
FIRST, MOST = 16, 1_000
"""Events that are read at first, while it is not known how large they are, and at most at once."""


async def said_at(
    log: Log, key: Key, partition: int, offsets: Sequence[int]
) -> AsyncIterator[list[Logged]]:
    """The conversation's events at these offsets, in steps in the order given, ascending in each.

    What is not one of its events is left out. Others have their turns between two events.
    """
    done, size, count = 0, 0, FIRST
    while done < len(offsets):
        step = offsets[done : done + count]
        rows = await log.read(Position(partition, offset) for offset in step)
        found: list[Logged] = []
        with TimeSlices().begin() as part:
            for position in sorted(rows):
                if part.over:
                    await part.rest()
                raw = rows.pop(position)
                size += len(raw.value or b"")
                event = event_of(raw, key, log.seals)
                if event is not None:
                    found.append((position.offset, without_media(event)))
        done += len(step)
        count = max(1, min(MOST, STEP_BYTES * done // max(1, size)))
        yield found


async def said_between(
    log: Log, key: Key, partition: int, first: int, last: int
) -> AsyncIterator[Logged]:
    """The conversation's events from offset ``first`` to ``last``, both included, ascending."""
    with TimeSlices().begin() as part:
        async for raw in log.scan(partition, first, last):
            if part.over:
                await part.rest()
            event = event_of(raw, key, log.seals)
            if event is not None:
                yield raw.position.offset, without_media(event)


def without_media(event: AnyEvent) -> AnyEvent:
    """The event with the bytes of its images and files taken out; its tokens stay the same."""
    if isinstance(event, MessageEvent | ToolResultEvent) and isinstance(event.data.content, list):
        for part in event.data.content:
            if isinstance(part, ImagePart):
                part.image_url.url = ""
            elif isinstance(part, FilePart):
                part.file = {}
    return event
