"""The conversation service: what the gateway and the commands do with conversations, over the log,
the windows and the control topic.

One instance serves any number of callers in one event loop.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Any, TypeVar

from projections.errors import Healing, KafkaUnavailable, RequestTooLarge, WaitTimedOut
from projections.events.validation import Record
from projections.names import Key, Position, partition_of
from projections.policy.policy import Rules
from projections.storage.records import Checkpoint
from projections.window.recent_ids import RecentIds
from streams.runtime.keyed_limit import KeyedLimit
from streams.runtime.process_pool import ProcessPool
from streams.runtime.processor import Processor
from streams.runtime.shared_bytes import SharedBytes
from streams.runtime.tracing import Span, append_span, note_appended, present_traceparent
from streams.settings.settings import Settings
from threadfold.service.append_body import AppendBody, Place, RawBody, decode_apart, prepare
from threadfold.service.append_result import Appended, Applied, applied_of, make_appended
from threadfold.service.conversation_reader import ConversationReader, head_of
from threadfold.service.drafts import UNCONDITIONED, Conditions, Drafter, Item, is_heavy, key_of
from threadfold.service.erasure_receipt import Receipts
from threadfold.service.spill import Drafts, append_drafts
from threadfold.service.stored_windows import Owner
from threadfold.service.unfolded import Room, Unfolded, room_in, weights_of

T = TypeVar("T")
PROCESSES = min(2, os.cpu_count() or 1)
PROCESS_BYTES = 1 << 30
"""Processes that read large bodies, and what memory each may take."""
AT_A_TIME = 1
"""Bodies of one tenant that are read at a time in each place, if they are not short."""
ERASURES = 4
"""Conversations of one tenant that are erased at a time: each waits for its worker and reads its
log.
"""
SHORT = 2_048
"""Bytes of a body that is read at once."""
TURN = 0.005
"""Seconds of the event loop that a body may take before its tenant's next one has to wait."""
PAUSE = 3
"""How many times as long it waits: one tenant has a quarter of the event loop at most."""


