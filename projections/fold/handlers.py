"""What each type of event does to a window: one handler a type, all of them in :data:`HANDLERS`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, get_args

from msgspec import Struct

from projections.errors import InvalidPosition
from projections.events import codec
from projections.events import types as events
from projections.events.provider_limits import LONGEST_ID, call_ids
from projections.events.size_limits import control_body
from projections.events.token_cost import trusted_tokens
from projections.fold.append import append
from projections.fold.memory_acceptance import why_not_learnt
from projections.fold.outcomes import History, Outcome, Status, Taught
from projections.fold.rehydration import reasoning_of
from projections.fold.rollback import roll_back, take_out
from projections.fold.summary_acceptance import why_not
from projections.fold.summary_effects import Acceptance, LateSummary
from projections.names import parse_position, user_tag
from projections.window import turns
from projections.window.bodies import message_body, result_body
from projections.window.conversation_state import OpenCall, find_call
from projections.window.entry import AT_ONCE, EARLY, Call, Entry, Kind
from projections.window.tool_calls import GuardRun, Used, named_calls
from projections.window.window import Window

Handle = Callable[[Window, int, Any, History | None], Outcome | str | None]
"""Folds the event at an offset into a window; returns why it is rejected, None where it is applied,
or an outcome that says more.
"""


def _always(_: Any) -> bool:
    return True


def _never(_: Any) -> bool:
    return False


class Handler(NamedTuple):
    """How one type of event is folded.

    ``visible`` tells whether later conditions see that the event came (``projections.fold.
    conditions``): what threadfold itself appends and the begin and end of turns they do not see.
    ``bounded`` tells whether its data is held to the size limits. ``kinds`` are the entries that
    keep its data in the tail.
    """

    handle: Handle
    visible: Callable[[Any], bool] = _always
    bounded: bool = True
    kinds: tuple[Kind, ...] = ()


ROLE_KIND = {
    "user": Kind.USER,
    "assistant": Kind.ASSISTANT,
    "system": Kind.SYSTEM,
    "developer": Kind.SYSTEM,
}


def _message(
    window: Window, offset: int, event: events.MessageEvent, _: History | None
) -> Outcome | None:
    data = event.data
    calls = named_calls(data.tool_calls or ())
    tokens = trusted_tokens(data, event.tokens, window.policy.encoding)
    entry = Entry(
        offset,
        ROLE_KIND[data.role],
        tokens,
        message_body(data),
        calls=calls or None,
        reasoning=reasoning_of(data),
    )
    before = window.state.run
    append(window, entry, data.usage.sent if data.usage and data.role == "assistant" else 0)
    loop = _loop(before, calls, window.policy.loop_guard) if calls else None
    return Outcome(Status.APPLIED, offset, loop=loop) if loop else None


def _loop(run: GuardRun | None, calls: tuple[Call, ...], guard: int) -> events.LoopDetected | None:
    """The last time that these calls brought the run of identical ones to a multiple of
    ``guard``.
    """
    found = None
    for _, name, sha in calls:
        run = GuardRun(sha, name, run.count + 1 if run is not None and run.sha == sha else 1)
        if guard and run.count % guard == 0:
            found = events.LoopDetected(name, sha.hex(), run.count)
    return found


def _result(window: Window, offset: int, event: events.ToolResultEvent, _: History | None) -> None:
    data, state = event.data, window.state
    call = find_call(state, data.tool_call_id)
    # A result that nobody asked for comes before its call, or repeats one: its id tells, as far
    # back as ids are known.
    unknown = None if Used.holds(state.used, data.tool_call_id) else EARLY
    tokens = trusted_tokens(data, event.tokens, window.policy.encoding)
    sent, spill = _sent_id(window, call) if call else "", data.spill
    entry = Entry(
        offset,
        Kind.RESULT,
        tokens,
        result_body(data, sent),
        link=(call.offset, call.index) if call else unknown,
        pinned=data.pinned,
        error=data.is_error,
        sent_id=sent if sent != data.tool_call_id else "",
    )
    if spill is not None:
        entry.shorten(AT_ONCE, "spill", entry.body, tokens, spill.chars)
    append(window, entry)


def _sent_id(window: Window, call: OpenCall) -> str:
    """The id under which a call is sent, where its message has others of the same id."""
    if not call.index and len(call.id) <= LONGEST_ID:
        return ""
    head = next((entry for entry in reversed(window.tail) if entry.offset == call.offset), None)
    ids = [one[0] for one in head.calls or ()] if head is not None else []
    return call_ids(ids)[call.index] if ids else ""


def _opened(window: Window, offset: int, event: events.OpenedEvent, _: History | None) -> None:
    tokens = trusted_tokens(event.data, event.tokens, window.policy.encoding)
    append(window, Entry(offset, Kind.OPENED, tokens, control_body(event.data)))


def _control(kind: Kind) -> Handle:
    """Keep the event's data in the tail, from where the state beside the tail follows."""

    def handle(window: Window, offset: int, event: Any, _: History | None) -> None:
        append(window, Entry(offset, kind, 0, control_body(event.data)))

    return handle


def _note(window: Window, offset: int, _event: Any, _: History | None) -> None:
    append(window, Entry(offset, Kind.NOTE))


def _unknown(window: Window, offset: int, event: Any, history: History | None) -> None:
    window.count_unknown()
    _note(window, offset, event, history)


def _resolution(
    window: Window, offset: int, event: events.ResolutionEvent, _: History | None
) -> str | None:
    if all(s.suspension_id != event.data.suspension_id for s in window.state.suspensions):
        return "no suspension of that id is open"
    append(window, Entry(offset, Kind.RESOLUTION, 0, control_body(event.data)))
    return None


