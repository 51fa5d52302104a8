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

from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Literal

import msgspec

from projections.errors import (
    CallableUnavailable,
    CorruptWindow,
    Healing,
    InvalidName,
    UnknownConversation,
    UnknownUser,
    WaitTimedOut,
)
from projections.events.codec import decode_event
from projections.events.times import rfc3339
from projections.events.types import ErasedEvent
from projections.events.validation import make_record
from projections.fold.apply import apply
from projections.names import (
    Key,
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
from streams.log.topics import topic_configs
from threadfold.service.conversations import ConversationService
from threadfold.service.erasure_verdict import verdict_of
from threadfold.service.lists import of_user

Outcome = Literal["deleted", "opaque", "kept"]
CLEANER = timedelta(hours=1)
"""Added to ``max.compaction.lag.ms``, for the next segment to begin and the cleaner to run."""
USER_PAGE = 500
PASSES = 3
"""How often a user's conversations are listed: the user may open others meanwhile, without end."""
ATTEMPTS = 5


class Store(msgspec.Struct):
    """The result in one store. ``deadline`` (RFC 3339) is the latest time from which it is true;
    null: it is true now.
    """

    state: Outcome
    deadline: str | None
    how: str


class Receipt(msgspec.Struct):
    """An erasure: the position of its event, the time of its first request, and the result in the
    log and in each store.
    """

    conversation: str
    position: str
    erased_at: str
    log: Literal["opaque", "kept"]
    stores: dict[str, Store]


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
            UnknownConversation: it has no events. Its text in progress is deleted.
            WaitTimedOut: the window did not include the erasure in time (does a worker run?). It
                has begun, and the conversation is refused everywhere: repeat the call.
            Healing, KafkaUnavailable, RedisUnavailable: repeat the call.
        """
        return await self._erase(make_key(tenant, conversation), user)

    async def _erase(self, key: Key, user: str | None) -> Receipt:
        name = str(key).encode()
        await self._keys.sync()
        erasure = self._keys.table.erasure(name)
        if erasure is None:
            try:
                verdict = await verdict_of(self._backend, key)
            except UnknownConversation:
                # Its text in progress would become its first message.
                await self._forget_text(key, erased=False)
                raise
            tag = None if user is None else user_tag(key.tenant, user)
            erasure = Erasure("begun", _now(), verdict, user=tag)
            await self._keys.put_erasure(name, erasure)
        if erasure.state == "begun":
            position = await self._append(key)
            await self._elsewhere(key, position)
            erasure = msgspec.structs.replace(
                erasure, state="done", position=position, done_at=_now()
            )
            await self._keys.put_erasure(name, erasure)
            erasure = self._keys.table.erasure(name) or erasure
        else:
            await self._elsewhere(key, erasure.position or "")
            await self._keys.wipe(name)
        await self._forget_text(key, erased=True)
        return await self._receipt(key, erasure)

    async def user(self, tenant: str, user: str) -> list[Receipt]:
        """Erase all conversations that belong to a user now (``user`` of the last
        ``conversation.opened``), and the log of what was saved to the user's memory beside them;
        return their receipts by name. One that was given to another user is that user's.

        Conversations erased earlier on behalf of the user are included; an erasure keeps a hash of
        the user. Of those that are opened meanwhile some may be erased, too.

        Raises:
            InvalidName: the user has no character.
            UnknownUser: no conversation belongs to the user.
            WaitTimedOut, Healing, KafkaUnavailable, RedisUnavailable: some conversations may be
                erased; repeat the call. While a partition is halted, those that are known in the
                others are.
        """
        if not user:  # without a user it would be the tenant's own memory
            raise InvalidName("user: expected 1 or more characters")
        backend, done = self._backend, dict[str, Receipt]()
        await self._keys.sync()
        late = await self._not_caught_up(tenant)
        names = sorted(
            {
                *self._keys.table.erased_for(tenant, user_tag(tenant, user)),
                *await of_user(backend, tenant, user, USER_PAGE),
            }
        )
        own = users_log(tenant, user)
        with suppress(UnknownConversation):
            done[own.conversation] = await self._erase(own, user)
        halted = set[str]()
        for _ in range(PASSES):
            names = [name for name in names if name not in done and name not in halted]
            if not names:
                break
            for name in names:
                try:
                    done[name] = await self.conversation(tenant, name, user=user)
                except WaitTimedOut as error:
                    if late is None:
                        raise
                    late = error
                    halted.add(name)
            names = await of_user(backend, tenant, user, USER_PAGE)
        if late is not None:
            raise late
        if not done:
            raise UnknownUser(f"user {one_line(user)} is not known: no conversation belongs to it")
        return [done[name] for name in sorted(done)]

    async def _not_caught_up(self, tenant: str) -> WaitTimedOut | None:
        """Wait for all windows of a tenant. The error where some partition is halted: in the others
        nobody has to wait for that.

        Raises:
            WaitTimedOut: they are behind, and nothing is erased: others may be the user's, too.
        """
        try:
            await self._backend.caught_up(range(self._backend.log.partitions), whose=tenant)
        except WaitTimedOut as error:
            if not self._backend.control.state.halted():
                late = f"nothing is erased yet, repeat it later: {error}"
                raise WaitTimedOut(late, error.retry_after) from None
            return error
        return None

    # -- the steps
    # ------------------------------------------------------------------------------------------

    async def _forget_text(self, key: Key, *, erased: bool) -> None:
        """Delete text in progress; in a user's own log there is none."""
        if not key.of_user:
            await self._forget_partial(key, erased)

    async def _append(self, key: Key) -> str:
        """Append the erasure, wait until the live window includes it, and return its position."""
        flat = {"type": "conversation.erased", "id": _event_id(key)}
        (appended,) = await self._backend.append(key.tenant, [(key, flat)], operator=True)
        await self._backend.wait_for(appended.position, whose=key)
        return str(appended.position)

    async def _elsewhere(self, key: Key, position: str) -> None:
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

    async def _erase_in(self, generation: int, partition: int, key: Key, position: str) -> bool:
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
        apply(window, min(checkpoint.offset, parse_position(position).offset), _event(key))
        applied = await backend.store.apply(
            generation, partition, checkpoint, [write_of(window, mark, checkpoint.timestamp)]
        )
        return applied.verdict is Verdict.APPLIED

    # -- the receipt
    # ------------------------------------------------------------------------------------------

    async def _receipt(self, key: Key, erasure: Erasure) -> Receipt:
        configs = await topic_configs(
            self._backend.settings, ("keys", "renders", "compactions", "dead-letters")
        )
        since = datetime.fromisoformat(erasure.done_at or erasure.erased_at)
        return Receipt(
            key.conversation,
            erasure.position or "",
            erasure.erased_at,
            erasure.log,
            _stores(erasure.log == "opaque", since, configs),
        )


def _stores(opaque: bool, since: datetime, configs: dict[str, dict[str, str]]) -> dict[str, Store]:
    payloads: Outcome = "opaque" if opaque else "kept"
    sealed = "sealed with a key that is deleted"
    lag = _after(since, configs.get("keys", {}).get("max.compaction.lag.ms"), CLEANER)
    renders, compactions, letters = (
        _after(since, configs.get(name, {}).get("retention.ms"))
        for name in ("renders", "compactions", "dead-letters")
    )
    unsealed = "not sealed, or not all"
    until = "; until the topic's retention"
    return {
        "log": Store(
            payloads,
            None,
            f"payloads are {sealed if opaque else unsealed + ': the log is kept for ever'}",
        ),
        "keys": Store(
            "deleted",
            lag,
            "void at once; the broker drops the wrapped keys by then (max.compaction.lag.ms and its"
            " cleaner's run)",
        ),
        "windows": Store("deleted", None, "in all generations; they record only the erasure"),
        "snapshots": (
            Store("opaque", None, f"remaining records are {sealed}")
            if opaque
            else Store(
                "deleted",
                None,
                "overwritten by the worker; the broker drops the old ones when it compacts that"
                " partition next",
            )
        ),
        "summaries": Store(
            payloads,
            None,
            f"texts are {sealed}" if opaque else f"{unsealed}: the topic is kept for ever",
        ),
        "memories": Store(
            payloads,
            None,
            "records that nothing else taught leave every store; "
            + (
                f"the topic's payloads are {sealed}"
                if opaque
                else f"{unsealed}: the topic is kept for ever"
            ),
        ),
        "renders": (
            Store("opaque", renders, f"records are {sealed}")
            if opaque
            else Store("kept", renders, f"records hold digests, names and counts, no text{until}")
        ),
        "compactions": Store(
            "kept", compactions, f"requests hold positions and ids, no text{until}"
        ),
        "partials": Store("deleted", None, "text in progress"),
        "caches": Store(
            "deleted", None, "in each gateway as it reads the keys topic, within a second"
        ),
        "dead_letters": Store(
            "kept", letters, f"letters hold positions and causes, no text{until}"
        ),
    }


def _after(since: datetime, ms: str | None, more: timedelta = timedelta()) -> str | None:
    """The time ``ms`` and ``more`` later, None if there is no such limit."""
    if ms is None or not ms.isdecimal() or int(ms) > 10**15:
        return None
    return _time(since + timedelta(milliseconds=int(ms)) + more)


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
