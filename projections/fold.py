"""The fold: one event at a time into a window. Live projection, replay, verify and the tests all call :func:`apply`, unchanged.

It knows no clock, no network and no setting beyond the window's own rules: the same events in the same order give the same bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from hashlib import sha256
from typing import NamedTuple

import msgspec

from projections import events
from projections.bodies import has_text, reasoning_of, refill, tools_of
from projections.bounds import control_body, out_of_bounds
from projections.calls import GuardRun, Used, call_hash
from projections.compaction import drop_span, why_not
from projections.costs import believed, believed_text
from projections.errors import InvalidPosition
from projections.lanes import AT_ONCE, EARLY, RANGES, Call, Entry, Kind, OpenCall, find_call
from projections.names import parse_position
from projections.openai import message_body, result_body, text_body
from projections.providers import call_ids
from projections.window import InForce, Window, abandoned_range


class Status(Enum):
    """What the fold made of an event.

    ``rejected`` changed nothing but its own trace (it is skipped for ever, on replay too). ``needs_history`` changed nothing at all:
    call :func:`apply` again with the :class:`History` at ``Outcome.target``, or with the events at ``Outcome.texts``.
    """

    APPLIED = "applied"
    DUPLICATE = "duplicate"
    REJECTED = "rejected"
    NEEDS_HISTORY = "needs_history"


class Outcome(NamedTuple):
    """The result of one :func:`apply`.

    ``offset`` is where the event counts: its own, or for a duplicate that of its first occurrence. ``accepted`` and ``voided`` are summary
    ids that came into force or lost it, in order: the live generation announces them. ``loop`` is what it appends as ``loop.detected``.
    """

    status: Status
    offset: int
    reason: str | None = None
    target: int | None = None
    accepted: tuple[InForce, ...] = ()
    voided: tuple[str, ...] = ()
    texts: tuple[int, ...] = ()
    loop: events.LoopDetected | None = None


# What Outcome(…) does, without a call of Python for each event.
_outcome: partial[Outcome] = partial(tuple.__new__, Outcome)


def id_hash_of(event_id: str) -> bytes:
    """The SHA-256 of an event's id (which may hold lone surrogates)."""
    try:
        return sha256(event_id.encode()).digest()
    except UnicodeEncodeError:
        return sha256(event_id.encode("utf-8", "surrogatepass")).digest()


@dataclass(slots=True)
class History:
    """What a rollback beyond the window needs from the log.

    ``window`` is the fold of the conversation's events up to and including the target, or None when the target is not one of them.
    ``chain`` holds the accepted summaries from the one in force backwards, newest first, as ``(offset, event)``, down to the first that
    was accepted at or before the target (or to the first of all). ``texts`` are events by offset, for what was shortened and is to be whole
    again; where the log has lost one of them, it stays as it is.
    """

    window: Window | None = None
    chain: list[tuple[int, events.SummaryEvent]] = field(default_factory=list)
    texts: Mapping[int, events.AnyEvent] = field(default_factory=dict)


def apply(window: Window, offset: int, event: events.AnyEvent, history: History | None = None) -> Outcome:
    """Fold the event at ``offset`` into ``window``, in place.

    Events must come in ascending offsets. A repeat of one of the last 1,024 ids changes nothing but the counter of repeats.
    """
    meta = window.meta
    id_hash = id_hash_of(event.id)
    seen = window.recents.find(id_hash)
    if seen is not None:
        meta.duplicates += 1
        meta.position = offset
        return Outcome(Status.DUPLICATE, seen.offset)
    if meta.erased:
        return _skip(window, offset, id_hash, "the conversation is erased")
    if type(event) is events.MessageEvent and _push_text(window, offset, event):
        outcome = _outcome((Status.APPLIED, offset, None, None, (), (), (), None))
    else:
        outcome = _dispatch(window, offset, event, history)
        if outcome.status is Status.NEEDS_HISTORY:
            return outcome
        if outcome.status is Status.REJECTED:
            return _skip(window, offset, id_hash, outcome.reason or "")
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
    if not meta.erased:
        window.push(Entry(offset, Kind.NOTE))
    return Outcome(Status.REJECTED, offset, reason)


