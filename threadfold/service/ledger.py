"""The ledger of model calls: a record of each call on a topic of its own, and its messages rendered
again from the log.

A record holds the digest of the messages. The messages follow from the log and the rules of the
generation that was live. The ledger is not in the log, so it cannot enter a window.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from functools import partial
from typing import Any

from msgspec import Raw as Json
from msgspec.json import encode

from projections.errors import Erased, InvalidPosition, UnknownRender
from projections.names import (
    Key,
    Position,
    make_key,
    one_line,
    parse_key,
    parse_position,
    partition_of,
)
from projections.policy.policy import Rules
from streams.control.control_topic import Control
from streams.encryption.payload_cipher import PayloadCipher
from streams.log.history import event_of
from streams.log.kafka_log import KafkaLog
from streams.log.log import Log, Raw
from streams.log.topics import partition_count
from streams.settings.settings import Settings
from threadfold.service.documents import Again, messages_again, turns_of_large
from threadfold.service.model_call import (
    ModelCalled,
    StoredCall,
    check_of,
    read_called,
    read_id,
    record_of,
    stored_call,
    tenant_of,
    write_id,
)
from threadfold.service.past_windows import PastWindows

FIRST_PART = 200
"""Records read first in the search for a conversation's newest."""
SCAN_PART = 2_000
"""Records read at once at most."""
PART_BYTES = 4 << 20
"""Bytes read at once, about: what the part before had is the measure."""


