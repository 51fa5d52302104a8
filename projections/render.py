"""Rendering: the messages a model is sent, from a window, always valid and never above the ceiling.

System lane, then the summary (marked as one, never in the user's role), then the tail in groups. Where that is too long the oldest groups
are left out behind a one-line stub of their positions; the system lane and the newest user message go last.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import msgspec

from projections.errors import ThreadfoldError
from projections.groups import Group, group_tail
from projections.lanes import Kind, clip
from projections.openai import text_only
from projections.view import SUMMARY_MARK, summary_body
from projections.window import Window

STUB_TOKENS = 60
"""Tokens taken for a stub line: it is under 60 bytes of ASCII beside two positions, and a token is at least a byte."""


class DoesNotFit(ThreadfoldError):
    """What must not be left out is larger than the limit."""

    problem = 422


@dataclass(slots=True)
class Step:
    """One shortening, as the trace reports it."""

    reducer: str
    messages_before: int
    messages_after: int
    tokens_before: int
    tokens_after: int

    def to_dict(self) -> dict[str, Any]:
        """As the ``trace`` of a context holds it."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(slots=True)
class Render:
    """A rendered window: one JSON body a message, their tokens, and what was shortened."""

    bodies: list[bytes]
    tokens: int
    trace: list[Step]

    @property
    def messages(self) -> bytes:
        """The JSON array of messages."""
        return b"[" + b",".join(self.bodies) + b"]"

    @property
    def digest(self) -> str:
        """SHA-256 of :attr:`messages`, in hex."""
        return sha256(self.messages).hexdigest()


def render_openai(window: Window, max_tokens: int | None = None) -> Render:
    """Render in OpenAI's chat format within the policy's ceiling (or ``max_tokens``, where that is less).

    Raises:
        DoesNotFit: system lane, summary and the newest message alone are larger than that.
    """
    limit = window.policy.ceiling if max_tokens is None else min(max_tokens, window.policy.ceiling)
    head, head_tokens = _head(window)
    suspended = frozenset(s.tool_call_id for s in window.lanes.suspensions if s.tool_call_id)
    groups, orphans = group_tail(window.tail, suspended)
    trace: list[Step] = []
    total = head_tokens + sum(g.tokens for g in groups)
    count = len(head) + sum(len(g.bodies) for g in groups)
    answered = sum(g.synthetic for g in groups if g.kind != Kind.HELD)
    if orphans or answered:
        trace.append(Step("pairing", count - answered + orphans, count, total, total))
    bodies, tokens = _fit(groups, limit - head_tokens, trace, head_tokens, len(head), window)
    return Render(head + bodies, head_tokens + tokens, trace)


def _head(window: Window) -> tuple[list[bytes], int]:
    lanes, summary = window.lanes, window.meta.summary
    bodies = [text_only(item.body) for item in lanes.pinned]
    tokens = lanes.pinned_tokens
    if summary is not None:
        bodies.append(summary_body(summary))
        tokens += summary.tokens + len(SUMMARY_MARK)
    return bodies, tokens


def _fit(
    groups: list[Group], room: int, trace: list[Step], head_tokens: int, head_messages: int, window: Window
) -> tuple[list[bytes], int]:
    """Leave out the oldest groups until the rest fits into ``room`` tokens; what is left out becomes one stub line."""
    held = sum(1 for g in groups if g.kind == Kind.HELD)
    before = sum(g.tokens for g in groups)
    messages = sum(len(g.bodies) for g in groups)
    tokens, keep_from = before, 0
    if held:
        keep_from = max(i for i, g in enumerate(groups) if g.kind == Kind.HELD) + 1
        tokens = sum(g.tokens for g in groups[keep_from:])
    while keep_from < len(groups) - 1 and tokens + (STUB_TOKENS if keep_from else 0) > room:
        tokens -= groups[keep_from].tokens
        keep_from += 1
    gone, kept = groups[:keep_from], groups[keep_from:]
    bodies = [body if g.kind == Kind.USER else text_only(body) for g in kept for body in g.bodies]
    if gone:
        bodies.insert(0, _stub(gone, window))
        tokens += STUB_TOKENS
        trace.append(
            Step("leave_out_oldest", head_messages + messages, head_messages + len(bodies),
                 head_tokens + before, head_tokens + tokens)
        )  # fmt: skip
    if tokens > room:
        bodies, tokens = _clip_newest(bodies, kept, room, tokens, trace, head_tokens)
    return bodies, tokens


def _stub(gone: list[Group], window: Window) -> bytes:
    count = sum(g.synthetic if g.kind == Kind.HELD else len(g.bodies) for g in gone)
    first, last = window.position_of(gone[0].first), window.position_of(max(g.last for g in gone))
    return msgspec.json.encode({"role": "system", "content": f"[{count} earlier messages left out: {first} to {last}]"})


def _clip_newest(
    bodies: list[bytes], kept: list[Group], room: int, tokens: int, trace: list[Step], head_tokens: int
) -> tuple[list[bytes], int]:
    """The newest group alone is too long: shorten its own messages, evenly, to the room there is."""
    fixed = len(bodies) - (len(kept[0].bodies) if kept else 0)
    stub = STUB_TOKENS if fixed else 0
    share = (room - stub) // max(1, len(bodies) - fixed)
    if not kept or share < 160:
        raise DoesNotFit(
            f"the window cannot be rendered: system lane and summary take {head_tokens} tokens, the newest message "
            f"{tokens - stub}, and together they may take {head_tokens + room}"
        )
    clipped = [clip(body, 1 << 60, share) for body in bodies[fixed:]]
    after = stub + sum(n for n, _ in clipped)
    if after > room:
        raise DoesNotFit(f"the window cannot be rendered: the newest messages take {after} tokens when shortened, and only {room} are left")
    trace.append(Step("clip_newest", len(bodies), len(bodies), head_tokens + tokens, head_tokens + after))
    return bodies[:fixed] + [body for _, body in clipped], after
