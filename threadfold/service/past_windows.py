"""Windows as they were: folded from the log, up to one of its positions.

Nothing is stored of them. The positions of a conversation's events come from its present window
and its summaries, so no partition is scanned. They are folded and read in another process: a fold
of 20,000 events takes a core for two seconds, and other tenants' requests wait for none of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TypeVar

from projections.errors import InvalidRequest
from projections.events.codec import decode_event, decode_opaque
from projections.events.untrusted import Undecodable
from projections.fold.replay import Logged, replay
from projections.names import Key, Position
from projections.policy.policy import Failures, Rules
from projections.window.window import Window
from streams.encryption.payload_cipher import NotAuthentic, PayloadCipher, open_value
from streams.log.history import FEW_BYTES, Pieces, offsets_of, pieces_backwards
from streams.log.log import Log, Row
from streams.recovery.callable_failures import check_shown
from streams.runtime.keyed_limit import KeyedLimit
from streams.runtime.processor import Processor
from streams.settings.callables import load_callables

T = TypeVar("T")
MOST_EVENTS = 20_000
"""Events that a caller may have folded for one answer: about two seconds of a core."""
MOST_BYTES = 32 << 20
"""Bytes of events that are folded for one answer of a gateway: they are in its memory, twice while
they are handed to the other process.
"""
AT_A_TIME = 1
"""Folds of one tenant at a time."""
PATIENCE = 15.0
"""Seconds for which a read waits until it is its turn."""
Record = tuple[int, bytes, bool]
"""An event's offset and value, and whether its payload is opaque: its key is deleted."""


class PastWindows:
    """Folds windows as they were, where ``processor`` works. ``window_at`` returns a conversation's
    window once it includes a position; ``callables`` are those of the settings.
    """

    def __init__(
        self,
        log: Log,
        window_at: Callable[[Key, str], Awaitable[Window]],
        processor: Processor,
        callables: Mapping[str, str] = MappingProxyType({}),
        patience: float = PATIENCE,
    ) -> None:
        self._log = log
        self._window_at = window_at
        self._processor = processor
        self._callables = dict(callables)
        self._turns = KeyedLimit(AT_A_TIME, patience)

    async def read(
        self,
        key: Key,
        at: Position,
        rules: Rules,
        look: Callable[..., T],
        *args: object,
        most: int | None = None,
        most_bytes: int | None = None,
    ) -> T:
        """What ``look(window, *args)`` returns for the window after the conversation's last event
        at or before ``at``. ``look`` is a function of a module, without any effect.

        Args:
            most: events that may be folded; None: any number.
            most_bytes: bytes of their records, about; None: any number.

        Raises:
            InvalidRequest: there are more.
            Overloaded: too many others of the tenant are under way.
            CallableUnavailable: a callable of its policy is missing here, or failed.
            UnknownConversation, Erased, WaitTimedOut, Healing, CorruptWindow, RedisUnavailable: the
                present window cannot be read.
            KafkaUnavailable, KeyUnusable: the log cannot be read now.
            Others: as ``look`` and the processor do.
        """
        async with self._turns.of(key.tenant):
            now = await self._window_at(key, str(at))
            offsets = await offsets_of(self._log, now, below=at.offset + 1, most=most)
            if offsets is None:
                raise InvalidRequest(
                    f"the window at {at} is the fold of more than {most} events: choose an earlier"
                    " position"
                )
            records = await self._read(key, at, offsets, most_bytes)
            alone = rules.alone(key.tenant)
            return await self._processor.run(
                key.tenant, _look, key, at.partition, alone, self._callables, records, look, args
            )

    async def _read(
        self, key: Key, at: Position, offsets: Sequence[int], most_bytes: int | None
    ) -> list[Record]:
        records, size, pieces = (
            list[Record](),
            0,
            Pieces(self._log, at.partition, most_bytes=FEW_BYTES),
        )
        async for piece in pieces.all(offsets):
            size += piece.size
            if most_bytes is not None and size > most_bytes:
                raise InvalidRequest(
                    f"the window at {at} is the fold of more than {most_bytes >> 20} MiB of events,"
                    " the most that are folded for one answer"
                )
            records += await asyncio.to_thread(_records, piece.rows, key, self._log.seals)
        return records

    async def positions(self, window: Window, most: int) -> tuple[list[str], bool]:
        """The positions of the conversation's newest ``most`` events, oldest first, and whether
        these are all.

        Raises:
            KafkaUnavailable: the log cannot be read now.
        """
        found: list[int] = []
        async for _, piece in pieces_backwards(self._log, window):
            found += piece
            if len(found) > most:
                break
        kept = sorted(set(found))[-most:]
        return [window.position_of(offset) for offset in kept], len(found) <= most


def _records(rows: Mapping[Position, Row], key: Key, seals: PayloadCipher) -> list[Record]:
    """The conversation's records as another process can read them, ascending: what is sealed is
    opened here, where the keys are.
    """
    name, found = str(key).encode(), []
    for position in sorted(rows):
        row = rows[position]
        if row.key != name or row.value is None:
            continue
        try:
            value = open_value(seals, name, row.value)
        except NotAuthentic:
            continue
        found.append((position.offset, row.value if value is None else value, value is None))
    return found


def _look(
    key: Key,
    partition: int,
    rules: Rules,
    callables: dict[str, str],
    records: list[Record],
    look: Callable[..., T],
    args: tuple[object, ...],
) -> T:
    # Functions do not travel with the rules: they are imported where they are called.
    rules.callables = load_callables(callables)
    events: list[Logged] = []
    for offset, value, opaque in records:
        try:
            event = decode_opaque(value) if opaque else decode_event(value)
        except Undecodable:
            continue
        if event.source == key.source:
            events.append((offset, event))
    failures: Failures = {}
    window = replay(key, partition, rules.watched(failures), events)
    check_shown(failures, key)
    found = look(window, *args)
    # A render with `exact` cuts calls them, too.
    check_shown(failures, key)
    return found
