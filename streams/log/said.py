"""Events read back for what was said in them: in steps, and without the bytes of images and files.

What a reader holds is bounded by the text, however large the records are.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from projections.events.types import AnyEvent, FilePart, ImagePart, MessageEvent, ToolResultEvent
from projections.fold.replay import Logged
from projections.names import Key
from streams.log.history import Pieces, event_of
from streams.log.log import Log
from streams.runtime.time_slices import TimeSlices

MOST = 1_000
"""Events that are read at once at most."""


async def said_at(
    log: Log, key: Key, partition: int, offsets: Sequence[int]
) -> AsyncIterator[list[Logged]]:
    """The conversation's events at these offsets, in steps in the order given, ascending in each.

    What is not one of its events is left out. Others have their turns between two events.
    """
    steps = Pieces(log, partition, MOST).events(key, offsets, without_media)
    async for _, found in steps:
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
