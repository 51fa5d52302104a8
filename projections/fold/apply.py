"""The fold: one event at a time into a window. Live projection, replay, verify and the tests all
call :func:`apply`, unchanged.

It knows no clock, no network and no setting beyond the window's own rules: the same events in the
same order give the same bytes.
"""

from __future__ import annotations

from functools import partial
from hashlib import sha256

from projections.errors import InvalidPosition
from projections.events import types as events
from projections.events.provider_limits import LONGEST_ID, call_ids
from projections.events.size_limits import control_body, out_of_bounds
from projections.events.token_cost import believed, believed_text
from projections.fold.conditions import moves, not_met
from projections.fold.outcomes import History as History
from projections.fold.outcomes import Outcome as Outcome
from projections.fold.outcomes import Status as Status
from projections.fold.outcomes import id_hash_of as id_hash_of
from projections.fold.rehydration import reasoning_of
from projections.fold.rollback import roll_back, take_out
from projections.fold.summary_acceptance import why_not
from projections.fold.summary_effects import made_since, take
from projections.names import parse_position
from projections.window import turns
from projections.window.bodies import message_body, result_body, text_body
from projections.window.conversation_state import (
    AT_ONCE,
    EARLY,
    Call,
    Entry,
    Kind,
    OpenCall,
    find_call,
)
from projections.window.recent_ids import RecentIds
from projections.window.tool_calls import GuardRun, Used, call_hash
from projections.window.window import Window

# What Outcome(…) does, without a call of Python for each event.
_outcome: partial[Outcome] = partial(tuple.__new__, Outcome)


def apply(
    window: Window, offset: int, event: events.AnyEvent, history: History | None = None
) -> Outcome:
    """Fold the event at ``offset`` into ``window``, in place.

    Events must come in ascending offsets. A repeat of one of the last 1,024 ids changes nothing but
    the counter of repeats. After an erasure, whatever comes changes nothing but the position.
    """
    meta = window.meta
    if meta.erased:
        meta.position = offset
        return Outcome(Status.REJECTED, offset, "the conversation is erased")
    if type(event) is events.ErasedEvent:
        # Before anything that could pass it over: an id that somebody guessed and used before must
        # not prevent an erasure.
        _erase(window)
        meta.position = offset
        return Outcome(Status.APPLIED, offset)
    id_hash = id_hash_of(event.id)
    seen = window.recents.find(id_hash)
    if seen is not None:
        meta.duplicates += 1
        meta.position = offset
        return Outcome(Status.DUPLICATE, seen.offset)
    if event.expect is not None or event.fence is not None:
        refused = not_met(window, event)
        if refused is not None:
            return _skip(window, offset, id_hash, refused)
    if type(event) is events.MessageEvent and _push_text(window, offset, event):
        outcome = _outcome((Status.APPLIED, offset, None, None, (), (), (), None))
        meta.last = offset
    else:
        outcome = _dispatch(window, offset, event, history)
        if outcome.status is Status.NEEDS_HISTORY:
            return outcome
        if outcome.status is Status.REJECTED:
            return _skip(window, offset, id_hash, outcome.reason or "")
        if moves(event):
            meta.last = offset
    meta.count += 1
    meta.digest = sha256(meta.digest + id_hash).digest()
    meta.position = offset
    window.recents.add(id_hash, offset)
    return outcome


def _skip(window: Window, offset: int, id_hash: bytes, reason: str) -> Outcome:
    meta = window.meta
    meta.skipped += 1
    meta.position = offset
    window.recents.add(id_hash, offset, rejected=True)
    window.push(Entry(offset, Kind.NOTE))
    return Outcome(Status.REJECTED, offset, reason)