def _dispatch(window: Window, offset: int, event: events.AnyEvent, history: History | None) -> Outcome:
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
        return _rollback(window, offset, event, history)
    if isinstance(event, events.EventDroppedEvent):
        return _dropped(window, offset, event)
    if isinstance(event, events.ErasedEvent):
        _erase(window)
        return Outcome(Status.APPLIED, offset)
    return _control(window, offset, event)


def _push_text(window: Window, offset: int, event: events.MessageEvent) -> bool:
    """Fold a user's or an assistant's message of nothing but text, as most of all events are: :func:`_message` in fewer steps.

    Returns False, and does nothing, for any other message.
    """
    data = event.data
    kind, text = _TEXT_KIND.get(data.role), data.content
    if kind is None or type(text) is not str or data.tool_calls or data.name is not None or data.usage is not None:
        return False
    tokens = believed_text(text, event.tokens, window.policy.encoding)
    window.push_text(Entry(offset, kind, tokens, text_body(data.role, text)))
    return True


_TEXT_KIND: dict[str, int] = {"user": Kind.USER, "assistant": Kind.ASSISTANT}
_ROLE_KIND = {"user": Kind.USER, "assistant": Kind.ASSISTANT, "system": Kind.SYSTEM, "developer": Kind.SYSTEM}


def _message(window: Window, offset: int, event: events.MessageEvent) -> Outcome:
    data = event.data
    calls = tuple((call.id, call.name, call_hash(call.name, call.arguments)) for call in data.tool_calls) if data.tool_calls else None
    tokens = believed(data, event.tokens, window.policy.encoding)
    entry = Entry(offset, _ROLE_KIND[data.role], tokens, message_body(data), calls)
    entry.reasoning = reasoning_of(data)
    before = window.lanes.run
    window.push(entry, data.usage.sent if data.usage and data.role == "assistant" else 0)
    loop = _loop(before, calls, window.policy.loop_guard) if calls else None
    return _outcome((Status.APPLIED, offset, None, None, (), (), (), loop))


def _loop(run: GuardRun | None, calls: tuple[Call, ...], guard: int) -> events.LoopDetected | None:
    """The last time that these calls brought the run of identical ones to a multiple of ``guard``."""
    found = None
    for _, name, sha in calls:
        run = GuardRun(sha, name, run.count + 1 if run is not None and run.sha == sha else 1)
        if guard and run.count % guard == 0:
            found = events.LoopDetected(name, sha.hex(), run.count)
    return found


def _result(window: Window, offset: int, event: events.ToolResultEvent) -> Outcome:
    data = event.data
    call = find_call(window.lanes, data.tool_call_id)
    # A result that nobody asked for comes before its call, or repeats one: its id tells, as far back as ids are known.
    link = (call.offset, call.index) if call else None if Used.holds(window.lanes.used, data.tool_call_id) else EARLY
    tokens = believed(data, event.tokens, window.policy.encoding)
    sent = _sent_id(window, call) if call else ""
    entry = Entry(offset, Kind.RESULT, tokens, result_body(data, sent), link=link, pinned=data.pinned, error=data.is_error)
    entry.sent_id = sent if sent != data.tool_call_id else ""
    if data.spill is not None:
        entry.chars, entry.full, entry.forms = data.spill.chars, tokens, ((AT_ONCE, "spill", tokens),)
    window.push(entry)
    return Outcome(Status.APPLIED, offset)


def _sent_id(window: Window, call: OpenCall) -> str:
    """The id under which a call is sent, where its message has others of the same id."""
    if not call.index:
        return ""
    head = next((entry for entry in reversed(window.tail) if entry.offset == call.offset), None)
    return call_ids([one[0] for one in head.calls])[call.index] if head is not None and head.calls else ""


_CONTROL: dict[type, Kind] = {
    events.OpenedEvent: Kind.OPENED,
    events.SuspensionEvent: Kind.SUSPENSION,
    events.ResolutionEvent: Kind.RESOLUTION,
    events.TurnStartedEvent: Kind.TURN_STARTED,
    events.TurnEndedEvent: Kind.TURN_ENDED,
    events.SessionClosedEvent: Kind.CLOSED,
    events.LoopDetectedEvent: Kind.LOOP,
}


