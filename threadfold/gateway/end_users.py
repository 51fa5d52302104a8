"""What end users may do: reach their own conversations, follow them, and say something in them.

A conversation belongs to the ``user`` of its last ``conversation.opened``. What is not an end
user's own is answered like what does not exist, before anything else of the request is looked at.
While a conversation is parked, its window does not know who it belongs to from there on: an end
user is shown nothing of that, and appends nothing.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from msgspec import Struct
from msgspec.json import Decoder

from projections.errors import (
    ConversationParked,
    Erased,
    Forbidden,
    InvalidName,
    ThreadfoldError,
    WaitTimedOut,
)
from projections.names import Key, Position, make_key, parse_position, partition_of
from threadfold.gateway.access import Caller
from threadfold.gateway.declaration import Route
from threadfold.gateway.tokens import EndUser
from threadfold.service.conversation_reader import unknown
from threadfold.service.conversations import ConversationService
from threadfold.service.drafts import Conditions
from threadfold.service.stored_windows import Owner
from threadfold.service.whose import Whose
from threadfold.streaming.sse_event import SseEvent, comment

_OWNER_MAY_CHANGE = tuple(
    f'"type":"{kind}"'.encode() for kind in ("conversation.opened", "rollback", "event.dropped")
)
"""What these events hold, as streams write them."""
_BEGINS = b'"offset":0,'
"""What the first piece of a text in progress holds."""
LOOK_EVERY = 1.0
"""Seconds between two looks at the owner, while the past is sent."""
LOOK_WAIT = 1.0
"""Seconds that events that leave the owner as it is wait for the window: it may find the
conversation parked before them.
"""
NOT_YOURS = "the conversation is not yours any more, or that cannot be known now"
PARKED = "the conversation is parked from here on: connect again later, with Last-Event-ID"


class _Typed(Struct):
    type: str


_type_of = Decoder(_Typed).decode


async def reach(caller: Caller, end_user: EndUser, route: Route, parts: Sequence[str]) -> Caller:
    """The caller, once it is known that the route is for end users, and that the conversation in
    its path is this one's own.

    One that does not exist yet may be begun if the token names it; ``opens`` says so then. With any
    other name, an end user could begin what the tenant writes to later.

    Raises:
        Forbidden: the route is not for end users.
        UnknownConversation: it is not his, or the token does not name it, or there is none.
        ConversationParked: he appends, and it is parked, or its partition is halted.
        Others: as ``ConversationService.owner`` says.
    """
    if not route.end_users:
        raise Forbidden("a token of an end user does not open this route: it needs a tenant's key")
    if "conversation" not in route.names:
        return caller
    conversation = parts[route.names.index("conversation")]
    key = make_key(caller.tenant, conversation)
    named = end_user.conversations
    if named is not None and conversation not in named:
        raise unknown(key)
    owner = await caller.backend.owner(key)
    if owner is None or owner.user != end_user.user:
        if owner is None and named is not None and route.scope == "append":
            return caller._replace(opens=True)
        raise unknown(key)
    if route.scope == "append":
        _check_append(caller, key, owner)
    return caller


def _check_append(caller: Caller, key: Key, owner: Owner) -> None:
    """Raise :class:`ConversationParked` while events wait that may have given the conversation to
    another user, for as long as an operator leaves them.
    """
    owner.check_known(key, "nothing was appended")
    partition = partition_of(key, caller.backend.log.partitions)
    if partition in caller.backend.control.state.halted():
        raise ConversationParked(
            f"{key.shown} is in partition {partition}, which is halted: nothing was appended,"
            " repeat it once it goes on"
        )


async def answered(
    caller: Caller,
    end_user: EndUser,
    route: Route,
    parts: Sequence[str],
    answering: Awaitable[Any],
) -> Any:
    """What a handler answers an end user. Whose the conversation is may have changed while it read,
    above all while it waited: so that is looked at once more. An erased one does not exist.

    Raises:
        UnknownConversation: the conversation is not his any more, or it was erased.
        Others: as the handler and :func:`reach` do.
    """
    try:
        answer = await answering
    except Erased:
        if "conversation" not in route.names:
            raise
        conversation = parts[route.names.index("conversation")]
        raise unknown(make_key(caller.tenant, conversation)) from None
    if route.scope == "read":
        await reach(caller, end_user, route, parts)
    return answer


async def begin(caller: Caller, end_user: EndUser, conversation: str, opening: str) -> None:
    """Open a conversation that does not exist yet as the end user's own, by an event of the id
    ``opening``; the fold lets one of several be the first.

    Raises:
        UnknownConversation: it became somebody else's.
        ConversationParked: it was parked meanwhile.
        Others: as ``ConversationService.append`` and ``wait_applied`` say.
    """
    if not caller.opens:
        return
    backend, tenant, key = caller.backend, caller.tenant, make_key(caller.tenant, conversation)
    flat = {"type": "conversation.opened", "id": opening, "user": end_user.user}
    appended = await backend.append(tenant, [(conversation, flat)], conditions=Conditions(""))
    caller.charge(appended)
    await backend.wait_applied(tenant, conversation, appended)
    owner = await backend.owner(key)
    if owner is None or owner.user != end_user.user:
        raise unknown(key)
    owner.check_known(key, "nothing of yours was appended")


def memory_of(
    caller: Caller, user: str | None, channel: str | None, conversation: str | None, at: str = ""
) -> Whose:
    """Whose memory a request reaches: what it names, and of an end user the own alone.

    Args:
        at: what an error's message begins with, as ``memory 3: ``.

    Raises:
        Forbidden: an end user names another.
        InvalidName: the conversation's name cannot be one.
    """
    if conversation is not None:
        try:
            make_key(caller.tenant, conversation)
        except InvalidName as error:
            raise InvalidName(f"{at}{error}") from None
    end_user = caller.end_user
    if end_user is None:
        return Whose(caller.tenant, user, channel, conversation)
    if user not in (None, end_user.user):
        raise Forbidden(f"{at}user: an end user reaches the user's own memory")
    names = end_user.conversations
    return Whose(caller.tenant, end_user.user, channel, conversation, names, bound=True)


def own_seed(end_user: EndUser | None, key: str | None) -> str | None:
    """What the ids of events follow from that have none, by the request's ``Idempotency-Key``. An
    end user's are of the own: those that follow from a key of the tenant's cannot be taken.
    """
    return key if key is None or end_user is None else f"{end_user.user}\n{key}"


async def check_own(caller: Caller, key: Key, position: Position) -> None:
    """Check that an end user may have what stands at a position of the own conversation: the log
    has it before the window knows that it is another user's.

    Raises:
        ConversationParked: the conversation is parked there, or before.
        Others: as ``ConversationService.wait_for`` and ``owner`` say.
    """
    await caller.backend.wait_for(position, whose=key)
    owner = await caller.backend.owner(key)
    if owner is not None and not owner.known_at(position):
        owner.check_known(key, f"the event at {position} is not shown")


async def own_batches(
    caller: Caller, end_user: EndUser, conversation: str, batches: AsyncIterator[list[SseEvent]]
) -> AsyncIterator[list[SseEvent]]:
    """A stream's batches, up to the event that gives the conversation to another user, or the
    second in which it was given away, or up to where it is parked. Call it once the subscription is
    made: what comes later is in the batches, and what came before is waited for, because the owner
    is read from a window, which follows the log.

    Raises:
        UnknownConversation: it is not the user's any more.
        Others: as ``ConversationService.latest_owner`` says.
    """
    key = make_key(caller.tenant, conversation)
    looks = _Looks(caller.backend, key, end_user.user)
    if not looks.are_own(await caller.backend.latest_owner(key)):
        raise unknown(key)
    return _own(batches, looks)


class _Looks(NamedTuple):
    """Looks at whose a conversation is, for the stream of its user."""

    backend: ConversationService
    key: Key
    user: str

    def are_own(self, owner: Owner | None) -> bool:
        """Whether the owner is the user."""
        return owner is not None and owner.user == self.user

    def erased(self) -> bool:
        """Whether the erasure has begun: from then on nobody knows whose it was."""
        return self.backend.keys.is_erased(str(self.key).encode())

    async def now(self, last: Position | None = None) -> Owner | None:
        """The owner, as soon as the window has the event at ``last``; if that takes long, the
        owner of what the window has. None while it cannot be known.
        """
        try:
            if last is not None:
                with suppress(WaitTimedOut):
                    await self.backend.wait_for(last, LOOK_WAIT, whose=self.key)
            return await self.backend.owner(self.key)
        except ThreadfoldError:
            return None

    async def surely(self, event: SseEvent) -> Owner | None:
        """The owner when the event was made or later; None while that cannot be known: the reader
        connects again.
        """
        try:
            if event.event == "partial":  # the log may have been read up to before its turn
                return await self.backend.latest_owner(self.key)
            if event.id is not None:
                await self.backend.wait_for(parse_position(event.id), whose=self.key)
            return await self.backend.owner(self.key)
        except ThreadfoldError:
            return None

    async def lost(self, batch: Sequence[SseEvent]) -> str:
        """Why nothing of this batch may be sent any more; empty while it may, or that is not known:
        the events that may change it are waited for.
        """
        owner = await self.now()
        if owner is not None and owner.user != self.user:
            return NOT_YOURS
        text = any(event.event == "partial" for event in batch)
        return PARKED if text and owner is not None and owner.parked is not None else ""


async def _own(
    batches: AsyncIterator[list[SseEvent]], looks: _Looks
) -> AsyncIterator[list[SseEvent]]:
    looked = time.monotonic()
    async for batch in batches:
        # What was said before the conversation was given away may take long to send.
        if time.monotonic() - looked >= LOOK_EVERY:
            looked = time.monotonic()
            if why := await looks.lost(batch):
                yield [comment(why)]
                return
        own, why = await _own_of(batch, looks)
        if own:
            yield own
        if why:
            yield [comment(why)]
            return


async def _own_of(batch: Sequence[SseEvent], looks: _Looks) -> tuple[list[SseEvent], str]:
    """The events of a batch up to the one that ends the stream, and why it ends, if it does. Of an
    erased conversation nobody knows whose it was: only the event that says so is sent.
    """
    own: list[SseEvent] = []
    last = next((event.id for event in reversed(batch) if event.id is not None), None)
    owner = None
    if last is not None and not looks.erased():
        owner = await looks.now(parse_position(last))
    for event in batch:
        if not looks.erased():
            if _may_be_anothers(event):
                owner = await looks.surely(event)
                if not looks.are_own(owner) and not looks.erased():
                    return own, NOT_YOURS
            if owner is not None and not _is_known(owner, event):
                return own, PARKED
        if not event.event or not looks.erased() or _is_erasure(event):
            own.append(event)
    return own, ""


def _is_erasure(event: SseEvent) -> bool:
    return event.event == "event" and _type_of(event.data).type == "conversation.erased"


def _is_known(owner: Owner, event: SseEvent) -> bool:
    """Whether an event is not of what waits in a parked conversation. Text in progress may be."""
    if event.id is not None:
        return owner.known_at(parse_position(event.id))
    return owner.parked is None or event.event != "partial"


def _may_be_anothers(event: SseEvent) -> bool:
    """Whether the owner has to be looked at before an event is sent. States are read from Redis,
    and text in progress comes through it: both may be ahead of the log's events.
    """
    match event.event:
        case "event":
            # A text that holds these bytes costs a look, too, and changes nothing.
            return any(mark in event.data for mark in _OWNER_MAY_CHANGE)
        case "partial":
            return _BEGINS in event.data
        case kind:
            return kind == "state"
