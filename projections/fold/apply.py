"""The fold: one event at a time into a window. Live projection, replay, verify and the tests all
call :func:`apply`, unchanged.

It knows no clock, no network and no setting beyond the window's own rules: the same events in the
same order give the same bytes. What a type of event does stands in ``projections.fold.handlers``.
"""

from __future__ import annotations

from functools import partial

from projections.events import types as events
from projections.events.size_limits import out_of_bounds
from projections.events.token_cost import trusted_text_tokens
from projections.fold.append import append, keep_limits
from projections.fold.conditions import not_met
from projections.fold.handlers import HANDLERS
from projections.fold.outcomes import History as History
from projections.fold.outcomes import Outcome as Outcome
from projections.fold.outcomes import Status as Status
from projections.fold.outcomes import Taught
from projections.fold.outcomes import id_hash_of as id_hash_of
from projections.window.bodies import text_body
from projections.window.entry import Entry, Kind
from projections.window.window import Window

# What Outcome(…) does, without a call of Python for each event.
_outcome: partial[Outcome] = partial(tuple.__new__, Outcome)
# A member of an enumeration takes as long to find as a call does.
_APPLIED = Status.APPLIED
_NOTHING_MORE = Outcome(_APPLIED, 0)[2:]


def apply(
    window: Window, offset: int, event: events.AnyEvent, history: History | None = None
) -> Outcome:
    """Fold the event at ``offset`` into ``window``, in place.

    Events must come in ascending offsets. A repeat of one of the last 1,024 ids changes nothing but
    the counter of repeats. After an erasure, whatever comes changes nothing but the position.

    Raises:
        UnusablePolicy: the tenant's policy does not hold in this process.
    """
    if window.meta.erased:
        window.advance(offset)
        return Outcome(Status.REJECTED, offset, "the conversation is erased")
    if type(event) is events.ErasedEvent:
        # Before anything that could pass it over: an id that somebody guessed and used before must
        # not prevent an erasure.
        users = window.meta.memory_users
        HANDLERS[events.ErasedEvent].handle(window, offset, event, None)
        return Outcome(Status.APPLIED, offset, taught=Taught(users) if users else None)
    if window.rules.unusable:
        # A fold under another policy could not be made good: the conversation waits.
        window.rules.check_usable(window.key.tenant)
    id_hash = id_hash_of(event.id)
    seen = window.recent_ids.find(id_hash)
    if seen is not None:
        window.count_repeat(offset)
        return Outcome(Status.DUPLICATE, seen.offset)
    if event.expect is not None or event.fence is not None:
        refused = not_met(window, event)
        if refused is not None:
            return _reject(window, offset, id_hash, refused)
    if type(event) is events.MessageEvent and _append_text(window, offset, event, id_hash):
        return _outcome((_APPLIED, offset, *_NOTHING_MORE))
    handler = HANDLERS[type(event)]
    beyond = out_of_bounds(event.data) if handler.bounded else None
    if beyond is not None:
        return _reject(window, offset, id_hash, f"{beyond[0]}: {beyond[1]}")
    outcome = handler.handle(window, offset, event, history)
    if isinstance(outcome, str):
        return _reject(window, offset, id_hash, outcome)
    if outcome is None:
        outcome = _outcome((_APPLIED, offset, *_NOTHING_MORE))
    elif outcome.status is Status.NEEDS_HISTORY:
        return outcome
    window.count_event(offset, id_hash, handler.visible(event))
    return outcome


def _reject(window: Window, offset: int, id_hash: bytes, reason: str) -> Outcome:
    window.count_rejected(offset, id_hash)
    append(window, Entry(offset, Kind.NOTE))
    return Outcome(Status.REJECTED, offset, reason)


def _append_text(window: Window, offset: int, event: events.MessageEvent, id_hash: bytes) -> bool:
    """Fold a user's or an assistant's message of nothing but text, as most of all events are: what
    the handler of messages does in fewer steps.

    Returns False, and does nothing, for any other message.
    """
    data = event.data
    kind, text = _TEXT_KIND.get(data.role), data.content
    if (
        kind is None
        or type(text) is not str
        or data.tool_calls
        or data.name is not None
        or data.usage is not None
    ):
        return False
    tokens = trusted_text_tokens(text, event.tokens, window.policy.encoding)
    entry = Entry(offset, kind, tokens, text_body(data.role, text))
    limits = window.limits
    if tokens > limits.ceiling or limits.counted:
        append(window, entry)
        window.count_event(offset, id_hash)
    elif window.append_text(entry, id_hash):
        keep_limits(window)
    return True


_TEXT_KIND: dict[str, int] = {"user": Kind.USER, "assistant": Kind.ASSISTANT}
