"""Random conversation logs for property tests: every event type, reused call ids, late, stale,
repeated and rival summaries, rollbacks.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import msgspec

from projections.events import codec
from projections.events import types as events
from projections.events.types import AnyEvent
from projections.fold.apply import Status
from projections.fold.replay import Logged, apply_with_log
from projections.names import Key
from projections.policy.policy import Rules
from projections.window.entry import EARLY
from projections.window.meta import Due
from projections.window.window import Window

KEY = Key("acme", "c1")
PARTITION = 3
RULES = Rules(
    {
        "model_window": 2000,
        "reserve_tokens": 200,
        "working_budget": 300,
        "keep_recent_tokens": 100,
        "min_messages": 3,
        "summary_max_tokens": 60,
        "compaction_ratio": 1.0,
    }
)


@dataclass
class Request:
    """A compaction request as the projector would have emitted it at some moment."""

    due: Due
    offsets: list[int]
    previous: str | None
    previous_position: str | None
    rollback: str | None
    apart: list[int]


@dataclass
class Writer:
    """Writes a random log while folding it live, so that summaries and rollbacks mean something."""

    rng: random.Random
    rules: Rules = field(default_factory=lambda: RULES)
    log: list[Logged] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)
    outcomes: list[Status] = field(default_factory=list)
    next_offset: int = 0
    conditional: bool = False

    def __post_init__(self) -> None:
        self.window = Window(KEY, PARTITION, self.rules)

    def append(self, data: object, *, id_: str | None = None, tokens: int | None = None) -> Status:
        self.next_offset += self.rng.choice([1, 1, 1, 2, 7])
        event = make_event(data, id_ or f"e{self.next_offset}", tokens)
        if self.conditional and isinstance(event, events.Event):
            event = self._on_condition(event)
        return self.put(event)

    def _on_condition(self, event: events.Event) -> AnyEvent:
        """The event with a condition that may hold or not."""
        turns, last = self.window.meta.turns, self.window.meta.last
        if self.rng.random() < 0.5:
            event.fence = (turns.token if turns is not None else None) or self.rng.randrange(9)
        else:
            event.expect = self.rng.choice(
                ["", f"{PARTITION}-{last}", f"{PARTITION}-{last - 1}", f"e{last}", "e-unknown"]
            )
        return event  # type: ignore[return-value]

    def put(self, event: AnyEvent) -> Status:
        offset = self.next_offset
        outcome = apply_with_log(self.window, offset, event, self.log)
        self.log.append((offset, event))
        self.outcomes.append(outcome.status)
        if self.window.meta.due is not None and self.rng.random() < 0.6:
            self.requests.append(request_of(self.window))
        return outcome.status

    def random_event(self) -> None:
        self.conditional = self.rng.random() < 0.06
        roll = self.rng.random()
        if roll < 0.30:
            self.append(
                events.Message("user", _text(self.rng)), tokens=self.rng.choice([None, 10, 40, 90])
            )
        elif roll < 0.45:
            self.append(
                events.Message("assistant", _text(self.rng)), tokens=self.rng.choice([20, 60])
            )
        elif roll < 0.65:
            self._tools()
        elif roll < 0.80:
            self._summary()
        elif roll < 0.88 and self.log:
            self._rollback()
        elif roll < 0.92 and self.log:
            self.next_offset += 1
            self.put(self.rng.choice(self.log[-20:])[1])
        else:
            self._other()

    def _tools(self) -> None:
        if self.rng.random() < 0.5:
            calls = [
                events.ToolCall(self.rng.choice("abc"), "look", "{}")
                for _ in range(self.rng.choice([1, 1, 2]))
            ]
            self.append(events.Message("assistant", None, tool_calls=calls), tokens=30)
        else:
            size = self.rng.choice([30, 30, 150, 2500])
            self.append(events.ToolResult(self.rng.choice("abc"), "r" * size), tokens=size)

    def _summary(self) -> None:
        if not self.requests:
            return
        request = self.rng.choice(self.requests[-6:])
        self.append(
            summary_for(request, self.rng.choice(["", "rival "])), tokens=self.rng.choice([12, 30])
        )

    def _rollback(self) -> None:
        offset = self.rng.choice(self.log if self.rng.random() < 0.4 else self.log[-8:])[0]
        target = f"{PARTITION}-{offset + self.rng.choice([0, 0, 0, 1])}"
        self.append(events.Rollback(self.rng.choice([target, target, f"e{offset}"])))

    def _other(self) -> None:
        rng = self.rng
        choices: list[object] = [
            events.Opened(user="u", metadata={"n": rng.randrange(9)}),
            events.Message("system", "rules " * rng.choice([1, 40])),
            events.Suspension(rng.choice("st"), "approval", tool_call_id=rng.choice(["a", None])),
            events.Resolution(rng.choice("st"), "approved"),
            events.TurnStarted("t1"),
            events.TurnEnded("t1"),
            events.TurnStarted(
                f"t{rng.randrange(4)}",
                lease={"policy": rng.choice(["queue", "reject", "interrupt"]), "seconds": 9},
            ),
            events.TurnEnded(f"t{rng.randrange(4)}", lease=rng.choice([None, self._expired()])),
            events.CompactionRequested(),
            events.SessionClosed("idle"),
            events.LoopDetected("look", "0" * 64, 3),
            events.EventDropped(f"{PARTITION}-{rng.choice(self.log)[0]}")
            if self.log
            else events.Opened(),
            None,
        ]
        self.append(rng.choice(choices))

    def _expired(self) -> dict[str, str]:
        turns = self.window.meta.turns
        since = turns.live.since if turns is not None and turns.live is not None else 0
        return {"reason": "expired", "since": f"{PARTITION}-{since - self.rng.choice([0, 0, 1])}"}


EVENT_OF = {
    events.Opened: events.OpenedEvent,
    events.Message: events.MessageEvent,
    events.ToolResult: events.ToolResultEvent,
    events.Suspension: events.SuspensionEvent,
    events.Resolution: events.ResolutionEvent,
    events.Rollback: events.RollbackEvent,
    events.SessionClosed: events.SessionClosedEvent,
    events.TurnStarted: events.TurnStartedEvent,
    events.TurnEnded: events.TurnEndedEvent,
    events.CompactionRequested: events.CompactionRequestedEvent,
    events.LoopDetected: events.LoopDetectedEvent,
    events.Summary: events.SummaryEvent,
    events.EventDropped: events.EventDroppedEvent,
    events.Erased: events.ErasedEvent,
    events.MemorySaved: events.MemorySavedEvent,
    events.MemoryFused: events.MemoryFusedEvent,
    events.MemorySuperseded: events.MemorySupersededEvent,
    events.MemoryDeleted: events.MemoryDeletedEvent,
    events.MemoryOutcome: events.MemoryOutcomeEvent,
    events.MemoryRetrieved: events.MemoryRetrievedEvent,
    events.SkillSaved: events.SkillSavedEvent,
}


def make_event(data: object, id_: str, tokens: int | None = None) -> AnyEvent:
    """The event of ``data``; None makes one of a type nobody knows."""
    if data is None:
        return events.OtherEvent(specversion="1.0", id=id_, type="acme.note.v1", source=KEY.source)
    claim = None if tokens is None else events.Tokens(count=tokens, encoding="o200k_base")
    event = EVENT_OF[type(data)](
        specversion="1.0", id=id_, source=KEY.source, tokens=claim, data=data
    )
    return codec.decode_event(msgspec.json.encode(event))


def request_of(window: Window) -> Request:
    """What the projector would ask for now."""
    due, summary = window.meta.due, window.meta.summary
    assert due is not None
    offsets: list[int] = []
    for entry in window.tail:
        if entry.offset > due.last:
            break
        if entry.offset in due.kept:
            continue
        offsets += entry.offsets() or [entry.start, entry.offset]
    return Request(
        due,
        offsets,
        summary.summary_id if summary else None,
        window.position_of(summary.offset) if summary else None,
        None if window.meta.rollback is None else window.position_of(window.meta.rollback),
        [e.offset for e in window.tail if e.link == EARLY and e.out and e.offset in offsets],
    )


def summary_for(request: Request, flavour: str = "") -> events.Summary:
    """A summary that answers a request."""
    span = events.Span(
        from_=f"{PARTITION}-{request.due.first}",
        to=f"{PARTITION}-{request.due.last}",
        count=len(request.offsets),
        positions=events.delta(request.offsets),
        digest="0" * 64,
        kept=events.delta(list(request.due.kept)),
        apart=events.delta(request.apart),
        survives_rollbacks=not flavour,
    )
    return events.Summary(
        summary_id=f"s{flavour}{request.due.first}-{request.due.last}-{request.previous}-{request.rollback}",
        text=f"{flavour}what was said",
        tokens=12,
        span=span,
        previous=request.previous,
        previous_position=request.previous_position,
        rollback=request.rollback,
        reason="budget",
        summarizer="test",
        trust="user",
        tokens_before=100,
        tokens_after=12,
        policy="p",
    )


def _text(rng: random.Random) -> str:
    return "word " * rng.choice([3, 10, 30])


def random_log(seed: int, length: int, rules: Rules = RULES) -> Writer:
    """A log of about ``length`` random events, already folded live by its writer."""
    writer = Writer(random.Random(seed), rules)
    for _ in range(length):
        writer.random_event()
    return writer
