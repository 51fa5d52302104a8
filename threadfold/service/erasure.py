"""Erases a conversation, or all of a user's, in every store, with a receipt.

The steps, in order:

1. A record of the keys topic says that the erasure has begun. From then on every process refuses
   the conversation.
2. ``conversation.erased`` is appended, and the live window includes it.
3. The windows of other generations are erased.
4. A record says that the erasure is done. It voids all keys of the conversation, and their
   tombstones follow.
5. The text of messages in progress is deleted.

Each step may be repeated. A repeated request resumes an erasure that was cut off, and answers the
same receipt for one that is done.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from hashlib import sha256

import msgspec

from projections.errors import (
    CallableUnavailable,
    CorruptWindow,
    Healing,
    InvalidName,
    UnderMaintenance,
    UnknownConversation,
    UnknownUser,
    WaitTimedOut,
)
from projections.events.codec import decode_event
from projections.events.relocation import NOWHERE
from projections.events.times import rfc3339
from projections.events.types import ErasedEvent
from projections.events.validation import make_record
from projections.fold.apply import apply
from projections.names import (
    Key,
    Position,
    make_key,
    one_line,
    parse_position,
    partition_of,
    user_tag,
    users_log,
)
from projections.storage.records import NOTHING, Checkpoint, Verdict, write_of
from projections.window.window import Window
from streams.encryption.key_table import Erasure
from streams.runtime.tasks import some_at_a_time
from threadfold.service.conversation_reader import unknown
from threadfold.service.conversations import ERASURES, ConversationService
from threadfold.service.erasure_receipt import Receipt
from threadfold.service.erasure_verdict import verdict_of
from threadfold.service.lists import of_user
from threadfold.service.possible_owners import check_owner, check_parked

USER_PAGE = 500
PASSES = 3
"""How often a user's conversations are listed: the user may open others meanwhile, without end."""
ATTEMPTS = 5


