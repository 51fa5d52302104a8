"""The long-term memory: saves become events of a log; a store is fed from the topic of memories."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial
from hashlib import sha256
from typing import TypeVar

import msgspec

from projections.errors import (
    Conflict,
    ConversationParked,
    Healing,
    MemoryUnavailable,
    UnknownMemory,
)
from projections.events import types as events
from projections.events.times import parse_micros, present, time_at
from projections.memory.resolution import Record
from projections.names import Key, make_key, one_line, users_log
from projections.policy.policy import Policy
from streams.memory.by_time import Part, read_within
from streams.memory.erasures import erased_by
from streams.memory.store import Filter, Stats
from streams.memory.stores import open_store
from streams.memory.turn_feed import TurnFeed
from streams.memory.turns import SqliteTurns
from streams.runtime.keyed_limit import KeyedLimit
from streams.runtime.steps import Steps, one_step, timed
from threadfold.service.append_result import Appended, Applied
from threadfold.service.conversations import ConversationService
from threadfold.service.documents import PATIENCE
from threadfold.service.memory_cursors import Page, cursor_of, place_of
from threadfold.service.memory_models import MemoryModels, ModelCounts
from threadfold.service.question import Question
from threadfold.service.recall import Answer, Recall
from threadfold.service.saved_memories import (
    Made,
    Saved,
    Saving,
    answers_of,
    drafted,
    flat_event,
    judged,
)
from threadfold.service.unstored import Unstored
from threadfold.service.use_counts import UseCounts
from threadfold.service.waiting_turns import without_waiting
from threadfold.service.whose import Whose, logs_of

MAX_LISTED = 200
"""Records of one page, and hits of one search."""
KINDS = ("record", "composite", "skill")
T = TypeVar("T")
TRIES = 3
"""Times that a save is appended whose conversation goes to another user meanwhile."""
MANY = 50
"""A list of more saves is drafted in another process: 500 take 30 ms."""
READS = 4
"""Searches and reads of one tenant at a time: each holds hundreds of records up to its end."""
Charge = Callable[[Sequence[Appended]], None]


class Memories:
    """The long-term memory of a process. Its store is fed from the first use on; stop it after."""

    def __init__(
        self,
        backend: ConversationService,
        *,
        hold: bool = False,
        counts: ModelCounts | None = None,
    ) -> None:
        """Args: ``hold`` the folder of the setting ``memory_store`` if nobody else does; else store
        and index of turns are copies, and go with the process. ``counts`` is called for what
        models are asked.
        """
        self._backend = backend
        self.store, self.feed = open_store(backend.settings, backend.keys, hold=hold)
        self._unstored = Unstored(self.feed, backend.windows.checkpoint)
        self.turns = SqliteTurns() if backend.settings.memory_turns else None
        self.turn_feed = (
            None
            if self.turns is None
            else TurnFeed(backend.settings, backend.keys, self.turns, hold=hold)
        )
        turn_vectors = (
            self.turns.vectors
            if self.turns is not None and backend.settings.memory_turn_vectors
            else None
        )
        self.models = MemoryModels(
            backend, self.store.vectors, turn_vectors, counts or ModelCounts()
        )
        models = self.models
        searched = self.store, self.turns, self.turn_feed, models.vectors, models.turn_vectors
        self._turns = KeyedLimit(READS, PATIENCE)
        self.recall = Recall(*searched, models.searches)
        self.use_counts = UseCounts(backend.append, wanted=backend.settings.memory_use_counts)

    async def stop(self) -> None:
        """Write the use counts, stop feeding, and close the store."""
        await self.use_counts.stop()
        await self.models.stop()
        await self._unstored.stop()
        await self.feed.stop()
        if self.turn_feed is not None and self.turns is not None:
            await self.turn_feed.stop()
            self.turns.close()
        self.store.close()

    # -- saving

    async def save(
        self,
        items: Sequence[Saving],
        charge: Charge,
        *,
        seed: str | None = None,
        wait: bool = False,
    ) -> list[dict[str, str]]:
        """Append what somebody saves, each to the log of its conversation or of its user; scope and
        id are filled in here. Returns ``{"id"}`` of each, with ``wait`` also its ``"status"``. Of a
        repeat of another save it is the other's id, and ``duplicate``: nothing is saved.

        Args:
            charge: is called with what was appended.
            seed: ids of the events derive from it, so that a repeated call repeats them; those of
                an append with the same seed are others.
            wait: until the store has them.

        Raises:
            InvalidRequest: nothing of a text is left without what is private, or a conversation is
                of another user or channel.
            QuotaExceeded: the tenant saves faster than the store takes in.
            ConversationParked: a conversation is parked.
            WaitTimedOut: whose a conversation is, by all that is in the log, is not known yet, or
                whether it took what was appended.
            Conflict: a conversation that goes from user to user refused it again and again.
            UnknownConversation, Erased, KafkaUnavailable, …: as ``ConversationService.append`` and
                ``wait_applied`` say.
        """
        if not items:
            return []
        answers, refused = await self._saved(items, charge, seed, wait=wait)
        for again in range(1, TRIES):
            if not refused:
                break
            # Meanwhile their conversation was given to another user: they are that one's now.
            rest = [items[i] for i in refused]
            named = None if seed is None else f"{seed}\n{again}"
            repeated, left = await self._saved(rest, charge, named, wait=wait)
            for i, answer in zip(refused, repeated, strict=True):
                answers[i] = answer
            refused = [refused[i] for i in left]
        if refused and not wait:
            raise Conflict(
                f"memory {refused[0] + 1}: its conversation does not take it, as it goes from user"
                " to user: repeat the save"
            )
        return answers

    async def _saved(
        self, items: Sequence[Saving], charge: Charge, seed: str | None, *, wait: bool
    ) -> tuple[list[dict[str, str]], list[int]]:
        """What :meth:`save` answers of one try, and which of them a conversation refused."""
        tenant = items[0][0].tenant
        logs = await logs_of(self._backend, [whose for whose, _ in items])
        saves = [(*logs[whose], data) for whose, data in items]
        before: dict[str, str] = {}

        async def read_before(made: Made) -> None:
            before.update(await self._texts_of(made))

        # A key may have given ids to messages of the same log: those are no saves.
        own_seed = None if seed is None else sha256(f"saves\n{seed}".encode()).hexdigest()
        async with self._unstored.room(tenant, len(saves)) as note:
            made, appended = await self._backend.append_made(
                tenant,
                drafted,
                saves,
                own_seed,
                many=len(saves) > MANY,
                first=read_before if wait else None,
            )
            note([one.position for one in appended])
        charge(appended)
        saved = [Saved(key, data, one) for (key, data), one in zip(made, appended, strict=True)]
        # The fold decides in the log's order whether a conversation takes a record of this user.
        own = await judged(self._backend, [one for one in saved if wait or not one.key.of_user])
        refused = [i for i, one in enumerate(saved) if one.is_refused(own)]
        if not wait:
            # Whether one with an id that was derived is a repeat is decided when it is folded.
            unknown_yet = {} if seed is None else {"status": "unknown"}
            return [{"id": one.memory_id, **unknown_yet} for one in saved], refused
        await self._stored(saved)
        return await answers_of(self._backend.log, saved, own, before), refused

    async def _texts_of(self, made: Sequence[tuple[Key, events.Learnt]]) -> dict[str, str]:
        """What the records say that are there already, by id."""
        await self._fed()
        found: dict[str, str] = {}
        for key, data in made:
            only = self._unerased(Filter(key.tenant, data.user, data.channel, kinds=KINDS))
            memory_id: str = data.memory_id  # type: ignore[attr-defined]
            record = await self.recall.apart(key.tenant, self.store.get, only, memory_id)
            if record is not None:
                found[memory_id] = record.doc_markdown or record.normalized_text
        return found

    async def delete(
        self,
        whose: Whose,
        memory_id: str,
        charge: Charge,
        *,
        hard: bool = False,
        kinds: Collection[str] = KINDS,
    ) -> Record:
        """Delete what has the id and is of these kinds, and return it as it was. It is gone from
        this store when this returns, and from the composites that it is a source of.

        Raises:
            UnknownMemory: there is none that the caller may see.
        """
        found = await self.get(whose, memory_id)
        if found.kind not in kinds:
            raise _unknown(memory_id)
        await self._about(found, events.MemoryDeleted(memory_id=memory_id, hard=hard), charge)
        return found

    async def outcome(
        self, whose: Whose, memory_id: str, charge: Charge, *, succeeded: bool
    ) -> Record:
        """Note what using a record or a skill led to, and return it with that. Raises like
        :meth:`delete`.
        """
        found = await self.get(whose, memory_id)
        await self._about(
            found, events.MemoryOutcome(memory_id=memory_id, succeeded=succeeded), charge
        )
        return await self.get(whose, memory_id)

    async def _about(self, record: Record, data: events.Learnt, charge: Charge) -> None:
        """Append an event about a record to a log of its scope, and wait until it counts.

        Raises:
            Conflict: the log does not take it: its conversation is another user's by now.
            ConversationParked: the log is parked: nothing was appended, or what was waits.
        """
        scope = record.scope
        key = users_log(scope.tenant, scope.user)
        # An erased user who came back has no log of the own any more.
        gone = record.conversation is not None and self._backend.keys.is_erased(str(key).encode())
        if scope.conversation is not None or gone:
            key = make_key(scope.tenant, record.conversation)
        owner = await self._backend.owner(key)
        if owner is not None:
            owner.check_known(key, f"nothing was done about memory {record.id}")
        data = msgspec.structs.replace(data, user=scope.user, channel=scope.channel)
        # Behind what it is about, also where another gateway's clock is ahead of this one's.
        at = max(parse_micros(present()) or 0, record.confirmed_at + 1_000)
        saved = await self._append(key, data, charge, time_at(at))
        (done,) = await self._applied(saved)
        if done.status == "parked":
            raise ConversationParked(
                f"{key.shown} was parked meanwhile: what is done about memory {record.id} waits in"
                " it, and counts once it goes on"
            )
        if done.status not in ("applied", "duplicate"):
            raise Conflict(f"memory {record.id}: its log does not take the event ({done.status})")

    async def _append(
        self, key: Key, data: events.Learnt, charge: Charge, time: str
    ) -> list[Saved]:
        flat = {**flat_event(data), "time": time}
        appended = await self._backend.append(
            key.tenant, [(key, flat)], noun="memory", operator=True
        )
        charge(appended)
        return [Saved(key, data, one) for one in appended]

    async def _applied(self, saved: Sequence[Saved]) -> list[Applied]:
        """Wait until the windows and the store have these; returns what the fold made of each."""
        found = await judged(self._backend, saved)
        await self._stored(saved)
        return [found[one.key, one.appended.id] for one in saved]

    async def _stored(self, saved: Sequence[Saved]) -> None:
        """Wait until the store has what the windows have of these."""
        self.feed.start()
        for tenant, user in dict.fromkeys((one.key.tenant, one.data.user) for one in saved):
            await self.feed.has_all_of(tenant, user)

    # -- reading

    async def get(self, whose: Whose, memory_id: str, as_of: int | None = None) -> Record:
        """A record, composite or skill by its id, also a superseded one; not a deleted one.

        Raises:
            UnknownMemory: there is none that the caller may see.
            WaitTimedOut: the store is still being fed.
        """
        only = whose.filter(kinds=KINDS, expired=True, as_of=as_of)
        found = await self._read(one_step(self.store.get), only, memory_id)
        if found is None or found.deleted:
            raise _unknown(memory_id)
        return found

    async def timeline(
        self, whose: Whose, memory_id: str, before: int, after: int
    ) -> tuple[list[Record], float]:
        """Like :meth:`get`: a record between its neighbours, oldest first; and its seconds."""
        await self.get(whose, memory_id)
        found, seconds = await self._read(
            lambda only: timed(self.store.neighbours(only, memory_id, before, after)),
            whose.filter(kinds=KINDS, expired=True),
        )
        return found or [], seconds

    async def page(
        self, only: Filter, before: str | None, limit: int, most: int = sys.maxsize
    ) -> Page:
        """A page of records, which ends with the one that makes it ``most`` bytes; raises
        :class:`InvalidPosition` for a cursor of another list.
        """
        after = None if before is None else place_of(only, before)

        def read(admitted: Filter) -> Steps[tuple[Part, float]]:
            return timed(read_within(partial(self.store.page, admitted), after, limit, most))

        found, seconds = await self._read(read, only)
        end = found.records[-1] if found.more else None
        cursor = None if end is None else cursor_of(only, end.created, end.id)
        return Page(found.records, cursor, found.size, seconds)

    async def ask(self, question: Question, *, soon: bool = False) -> Answer:
        """What fits a question, best first. The tenant's policy weighs it.

        Args: ``soon``: do not wait for a store that is not fed now, nor long for one that is being
        filled; raises what keeps it from being fed, or :class:`WaitTimedOut`.
        """
        await self._fed(self.recall.patience.of(self.feed) if soon else None)
        async with self._turns.of(question.only.tenant):
            before, weights = self._emptied, self._policy(question.only.tenant).recall_weights
            question = replace(question, only=self._unerased(question.only))
            answer = self._whole(await self.recall.ask(question, weights), before)
        return await without_waiting(self._backend, question.only.tenant, answer)

    def _policy(self, tenant: str) -> Policy:
        state = self._backend.control.state
        return state.rules(state.live_generation).for_conversation(tenant, None)

    async def stats(self, whose: Whose) -> Stats:
        """How many records a caller may see."""
        return await self._read(self.store.stats, whose.filter(kinds=KINDS))

    async def _read(self, work: Callable[..., Steps[T]], only: Filter, *args: object) -> T:
        await self._fed()
        async with self._turns.of(only.tenant):
            before, only = self._emptied, self._unerased(only)
            return self._whole(await self.recall.apart(only.tenant, work, only, *args), before)

    def _unerased(self, only: Filter) -> Filter:
        """Without what logs say whose erasure has begun: the store may not know of it yet."""
        keys, table = self._backend.keys, self._backend.keys.table
        begun = table.any_begun(only.tenant)
        return replace(only, erased=erased_by(keys), erasing=begun) if table.any_erased else only

    @property
    def _emptied(self) -> int:
        return self.feed.emptied + (self.turn_feed.emptied if self.turn_feed else 0)

    def _whole(self, found: T, emptied: int) -> T:
        """What was read; raises :class:`Healing` if what it was read of was emptied meanwhile."""
        if self._emptied != emptied:
            raise Healing("the long-term memory is being rebuilt: try again shortly")
        return found

    @property
    def fault(self) -> MemoryUnavailable | None:
        """What keeps the store, or the index of turns, from being used."""
        return self.feed.fault or (self.turn_feed.fault if self.turn_feed else None)

    async def _fed(self, patience: float | None = None) -> None:
        self.feed.start()
        self.models.start()
        await self.feed.ready(patience)


def _unknown(memory_id: str) -> UnknownMemory:
    return UnknownMemory(f"memory {one_line(memory_id)} is not known")