def _control(window: Window, offset: int, event: events.AnyEvent) -> Outcome:
    data = event.data
    if isinstance(data, events.Resolution) and not any(s.suspension_id == data.suspension_id for s in window.lanes.suspensions):
        return Outcome(Status.REJECTED, offset, "no suspension of that id is open")
    if isinstance(data, events.SessionClosed) and data.after is not None:
        last = window.lanes.last_message
        if last < 0 or data.after != window.position_of(last):
            return Outcome(Status.REJECTED, offset, "another message came after the one it names")
    tokens = believed(data, event.tokens, window.policy.encoding) if isinstance(data, events.Opened) else 0
    window.push(Entry(offset, _CONTROL[type(event)], tokens, control_body(data)))
    return Outcome(Status.APPLIED, offset)


def _summary(window: Window, offset: int, event: events.SummaryEvent, history: History | None) -> Outcome:
    data = event.data
    tokens = believed(data, event.tokens, window.policy.encoding)
    reason = why_not(window, data, tokens)
    if reason is not None:
        return Outcome(Status.REJECTED, offset, reason)
    late = _made_since(window, window.meta.due.at if window.meta.due else offset, parse_position(data.span.to).offset)
    if late and history is None:
        return Outcome(Status.NEEDS_HISTORY, offset, texts=late)
    accepted = _take(window, offset, data, tokens, history.texts if history else {})
    window.push(Entry(offset, Kind.NOTE))
    return Outcome(Status.APPLIED, offset, accepted=(accepted,))


def _made_since(window: Window, at: int, after: int) -> tuple[int, ...]:
    """The offsets of entries beyond ``after`` that were shortened by cuts at events later than ``at``."""
    shaped = [e for e in window.tail if e.forms and e.offset > after and e.kind not in RANGES]
    return tuple(e.offset for e in shaped if e.forms[-1][0] > at)


def _take(window: Window, offset: int, data: events.Summary, tokens: int, texts: Mapping[int, events.AnyEvent]) -> InForce:
    """Put a summary in force: its span leaves the tail, and cuts are made again over what follows.

    Shortenings made since it was found to be due are taken back: had it come at once, they would not have been made.
    """
    before = window.meta.summary
    last = parse_position(data.span.to).offset
    due = window.meta.due
    _take_back(window, due.at if due else offset, last, texts)
    drop_span(window, last, data.span.count, set(events.absolute(data.span.kept)))
    window.meta.summary = InForce(
        summary_id=data.summary_id,
        offset=offset,
        text=data.text,
        tokens=tokens,
        to=last,
        trust=data.trust,
        previous=before.summary_id if before else None,
        previous_offset=before.offset if before else None,
    )
    window.refold(due.at if due else offset)
    return window.meta.summary


def _take_back(window: Window, at: int, after: int, texts: Mapping[int, events.AnyEvent]) -> None:
    """Undo the shortenings, by cuts at events later than ``at``, of entries beyond ``after``; what ``texts`` lacks stays as it is."""
    wanted = set(_made_since(window, at, after))
    tools = tools_of(window.tail) if wanted else {}
    for i, entry in enumerate(window.tail):
        event = texts.get(entry.offset) if entry.offset in wanted else None
        if event is None:
            continue
        forms = tuple(form for form in entry.forms if form[0] <= at)
        whole = msgspec.structs.replace(entry, forms=forms, tokens=forms[-1][2] if forms else entry.full, full=entry.full if forms else 0)
        if not forms:
            whole.chars = 0
        if has_text(whole):
            refill(whole, event, window.shaper(), tools)
        window.tail[i] = whole
        window.epoch += 1


def _rollback(window: Window, offset: int, event: events.RollbackEvent, history: History | None) -> Outcome:
    target = _resolve(window, event.data.to)
    if target is None or target >= offset:
        return Outcome(Status.REJECTED, offset, "it names no event of this conversation")
    at = _index_at(window, target)
    if at is not None:
        late = _made_since(window, target, -1)
        late = tuple(o for o in late if o <= target)
        if late and history is None:
            return Outcome(Status.NEEDS_HISTORY, offset, texts=late)
        _go_back(window, offset, target, at, history.texts if history else {})
        return Outcome(Status.APPLIED, offset)
    if history is None:
        return Outcome(Status.NEEDS_HISTORY, offset, target=target)
    if history.window is None:
        return Outcome(Status.REJECTED, offset, "it names no event of this conversation")
    return _restore(window, offset, target, history)


