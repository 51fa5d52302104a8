"""The lanes beside the tail: pinned text, suspensions, open calls, turn and session, as a fold over tail entries.

:class:`Entry` is what the window keeps of one event; :func:`step` moves the lanes past one entry. A window stores the lanes as they
stood before its tail and derives the present ones, so that moving back within the tail (a rollback) is the same fold, stopped earlier.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import msgspec
from msgspec import Struct

from projections import events
from projections.costs import CALL_OVERHEAD
from projections.policy import Policy
from projections.tokens import MESSAGE_OVERHEAD

MAX_SUSPENSIONS = 32
MAX_OPEN_CALLS = 64
MAX_PINNED = 256


class Kind(IntEnum):
    """What an entry is. The first four are rendered; a range stands for events that only the log still holds."""

    USER = 1
    ASSISTANT = 2
    RESULT = 3
    SYSTEM = 4
    OPENED = 5
    SUSPENSION = 6
    RESOLUTION = 7
    TURN_STARTED = 8
    TURN_ENDED = 9
    CLOSED = 10
    LOOP = 11
    NOTE = 12
    HELD = 13
    ABANDONED = 14


RENDERED = frozenset({Kind.USER, Kind.ASSISTANT, Kind.RESULT})
LAST_RENDERED = int(Kind.RESULT)
"""Rendered kinds are the numbers up to this one."""
RANGES = frozenset({Kind.HELD, Kind.ABANDONED})


class Entry(Struct, array_like=True, omit_defaults=True, gc=False):
    """One event (or one range of events) in the tail.

    ``body`` is the OpenAI-format message for rendered kinds, the event's ``data`` for the others, empty for a note. ``calls`` are an
    assistant message's calls as ``(id, name)``; ``link`` is a result's call as ``(offset, index)``, None for an orphan. For a range
    ``first``..``offset`` are its bounds, ``count`` its events and ``positions`` their offsets as differences, where still known.
    ``room`` is set when the body was clipped to that many tokens.
    """

    offset: int
    kind: int
    tokens: int = 0
    body: bytes = b""
    calls: tuple[tuple[str, str], ...] | None = None
    link: tuple[int, int] | None = None
    first: int = -1
    count: int = 1
    positions: list[int] | None = None
    room: int = 0

    @property
    def start(self) -> int:
        """The offset of its first event."""
        return self.offset if self.first < 0 else self.first


def entry_offsets(entry: Entry) -> list[int] | None:
    """The absolute offsets of an entry's events, or None when only the bounds of its range are known."""
    if entry.kind not in RANGES:
        return [entry.offset]
    return None if entry.positions is None else events.absolute(entry.positions)


class Pinned(Struct, array_like=True):
    """A message of the system lane."""

    offset: int
    tokens: int
    body: bytes


class OpenCall(Struct, array_like=True):
    """A tool call without a result; ``dead`` once the user spoke again or its turn ended."""

    offset: int
    index: int
    id: str
    name: str
    dead: bool = False


class OpenSuspension(Struct, array_like=True):
    """A suspension that nobody has resolved."""

    offset: int
    suspension_id: str
    kind: str
    tool_call_id: str | None = None
    prompt: str | None = None
    expires_at: str | None = None


class Lanes(Struct, array_like=True):
    """Everything in force beside tail and summary, all bounded."""

    pinned: list[Pinned] = []
    policy: dict[str, Any] | None = None
    user: str | None = None
    channel: str | None = None
    metadata: dict[str, Any] | None = None
    tools_tokens: int = 0
    suspensions: list[OpenSuspension] = []
    calls: list[OpenCall] = []
    turn: str | None = None
    turn_ended: bool = False
    closed: str | None = None
    loop: dict[str, Any] | None = None
    last_message: int = -1

    @property
    def pinned_tokens(self) -> int:
        """Tokens of the pinned lane, tool schemas included."""
        return self.tools_tokens + sum(item.tokens for item in self.pinned)

    def copy(self) -> Lanes:
        """A copy that can be stepped without touching this one."""
        other: Lanes = msgspec.structs.replace(
            self,
            pinned=list(self.pinned),
            suspensions=list(self.suspensions),
            calls=[_copy_call(c) for c in self.calls],
        )
        return other


def _copy_call(call: OpenCall) -> OpenCall:
    return OpenCall(call.offset, call.index, call.id, call.name, call.dead)


_DATA: dict[int, type[Struct]] = {
    Kind.OPENED: events.Opened,
    Kind.SUSPENSION: events.Suspension,
    Kind.RESOLUTION: events.Resolution,
    Kind.TURN_STARTED: events.TurnStarted,
    Kind.TURN_ENDED: events.TurnEnded,
    Kind.CLOSED: events.SessionClosed,
    Kind.LOOP: events.LoopDetected,
}


def find_call(lanes: Lanes, call_id: str) -> OpenCall | None:
    """The open call a result with this id answers: results pair by occurrence in order, as real agents reuse ids.

    That is the earliest call still waiting; where none is, the latest dead one (a result that came after the user spoke again).
    """
    found = None
    for call in lanes.calls:
        if call.id == call_id:
            if not call.dead:
                return call
            found = call
    return found


