"""What end users may do: reach their own conversations, follow them, and say something in them.

A conversation belongs to the ``user`` of its last ``conversation.opened``. What is not an end
user's own is answered like what does not exist, before anything else of the request is looked at.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

from msgspec import Struct
from msgspec.json import Decoder

from projections.errors import Erased, Forbidden, InvalidName, ThreadfoldError
from projections.names import make_key, parse_position
from threadfold.gateway.access import Caller
from threadfold.gateway.declaration import Route
from threadfold.gateway.tokens import EndUser
from threadfold.service.conversation_reader import unknown
from threadfold.service.drafts import Conditions
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
NOT_YOURS = "the conversation is not yours any more, or that cannot be known now"


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
    return caller


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


async def own_batches(
    caller: Caller, end_user: EndUser, conversation: str, batches: AsyncIterator[list[SseEvent]]
) -> AsyncIterator[list[SseEvent]]:
    """A stream's batches, up to the event that gives the conversation to another user, or the
    second in which it was given away. Call it once the subscription is made: what comes later is in
    the batches, and what came before is waited for, because the owner is read from a window, which
    follows the log.

    Raises:
        UnknownConversation: it is not the user's any more.
        Others: as ``ConversationService.latest_owner`` says.
    """
    key = make_key(caller.tenant, conversation)
    backend = caller.backend

    async def still_own(event: SseEvent) -> bool:
        if event.event == "partial":  # the log may have been read up to before its turn
            owner = await backend.latest_owner(key)
        else:
            if event.id is not None:
                await backend.wait_for(parse_position(event.id), whose=key)
            owner = await backend.owner(key)
        return owner is not None and owner.user == end_user.user

    async def anothers() -> bool:
        try:
            owner = await backend.owner(key)
        except ThreadfoldError:
            return False  # the events that may change it are waited for
        return owner is not None and owner.user != end_user.user

    owner = await backend.latest_owner(key)
    if owner is None or owner.user != end_user.user:
        raise unknown(key)

    def erased() -> bool:
        return backend.keys.is_erased(str(key).encode())

    return _own(batches, still_own, anothers, erased)


async def _own(
    batches: AsyncIterator[list[SseEvent]],
    still_own: Callable[[SseEvent], Awaitable[bool]],
    anothers: Callable[[], Awaitable[bool]],
    erased: Callable[[], bool],
) -> AsyncIterator[list[SseEvent]]:
    looked = time.monotonic()
    async for batch in batches:
        # What was said before the conversation was given away may take long to send.
        if time.monotonic() - looked >= LOOK_EVERY:
            looked = time.monotonic()
            if await anothers():
                yield [comment(NOT_YOURS)]
                return
        own, ends = await _own_of(batch, still_own, erased)
        if own:
            yield own
        if ends:
            yield [comment(NOT_YOURS)]
            return


async def _own_of(
    batch: Sequence[SseEvent],
    still_own: Callable[[SseEvent], Awaitable[bool]],
    erased: Callable[[], bool],
) -> tuple[list[SseEvent], bool]:
    """The events of a batch up to the one that ends the stream, and whether there is such a one. Of
    an erased conversation nobody knows whose it was: only the event that says so is sent.
    """
    own: list[SseEvent] = []
    for event in batch:
        looks = _may_be_anothers(event) and not erased()
        if looks and not await _known(still_own(event)) and not erased():
            return own, True
        if not event.event or not erased() or _is_erasure(event):
            own.append(event)
    return own, False


def _is_erasure(event: SseEvent) -> bool:
    return event.event == "event" and _type_of(event.data).type == "conversation.erased"


async def _known(answer: Awaitable[bool]) -> bool:
    """The answer; False while it cannot be known: the reader connects again."""
    try:
        return await answer
    except ThreadfoldError:
        return False


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
