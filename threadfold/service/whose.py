"""Whose long-term memory a call is about."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from projections.errors import Erased, Forbidden, InvalidRequest, UnknownConversation
from projections.fold.memory_acceptance import MAX_USERS, may_teach
from projections.names import Key, Position, make_key, partition_of, users_log
from streams.memory.store import Filter
from threadfold.service.conversation_reader import unknown
from threadfold.service.conversations import ConversationService
from threadfold.service.stored_windows import Owner


class Whose(NamedTuple):
    """Whose memory a call is about. ``bound``: an end user's own, and nothing else;
    ``conversations``: what these taught alone.
    """

    tenant: str
    user: str | None = None
    channel: str | None = None
    conversation: str | None = None
    conversations: frozenset[str] | None = None
    bound: bool = False

    def filter(self, **more: Any) -> Filter:
        """The records of these that have more."""
        return Filter(
            self.tenant,
            self.user,
            self.channel,
            self.conversation,
            conversations=self.conversations,
            **more,
        )


OwnLog = tuple[Key, str | None, str | None]
"""The log that a save belongs to, and its user and channel."""


async def logs_of(backend: ConversationService, several: Sequence[Whose]) -> dict[Whose, OwnLog]:
    """The logs that saves of one tenant belong to, by all that is in the log when this is called:
    what was acknowledged may have given a conversation to another user.

    Raises: as :func:`log_of` and ``ConversationService.caught_up`` say; ``Erased`` of a user's own.
    """
    named = {(one.tenant, one.conversation) for one in several if one.conversation is not None}
    keys = [make_key(tenant, conversation) for tenant, conversation in named]
    if keys:
        partitions = {partition_of(key, backend.log.partitions) for key in keys}
        await backend.caught_up(partitions, whose=keys[0].tenant)
    logs: dict[Whose, OwnLog] = {}
    for i, whose in enumerate(several, 1):
        if whose not in logs:
            key, *_ = logs[whose] = await log_of(backend, whose, f"memory {i}")
            if key.of_user and backend.keys.is_erased(str(key).encode()):
                raise Erased(f"memory {i}: {key.shown} was erased")
    return logs


async def log_of(backend: ConversationService, whose: Whose, what: str) -> OwnLog:
    """The log that a save belongs to, by its window.

    Args: ``what`` errors begin with, as ``memory 3``.

    Raises:
        Forbidden: the token names conversations, and the save none.
        InvalidRequest: the conversation is of another user or channel, or has taught too many.
        UnknownConversation: there is none, or it is not the end user's.
        ConversationParked: it is parked, so whose it is from there on is not known.
        Others: as ``ConversationReader.window`` says.
    """
    tenant, user, channel, conversation, names, _ = whose
    if conversation is None:
        if names is not None:
            raise Forbidden(f"{what}: field conversation: the token names conversations: name one")
        return users_log(tenant, user), user, channel
    key = make_key(tenant, conversation)
    missing = f"{what}: {unknown(key)}"
    if names is not None and conversation not in names:
        raise UnknownConversation(missing)
    try:
        window = await backend.window(tenant, conversation)
    except UnknownConversation:
        raise UnknownConversation(missing) from None
    except Erased as error:
        if whose.bound:  # it may have been another user's
            raise UnknownConversation(missing) from None
        raise Erased(f"{what}: {error}") from None
    state, parked = window.state, window.meta.quarantine
    if whose.bound and state.user != user:
        raise UnknownConversation(missing)
    if parked is not None:
        at = Position(window.partition, parked.offset)
        Owner(state.user, at).check_known(key, f"{what} was not saved")
    if not may_teach(window, state.user):
        raise InvalidRequest(
            f"{what}: field conversation: {conversation} has taught the memory of {MAX_USERS}"
            " users, and can teach no other: name the user instead"
        )
    for name, given, own in (("user", user, state.user), ("channel", channel, state.channel)):
        if given is not None and given != own:
            raise InvalidRequest(
                f"{what}: field {name}: conversation {conversation} has "
                + (f"no {name}" if own is None else f"another {name}")
                + ": leave it out"
            )
    return key, state.user, state.channel