def step(lanes: Lanes, entry: Entry, policy: Policy) -> None:
    """Move ``lanes`` past one entry, in place."""
    kind = entry.kind
    if kind in RENDERED:
        step_message(lanes, entry)
    elif kind == Kind.SYSTEM:
        lanes.pinned.append(Pinned(entry.offset, entry.tokens, entry.body))
        _bound_pinned(lanes, policy)
    elif kind in _DATA:
        _step_control(lanes, entry, msgspec.json.decode(entry.body, type=_DATA[kind]))


def step_message(lanes: Lanes, entry: Entry) -> None:
    """Move ``lanes`` past one entry of a rendered kind, in place."""
    lanes.closed = None
    lanes.last_message = entry.offset
    if entry.kind == Kind.USER:
        lanes.turn_ended = False
        for call in lanes.calls:
            call.dead = True
    elif entry.calls:
        lanes.calls.extend(OpenCall(entry.offset, i, id_, name) for i, (id_, name) in enumerate(entry.calls))
        del lanes.calls[:-MAX_OPEN_CALLS]
    elif entry.link is not None:
        lanes.calls = [call for call in lanes.calls if (call.offset, call.index) != entry.link]


def _step_control(lanes: Lanes, entry: Entry, data: object) -> None:
    if isinstance(data, events.Opened):
        lanes.policy = data.policy if data.policy is not None else lanes.policy
        lanes.user, lanes.channel = data.user or lanes.user, data.channel or lanes.channel
        lanes.metadata = data.metadata if data.metadata is not None else lanes.metadata
        lanes.tools_tokens = entry.tokens if data.tools is not None else lanes.tools_tokens
    elif isinstance(data, events.Suspension):
        lanes.suspensions = [s for s in lanes.suspensions if s.suspension_id != data.suspension_id]
        lanes.suspensions.append(
            OpenSuspension(entry.offset, data.suspension_id, data.kind, data.tool_call_id, data.prompt, data.expires_at)
        )
        del lanes.suspensions[:-MAX_SUSPENSIONS]
    elif isinstance(data, events.Resolution):
        lanes.suspensions = [s for s in lanes.suspensions if s.suspension_id != data.suspension_id]
    elif isinstance(data, events.TurnStarted):
        lanes.turn, lanes.turn_ended = data.turn_id, False
    elif isinstance(data, events.TurnEnded):
        lanes.turn, lanes.turn_ended = None, True
        for call in lanes.calls:
            call.dead = True
    elif isinstance(data, events.SessionClosed):
        lanes.closed = data.reason
    elif isinstance(data, events.LoopDetected):
        lanes.loop = msgspec.to_builtins(data)


def _bound_pinned(lanes: Lanes, policy: Policy) -> None:
    """Keep the pinned lane within its limit: the oldest system text goes first, and what alone is too long is cut."""
    del lanes.pinned[:-MAX_PINNED]
    total = lanes.pinned_tokens
    while len(lanes.pinned) > 1 and total > policy.pinned_limit:
        total -= lanes.pinned[0].tokens
        del lanes.pinned[0]
    if lanes.pinned and total > policy.pinned_limit:
        last = lanes.pinned[-1]
        room = max(0, policy.pinned_limit - lanes.tools_tokens)
        lanes.pinned[-1] = Pinned(last.offset, *clip(last.body, last.tokens, room))


def clip(body: bytes, tokens: int, room: int) -> tuple[int, bytes]:
    """Shorten a message so that it costs at most about ``room`` tokens, keeping the head and the tail of its text.

    Returns the new token bound and body. Long call arguments become a stub. The cut is by bytes (a token is at least one), so the
    bound is sure and the fold needs no tokenizer; a very small ``room`` still keeps the note that text is missing (about 80 bytes).
    Counted are the text's own bytes, not those of its JSON: text full of quotes or line ends is longer there.
    """
    message = msgspec.json.decode(body)
    calls = message.get("tool_calls") or ()
    for call in calls:
        arguments = call["function"]["arguments"]
        if len(arguments.encode("utf-8", "surrogatepass")) > min(room // 8, room // (2 * len(calls))):
            call["function"]["arguments"] = f'{{"shortened_characters":{len(arguments)}}}'
    fixed = _text_bytes({**message, "content": None})
    content = message.get("content")
    text = content if isinstance(content, str) else ""
    raw = text.encode("utf-8", "surrogatepass")
    note = f"[… {len(text)} characters shortened: the whole event is in the log …]"
    half = max(0, room - fixed - len(note.encode()) - 2) // 2
    if content is not None and (fixed + len(raw) > room or not isinstance(content, str)):
        tail = raw[len(raw) - half :].decode("utf-8", "ignore")
        message["content"] = "\n".join((raw[:half].decode("utf-8", "ignore"), note, tail)).strip("\n")
    return min(tokens, _text_bytes(message)), msgspec.json.encode(message)


def _text_bytes(message: dict[str, Any]) -> int:
    """A bound of the tokens of a message without parts, as ``projections.costs`` counts them: the bytes of its texts, and its frame."""
    calls = [call["function"] for call in message.get("tool_calls") or ()]
    texts = [message.get("content") or "", message.get("name") or "", *(text for c in calls for text in (c["name"], c["arguments"]))]
    return MESSAGE_OVERHEAD + 1 + CALL_OVERHEAD * len(calls) + sum(len(text.encode("utf-8", "surrogatepass")) for text in texts)