def _go_back(window: Window, offset: int, target: int, at: int, texts: Mapping[int, events.AnyEvent]) -> None:
    """Drop what stands behind the target in the tail, and undo the cuts made since: what each cut did follows from what was before it."""
    gone = window.tail[at + 1 :]
    window.tail = window.tail[: at + 1]
    _take_back(window, target, -1, texts)
    window.unlink_early(target)
    meta = window.meta
    meta.rollback = offset
    if meta.due is not None and meta.due.at > target:
        meta.due = None
    window.replace_tail([*window.tail, abandoned_range(gone, offset)])


def _resolve(window: Window, to: str) -> int | None:
    """A rollback's target: a position of this partition, or the id of a recent event."""
    try:
        position = parse_position(to)
    except InvalidPosition:
        seen = window.recents.find(id_hash_of(to))
        return None if seen is None else seen.offset
    return position.offset if position.partition == window.partition else None


def _index_at(window: Window, target: int) -> int | None:
    """Where in the tail the target stands (the last before it, where a summary ends with it), or None when only the log can tell."""
    reached = window.covered_to
    if target < reached:
        return None
    tail = window.tail
    if target == reached:
        kept = sum(entry.offset <= reached for entry in tail)
        return None if any(entry.kind == Kind.HELD and entry.start <= target + 1 for entry in tail[: kept + 1]) else kept - 1
    return next((i for i, entry in enumerate(tail) if entry.offset == target and entry.kind not in RANGES), None)


def _restore(window: Window, offset: int, target: int, history: History) -> Outcome:
    """Take tail, lanes and summary from the fold at the target; ids, count and digest of this window go on."""
    restored, chain = history.window, history.chain
    if restored is None:
        raise ValueError("a rollback beyond the window needs its history")
    for at, event in reversed(chain):
        data = event.data
        tokens = believed(data, event.tokens, restored.policy.encoding)
        if parse_position(data.span.to).offset <= target and why_not(restored, data, tokens) is None:
            _take(restored, at, data, tokens, history.texts)
    old = {event.data.summary_id for _, event in chain}
    new = restored.meta.summary
    gone = Entry(offset, Kind.ABANDONED, first=target + 1, count=max(1, offset - target))
    voided: list[str] = []
    for _, event in chain:
        if new is not None and event.data.summary_id == new.summary_id:
            break
        voided.append(event.data.summary_id)
    accepted = (new,) if new is not None and new.summary_id not in old else ()
    meta = window.meta
    meta.base, meta.summary, meta.due, meta.rollback = restored.meta.base, new, restored.meta.due, offset
    window.replace_tail([*restored.tail, gone])
    return Outcome(Status.APPLIED, offset, accepted=accepted, voided=tuple(voided))


def _dropped(window: Window, offset: int, event: events.EventDroppedEvent) -> Outcome:
    take_out(window, event.data.position)
    window.push(Entry(offset, Kind.NOTE))
    return Outcome(Status.APPLIED, offset)


def take_out(window: Window, position: str) -> None:
    """Take the event at a position (or of a recent id) out of the tail or the pinned lane; nothing happens where it is in neither.

    Text that a summary was made of stays in the summary.
    """
    target = _resolve(window, position)
    if target is None:
        return
    at = next((i for i, entry in enumerate(window.tail) if entry.offset == target and entry.kind not in RANGES), None)
    if at is not None:
        tail = list(window.tail)
        tail[at] = Entry(tail[at].offset, Kind.NOTE)
        window.replace_tail(tail)
    base = window.meta.base
    if any(pin.offset == target for pin in base.pins):
        base.pins = [pin for pin in base.pins if pin.offset != target]
        window.base_epoch += 1
        window.derive()
    pinned = base.pinned
    if any(item.offset == target for item in pinned):
        window.meta.base.pinned = [item for item in pinned if item.offset != target]
        window.base_epoch += 1
        window.derive()


def _erase(window: Window) -> None:
    """Nothing of the conversation stays in the window but ids and counters; this is final."""
    meta = window.meta
    meta.base, meta.summary, meta.due, meta.erased = type(meta.base)(), None, None, True
    window.replace_tail([])
