"""Quarantined conversations: the fold failed on an event, so the window stays as it was before it,
and what comes after waits in the log.

Where a conversation is quarantined is part of its window, so a restart, a snapshot, a rebuild and a
verify all know it, and a replay quarantines it at the same event. Everything here is pure;
``streams.partition.step`` reads the log for what a quarantined conversation goes on with.
"""

from __future__ import annotations

from typing import Any

from projections.errors import InvalidPosition, LogTruncated, UnusablePolicy
from projections.events.types import AnyEvent, EventDroppedEvent, absolute
from projections.names import Position, parse_position
from projections.window.meta import Quarantine

_CONTROL_FLOW = (MemoryError, KeyboardInterrupt, SystemExit, GeneratorExit)


def waiting_offsets(quarantine: Quarantine) -> list[int]:
    """The offsets of the events that wait, as far as they are carried: all of them while they are
    :data:`projections.window.log_progress.MAX_WAITING` or fewer.
    """
    return absolute(quarantine.waiting)


def dropped_offset(event: AnyEvent, partition: int) -> int | None:
    """The offset that an ``event.dropped`` takes out of this partition; None for any other
    event.
    """
    if type(event) is not EventDroppedEvent:
        return None
    try:
        position = parse_position(event.data.position)
    except InvalidPosition:
        return None
    return position.offset if position.partition == partition else None


def is_poison(error: BaseException) -> bool:
    """Whether what the fold raised is the event's doing; a native library's panic, which is no
    ``Exception``, is as well.
    """
    return not isinstance(error, _CONTROL_FLOW)


def cause_of(error: BaseException) -> str:
    """Why the fold failed, without the error's own text: that may quote the event, and dead letters
    outlive an erasure.
    """
    if isinstance(error, UnusablePolicy | LogTruncated):
        return str(error)
    at, where = error.__traceback__, ""
    while at is not None:
        code = at.tb_frame.f_code
        where, at = (
            f" in {at.tb_frame.f_globals.get('__name__', '?')}.{code.co_qualname}",
            at.tb_next,
        )
    return f"folding it raised {type(error).__name__}{where}"


def quarantine_of(partition: int, quarantine: Quarantine) -> dict[str, Any]:
    """Where and why a conversation is quarantined, as callers see it; ``waiting`` is how many later
    events wait.
    """
    return {
        "position": str(Position(partition, quarantine.offset)),
        "cause": quarantine.cause,
        "waiting": quarantine.count,
    }