class Eraser:
    """Erases conversations through a started backend."""

    def __init__(
        self,
        backend: ConversationService,
        forget_partial: Callable[[Key, bool], Awaitable[object]],
    ) -> None:
        """Args: ``forget_partial`` deletes a conversation's text in progress; with True, none is
        taken afterwards.
        """
        self._backend = backend
        self._keys = backend.keys
        self._forget_partial = forget_partial

    async def conversation(
        self, tenant: str, conversation: str, *, user: str | None = None
    ) -> Receipt:
        """Erase a conversation and return the receipt. A conversation that is erased already
        answers its receipt again.

        Args:
            user: on whose behalf; :meth:`user` returns this receipt, too.

        Raises:
            UnknownConversation: it has no events. Its text in progress is deleted. Or it is not
                that user's.
            Conflict: it is parked, and events that wait there may give it to another user than the
                one on whose behalf it is to be erased.
            WaitTimedOut: the window did not include the erasure in time (does a worker run?). It
                has begun, and the conversation is refused everywhere: repeat the call.
            Overloaded: too many of the tenant wait for their turn.
            UnderMaintenance: an operator has stopped appends. Nothing is erased, unless the erasure
                had begun before; the message says which.
            Healing, KafkaUnavailable, RedisUnavailable: repeat the call.
        """
        return await self._erase(make_key(tenant, conversation), user)

    async def _erase(self, key: Key, user: str | None) -> Receipt:
        async with self._backend.turns_to_erase.of(key.tenant):
            return await self._erased(key, user)

    async def _erased(self, key: Key, user: str | None) -> Receipt:
        name, tag = str(key).encode(), None if user is None else user_tag(key.tenant, user)
        await self._keys.sync()
        erasure = self._keys.table.erasure(name)
        if erasure is not None and erasure.user is None and tag is not None:
            erasure = msgspec.structs.replace(erasure, user=tag)
            await self._keys.put_erasure(name, erasure)
        if erasure is None:
            try:
                verdict = await verdict_of(self._backend, key)
            except UnknownConversation:
                # Its text in progress would become its first message.
                await self._forget_text(key, erased=False)
                raise
            # It may have been given away since it was listed.
            if user and not (key.of_user or await check_owner(self._backend, key, user)):
                raise unknown(key)
            await self._check_maintenance(key)
            erasure = Erasure("begun", _now(), verdict, user=tag)
            await self._keys.put_erasure(name, erasure)
        if erasure.state == "begun":
            erasure, position = await self._append(key, name, erasure)
            await self._backend.wait_for(position, whose=key)
            await self._elsewhere(key, position)
            erasure = msgspec.structs.replace(erasure, state="done", done_at=_now())
            await self._keys.put_erasure(name, erasure)
            erasure = self._keys.table.erasure(name) or erasure
        else:
            await self._elsewhere(key, parse_position(erasure.position or str(NOWHERE)))
            await self._keys.wipe(name)
        await self._forget_text(key, erased=True)
        return await self._backend.receipts.of(key, erasure)

    async def user(self, tenant: str, user: str) -> list[Receipt]:
        """Erase all conversations that belong to a user now (``user`` of the last
        ``conversation.opened``), and the log of what was saved to the user's memory beside them;
        return their receipts by name. One that was given to another user is that user's.

        Conversations erased earlier on behalf of the user are included; an erasure keeps a hash of
        the user. Of those that are opened meanwhile some may be erased, too.

        Raises:
            InvalidName: the user has no character.
            UnknownUser: no conversation belongs to the user.
            Conflict: a conversation is parked, and events that wait there may give it to the user,
                or to another one (``threadfold.service.possible_owners``). Nothing is erased.
            WaitTimedOut: windows are behind, or their partition is halted: others may be the
                user's, too, and nothing is erased. Or one did not include its erasure in time.
            UnderMaintenance: an operator has stopped appends. Nothing is erased, or where that came
                meanwhile, some conversations are.
            Overloaded, Healing, KafkaUnavailable, RedisUnavailable: some conversations may be
                erased; repeat the call.
        """
        if not user:  # without a user it would be the tenant's own memory
            raise InvalidName("user: expected 1 or more characters")
        await self._caught_up(tenant)
        await check_parked(self._backend, tenant, user)
        done = dict[str, Receipt]()
        own = users_log(tenant, user)
        with suppress(UnknownConversation):
            done[own.conversation] = await self._erase(own, user)

        async def erase(name: str) -> None:
            with suppress(UnknownConversation):
                done[name] = await self.conversation(tenant, name, user=user)

        for _ in range(PASSES):
            names = sorted(await self._names_of(tenant, user) - done.keys())
            if not names:
                break
            await some_at_a_time(ERASURES, [partial(erase, name) for name in names])
        if not done:
            raise UnknownUser(f"user {one_line(user)} is not known: no conversation belongs to it")
        return [done[name] for name in sorted(done)]

    async def _names_of(self, tenant: str, user: str) -> set[str]:
        """The conversations of a user, and those that were erased on behalf of the user.

        In this order: another request records an erasure before the conversation leaves the user's
        list, so it is in one of both.
        """
        listed = await of_user(self._backend, tenant, user, USER_PAGE)
        await self._keys.sync()
        return {*listed, *self._keys.table.erased_for(tenant, user_tag(tenant, user))}

    async def _caught_up(self, tenant: str) -> None:
        """Wait for all windows of a tenant.

        Raises:
            WaitTimedOut: they are behind, or their partition is halted, and nothing is erased:
                others may be the user's, too, and some of the user's may be others' by now.
        """
        try:
            await self._backend.caught_up(range(self._backend.log.partitions), whose=tenant)
        except WaitTimedOut as error:
            late = f"nothing is erased yet, repeat it later: {error}"
            raise WaitTimedOut(late, error.retry_after) from None

    # -- the steps
    # ------------------------------------------------------------------------------------------

    async def _check_maintenance(self, key: Key) -> None:
        """Refuse to begin where the erasure's event could not be appended: what has begun is final.

        Raises:
            UnderMaintenance: an operator has stopped appends, and nothing is erased.
        """
        control = self._backend.control
        await control.sync()
        with _advice(f"nothing of {key.shown} is erased yet: repeat it later"):
            control.state.check_appends(key.tenant)

    async def _forget_text(self, key: Key, *, erased: bool) -> None:
        """Delete text in progress; in a user's own log there is none."""
        if not key.of_user:
            await self._forget_partial(key, erased)

    async def _append(self, key: Key, name: bytes, erasure: Erasure) -> tuple[Erasure, Position]:
        """Append the erasure's event, unless an earlier request did. Returns the record of the
        erasure with the event's position, and the position.
        """
        if erasure.position is not None and (at := parse_position(erasure.position)) != NOWHERE:
            return erasure, at
        flat = {"type": "conversation.erased", "id": _event_id(key)}
        with _advice(f"the erasure of {key.shown} has begun: repeat it later, and it goes on"):
            (appended,) = await self._backend.append(key.tenant, [(key, flat)], operator=True)
        erasure = msgspec.structs.replace(erasure, position=str(appended.position))
        await self._keys.put_erasure(name, erasure)
        return erasure, appended.position

    async def _elsewhere(self, key: Key, position: Position) -> None:
        """Erase the windows of the other generations, which no worker folds.

        The erasure is folded into them early. That is safe: an erased window keeps nothing of later
        events but their position. A process that builds such a generation now is fenced, and
        continues from what is stored.
        """
        backend, partition = self._backend, partition_of(key, self._backend.log.partitions)
        live = backend.control.state.live_generation
        for generation in sorted(
            backend.control.state.generations.values(), key=lambda one: one.number
        ):
            if generation.number == live.number:
                continue
            for _ in range(ATTEMPTS):
                if await self._erase_in(generation.number, partition, key, position):
                    break
            else:
                raise Healing(
                    f"generation {generation.number} is written too often to erase"
                    f" {key.conversation} from it: try again shortly"
                )

    async def _erase_in(
        self, generation: int, partition: int, key: Key, position: Position
    ) -> bool:
        """Erase one window of a generation; False if its partition was written meanwhile."""
        backend = self._backend
        try:
            checkpoint, (stored,) = await backend.store.reader.read(generation, partition, [key])
        except (CorruptWindow, Healing, CallableUnavailable):
            # It sleeps there, and the live generation's snapshot replaced its own. An erased window
            # does not depend on the snapshot.
            checkpoint, (stored,) = await backend.store.read(generation, partition, [key])
        if checkpoint is None:
            checkpoint = Checkpoint()
        rules = backend.control.state.rules(backend.control.state.generations[generation])
        window, mark = (
            (Window(key, partition, rules), NOTHING)
            # Also where there is none yet: who builds it may have read the events already.
            if stored is None or stored.asleep
            else stored.open(key, partition, rules)
        )
        if window.meta.erased:
            return True
        apply(window, min(checkpoint.offset, position.offset), _event(key))
        applied = await backend.store.apply(
            generation, partition, checkpoint, [write_of(window, mark, checkpoint.timestamp)]
        )
        return applied.verdict is Verdict.APPLIED


@contextmanager
def _advice(advice: str) -> Iterator[None]:
    """Have a refusal under maintenance advise this; its own advice is for what is appended."""
    try:
        yield
    except UnderMaintenance as error:
        raise UnderMaintenance(error.cause, advice) from None


def _event_id(key: Key) -> str:
    return f"erasure-{sha256(str(key).encode()).hexdigest()[:32]}"


def _event(key: Key) -> ErasedEvent:
    record = make_record(
        key,
        {"type": "conversation.erased"},
        where="erasure",
        now=_now(),
        new_id=_event_id(key),
        operator=True,
    )
    event = decode_event(record.value)
    assert isinstance(event, ErasedEvent)
    return event


def _now() -> str:
    return _time(datetime.now(UTC))


def _time(at: datetime) -> str:
    return rfc3339(at, "milliseconds")