def _closed(
    window: Window, offset: int, event: events.SessionClosedEvent, _: History | None
) -> str | None:
    last, after = window.state.last_message, event.data.after
    if after is not None and (last < 0 or after != window.position_of(last)):
        return "another message came after the one it names"
    append(window, Entry(offset, Kind.CLOSED, 0, control_body(event.data)))
    return None


_TURN_KIND: dict[str, Kind] = {
    "started": Kind.TURN_STARTED,
    "ended": Kind.TURN_ENDED,
    "taken": Kind.TURN_TAKEN,
    "passed": Kind.TURN_PASSED,
    "noted": Kind.NOTE,
}


def _turn(
    window: Window,
    offset: int,
    event: events.TurnStartedEvent | events.TurnEndedEvent,
    _: History | None,
) -> str | None:
    before = window.meta.turns or turns.NONE
    if isinstance(event, events.TurnStartedEvent):
        change = turns.begin(before, offset, event.data, fenced=event.fence is not None)
    else:
        change = turns.end(before, offset, event.data, _since(window, event.data))
    if isinstance(change, str):
        return change
    window.set_turns(change.turns if change.turns != turns.NONE else None)
    kind = _TURN_KIND[change.what]
    append(window, Entry(offset, kind, body=b"" if kind == Kind.NOTE else control_body(event.data)))
    return None


def _since(window: Window, data: events.TurnEnded) -> int | None:
    """The offset from which the lease ran that is reported to have expired, -1 for one of nowhere;
    None: the turn ended by itself.
    """
    since = turns.expired_since(data)
    if since is None:
        return None
    try:
        position = parse_position(since)
    except InvalidPosition:
        return -1
    return position.offset if position.partition == window.partition else -1


def _summary(
    window: Window, offset: int, event: events.SummaryEvent, history: History | None
) -> Outcome | str:
    data = event.data
    tokens = trusted_tokens(data, event.tokens, window.policy.encoding)
    reason = why_not(window, data)
    if reason is not None:
        return reason
    if history is not None and history.window is not None:
        window.take_over(history.window)
        accepted = history.window.meta.summary
        assert accepted is not None
    else:
        acceptance = Acceptance(window, offset, data, tokens)
        if acceptance.late and history is None:
            late = LateSummary(window, offset, data, tokens)
            return Outcome(Status.NEEDS_HISTORY, offset, texts=acceptance.late, late=late)
        accepted = acceptance.go_on((history or History()).texts)
    append(window, Entry(offset, Kind.NOTE))
    return Outcome(Status.APPLIED, offset, accepted=(accepted,))


def _learnt(
    window: Window, offset: int, event: events.MemoryEvent, _: History | None
) -> Outcome | str:
    reason = why_not_learnt(window, offset, event.data)
    if reason is not None:
        return reason
    user = user_tag(window.key.tenant, event.data.user)
    window.teach(user)
    append(window, Entry(offset, Kind.NOTE))
    return Outcome(Status.APPLIED, offset, taught=Taught((user,)))


def _dropped(
    window: Window, offset: int, event: events.EventDroppedEvent, _: History | None
) -> Outcome | None:
    target = take_out(window, event.data.position)
    append(window, Entry(offset, Kind.NOTE))
    if target is None:
        return None
    # What is learnt from it now may come to the log only later.
    users = window.meta.memory_users or (user_tag(window.key.tenant, window.state.user),)
    return Outcome(Status.APPLIED, offset, taught=Taught(users, dropped=target))


def _erased(window: Window, offset: int, _event: Any, _: History | None) -> None:
    window.erase(offset)


HANDLERS: dict[type[Struct], Handler] = {
    events.OpenedEvent: Handler(_opened, kinds=(Kind.OPENED,)),
    events.MessageEvent: Handler(_message, kinds=(Kind.USER, Kind.ASSISTANT, Kind.SYSTEM)),
    events.ToolResultEvent: Handler(_result, kinds=(Kind.RESULT,)),
    events.ToolResultChunkEvent: Handler(_note, _never, bounded=False),
    events.SuspensionEvent: Handler(_control(Kind.SUSPENSION), kinds=(Kind.SUSPENSION,)),
    events.ResolutionEvent: Handler(_resolution, kinds=(Kind.RESOLUTION,)),
    events.RollbackEvent: Handler(roll_back),
    events.SessionClosedEvent: Handler(
        _closed, lambda event: event.data.reason != "idle", kinds=(Kind.CLOSED,)
    ),
    events.TurnStartedEvent: Handler(_turn, _never, kinds=(Kind.TURN_STARTED, Kind.TURN_TAKEN)),
    events.TurnEndedEvent: Handler(_turn, _never, kinds=(Kind.TURN_ENDED, Kind.TURN_PASSED)),
    events.CompactionRequestedEvent: Handler(_control(Kind.COMPACT), _never, kinds=(Kind.COMPACT,)),
    events.LoopDetectedEvent: Handler(_control(Kind.LOOP), _never, kinds=(Kind.LOOP,)),
    events.SummaryEvent: Handler(_summary, _never),
    **dict.fromkeys(get_args(events.MemoryEvent), Handler(_learnt, _never)),
    events.EventDroppedEvent: Handler(_dropped),
    events.ErasedEvent: Handler(_erased),
    events.OtherEvent: Handler(_unknown, bounded=False),
}
"""How each type of event is folded."""

TYPE_OF_KIND: dict[int, str] = {
    kind: codec.short_type(str(type_.__struct_config__.tag))
    for type_, handler in HANDLERS.items()
    for kind in handler.kinds
}
"""The type of the event that an entry of a kind is of, by its short name."""
