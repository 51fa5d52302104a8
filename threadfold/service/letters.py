"""What operators do with dead letters: for the gateway, through a started backend. What the
commands do alike stands here, too.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from projections.errors import Erased, InvalidPosition
from projections.fold.quarantine import quarantine_of
from projections.names import Key, Position, parse_key, parse_position
from projections.window.meta import Quarantine
from streams.log.clients import SharedProducer, kafka_errors
from streams.log.kafka_log import KafkaLog
from streams.log.log import Raw
from streams.log.topics import partition_count
from streams.maintenance.dead_letters import DeadLetters, closing, decoded
from streams.partition.effects import letter_key
from streams.partition.step import POISON, RECORD, read_row
from streams.projector.effect_sink import Publisher
from streams.settings.settings import Settings
from threadfold.service.conversation_reader import ConversationReader

WAIT = 10.0
"""Seconds that a drop waits for the fold."""


async def listed(
    backend: ConversationReader, tenant: str | None = None, limit: int = 200
) -> dict[str, Any]:
    """The halted partitions, and at most ``limit`` parked conversations and records that are
    nobody's event each (of one tenant); ``all``: there are no more.

    Raises:
        Healing, CorruptWindow, RedisUnavailable, KafkaUnavailable: it cannot be known now.
    """
    async with _opened(backend) as letters:
        parked, records = await letters.quarantined(tenant), await letters.records(tenant)
    return {
        "halted": [
            {"partition": number, "since": halt.since, "what": halt.sentence(number)}
            for number, halt in backend.control.state.halted().items()
        ],
        "parked": [
            {
                "position": str(one.position),
                "tenant": one.key.tenant,
                "conversation": one.key.conversation,
                "cause": one.cause,
                "waiting": one.waiting,
            }
            for one in parked[:limit]
        ],
        "records": [
            {"position": str(one.position), "key": shown_key(one.key), "cause": one.cause}
            for one in records[:limit]
        ],
        "all": max(len(parked), len(records)) <= limit,
    }


async def inspected(backend: ConversationReader, position: str) -> dict[str, Any]:
    """The record at a position without its text: what it is, and how it stands.

    Raises:
        InvalidPosition: the log has none there.
        Erased: it is of an erased conversation.
        Others: as :func:`listed` says.
    """
    at = parse_position(position)
    async with _opened(backend) as letters:
        raw = await readable_record(letters, at)
        role, quarantine = await letters.role(at, raw)
        cause = await letters.why(at, raw) if role in (POISON, RECORD) else ""
        return {
            "position": position,
            "key": None if raw.key is None else shown_key(raw.key),
            "bytes": None if raw.value is None else len(raw.value),
            **decoded(read_row(letters.log.seals, raw)),
            **standing(role, quarantine, at, cause),
        }


async def retry(backend: ConversationReader, position: str) -> dict[str, Any]:
    """Fold the conversation of the record at a position on from where it is parked. What is not
    parked has nothing to do.

    Raises as ``DeadLetters.retry`` does, and:
        InvalidPosition: the record belongs to no conversation, or the log has none there.
    """
    at = parse_position(position)
    async with _opened(backend) as letters:
        raw = await letters.record(at)
        role, quarantine = await letters.role(at, raw)
        key = key_at(letters, at, raw, role)
        folded, left = (0, None) if quarantine is None else await letters.retry(key)
        return {
            "tenant": key.tenant,
            "conversation": key.conversation,
            "folded": folded,
            "parked": None if left is None else quarantine_of(at.partition, left),
        }


async def drop(
    backend: ConversationReader, position: str, reason: str | None = None
) -> dict[str, Any]:
    """Drop the event at a position by another event; take a record that is nobody's off the list.

    ``event`` is the position of that other event, null for a record; ``applied``: the fold has come
    to it within :data:`WAIT`, and ``parked`` says where the conversation is parked then. Nobody
    waits for a halted partition.

    Raises as ``DeadLetters.drop`` does.
    """
    at = parse_position(position)
    async with _opened(backend) as letters:
        raw = await letters.record(at)
        if (await letters.role(at, raw))[0] == RECORD:
            await close_record(backend.settings, at, raw)
            return {"event": None, "applied": True, "parked": None}
        key, place = await letters.drop(at, reason)
        halted = at.partition in backend.control.state.halted()
        applied, left = await letters.gone_on(key, at, place, 0.0 if halted else WAIT)
        shown = None if left is None or not applied else quarantine_of(at.partition, left)
        return {"event": str(place), "applied": applied, "parked": shown}


async def close_record(settings: Settings, at: Position, raw: Raw) -> None:
    """Take a record that is nobody's event off the list; raises :class:`KafkaUnavailable`."""
    shared = SharedProducer(settings)
    try:
        async with kafka_errors(settings, "writing a letter"):
            producer = await shared.get()
            await producer.send_and_wait(
                settings.topic("dead-letters"), closing(at), letter_key(raw.key)
            )
    finally:
        await shared.stop()


def key_at(letters: DeadLetters, at: Position, raw: Raw, role: str) -> Key:
    """The conversation of a record that plays this role.

    Raises:
        InvalidPosition: it belongs to none.
    """
    key = parse_key(raw.key) if raw.key is not None else None
    if role == RECORD or key is None:
        raise InvalidPosition(
            f"the record at {at} belongs to no conversation, so there is nothing to retry: remove"
            f" it from the list with `threadfold dead-letters drop {at}`"
        )
    return key


async def readable_record(letters: DeadLetters, at: Position) -> Raw:
    """The record at a position, for whoever shows something of it; raises :class:`InvalidPosition`
    where the log has none, and :class:`Erased` for one of an erased conversation, as history does.
    """
    raw = await letters.record(at)
    seals = letters.log.seals
    await seals.ready([raw])
    if raw.key is not None and seals.is_erased(raw.key):
        key = parse_key(raw.key)
        whose = shown_key(raw.key) if key is None else key.shown
        raise Erased(f"the record at {at} is not shown: {whose} was erased")
    return raw


def standing(role: str, quarantine: Quarantine | None, at: Position, cause: str) -> dict[str, Any]:
    """How a record stands: ``kind``, and where its conversation is ``parked`` and why."""
    found: dict[str, Any] = {"kind": role}
    if quarantine is not None:
        found["parked"] = quarantine_of(at.partition, quarantine)
    if role == POISON:
        found["now"] = cause or "this release can fold it: retry it"
    elif cause:
        found["cause"] = cause
    return found


def shown_key(key: bytes) -> str:
    """A record's key as text, whatever it is."""
    return key.decode("utf-8", "backslashreplace")


@asynccontextmanager
async def _opened(backend: ConversationReader) -> AsyncIterator[DeadLetters]:
    """The dead letters of the live generation, for one request: they are rarely asked for."""
    settings = backend.settings
    generation = (await backend.control.sync()).live_generation
    topic = KafkaLog(settings, await partition_count(settings, "dead-letters"), "dead-letters")
    sink = Publisher(settings, backend.log)
    try:
        yield DeadLetters(
            backend.log,
            topic,
            backend.store,
            generation.number,
            backend.live_rules(),
            sink,
            backend.snapshots,
            accept=settings.accept_truncated_log,
        )
    finally:
        await sink.stop()
        await topic.stop()
