"""Random traffic of several conversations in one partition, as records of the log, with summaries
that carry their real span positions.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import msgspec

from projections.events import codec
from projections.events import types as events
from projections.events.types import AnyEvent, delta
from projections.events.validation import Record
from projections.fold.apply import Status, apply
from projections.fold.replay import Logged, apply_with_log
from projections.names import Key
from projections.policy.policy import Rules
from projections.window.window import Window
from streams.compaction.requests import CompactionRequest, piece_offsets, request_for
from tests.support.histories import EVENT_OF, RULES

Row = tuple[bytes | None, bytes | None]
_EVENTS: Any = EVENT_OF


@dataclass
class Talks:
    """Writes rows for one partition from ``first`` on, folding every conversation beside, as a
    partition without gaps gives offsets.
    """

    rng: random.Random
    partition: int
    keys: list[Key]
    first: int = 0
    rules: Rules = field(default_factory=lambda: RULES)
    rows: list[Row] = field(default_factory=list)
    poison: list[int] = field(default_factory=list)
    seen: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.logs: dict[Key, list[Logged]] = {key: [] for key in self.keys}
        self.windows = {key: Window(key, self.partition, self.rules) for key in self.keys}
        self.requests: dict[Key, list[CompactionRequest]] = {key: [] for key in self.keys}

    @property
    def next_offset(self) -> int:
        return self.first + len(self.rows)

    def say(
        self, key: Key, data: object, *, id_: str | None = None, tokens: int | None = None
    ) -> Status:
        """Put one event into the log and fold it."""
        event = event_for(key, data, id_ or f"{key.conversation}-{self.next_offset}", tokens)
        return self.put(key, event)

    def put(self, key: Key, event: AnyEvent) -> Status:
        offset, window = self.next_offset, self.windows[key]
        self.rows.append((str(key).encode(), encode(event)))
        outcome = apply(window, offset, event)
        if outcome.status is Status.NEEDS_HISTORY:
            self.seen["history" if outcome.target is not None else "texts"] += 1
            outcome = apply_with_log(window, offset, event, self.logs[key])
        self.logs[key].append((offset, event))
        self.seen[f"{type(event).__name__}:{outcome.status.value}"] += 1
        request = request_for(window, 1)
        if request is not None:
            self.requests[key].append(request)
        return outcome.status

    def poison_row(self) -> None:
        """A record that is nobody's event, and quarantines no conversation."""
        key = self.rng.choice(self.keys)
        good = encode(event_for(key, events.Message("user", "x"), f"p{self.next_offset}"))
        name = str(key).encode()
        self.poison.append(self.next_offset)
        self.rows.append(
            self.rng.choice(
                [
                    (b"no-slash", good),
                    (b"\xff/\xff", good),
                    (None, good),
                    (name, None),
                    (name, good.replace(key.source.encode(), b"/tenants/nobody/conversations/c")),
                    (b"other/" + key.conversation.encode(), good),
                ]
            )
        )

    def summarise(
        self, key: Key, request: CompactionRequest | None = None, flavour: str = ""
    ) -> Status:
        """Answer a request (the latest one unless given)."""
        request = request or self.requests[key][-1]
        return self.say(
            key,
            summary_of(request, self.logs[key], flavour),
            id_=f"summary-{flavour}{self.next_offset}",
            tokens=12,
        )

    def random_event(self) -> None:
        rng = self.rng
        if rng.random() < 0.06:
            self.poison_row()
            return
        key, roll = rng.choice(self.keys), rng.random()
        log = self.logs[key]
        if roll < 0.30:
            self.say(
                key,
                events.Message("user", "word " * rng.choice([3, 10, 30])),
                tokens=rng.choice([None, 10, 60]),
            )
        elif roll < 0.44:
            self.say(key, events.Message("assistant", "reply " * 10), tokens=rng.choice([20, 60]))
        elif roll < 0.54:
            calls = [
                events.ToolCall(rng.choice("abc"), "look", "{}")
                for _ in range(rng.choice([1, 1, 2]))
            ]
            self.say(key, events.Message("assistant", None, tool_calls=calls), tokens=30)
        elif roll < 0.64:
            size = rng.choice([30, 30, 150, 2500])
            self.say(key, events.ToolResult(rng.choice("abc"), "r" * size), tokens=size)
        elif roll < 0.80 and self.requests[key]:
            self.summarise(key, rng.choice(self.requests[key][-4:]), rng.choice(["", "rival "]))
        elif roll < 0.89 and log:
            offset = rng.choice(log if rng.random() < 0.5 else log[-8:])[0]
            self.say(
                key,
                events.Rollback(
                    rng.choice([f"{self.partition}-{offset}", dict(log)[offset].id, "unknown"])
                ),
            )
        elif roll < 0.94 and log:
            self.put(key, rng.choice(log[-20:])[1])
        else:
            self._other(key)

    def _other(self, key: Key) -> None:
        rng = self.rng
        choices: list[object] = [
            events.Opened(user="u", metadata={"n": rng.randrange(9)}),
            events.Message("system", "rules " * rng.choice([1, 40])),
            events.Suspension(rng.choice("st"), "approval", tool_call_id=rng.choice(["a", None])),
            events.Resolution(rng.choice("st"), "approved"),
            events.TurnStarted("t1"),
            events.TurnEnded("t1"),
            events.SessionClosed("idle"),
            None,
        ]
        self.say(key, rng.choice(choices))