class Ledger:
    """Records model calls and renders them again."""

    def __init__(
        self,
        settings: Settings,
        control: Control,
        log: Log,
        past: PastWindows,
    ) -> None:
        self._settings = settings
        self._control = control
        self._log = log
        self._past = past
        self._topic: KafkaLog | None = None
        self._opening = asyncio.Lock()
        self._turns = turns_of_large()

    async def stop(self) -> None:
        """Close the clients of the renders topic."""
        if self._topic is not None:
            await self._topic.stop()

    async def record(self, tenant: str, conversation: str, body: object) -> str | None:
        """Record a model call, and return the record's id once it is safe; None if the tenant's
        policy has ``renders`` off.

        :meth:`show` checks the position and the digest; this does not.

        Raises:
            InvalidName, InvalidEvent, InvalidPosition, EventTooLarge: the body is invalid; nothing
                was recorded.
            TopicMismatch: there is no renders topic.
            Overloaded, KafkaUnavailable: as ``streams.log.log.Log.append`` says. A repeat is
                another record.
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
        (position,) = await topic.append([record_of(key, called)])
        return write_id(key, position)

    async def show(
        self, render_id: str, tenant: str | None = None, *, most_bytes: int | None = None
    ) -> dict[str, Any]:
        """A recorded call, rendered again: events up to the recorded position are read and folded.

        Returns ``{"id", "conversation", "time", "record", "messages", "system"?, "render_digest",
        "agrees", "why"}``. ``messages`` is raw JSON, None if they do not fit now. ``why`` lists the
        reasons if the digests differ. The rules are those of the generation that was live then, if
        it exists. ``tenant`` None allows any tenant's record. ``most_bytes`` of events are folded.

        Raises:
            InvalidRequest: there are more.
            UnknownRender: there is no such record, or it is not this tenant's.
            Erased: the conversation was erased.
            WaitTimedOut, Healing, CorruptWindow, RedisUnavailable, UnknownConversation: the
                window, which has the positions of the events, cannot be read now.
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
            why = [f"the log ends before position {called.position}"]
            nothing = {"messages": None, "render_digest": None}
            return {**shown, **nothing, "agrees": False, "why": why}
        rules, why = self.rules_of(called)
        found = await self._past.read(
            key,
            at,
            rules,
            messages_again,
            called.format,
            called.max_tokens,
            most_bytes=most_bytes,
        )
        again = found.messages
        if found.refused:
            why.append(found.refused)
        agrees = again is not None and again.digest == called.render_digest
        if again is not None and again.system is not None:
            shown["system"] = again.system
        shown["messages"] = None if again is None else again.messages
        shown["render_digest"] = None if again is None else again.digest
        why = [] if agrees else why + await self._differences(key, at, called, found)
        return {**shown, "agrees": agrees, "why": why}

    async def last(
        self, tenant: str, conversation: str, count: int, *, most: int | None = None
    ) -> list[dict[str, Any]]:
        """The conversation's newest ``count`` records, newest first, as ``{"id", "time",
        "record"}``; the topic is searched backwards.

        Args:
            most: records of the topic that are searched; None: all.

        Raises:
            InvalidName: as named.
            Erased: the conversation was erased.
            Overloaded: too many others of the tenant are under way.
            TopicMismatch, KafkaUnavailable: the topic cannot be read.
        """
        key = make_key(tenant, conversation)
        if self._log.seals.is_erased(str(key).encode()):
            raise Erased(f"{key.shown} was erased")
        topic = await self._opened()
        begin, end = await topic.bounds(partition_of(key, topic.partitions))
        least = begin if most is None else max(begin, end - most)
        found: list[dict[str, Any]] = []
        records = FIRST_PART
        while end > least and len(found) < count:
            first = max(least, end - records)
            # Others of the tenant have their turn after each part.
            async with self._turns.of(tenant) as turn:
                began = time.monotonic()
                part, size = await _part(topic, key, first, end - 1)
                turn.read(time.monotonic() - began)
                shown = partial(_newest, key, part, topic.seals, count - len(found))
                found += await turn.work(sum(len(raw.value or b"") for raw in part), shown)
            records = max(FIRST_PART, min(SCAN_PART, records * PART_BYTES // max(1, size)))
            end = first
        return found

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

    async def _read(self, render_id: str, tenant: str | None) -> tuple[Key, StoredCall]:
        unknown = f"render {render_id[:60]!r} is not known, or not kept any more"
        place = read_id(render_id)
        if place is None:
            raise UnknownRender(unknown)
        position, check = place
        raw = (await (await self._opened()).read([position])).get(position)
        key = None if raw is None or raw.key is None else parse_key(raw.key)
        if (
            raw is not None
            and raw.key is not None
            and tenant in (None, *tenant_of(raw))
            and self._log.seals.is_erased(raw.key)
        ):
            raise Erased(f"the conversation of render {one_line(render_id)} was erased")
        stored = None if raw is None else stored_call(raw, self._log.seals)
        if (
            key is None
            or stored is None
            or check != check_of(key, position)
            or tenant not in (None, key.tenant)
        ):
            raise UnknownRender(unknown)
        return key, stored

    def rules_of(self, called: ModelCalled) -> tuple[Rules, list[str]]:
        """The rules to render under, and why they may differ from those of the call."""
        state = self._control.state
        live = state.live_generation
        if called.generation is None:
            return state.rules(live), [
                f"no generation is recorded: it is rendered under generation {live.number}"
            ]
        then = state.generations.get(called.generation)
        if then is not None:
            return state.rules(then), []
        deleted = (
            f"generation {called.generation}, which was live then, is deleted: it is rendered under"
            f" generation {live.number}"
        )
        return state.rules(live), [deleted]

    async def _differences(
        self, key: Key, at: Position, called: ModelCalled, found: Again
    ) -> list[str]:
        """The reasons found for a render that differs from the recorded one."""
        why = []
        raw = (await self._log.read([at])).get(at)
        if raw is None or event_of(raw, key, self._log.seals) is None:
            why.append(f"position {called.position} is not one of an event of this conversation")
        if called.policy is not None and called.policy != found.policy:
            why.append(
                f"the policy was {called.policy} then, and is {found.policy} in what is folded now"
            )
        if called.summary_id is not None and called.summary_id != found.summary_id:
            why.append(
                f"the summary was {called.summary_id} then, and is {found.summary_id or 'none'} at"
                " that position"
            )
        again = found.messages
        if again is not None and again.tokens != called.tokens:
            why.append(f"the tokens were {called.tokens} then, and are {again.tokens} now")
        return why or [
            "the messages differ: they were made by another release, with another max_tokens, or"
            " changed before they were sent"
        ]


async def _part(topic: KafkaLog, key: Key, first: int, last: int) -> tuple[list[Raw], int]:
    """The conversation's records of a part of its partition, newest first, and the part's bytes."""
    name, found, size = str(key).encode(), list[Raw](), 0
    async for raw in topic.scan(partition_of(key, topic.partitions), first, last):
        size += len(raw.value or b"")
        if raw.key == name:
            found.append(raw)
    return found[::-1], size


def _newest(
    key: Key, part: Iterable[Raw], seals: PayloadCipher, count: int
) -> list[dict[str, Any]]:
    """The first ``count`` calls among these records, as JSON: nothing is left to work on."""
    found: list[dict[str, Any]] = []
    for raw in part:
        stored = stored_call(raw, seals)
        if stored is not None:
            id_ = write_id(key, raw.position)
            found.append({"id": id_, "time": stored.time, "record": Json(encode(stored.data))})
            if len(found) == count:
                break
    return found
