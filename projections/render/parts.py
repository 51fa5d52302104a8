"""The parts of a render: what it is made of, in its order, while it may still have to be
shortened.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from hashlib import sha256

from projections.policy.thresholds import STUB_TOKENS, SUMMARY_MARK
from projections.render.awaits import closing_message
from projections.render.read_header import omitted_line, summary_body
from projections.window.bodies import text_only
from projections.window.conversation_state import PinnedResult
from projections.window.entry import Entry, Kind, Omitted
from projections.window.groups import ANSWER_TOKENS, Group, answer_of, group_tail
from projections.window.trace_steps import Step
from projections.window.window import Window


@dataclass(slots=True)
class Render:
    """A rendered window: one JSON body a message, their tokens, and what was shortened.

    ``offsets`` tell for each body whose event it is, -1 for none's (a summary, a stub, a synthetic
    answer). ``made`` are the steps of the trace that were made for this render, and not by the fold
    before; ``omitted`` is what one of its lines names. ``attached`` are by offset the results that
    have images and files, with these: in ``bodies`` words stand for them.
    """

    bodies: list[bytes]
    tokens: int
    trace: list[Step]
    offsets: list[int] = field(default_factory=list)
    made: list[Step] = field(default_factory=list)
    omitted: Omitted | None = None
    attached: dict[int, bytes] = field(default_factory=dict)

    @property
    def messages(self) -> bytes:
        """The JSON array of messages."""
        return b"[" + b",".join(self.bodies) + b"]"

    @property
    def digest(self) -> str:
        """SHA-256 of :attr:`messages`, in hex."""
        return sha256(self.messages).hexdigest()


@dataclass(slots=True)
class Parts:
    """A render in the making: what it is of, in its order, each part still to be shortened.

    ``system`` and ``pins`` are ``(body, tokens, offset)``; ``stub`` is what one line names as
    left out; ``closing`` is a last message that is no event's.
    """

    window: Window
    system: list[tuple[bytes, int, int]]
    summary: bytes | None
    pins: list[PinnedResult]
    groups: list[Group]
    stub: Omitted | None
    suspended: set[tuple[int, int]]
    closing: bytes | None

    def close(self) -> None:
        """Have the last message say what the groups that are left do not show."""
        self.closing = closing_message(self.window, self.groups)

    def omit(self, entries: Iterable[Entry]) -> None:
        """Name in the stub entries that are not shown any more."""
        for entry in entries:
            more = Omitted(entry.count, entry.start, entry.offset)
            self.stub = more if self.stub is None else self.stub.and_(more)

    @property
    def fixed_tokens(self) -> int:
        """Tokens of tool schemas and the summary: they cannot be shortened."""
        summary = self.window.meta.summary
        return self.window.state.tools_tokens + (
            summary.tokens + len(SUMMARY_MARK) if summary else 0
        )

    @property
    def tokens(self) -> int:
        """Tokens of the whole."""
        total = (
            self.fixed_tokens
            + sum(tokens for _, tokens, _ in self.system)
            + sum(pin.tokens for pin in self.pins)
        )
        total += STUB_TOKENS if self.stub else 0
        total += len(self.closing) if self.closing else 0
        return total + sum(tokens_of(group) for group in self.groups)

    @property
    def messages(self) -> int:
        """Messages of the whole."""
        lead = (
            len(self.system)
            + (self.summary is not None)
            + 2 * len(self.pins)
            + (self.stub is not None)
            + (self.closing is not None)
        )
        return lead + sum(group.messages() for group in self.groups)

    def rendered(self, trace: list[Step]) -> Render:
        """The render as the parts stand now."""
        bodies = [(text_only(body), offset) for body, _, offset in self.system]
        attached: dict[int, bytes] = {}
        if self.summary is not None:
            bodies.append((self.summary, -1))
        for pin in self.pins:
            bodies += [(pin.call, -1), _in_words(pin.result, pin.offset, attached)]
        if self.stub:
            bodies.append((omitted_line(self.stub, self.window.partition), -1))
        for group in self.groups:
            bodies += self._bodies(group, attached)
        if self.closing:
            bodies.append((self.closing, -1))
        return Render(
            [body for body, _ in bodies],
            self.tokens,
            trace,
            [offset for _, offset in bodies],
            omitted=self.stub,
            attached=attached,
        )

    def _bodies(self, group: Group, attached: dict[int, bytes]) -> list[tuple[bytes, int]]:
        head = group.head
        found = [(head.body if head.kind == Kind.USER else text_only(head.body), head.offset)]
        for i in group.shown_calls():
            result = group.results.get(i)
            found.append(
                _in_words(result.body, result.offset, attached)
                if result
                else (answer_of(group, i, self.suspended), -1)
            )
        return found


def _in_words(body: bytes, offset: int, attached: dict[int, bytes]) -> tuple[bytes, int]:
    """A result as OpenAI takes it; one with images or files is kept in ``attached``."""
    text = text_only(body)
    if text is not body:
        attached[offset] = body
    return text, offset


def tokens_of(group: Group) -> int:
    """Tokens of a group as it is rendered, synthetic answers included."""
    shown = group.shown_calls()
    results = sum(group.results[i].tokens if i in group.results else ANSWER_TOKENS for i in shown)
    return group.head.tokens + results


def parts_of(window: Window) -> Parts:
    """The parts of a window's render as the fold left them."""
    state, summary = window.state, window.meta.summary
    shown = [group for group in group_tail(window.tail) if group.messages()]
    system = [(item.body, item.tokens, item.offset) for item in state.pinned]
    return Parts(
        window,
        system,
        summary_body(summary) if summary else None,
        list(state.pins),
        shown,
        window.omitted,
        state.suspended(),
        closing_message(window, shown),
    )