def _dispatch(
    window: Window, offset: int, event: events.AnyEvent, history: History | None
) -> Outcome:
    if type(event) is events.OtherEvent:
        window.meta.unknown += 1
        window.push(Entry(offset, Kind.NOTE))
        return Outcome(Status.APPLIED, offset)
    if type(event) is events.ToolResultChunkEvent:
        window.push(Entry(offset, Kind.NOTE))
        return Outcome(Status.APPLIED, offset)
    beyond = out_of_bounds(event.data)
    if beyond is not None:
        return Outcome(Status.REJECTED, offset, f"{beyond[0]}: {beyond[1]}")
    if isinstance(event, events.MessageEvent):
        return _message(window, offset, event)
    if isinstance(event, events.ToolResultEvent):
        return _result(window, offset, event)
    if isinstance(event, events.SummaryEvent):
        return _summary(window, offset, event, history)
    if isinstance(event, events.RollbackEvent):
        return roll_back(window, offset, event, history)
    if isinstance(event, events.EventDroppedEvent):
        return _dropped(window, offset, event)
    if isinstance(event, events.TurnStartedEvent | events.TurnEndedEvent):
        return _turn(window, offset, event)
    return _control(window, offset, event)


def _push_text(window: Window, offset: int, event: events.MessageEvent) -> bool:
    """Fold a user's or an assistant's message of nothing but text, as most of all events are:
    :func:`_message` in fewer steps.

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
    tokens = believed_text(text, event.tokens, window.policy.encoding)
    window.push_text(Entry(offset, kind, tokens, text_body(data.role, text)))
    return True


_TEXT_KIND: dict[str, int] = {"user": Kind.USER, "assistant": Kind.ASSISTANT}
_ROLE_KIND = {
    "user": Kind.USER,
    "assistant": Kind.ASSISTANT,
    "system": Kind.SYSTEM,
    "developer": Kind.SYSTEM,
}


def _message(window: Window, offset: int, event: events.MessageEvent) -> Outcome:
    data = event.data
    calls = (
        tuple(
            (call.id, call.name, call_hash(call.name, call.arguments)) for call in data.tool_calls
        )
        if data.tool_calls
        else None
    )
    tokens = believed(data, event.tokens, window.policy.encoding)
    entry = Entry(offset, _ROLE_KIND[data.role], tokens, message_body(data), calls)
    entry.reasoning = reasoning_of(data)
    before = window.lanes.run
    window.push(entry, data.usage.sent if data.usage and data.role == "assistant" else 0)
    loop = _loop(before, calls, window.policy.loop_guard) if calls else None
    return _outcome((Status.APPLIED, offset, None, None, (), (), (), loop))


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


def _result(window: Window, offset: int, event: events.ToolResultEvent) -> Outcome:
    data = event.data
    call = find_call(window.lanes, data.tool_call_id)
    # A result that nobody asked for comes before its call, or repeats one: its id tells, as far
    # back as ids are known.
    link = (
        (call.offset, call.index)
        if call
        else None
        if Used.holds(window.lanes.used, data.tool_call_id)
        else EARLY
    )
    tokens = believed(data, event.tokens, window.policy.encoding)
    sent = _sent_id(window, call) if call else ""
    entry = Entry(
        offset,
        Kind.RESULT,
        tokens,
        result_body(data, sent),
        link=link,
        pinned=data.pinned,
        error=data.is_error,
    )
    entry.sent_id = sent if sent != data.tool_call_id else ""
    if data.spill is not None:
        entry.chars, entry.full, entry.forms = (
            data.spill.chars,
            tokens,
            ((AT_ONCE, "spill", tokens),),
        )
    window.push(entry)
    return Outcome(Status.APPLIED, offset)


def _sent_id(window: Window, call: OpenCall) -> str:
    """The id under which a call is sent, where its message has others of the same id."""
    if not call.index and len(call.id) <= LONGEST_ID:
        return ""
    head = next((entry for entry in reversed(window.tail) if entry.offset == call.offset), None)
    return (
        call_ids([one[0] for one in head.calls])[call.index]
        if head is not None and head.calls
        else ""
    )


_CONTROL: dict[type, Kind] = {
    events.OpenedEvent: Kind.OPENED,
    events.SuspensionEvent: Kind.SUSPENSION,
    events.ResolutionEvent: Kind.RESOLUTION,
    events.SessionClosedEvent: Kind.CLOSED,
    events.CompactionRequestedEvent: Kind.COMPACT,
    events.LoopDetectedEvent: Kind.LOOP,
}


_TURN_KIND: dict[str, Kind] = {
    "started": Kind.TURN_STARTED,
    "ended": Kind.TURN_ENDED,
    "taken": Kind.TURN_TAKEN,
    "passed": Kind.TURN_PASSED,
    "noted": Kind.NOTE,
}


def _turn(
    window: Window, offset: int, event: events.TurnStartedEvent | events.TurnEndedEvent
) -> Outcome:
    before = window.meta.turns or turns.NONE
    if isinstance(event, events.TurnStartedEvent):
        change = turns.begin(before, offset, event.data, fenced=event.fence is not None)
    else:
        change = turns.end(before, offset, event.data, _since(window, event.data))
    if isinstance(change, str):
        return Outcome(Status.REJECTED, offset, change)
    window.meta.turns = change.turns if change.turns != turns.NONE else None
    kind = _TURN_KIND[change.what]
    window.push(Entry(offset, kind, body=b"" if kind == Kind.NOTE else control_body(event.data)))
    return Outcome(Status.APPLIED, offset)


def _since(window: Window, data: events.TurnEnded) -> int | None:
    """The offset from which the lease ran that is told to have expired, -1 for one of nowhere;
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