class ConversationService(ConversationReader):
    """Reads conversations, appends to them, and waits for what was appended.

    Start it before use (or ``async with``), and stop it after.
    """

    def __init__(self, settings: Settings, processor: Processor | None = None) -> None:
        super().__init__(settings, processor)
        self._pool = ProcessPool(PROCESSES, PROCESS_BYTES, prepare)
        self._turns_to_read = KeyedLimit(AT_A_TIME)
        self.turns_to_erase = KeyedLimit(ERASURES, settings.append_timeout)
        self.receipts = Receipts(settings)
        self.on_appended: (
            Callable[[Sequence[Record], Sequence[Position]], Awaitable[None]] | None
        ) = None
        """Awaited with what was appended, before the caller is answered. It must not fail
        (``threadfold.streaming``).
        """

        self.on_drafts: Callable[[str, Sequence[Record]], Awaitable[None]] | None = None
        """Awaited with a tenant's events before they are appended; what it raises refuses them."""
        self.unfolded: Unfolded | None = None
        """Has a tenant wait that appends faster than the workers fold; None: nobody waits."""
        self.on_stop: Callable[[], Awaitable[None]] | None = None
        """Awaited before the connections are closed."""

    async def stop(self) -> None:
        """End all waits, all processes, and all connections."""
        if self.on_stop is not None:
            await self.on_stop()
        if self.unfolded is not None:
            await self.unfolded.stop()
        await self._pool.close()
        await super().stop()

    async def append(
        self,
        tenant: str,
        items: Sequence[Item],
        *,
        noun: str = "event",
        operator: bool = False,
        id_seed: str | None = None,
        conditions: Conditions = UNCONDITIONED,
    ) -> list[Appended]:
        """Append flat events, and return their ids and positions once they are safe. All are
        validated before any is appended.

        Order is kept within a conversation. An event that repeats one of the last 1,024 ids of its
        conversation is appended and changes nothing; :meth:`wait_applied` reports it. A tool result
        that is too long for one event is spilled (``threadfold.service.spill``). Its pieces are
        events of their own and are not in the answer.

        Args:
            tenant: the owner; a new one is recorded in the control topic first.
            items: pairs of a conversation and a decoded flat event.
            noun: what errors call an item; they count from 1.
            operator: whether the types reserved to operators are allowed.
            id_seed: ids of events that have none derive from this, so that a repeated call repeats
                them.
            conditions: what the fold checks of each event; all items are of one conversation then.

        Raises:
            InvalidName, InvalidEvent, InvalidPolicy, EventTooLarge: an item is invalid.
            Overloaded: too much is on its way into the log already (``streams.log.log``).
            Erased: one of the conversations was erased.
            KeyUnusable: the tenant's payloads must be encrypted, and there is no master key.
            Others: as :meth:`check_pinned` says.
                After these errors nothing was appended.
            KafkaUnavailable: Kafka did not answer within ``append_timeout`` seconds. The events may
                be in the log: repeat the call with the same ids.
        """
        with append_span(tenant) as span:
            drafter = self._drafter(tenant)
            args = items, noun, operator, id_seed, conditions
            if is_heavy(items):
                drafts = await asyncio.to_thread(drafter.drafts, *args)
            else:
                drafts = drafter.drafts(*args)
            await self.check_pinned(drafts)
            # A rollback may be much work for the workers, each: none goes before others.
            weights = weights_of(drafts.records)
            waits = sum(weights) > len(weights)
            async with room_in(self.unfolded, tenant, sum(weights), waits=waits) as room:
                return await self._append(tenant, drafts, weights, span, room)

    async def append_body(
        self,
        tenant: str,
        body: AppendBody,
        *,
        id_seed: str | None = None,
        conditions: Conditions = UNCONDITIONED,
        first: Callable[[], Awaitable[None]] | None = None,
    ) -> tuple[list[str], list[Appended]]:
        """Append what a caller sent, as :meth:`append` does, and return the conversation of each
        event beside it.

        A large body is read in another process, one of each tenant at a time. ``first`` is awaited
        once the body is checked, and before anything is appended.

        Raises:
            MalformedInput, InvalidRequest: the body is not JSON, or has too many items or values.
            RequestTooLarge: it takes more memory than a process that reads bodies may have.
            WorkerLost: the process that read it ended.
            QuotaExceeded: the tenant appends faster than the workers fold.
            All that :meth:`append` raises.
        """
        with append_span(tenant) as span:
            # Whoever waits for room has cost little when its client leaves.
            async with room_in(self.unfolded, tenant, body.items_at_first(), waits=True) as room:
                drafts = await self._drafts_of(tenant, body, id_seed, conditions)
                weights = weights_of(drafts.records)
                await room.fit(sum(weights))
                await self.check_pinned(drafts)
                names = [record.key.conversation for record in drafts.records]
                if first is not None:
                    await first()
                return names, await self._append(tenant, drafts, weights, span, room)

    async def append_made(
        self,
        tenant: str,
        make: Callable[..., tuple[T, Drafts]],
        *args: object,
        many: bool = False,
        first: Callable[[T], Awaitable[None]] | None = None,
    ) -> tuple[T, list[Appended]]:
        """Append the drafts of ``make(drafter, *args)``, a function of a module, and return what it
        returns beside them, and the events. It runs in a thread, or in another process if it makes
        ``many``, one of each tenant at a time. ``first`` is awaited with that before anything is
        appended.

        Raises:
            WorkerLost: the process that ran it ended.
            QuotaExceeded: the tenant appends faster than the workers fold.
            All that ``make`` and :meth:`append` raise.
        """
        with append_span(tenant) as span:
            rules = self.live_rules()
            drafter = self._drafter(tenant, rules.alone(tenant) if many else rules)
            if many:
                async with self._turns_to_read.of(f"{Place.PROCESS.name} {tenant}"):
                    made, drafts = await self._pool.run(make, drafter, *args)
            else:
                made, drafts = await asyncio.to_thread(make, drafter, *args)
            if first is not None:
                await first(made)
            weights = weights_of(drafts.records)
            async with room_in(self.unfolded, tenant, sum(weights), waits=True) as room:
                return made, await self._append(tenant, drafts, weights, span, room)

    async def _drafts_of(
        self, tenant: str, body: AppendBody, id_seed: str | None, conditions: Conditions
    ) -> Drafts:
        place = body.place()
        if len(body.text) <= SHORT:
            return body.drafts(self._drafter(tenant), id_seed, conditions)
        async with self._turns_to_read.of(f"{place.name} {tenant}"):
            if place is Place.PROCESS:
                return await self._read_apart(tenant, body, id_seed, conditions)
            drafter = self._drafter(tenant)
            if place is Place.THREAD:
                return await asyncio.to_thread(body.drafts, drafter, id_seed, conditions)
            began = time.perf_counter()
            try:
                return body.drafts(drafter, id_seed, conditions)
            finally:
                took = time.perf_counter() - began
                if took > TURN:
                    await asyncio.sleep(PAUSE * took)

    async def _read_apart(
        self, tenant: str, body: AppendBody, id_seed: str | None, conditions: Conditions
    ) -> Drafts:
        drafter = self._drafter(tenant, self.live_rules().alone(tenant))
        call = partial(self._pool.run, body.drafts_apart, drafter, id_seed, conditions)
        drafts: Drafts = await _made_apart(body.text, call)
        return drafts

    async def decode(self, text: SharedBytes) -> Any:
        """Decode a large body of JSON in another process.

        Raises:
            MalformedInput, InvalidRequest: it is not JSON, or has too many values.
            RequestTooLarge: it takes more memory than a process that reads bodies may have.
            WorkerLost: the process that read it ended.
        """
        return await _made_apart(text, partial(self._pool.run, decode_apart, text))

    def _drafter(self, tenant: str, rules: Rules | None = None) -> Drafter:
        rules = self.live_rules() if rules is None else rules
        bounds = self.log.partitions, self.settings.max_event_bytes
        return Drafter(tenant, rules, *bounds, present_traceparent())

    async def _append(
        self, tenant: str, drafts: Drafts, weights: list[int], span: Span | None, room: Room
    ) -> list[Appended]:
        if not drafts.records:
            return []
        positions = await self._into_log(tenant, drafts)
        room.note(positions, weights)
        if span is not None:
            note_appended(span, drafts.records, positions)
        if self.on_appended is not None:
            await self.on_appended(drafts.records, positions)
        ids = [record.id for record in drafts.records]
        fresh = [id_ in drafts.made_ids for id_ in ids]
        return list(map(make_appended, zip(ids, positions, drafts.tokens, fresh, strict=True)))

    async def _into_log(self, tenant: str, drafts: Drafts) -> list[Position]:
        if self.on_drafts is not None:
            await self.on_drafts(tenant, drafts.records)
        try:
            async with asyncio.timeout(self.settings.append_timeout):
                if tenant not in self.control.state.tenants:
                    await self.control.ensure_tenant(tenant)
                return await append_drafts(self.log, drafts)
        except TimeoutError:
            raise KafkaUnavailable(
                f"append: Kafka at {self.settings.kafka} did not answer within"
                f" {self.settings.append_timeout:g} s; the append may have happened: repeat it"
                " with the same ids"
            ) from None

    async def check_pinned(self, drafts: Drafts) -> None:
        """Check what a list pins beyond its tenant's limit. Its conversations' own policies may
        allow more: their windows are read, as of all that is in the log now.

        Raises:
            InvalidEvent: it is more than its conversation may pin.
            Healing, CorruptWindow, KafkaUnavailable, RedisUnavailable: that is unknown now.
        """
        limits: dict[Key, int] = {}
        for excess in drafts.pinned_excess:
            if excess.key not in limits:
                limits[excess.key] = await self._pinned_limit(excess.key)
            excess.check(limits[excess.key])

    async def _pinned_limit(self, key: Key) -> int:
        """How many tokens the pinned text of a conversation may have, by all that is in the log."""
        policy = self.live_rules().for_conversation(key.tenant, None)
        partition = partition_of(key, self.log.partitions)
        if end := (await self.log.last_records())[partition]:
            try:
                await self.wait_for(Position(partition, end - 1), whose=key)
            except WaitTimedOut:
                raise Healing(
                    f"nothing was appended: how much text {key.shown} may pin is not known, because"
                    " its window does not include all its events: try again shortly"
                ) from None
            _, window = await self.checkpoint_and_window(key)
            if window is not None and not window.meta.erased:
                policy = window.policy
        return policy.pinned_limit

    async def wait_applied(
        self,
        tenant: str,
        conversation: str | Key,
        appended: Sequence[Appended],
        timeout: float = 10.0,  # noqa: ASYNC109
    ) -> list[Applied]:
        """Wait until the window includes these events of one conversation, and report what the fold
        did with each.

        An event whose id is no longer among the last 1,024 is reported as applied.

        Raises:
            WaitTimedOut: the window does not include them within ``timeout`` seconds. They are safe
                in the log.
            RedisUnavailable, Healing: the window cannot be read now. They are safe in the log.
            Erased: the conversation was erased meanwhile. Nobody can read the events.
        """
        if not appended:
            return []
        key = key_of(tenant, conversation)
        await self.wait_for(max(item.position for item in appended), timeout, whose=key)
        _, stored = await self.windows.head(key)
        if stored is None:
            return [applied_of(item, RecentIds()) for item in appended]
        head, recent_ids = head_of(key, stored.fields), stored.recent_ids(key)
        return [applied_of(item, recent_ids, head.quarantine) for item in appended]

    async def checkpoints(self) -> list[Checkpoint | None]:
        """How far each partition's windows are; raises RedisUnavailable."""
        live = self.control.state.live_generation
        reads = (self.store.checkpoint(live.number, p) for p in range(live.partitions))
        return await asyncio.gather(*reads)

    async def behind(self, read: Sequence[Checkpoint | None] | None = None) -> dict[int, int]:
        """How many events of each partition are in the log and not in the windows; of one that
        heals, all. ``read``: checkpoints that were read just now.

        Raises:
            KafkaUnavailable, RedisUnavailable: it is unknown now.
        """
        checkpoints = await self.checkpoints() if read is None else read
        ends = await self.log.last_records()
        folded = [-1 if one is None or one.healing else one.offset for one in checkpoints]
        return {p: max(0, ends[p] - 1 - offset) for p, offset in enumerate(folded)}

    async def latest_owner(self, key: Key) -> Owner | None:
        """:meth:`owner` by all that is in the log when this is called; raises like
        :meth:`caught_up`, too.
        """
        await self.caught_up([partition_of(key, self.log.partitions)], whose=key)
        return await self.owner(key)

    async def caught_up(
        self,
        partitions: Iterable[int],
        timeout: float = 10.0,  # noqa: ASYNC109
        *,
        whose: Key | str | None = None,
    ) -> None:
        """Wait until the windows of these partitions include everything that is in the log now; of
        them those of ``whose``, as :meth:`wait_for` says.

        Raises:
            WaitTimedOut: they do not within ``timeout`` seconds.
            KafkaUnavailable, RedisUnavailable: the log or the windows cannot be read now.
        """
        ends = await self.log.last_records()
        await asyncio.gather(
            *(
                self.wait_for(Position(p, ends[p] - 1), timeout, whose=whose)
                for p in partitions
                if ends[p]
            )
        )


async def _made_apart(text: RawBody, call: Callable[[], Awaitable[Any]]) -> Any:
    """What a call in another process made of a body; raises :class:`RequestTooLarge`, too."""
    try:
        made = await call()
    except MemoryError:
        raise RequestTooLarge(
            "the body takes too much memory to read: send it in several requests"
        ) from None
    if not isinstance(text, SharedBytes):
        return made
    received = await asyncio.to_thread(text.received, made)
    text.close()
    return received
