"""Dead letters for operators: which conversations are quarantined and which records are nobody's,
and how each is tried again or taken out.

What is quarantined now stands in the windows themselves (the store lists the quarantined ones); the
topic names records that are nobody's event, as far back as it is kept. It is written at least
once, so a letter may be there several times.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from projections.errors import CallableFailed, CorruptWindow, Healing, InvalidPosition, LogTruncated
from projections.events.codec import short_type
from projections.events.times import present
from projections.events.types import OtherEvent
from projections.events.validation import make_record
from projections.fold.apply import apply
from projections.names import Key, Position, parse_key, partition_of
from projections.policy.policy import Failures, Rules
from projections.storage.layout import Mark
from projections.storage.listing import QUARANTINED, Found
from projections.storage.protocol import WindowStore
from projections.storage.records import Checkpoint, StoreMark, Verdict, write_of
from projections.window.meta import Quarantine
from projections.window.window import Window
from streams.log.log import Log, Raw
from streams.log.retention import WHAT_TO_DO
from streams.log.rollback_history import fetch_needed
from streams.maintenance.open_records import OpenRecord, open_records
from streams.maintenance.repair import publish
from streams.partition.effects import DeadLetter, Effects, EffectSink
from streams.partition.owned import Fenced
from streams.partition.step import (
    POISON,
    RECORD,
    InvalidRecord,
    StepResult,
    astray,
    go_on,
    read_row,
)
from streams.recovery.callable_failures import check_callables
from streams.recovery.snapshot_topic import SnapshotTopic
from streams.runtime.log_fields import about

PAGE = 500
WAITING = "waiting"
"""What an event is, besides poison, that comes after the one at which its conversation is
quarantined.
"""
logger = logging.getLogger(__name__)
ATTEMPTS = 60


@dataclass(frozen=True, slots=True)
class QuarantinedHere:
    """A quarantined conversation, at which event and why, and how many later ones wait."""

    key: Key
    position: Position
    cause: str
    waiting: int


@dataclass(slots=True)
class DeadLetters:
    """The dead letters of one generation.

    ``letters`` is the dead-letters topic. ``sink`` gets the effects of a retry, ``snapshots`` the
    windows it gives. ``accept``: a retry goes on with what is left where the log lost its
    beginning.
    """

    log: Log
    letters: Log
    store: WindowStore
    generation: int
    rules: Rules
    sink: EffectSink
    snapshots: SnapshotTopic | None = None
    accept: bool = field(default=False, kw_only=True)

    # -- looking

    async def quarantined(self, tenant: str | None = None) -> list[QuarantinedHere]:
        """Quarantined conversations (of one tenant), by position. One whose window cannot be read
        is logged and passed over; otherwise it raises like :meth:`window`.
        """
        found: list[QuarantinedHere] = []
        async for key, number in self._listed():
            if tenant is not None and key.tenant != tenant:
                continue
            try:
                _, _, window, _ = await self.window(key, number)
            except CorruptWindow as error:
                logger.warning("a parked conversation is not listed: %s", error, extra=about(key))
                continue
            at = None if window is None else window.meta.quarantine
            if at is not None:
                place = Position(number, at.offset)
                found.append(QuarantinedHere(key, place, at.cause, at.count))
        return sorted(found, key=lambda one: one.position)

    async def records(self, tenant: str | None = None) -> list[OpenRecord]:
        """The records that are nobody's event (of one tenant, as far as their keys say), by
        position; each once.
        """
        return await open_records(self.letters, tenant)

    async def count(self) -> tuple[int, int]:
        """How many conversations are quarantined, and how many records are nobody's event."""
        return len([key async for key, _ in self._listed()]), len(await self.records())

    async def _listed(self) -> AsyncIterator[tuple[Key, int]]:
        """The conversations in the lists of quarantined ones, each with its partition."""
        for number in range(self.log.partitions):
            before: Found | None = None
            while page := await self.store.listed(
                self.generation, number, QUARANTINED, before, PAGE
            ):
                before = page[-1]
                for item in page:
                    key = parse_key(item.conversation.encode())
                    # Earlier releases folded records in another partition than their key's.
                    if key is not None and partition_of(key, self.log.partitions) == number:
                        yield key, number

    async def record(self, position: Position) -> Raw:
        """The record at a position; raises :class:`InvalidPosition` where the log has none."""
        raw = (await self.log.read([position])).get(position)
        if raw is None:
            begin = (await self.log.beginning_offsets()).get(position.partition, 0)
            gone = (
                f" any more, which begins at offset {begin} in that partition"
                if position.offset < begin
                else ""
            )
            raise InvalidPosition(
                f"position {position} is not in the log{gone}: see `threadfold dead-letters list`"
            )
        return raw

    async def window(
        self, key: Key, number: int | None = None, rules: Rules | None = None
    ) -> tuple[int, Checkpoint, Window | None, StoreMark]:
        """A conversation's window with its partition, checkpoint and mark.

        Raises:
            Healing, CorruptWindow, RedisUnavailable: it cannot be read now.
        """
        number = partition_of(key, self.log.partitions) if number is None else number
        checkpoint, (stored,) = await self.store.reader.read(self.generation, number, [key])
        if checkpoint is None or checkpoint.heals(key):
            raise Healing(f"partition {number} is healing from the log: try again shortly")
        window, mark = (
            (None, StoreMark()) if stored is None else stored.open(key, number, rules or self.rules)
        )
        return number, checkpoint, window, mark

    async def role(self, position: Position, raw: Raw) -> tuple[str, Quarantine | None]:
        """What a record is now: ``poison``, ``waiting``, ``record`` (nobody's) or ``folded``; and
        where its conversation is quarantined.
        """
        key = parse_key(raw.key) if raw.key is not None else None
        found = read_row(self.log.seals, raw)
        if (
            key is None
            or astray(key, position.partition, self.log.partitions) is not None
            or (isinstance(found, InvalidRecord) and not found.quarantines)
        ):
            return RECORD, None
        _, _, window, _ = await self.window(key, position.partition)
        quarantine = None if window is None else window.meta.quarantine
        if quarantine is None or position.offset < quarantine.offset:
            return "folded", None
        return (POISON if position.offset == quarantine.offset else WAITING), quarantine

    async def why(self, position: Position, raw: Raw) -> str:
        """Why the fold fails on the event at which a conversation is quarantined, in the error's
        own words; why it cannot be told here, where a callable could not do its work in this
        process; "" where it does not fail (any more).
        """
        key = parse_key(raw.key) if raw.key is not None else None
        found = read_row(self.log.seals, raw)
        if isinstance(found, InvalidRecord):
            return found.cause
        if key is None:
            return ""
        failures: Failures = {}
        rules = self.rules.alone(key.tenant).watched(failures)
        _, _, window, _ = await self.window(key, position.partition, rules)
        if (
            window is None
            or window.meta.quarantine is None
            or window.meta.quarantine.offset != position.offset
        ):
            return ""
        window = window.copy()
        window.release()
        try:
            outcome = apply(window, position.offset, found)
            if outcome.target is not None or outcome.texts:
                apply(window, position.offset, found, await fetch_needed(self.log, window, outcome))
        except (KeyboardInterrupt, SystemExit, MemoryError, asyncio.CancelledError):
            raise
        except BaseException as error:  # noqa: BLE001 (whatever it is, it is what is asked for)
            return f"{type(error).__name__}: {error}"
        try:
            check_callables(failures, key)
        except CallableFailed as failed:
            return str(failed).removeprefix("nothing was changed: ")
        return ""

    # -- acting

    async def retry(self, key: Key) -> tuple[int, Quarantine | None]:
        """Fold a quarantined conversation on from the event at which it is quarantined, with the
        code at hand, and write it.

        Returns:
            How many events were folded, and where it is quarantined now; None: nowhere.

        Raises:
            InvalidPosition: it is not quarantined.
            LogTruncated: events that wait were lost with the log's beginning, and that is not
                accepted.
            CallableFailed: a callable of its policy could not do its work here.
            Healing, CorruptWindow, KafkaUnavailable, RedisUnavailable, KeyUnusable: nothing was
                changed.
            Fenced: others wrote in between every time.
        """
        for attempt in range(ATTEMPTS):
            failures: Failures = {}
            rules = self.rules.alone(key.tenant).watched(failures)
            number, checkpoint, window, mark = await self.window(key, rules=rules)
            quarantine = None if window is None else window.meta.quarantine
            if window is None or quarantine is None:
                raise InvalidPosition("it is not parked: see `threadfold dead-letters list`")
            begin = (await self.log.beginning_offsets())[number]
            if quarantine.offset < begin and not self.accept:
                raise LogTruncated(
                    f"it is parked at {Position(number, quarantine.offset)}, and the log begins at"
                    f" offset {begin}, so the events it would go on with are missing: {WHAT_TO_DO}"
                )
            result = StepResult()
            now = await go_on(self.log, window, result, again=True)
            left = now.meta.quarantine
            if left is not None and left.offset == quarantine.offset:
                return 0, left
            check_callables(failures, key)
            await self._publish(number, key, result)
            if self.snapshots is not None:
                # No event of the log says that it was tried again: a lost store would bring the
                # quarantined window back. So this comes first.
                await publish(
                    self.log, self.rules, self.generation, number, checkpoint, [now], self.snapshots
                )
            write = write_of(now, mark._replace(layout=Mark()), checkpoint.timestamp)
            if (
                await self.store.apply(self.generation, number, checkpoint, [write])
            ).verdict is Verdict.APPLIED:
                return len(result.outcomes), left
            await asyncio.sleep(0.01 * min(attempt, 10))
        raise Fenced(
            f"{key} could not be written: its partition's owner wrote during each of {ATTEMPTS}"
            " attempts: try again"
        )

    async def _publish(self, number: int, key: Key, result: StepResult) -> None:
        """Publish the effects of the events that were folded only now, before the window is
        written.
        """
        effects = Effects()
        for event, outcome in result.outcomes:
            effects.add(key, event, outcome)
        name = str(key).encode()
        effects.dead += [
            DeadLetter(Position(number, letter.offset), name, letter.cause, letter.kind)
            for letter in result.letters
        ]
        if effects:
            await self.sink.publish(number, effects, [])

    async def drop(self, position: Position, reason: str | None = None) -> tuple[Key, Position]:
        """Append the event that takes another one out; returns its conversation and position. The
        owner folds on when it comes to it.

        It may be repeated: its id follows from the position.

        Raises:
            InvalidPosition: no conversation is quarantined at the position; nor does it wait in
                one, and could not be read there.
            KafkaUnavailable: unknown whether it is in; drop it again.
        """
        raw = await self.record(position)
        role, quarantine = await self.role(position, raw)
        key = parse_key(raw.key) if raw.key is not None else None
        if key is None or quarantine is None or role not in (POISON, WAITING):
            raise InvalidPosition(
                f"position {position} parks no conversation: see `threadfold dead-letters list`"
            )
        await self.log.seals.ready([raw])
        if role == WAITING and not isinstance(read_row(self.log.seals, raw), InvalidRecord):
            # Nothing says that it is at fault, and once dropped it is missing in the window for
            # good.
            at = Position(position.partition, quarantine.offset)
            raise InvalidPosition(
                f"position {position} only waits, until {key} goes on from {at}, where it is"
                " parked: drop or retry that one"
            )
        flat: dict[str, Any] = {"type": "event.dropped", "position": str(position)}
        if reason:
            flat["reason"] = reason
        record = make_record(
            key, flat, where="drop", now=present(), new_id=f"dropped-{position}", operator=True
        )
        (at,) = await self.log.append([record])
        return key, at

    async def gone_on(
        self, key: Key, dropped: Position, at: Position, seconds: float
    ) -> tuple[bool, Quarantine | None]:
        """Wait until the fold has come to a drop at ``at``: whether it has in ``seconds``, and
        where the conversation is quarantined then.
        """
        deadline = time.monotonic() + seconds
        while True:
            _, checkpoint, window, _ = await self.window(key, at.partition)
            quarantine = None if window is None else window.meta.quarantine
            if (
                checkpoint.offset >= at.offset
                or quarantine is None
                or quarantine.offset != dropped.offset
            ):
                return True, quarantine
            if time.monotonic() > deadline:
                return False, quarantine
            await asyncio.sleep(0.05)


def closing(position: Position) -> bytes:
    """The letter that takes a record which is nobody's event off the list."""
    return msgspec.json.encode(
        {
            "position": str(position),
            "cause": "an operator dropped it",
            "kind": RECORD,
            "closed": True,
        }
    )


def decoded(found: object) -> dict[str, Any]:
    """What can be shown of an event without its payload."""
    if isinstance(found, InvalidRecord):
        return {}
    kind = found.type if isinstance(found, OtherEvent) else short_type(found.__struct_config__.tag)  # type: ignore[attr-defined]
    return {
        "type": kind,
        "id": getattr(found, "id", None),
        "source": getattr(found, "source", None),
        "time": getattr(found, "time", None),
    }
