"""Events read back for what was said in them: in steps, and without the bytes of images and files.

What a reader holds is bounded by the text, however large the records are.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from projections.events.content import text_of
from projections.events.types import (
    AnyEvent,
    Content,
    FilePart,
    ImagePart,
    MessageEvent,
    OtherEvent,
    ReasoningPart,
    ResolutionEvent,
    RollbackEvent,
    SessionClosedEvent,
    SummaryEvent,
    SuspensionEvent,
    TextPart,
    ToolResultEvent,
)
from projections.fold.replay import Logged
from projections.names import Key
from streams.log.history import Pieces, event_of
from streams.log.log import Log
from streams.runtime.time_slices import TimeSlices

MOST = 1_000
"""Events that are read at once at most."""
MOST_ANSWERED = 65_536
_WITH_PARTS = (MessageEvent, ToolResultEvent, ResolutionEvent)
_SAYING = (*_WITH_PARTS, SuspensionEvent, SummaryEvent, RollbackEvent, SessionClosedEvent)


async def said_at(
    log: Log, key: Key, partition: int, offsets: Sequence[int]
) -> AsyncIterator[list[Logged]]:
    """The conversation's events at these offsets, in steps in the order given, ascending in each.

    What is not one of its events is left out. Others have their turns between two events.
    """
    steps = Pieces(log, partition, MOST).events(key, offsets, as_said)
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
                yield raw.position.offset, as_said(event)


def as_said(event: AnyEvent) -> AnyEvent:
    """What is kept of an event: its texts, without the bytes of images, files and signatures, and
    of what a suspension was answered with the first ``MOST_ANSWERED`` characters, as no window
    counts it. Of an event that says nothing its id alone. Its tokens stay the same.
    """
    if isinstance(event, ResolutionEvent):
        event.data.content = _begin_of(event.data.content)
    elif not isinstance(event, _SAYING):
        return unsaid(event)
    if isinstance(event, _WITH_PARTS) and isinstance(event.data.content, list):
        for part in event.data.content:
            if isinstance(part, ImagePart):
                part.image_url.url = ""
            elif isinstance(part, FilePart):
                part.file = {}
            elif isinstance(part, ReasoningPart):
                part.signature = None
    return event


def unsaid(event: AnyEvent) -> AnyEvent:
    """An event of the same id that says nothing."""
    return OtherEvent(specversion="1.0", id=event.id, type="", source=event.source)


def chars_of(event: AnyEvent) -> int:
    """Characters of what an event says: its texts, and the arguments of its calls."""
    if isinstance(event, SuspensionEvent):
        return len(event.data.prompt or "")
    if not isinstance(event, _WITH_PARTS):
        return 0
    calls = (isinstance(event, MessageEvent) and event.data.tool_calls) or ()
    return len(text_of(event.data.content)) + sum(len(call.arguments) for call in calls)


def _begin_of(content: Content) -> Content:
    if content is None or isinstance(content, str):
        return content and content[:MOST_ANSWERED]
    left = MOST_ANSWERED
    for part in content:
        if isinstance(part, TextPart):
            part.text = part.text[:left]
            left -= len(part.text)
    return content
