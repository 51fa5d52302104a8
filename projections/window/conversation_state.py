"""What is in force beside the tail, as a fold over its entries: pinned text, suspensions, calls
that are open, turn and session.

:func:`step` moves the state past one entry. A window stores the state as it stood before its tail
and derives the present one, so that moving back within the tail (a rollback) is the same fold,
stopped earlier.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from projections.events import types as events
from projections.policy.policy import Policy
from projections.window.entry import RENDERED, Entry, Kind
from projections.window.tool_calls import GuardRun, Used
from projections.window.truncation import clip

MAX_SUSPENSIONS = 32
MAX_OPEN_CALLS = 64
MAX_PINNED = 256


class Pinned(Struct, array_like=True):
    """A message of the system lane."""

    offset: int
    tokens: int
    body: bytes


class OpenCall(Struct, array_like=True):
    """A tool call without a result; ``dead`` once the user spoke again or its turn ended, until
    what held it up is resolved.
    """

    offset: int
    index: int
    id: str
    name: str
    dead: bool = False


class OpenSuspension(Struct, array_like=True):
    """A suspension that nobody has resolved; ``call`` is the call it holds up, as ``(offset,
    index)``.
    """

    offset: int
    suspension_id: str
    kind: str
    tool_call_id: str | None = None
    prompt: str | None = None
    expires_at: str | None = None
    call: tuple[int, int] | None = None


class PinnedResult(Struct, array_like=True):
    """A pinned tool result whose place in the tail is gone, with its call: two messages. ``link``
    is the call as ``(offset, index)``, ``saved`` the tokens that it had more before it was
    shortened.
    """

    offset: int
    tokens: int
    call: bytes
    result: bytes
    link: tuple[int, int]
    saved: int = 0


class ConversationState(Struct, array_like=True):
    """Everything in force beside tail and summary, all bounded.

    ``pins_lost`` and ``pinned_lost`` are the pinned results that lost their pin and the system
    messages that were cut for the lane's limit, each as ``(messages, tokens)``. ``given`` is the
    offset of the event that took the conversation from the user or channel that it had; -1: none.
    """

    pinned: list[Pinned] = []
    policy: dict[str, Any] | None = None
    user: str | None = None
    channel: str | None = None
    metadata: dict[str, Any] | None = None
    tools_tokens: int = 0
    suspensions: list[OpenSuspension] = []
    calls: list[OpenCall] = []
    turn_ended: bool = False
    closed: str | None = None
    loop: dict[str, Any] | None = None
    last_message: int = -1
    pins: list[PinnedResult] = []
    run: GuardRun | None = None
    used: bytes = b""
    pins_lost: tuple[int, int] = (0, 0)
    pinned_lost: tuple[int, int] = (0, 0)
    given: int = -1

    @property
    def pinned_tokens(self) -> int:
        """Tokens of the pinned lane, tool schemas and pinned results included."""
        return (
            self.tools_tokens
            + sum(item.tokens for item in self.pinned)
            + sum(pin.tokens for pin in self.pins)
        )

    def copy(self) -> ConversationState:
        """A copy that can be stepped without touching this one."""
        other: ConversationState = msgspec.structs.replace(
            self,
            pinned=list(self.pinned),
            suspensions=list(self.suspensions),
            calls=[_copy_call(c) for c in self.calls],
            pins=list(self.pins),
        )
        return other

    def waiting(self) -> set[tuple[int, int]]:
        """The calls that must stay whole, as ``(offset, index)``: those that may still be answered,
        and those that are suspended.
        """
        return {
            (call.offset, call.index) for call in self.calls if not call.dead
        } | self.suspended()

    def suspended(self) -> set[tuple[int, int]]:
        """The calls that a suspension holds up."""
        return {s.call for s in self.suspensions if s.call is not None}


def _copy_call(call: OpenCall) -> OpenCall:
    return OpenCall(call.offset, call.index, call.id, call.name, call.dead)


_DATA: dict[int, type[Struct]] = {
    Kind.OPENED: events.Opened,
    Kind.SUSPENSION: events.Suspension,
    Kind.RESOLUTION: events.Resolution,
    Kind.CLOSED: events.SessionClosed,
    Kind.LOOP: events.LoopDetected,
}
_TURNS = frozenset({Kind.TURN_STARTED, Kind.TURN_ENDED, Kind.TURN_TAKEN, Kind.TURN_PASSED})


def find_call(state: ConversationState, call_id: str) -> OpenCall | None:
    """The open call a result with this id answers: results pair by occurrence in order, as real
    agents reuse ids.

    That is the earliest call still waiting; where none is, the latest dead one (a result that came
    after the user spoke again).
    """
    found = None
    for call in state.calls:
        if call.id == call_id:
            if not call.dead:
                return call
            found = call
    return found


def step(state: ConversationState, entry: Entry, policy: Policy) -> None:
    """Move ``state`` past one entry, in place."""
    kind = entry.kind
    if kind in RENDERED:
        step_message(state, entry)
    elif kind == Kind.SYSTEM:
        state.pinned.append(Pinned(entry.offset, entry.tokens, entry.body))
        _bound_pinned(state, policy)
    elif kind in _TURNS:
        _step_turn(state, kind)
    elif kind in _DATA:
        _step_control(state, entry, msgspec.json.decode(entry.body, type=_DATA[kind]))


def step_message(state: ConversationState, entry: Entry) -> None:
    """Move ``state`` past one entry of a rendered kind, in place."""
    state.closed = None
    state.last_message = entry.offset
    if entry.kind == Kind.USER:
        state.turn_ended = False
        state.run = state.loop = None
        for call in state.calls:
            call.dead = True
    elif entry.calls:
        state.calls.extend(
            OpenCall(entry.offset, i, id_, name) for i, (id_, name, _) in enumerate(entry.calls)
        )
        del state.calls[:-MAX_OPEN_CALLS]
        for id_, name, sha in entry.calls:
            state.used = Used.add(state.used, id_)
            if state.run is None or state.run.sha != sha:
                state.run, state.loop = GuardRun(sha, name, 1), None
            else:
                state.run = GuardRun(sha, name, state.run.count + 1)
    elif entry.link is not None:
        state.calls = [call for call in state.calls if (call.offset, call.index) != entry.link]


def _step_turn(state: ConversationState, kind: int) -> None:
    state.turn_ended = kind == Kind.TURN_ENDED
    if kind != Kind.TURN_STARTED:
        for call in state.calls:
            call.dead = True


def _step_control(state: ConversationState, entry: Entry, data: object) -> None:
    if isinstance(data, events.Opened):
        state.policy = data.policy if data.policy is not None else state.policy
        before = state.user, state.channel
        state.user, state.channel = data.user or state.user, data.channel or state.channel
        if state.user != (before[0] or state.user) or state.channel != (before[1] or state.channel):
            state.given = entry.offset
        state.metadata = data.metadata if data.metadata is not None else state.metadata
        state.tools_tokens = entry.tokens if data.tools is not None else state.tools_tokens
    elif isinstance(data, events.Suspension):
        state.suspensions = [s for s in state.suspensions if s.suspension_id != data.suspension_id]
        call = find_call(state, data.tool_call_id) if data.tool_call_id else None
        held = (call.offset, call.index) if call else None
        state.suspensions.append(
            OpenSuspension(
                entry.offset,
                data.suspension_id,
                data.kind,
                data.tool_call_id,
                data.prompt,
                data.expires_at,
                held,
            )
        )
        del state.suspensions[:-MAX_SUSPENSIONS]
    elif isinstance(data, events.Resolution):
        resolved = {s.call for s in state.suspensions if s.suspension_id == data.suspension_id}
        state.suspensions = [s for s in state.suspensions if s.suspension_id != data.suspension_id]
        for call in state.calls:
            # Its tool runs now: the call stays in the window until the result comes.
            call.dead = call.dead and (call.offset, call.index) not in resolved
    elif isinstance(data, events.SessionClosed):
        state.closed = data.reason
    elif isinstance(data, events.LoopDetected):
        state.loop = msgspec.to_builtins(data)


def pin(state: ConversationState, item: PinnedResult, policy: Policy) -> None:
    """Put a pinned result beside the tail, where its call and itself have left it."""
    state.pins.append(item)
    _bound_pinned(state, policy)


def _bound_pinned(state: ConversationState, policy: Policy) -> None:
    """Keep the pinned lane within its limit.

    The oldest pinned results lose their pin first, then the oldest system text goes, and what alone
    is too long is cut.
    """
    limit, before = policy.pinned_limit, sum(item.tokens for item in state.pinned)
    gone = max(0, len(state.pinned) - MAX_PINNED)
    del state.pinned[:gone]
    total = state.pinned_tokens
    while state.pins and (total > limit or len(state.pins) > MAX_PINNED):
        lost = state.pins.pop(0)
        total -= lost.tokens
        state.pins_lost = (state.pins_lost[0] + 1, state.pins_lost[1] + lost.tokens)
    while len(state.pinned) > 1 and total > limit:
        total -= state.pinned[0].tokens
        gone += 1
        del state.pinned[0]
    if state.pinned and total > limit:
        last = state.pinned[-1]
        room = max(0, limit - state.tools_tokens)
        state.pinned[-1] = Pinned(last.offset, *clip(last.body, last.tokens, room))
    after = sum(item.tokens for item in state.pinned)
    if after != before or gone:
        state.pinned_lost = (state.pinned_lost[0] + gone, state.pinned_lost[1] + before - after)
