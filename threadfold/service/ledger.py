"""The ledger of model calls: what a model was sent, recorded on a topic of its own, and rendered
again later from the log.

A record holds the digest of the messages, not the messages: the log and the rules of the generation
that was live give them back. Nothing of the ledger is in the log, so nothing of it can enter a
window.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import re
import struct
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, Literal

import msgspec

from projections.errors import Erased, EventTooLarge, InvalidEvent, InvalidPosition, UnknownRender
from projections.events.json_limits import why_not_kept
from projections.events.size_limits import MAX_CONTROL_BYTES, MAX_NAME
from projections.events.validation import Record, explain
from projections.fold.replay import replay
from projections.names import Key, Position, make_key, parse_key, parse_position, partition_of
from projections.policy.policy import Rules
from projections.render.fit_to_limit import DoesNotFit
from projections.window.window import Window
from streams.compaction.requests import policy_version
from streams.control.follower import Control
from streams.encryption.payload_cipher import NotAuthentic, PayloadCipher, open_value
from streams.log.history import event_of, pieces_backwards, read_events
from streams.log.log import KafkaLog, Log, Raw
from streams.log.topics import partition_count
from streams.settings.settings import Settings
from threadfold.service.documents import Messages, document, messages_of
from threadfold.service.drafts import new_id

TYPE = "threadfold.model.called.v1"
SCAN_PART = 2_000
"""Records read at once where the newest of a conversation are looked for."""
_PLACE = struct.Struct(">iq")
_CHECK = 9
_DIGEST = re.compile(r"[0-9a-f]{64}")


class ModelCalled(msgspec.Struct, omit_defaults=True, kw_only=True):
    """One call of a model. ``tokens`` are the render's, ``latency_ms`` milliseconds, ``max_tokens``
    what the context was asked with.

    ``generation`` is threadfold's own: the generation that was live when the call was recorded.
    """

    model: str
    render_digest: str
    position: str
    format: Literal["openai", "anthropic", "events", "rendered"]
    tokens: int
    summary_id: str | None = None
    policy: str | None = None
    reported_usage: dict[str, Any] | None = None
    latency_ms: float | None = None
    max_tokens: int | None = None
    generation: int | None = None


class _Stored(msgspec.Struct):
    id: str
    type: str
    source: str
    data: ModelCalled
    time: str | None = None


_FIELDS = frozenset(ModelCalled.__struct_fields__) - {"generation"}
_decode = msgspec.json.Decoder(_Stored).decode


class Ledger:
    """Records model calls and renders them again. ``window_at`` gives a conversation's window once
    it includes a position.
    """

    def __init__(
        self,
        settings: Settings,
        control: Control,
        log: Log,
        window_at: Callable[[Key, str], Awaitable[Window]],
    ) -> None:
        self._settings = settings
        self._control = control
        self._log = log
        self._window_at = window_at
        self._topic: KafkaLog | None = None
        self._opening = asyncio.Lock()

    async def stop(self) -> None:
        """Close the clients of the renders topic, where it was used."""
        if self._topic is not None:
            await self._topic.stop()

    async def record(self, tenant: str, conversation: str, body: object) -> str | None:
        """Record a model call and return the record's id, once it is safe; None where the tenant's
        policy has ``renders`` off.

        That the position is in the log and the digest right is not checked here: :meth:`show`
        tells.

        Raises:
            InvalidName, InvalidEvent, InvalidPosition, EventTooLarge: the call is not described as
            it must be; nothing was recorded. TopicMismatch: there is no renders topic. Overloaded,
            KafkaUnavailable: as ``streams.log.log.Log.append`` says; a repeat is a record of its
            own.
        """
        key = make_key(tenant, conversation)
        called = read_called(body)
        if parse_position(called.position).partition != partition_of(key, self._log.partitions):
            raise InvalidPosition(
                f"render: field position: {called.position} is not one of conversation"
                f" {conversation}"
            )
        generation = self._control.state.live_generation
        if not self._control.state.rules(generation).for_conversation(tenant, None).renders:
            return None
        called.generation = generation.number
        topic = await self._opened()
        (position,) = await topic.append([_record(key, called)])
        return write_id(key, position)

    async def show(self, render_id: str, tenant: str | None = None) -> dict[str, Any]:
        """A recorded call, rendered again from the conversation's log up to the recorded position:
        all its events are read and folded.

        Returns ``{"id", "conversation", "time", "record", "messages", "system"?, "render_digest",
        "agrees", "why"}``: ``messages`` as raw JSON (None where they do not fit any more), ``why``
        the reasons found where the digests differ. It is rendered under the rules of the generation
        that was live then, where there still are any. ``tenant`` None lets any tenant's be seen.

        Raises:
            UnknownRender: no such record, or not this tenant's. Erased: the conversation was
            erased. WaitTimedOut, Healing, CorruptWindow, RedisUnavailable, UnknownConversation: the
            conversation's window, which knows where its
                events stand, cannot be read now.
            KafkaUnavailable: the log cannot be read now.
        """
        key, stored = await self._read(render_id, tenant)
        called = stored.data
        shown: dict[str, Any] = {
            "id": render_id,
            "conversation": key.conversation,
            "time": stored.time,
            "record": called,
        }
        at = parse_position(called.position)
        if (await self._log.end_offsets())[at.partition] <= at.offset:
            lost = f"the log does not reach to position {called.position}"
            return {
                **shown,
                "messages": None,
                "render_digest": None,
                "agrees": False,
                "why": [lost],
            }
        rules, why = self._rules_of(called)
        window = await self._fold(key, at, rules)
        try:
            again: Messages | None = await asyncio.to_thread(
                lambda: messages_of(document(window, called.format, called.max_tokens))
            )
        except DoesNotFit as error:
            again = None
            why.append(str(error))
        agrees = again is not None and again.digest == called.render_digest
        if again is not None and again.system is not None:
            shown["system"] = again.system
        shown["messages"] = None if again is None else again.messages
        shown["render_digest"] = None if again is None else again.digest
        why = [] if agrees else why + await self._differences(key, at, called, window, again)
        return {**shown, "agrees": agrees, "why": why}

    async def last(self, tenant: str, conversation: str, count: int) -> list[dict[str, Any]]:
        """The conversation's newest ``count`` records, newest first, as ``{"id", "time",
        "record"}``; the topic is searched backwards.

        Raises:
            InvalidName: as named.
            TopicMismatch, KafkaUnavailable: the topic cannot be read.
        """
        key = make_key(tenant, conversation)
        topic = await self._opened()
        partition = partition_of(key, topic.partitions)
        begin, end = await topic.bounds(partition)
        found: list[dict[str, Any]] = []
        while end > begin and len(found) < count:
            first = max(begin, end - SCAN_PART)
            part = [raw async for raw in topic.scan(partition, first, end - 1)]
            for raw in reversed(part):
                stored = _stored(raw, topic.seals) if raw.key == str(key).encode() else None
                if stored is not None:
                    found.append(
                        {
                            "id": write_id(key, raw.position),
                            "time": stored.time,
                            "record": stored.data,
                        }
                    )
            end = first
        return found[:count]

    # -- parts
    # ------------------------------------------------------------------------------------------

    async def _opened(self) -> KafkaLog:
        async with self._opening:
            if self._topic is None:
                self._topic = KafkaLog(
                    self._settings,
                    await partition_count(self._settings, "renders"),
                    "renders",
                    seals=self._log.seals,
                )
            return self._topic

    async def _read(self, render_id: str, tenant: str | None) -> tuple[Key, _Stored]:
        unknown = UnknownRender(f"render {render_id[:60]!r} is not known, or not kept any more")
        place = read_id(render_id)
        if place is None:
            raise unknown
        position, check = place
        raw = (await (await self._opened()).read([position])).get(position)
        key = None if raw is None or raw.key is None else parse_key(raw.key)
        if (
            raw is not None
            and raw.key is not None
            and tenant in (None, *_tenant_of(raw))
            and self._log.seals.is_erased(raw.key)
        ):
            raise Erased(f"the conversation of render {render_id[:60]} was erased")
        stored = None if raw is None else _stored(raw, self._log.seals)
        if (
            key is None
            or stored is None
            or check != _check(key, position)
            or tenant not in (None, key.tenant)
        ):
            raise unknown
        return key, stored

    def _rules_of(self, called: ModelCalled) -> tuple[Rules, list[str]]:
        """The rules to render under, and why they may not be those of then."""
        state = self._control.state
        live = state.live_generation
        if called.generation is None:
            return state.rules(live), [
                f"no generation is recorded: it is rendered under generation {live.number}"
            ]
        then = state.generations.get(called.generation)
        if then is not None:
            return state.rules(then), []
        gone = (
            f"generation {called.generation}, which was live then, is gone: it is rendered under"
            f" generation {live.number}"
        )
        return state.rules(live), [gone]

    async def _fold(self, key: Key, at: Position, rules: Rules) -> Window:
        """The window as it stood after ``at``. Positions come from the present window and its
        summaries, so no partition is scanned.
        """
        now = await self._window_at(key, str(at))
        offsets: set[int] = set()
        async for _, piece in pieces_backwards(self._log, now, below=at.offset + 1):
            offsets.update(piece)
        found = await read_events(self._log, key, at.partition, sorted(offsets))
        return await asyncio.to_thread(replay, key, at.partition, rules, found)

    async def _differences(
        self, key: Key, at: Position, called: ModelCalled, window: Window, again: Messages | None
    ) -> list[str]:
        """What can be told of why a render differs from the recorded one."""
        why = []
        raw = (await self._log.read([at])).get(at)
        if raw is None or event_of(raw, key, self._log.seals) is None:
            why.append(f"position {called.position} is not one of an event of this conversation")
        version = policy_version(window.policy)
        if called.policy is not None and called.policy != version:
            why.append(
                f"the policy was {called.policy} then, and is {version} in what is folded now"
            )
        in_force = None if window.meta.summary is None else window.meta.summary.summary_id
        if called.summary_id is not None and called.summary_id != in_force:
            why.append(
                f"the summary was {called.summary_id} then, and is {in_force or 'none'} at that"
                " position"
            )
        if again is not None and again.tokens != called.tokens:
            why.append(f"the tokens were {called.tokens} then, and are {again.tokens} now")
        return why or [
            "the messages differ: they were made by another release, with another max_tokens, or"
            " changed before they were sent"
        ]


def read_called(body: object) -> ModelCalled:
    """Check what a caller says of a model call.

    Raises:
        InvalidEvent: a field is missing, unknown or wrong; the message names it.
        InvalidPosition: ``position`` is none.
        EventTooLarge: it is over 32 KiB.
    """
    if not isinstance(body, dict):
        raise InvalidEvent("render: expected an object")
    for field, value in body.items():
        if field not in _FIELDS:
            raise InvalidEvent(
                f"render: field {field[:60]}: unknown (it has {', '.join(sorted(_FIELDS))})"
            )
        reason = why_not_kept(value)
        if reason is not None:
            raise InvalidEvent(f"render: field {field}: {reason}")
    try:
        called = msgspec.convert(body, ModelCalled)
    except msgspec.ValidationError as error:
        raise InvalidEvent(f"render: {explain(str(error), 'model.called')}") from None
    _check_values(called)
    size = len(msgspec.json.encode(called))
    if size > MAX_CONTROL_BYTES:
        raise EventTooLarge(
            f"render: {size} bytes are over the limit of {MAX_CONTROL_BYTES} for a model call"
        )
    return called


def _check_values(called: ModelCalled) -> None:
    """What the types alone do not tell."""
    for field, text in (
        ("model", called.model),
        ("summary_id", called.summary_id),
        ("policy", called.policy),
    ):
        if text is not None and not 1 <= len(text) <= MAX_NAME:
            raise InvalidEvent(f"render: field {field}: expected 1 to {MAX_NAME} characters")
    if not _DIGEST.fullmatch(called.render_digest):
        raise InvalidEvent(
            "render: field render_digest: expected a SHA-256 as 64 lower-case hex digits, as the"
            " context gave it"
        )
    for field, number in (("tokens", called.tokens), ("latency_ms", called.latency_ms)):
        if number is not None and number < 0:
            raise InvalidEvent(f"render: field {field}: expected 0 or more")
    if called.max_tokens is not None and called.max_tokens < 1:
        raise InvalidEvent("render: field max_tokens: expected 1 or more")
    parse_position(called.position)


def _record(key: Key, called: ModelCalled) -> Record:
    id_ = new_id()
    now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    event = {
        "specversion": "1.0",
        "id": id_,
        "type": TYPE,
        "source": key.source,
        "time": now,
        "data": called,
    }
    return Record(key, id_, TYPE, msgspec.json.encode(event))


def _tenant_of(raw: Raw) -> tuple[str, ...]:
    named = parse_key(raw.key or b"")
    return () if named is None else (named.tenant,)


def _stored(raw: Raw, seals: PayloadCipher) -> _Stored | None:
    """A record of the topic, None for what is not one of a call, or cannot be read any more."""
    named = parse_key(raw.key or b"")
    try:
        stored = _decode(open_value(seals, raw.key or b"", raw.value or b"") or b"")
    except NotAuthentic:
        return None
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return (
        stored
        if named is not None and stored.type == TYPE and stored.source == named.source
        else None
    )


def write_id(key: Key, position: Position) -> str:
    """An opaque id that names where a record stands; the check binds it to the conversation (it is
    no secret).
    """
    packed = _PLACE.pack(*position)
    return base64.urlsafe_b64encode(packed + _check(key, position)).decode()


def read_id(render_id: str) -> tuple[Position, bytes] | None:
    """The place an id names, with its check; None for what is no id."""
    try:
        raw = base64.b64decode(render_id.encode(), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        return None
    if len(raw) != _PLACE.size + _CHECK:
        return None
    position = Position(*_PLACE.unpack(raw[: _PLACE.size]))
    return (position, raw[_PLACE.size :]) if min(position) >= 0 else None


def _check(key: Key, position: Position) -> bytes:
    return sha256(b"render\n" + str(key).encode() + b"\n" + _PLACE.pack(*position)).digest()[
        :_CHECK
    ]