def _control(window: Window, offset: int, event: events.AnyEvent) -> Outcome:
    data = event.data
    if isinstance(data, events.Resolution) and not any(
        s.suspension_id == data.suspension_id for s in window.lanes.suspensions
    ):
        return Outcome(Status.REJECTED, offset, "no suspension of that id is open")
    if isinstance(data, events.SessionClosed) and data.after is not None:
        last = window.lanes.last_message
        if last < 0 or data.after != window.position_of(last):
            return Outcome(Status.REJECTED, offset, "another message came after the one it names")
    tokens = (
        believed(data, event.tokens, window.policy.encoding)
        if isinstance(data, events.Opened)
        else 0
    )
    window.push(Entry(offset, _CONTROL[type(event)], tokens, control_body(data)))
    return Outcome(Status.APPLIED, offset)


def _summary(
    window: Window, offset: int, event: events.SummaryEvent, history: History | None
) -> Outcome:
    data = event.data
    tokens = believed(data, event.tokens, window.policy.encoding)
    reason = why_not(window, data, tokens)
    if reason is not None:
        return Outcome(Status.REJECTED, offset, reason)
    due, kept = window.meta.due, set(events.absolute(data.span.kept))
    late = made_since(window, due.at if due else offset, parse_position(data.span.to).offset, kept)
    if late and history is None:
        return Outcome(Status.NEEDS_HISTORY, offset, texts=late)
    accepted = take(window, offset, data, tokens, history.texts if history else {})
    window.push(Entry(offset, Kind.NOTE))
    return Outcome(Status.APPLIED, offset, accepted=(accepted,))


def _dropped(window: Window, offset: int, event: events.EventDroppedEvent) -> Outcome:
    take_out(window, event.data.position)
    window.push(Entry(offset, Kind.NOTE))
    return Outcome(Status.APPLIED, offset)


def _erase(window: Window) -> None:
    """Set the window back to what it was before its first event, but for that it is erased; this is
    final.

    Counters, digest and recent ids go, too: what was folded before may have been readable or, with
    its key gone, opaque, and an event that was rejected or a dead letter in the one fold counts in
    the other. From here on any two folds agree, whatever they have seen.
    """
    meta = window.meta
    meta.count, meta.digest, meta.unknown, meta.duplicates, meta.skipped = 0, bytes(32), 0, 0, 0
    meta.base, meta.summary, meta.rollback, meta.due, meta.erased = (
        type(meta.base)(),
        None,
        None,
        None,
        True,
    )
    meta.last, meta.turns, meta.parked = -1, None, None
    window.recents = RecentIds()
    window.hashed = None
    window.replace_tail([])