def random_talks(
    seed: int, length: int, partition: int, keys: list[Key], first: int = 0, rules: Rules = RULES
) -> Talks:
    """About ``length`` random rows."""
    talks = Talks(random.Random(seed), partition, keys, first, rules)
    for _ in range(length):
        talks.random_event()
    return talks


def event_for(key: Key, data: object, id_: str, tokens: int | None = None) -> AnyEvent:
    """The event of ``data`` in a conversation, as it reads back from the log; None makes one of a
    type nobody knows.
    """
    if data is None:
        return events.OtherEvent(specversion="1.0", id=id_, type="acme.note.v1", source=key.source)
    claim = None if tokens is None else events.Tokens(count=tokens, encoding="o200k_base")
    made: AnyEvent = _EVENTS[type(data)](
        specversion="1.0", id=id_, source=key.source, tokens=claim, data=data
    )
    return codec.decode_event(encode(made))


def encode(event: AnyEvent) -> bytes:
    return msgspec.json.encode(event)


def record_for(key: Key, data: object, id_: str, tokens: int | None = None) -> Record:
    """The record of an event, made without the checks of intake."""
    return Record(key, id_, type(data).__name__, encode(event_for(key, data, id_, tokens)))


def span_offsets(request: CompactionRequest, log: list[Logged]) -> list[int]:
    """The offsets of all events of a request's span, those of unknown ranges looked up in the log,
    as the compactor does.
    """
    offsets: list[int] = []
    for piece in request.pieces:
        known = piece_offsets(piece)
        offsets += (
            known
            if known is not None
            else [offset for offset, _ in log if piece.first <= offset <= piece.last]
        )
    return sorted(offsets)


def summary_of(request: CompactionRequest, log: list[Logged], flavour: str = "") -> events.Summary:
    """The summary that answers a request; ``log`` is the conversation's."""
    offsets = span_offsets(request, log)
    at = f"{request.partition}-{{}}".format
    return events.Summary(
        summary_id=f"{flavour}{request.request_id}",
        text=f"{flavour}what was said",
        tokens=12,
        span=events.Span(
            at(request.first),
            at(request.last),
            len(offsets),
            delta(offsets),
            "0" * 64,
            request.kept,
            survives_rollbacks=not flavour,
            apart=request.apart,
        ),
        previous=request.previous,
        previous_position=None if request.previous_offset is None else at(request.previous_offset),
        rollback=None if request.rollback is None else at(request.rollback),
        reason="budget",
        summarizer="test",
        trust="user",
        tokens_before=100,
        tokens_after=12,
        policy=request.policy,
    )
