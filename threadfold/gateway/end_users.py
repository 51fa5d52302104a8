"""What end users may do: reach their own conversations, follow them, and say something in them.

A conversation belongs to the ``user`` of its last ``conversation.opened``. What is not an end
user's own is answered like what does not exist, before anything else of the request is looked at.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

from projections.errors import Forbidden, ThreadfoldError
from projections.names import make_key, parse_position
from threadfold.gateway.access import Caller
from threadfold.gateway.declaration import Route
from threadfold.gateway.tokens import EndUser
from threadfold.service.conversation_reader import unknown
from threadfold.service.drafts import Conditions
from threadfold.streaming.sse_event import SseEvent, comment

_OWNER_MAY_CHANGE = tuple(
    f'"type":"{kind}"'.encode() for kind in ("conversation.opened", "rollback", "event.dropped")
)
"""What these events hold, as streams write them."""
NOT_YOURS = "the conversation is not yours any more, or that cannot be known now"


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


async def begin(caller: Caller, end_user: EndUser, conversation: str) -> None:
    """Open a conversation that does not exist yet as the end user's own; the fold lets one of
    several be the first.

    Raises:
        UnknownConversation: it became somebody else's.
        Others: as ``ConversationService.append`` and ``wait_applied`` say.
    """
    if not caller.opens:
        return
    backend, tenant, key = caller.backend, caller.tenant, make_key(caller.tenant, conversation)
    flat = {"type": "conversation.opened", "user": end_user.user}
    appended = await backend.append(tenant, [(conversation, flat)], conditions=Conditions(""))
    caller.charge(appended)
    await backend.wait_applied(tenant, conversation, appended)
    owner = await backend.owner(key)
    if owner is None or owner.user != end_user.user:
        raise unknown(key)


async def own_batches(
    caller: Caller, end_user: EndUser, conversation: str, batches: AsyncIterator[list[SseEvent]]
) -> AsyncIterator[list[SseEvent]]:
    """A stream's batches, up to the event that gives the conversation to another user."""
    key = make_key(caller.tenant, conversation)

    async def still_own(event: SseEvent) -> bool:
        if event.id is not None:
            await caller.backend.wait_for(parse_position(event.id), key=key)
        owner = await caller.backend.owner(key)
        return owner is not None and owner.user == end_user.user

    async for batch in batches:
        upto = await _upto(batch, still_own)
        if upto:
            yield batch[:upto]
        if upto < len(batch):
            yield [comment(NOT_YOURS)]
            return


async def _upto(batch: Sequence[SseEvent], still_own: Callable[[SseEvent], Awaitable[bool]]) -> int:
    """How many events of a batch come before the one that ends the stream."""
    for i, event in enumerate(batch):
        # A text that holds these bytes costs a look, too, and changes nothing.
        if event.event == "event" and any(mark in event.data for mark in _OWNER_MAY_CHANGE):
            try:
                if not await still_own(event):
                    return i
            except ThreadfoldError:
                return i  # it cannot be known now: the reader connects again
    return len(batch)
