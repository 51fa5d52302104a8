"""Long conversations as awkward as real ones, from a seed: written event by event into a log while
they are folded live.

Everything goes the way of the product: flat events through intake into a log in memory, requests
for due summaries to the real compactor, whose summaries come late, twice or not at all. Beside it
the story keeps what is in force by its own reckoning (``active``), which knows nothing of windows:
rollbacks move it back along the events as they came.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from projections.events import types as events
from projections.events.codec import decode_event
from projections.events.types import AnyEvent
from projections.events.validation import make_record
from projections.fold.apply import Outcome, Status
from projections.fold.replay import Logged, apply_with_log
from projections.policy.policy import Rules
from projections.window.window import Window
from streams.compaction.compactor import Compactor
from streams.compaction.requests import CompactionRequest, request_for
from streams.settings.settings import Settings
from tests.support import sayings
from tests.support.compaction import Terse
from tests.support.mirror import KEY, Mirror
from threadfold.testing.memory_log import MemoryLog

NOW = "2026-01-01T00:00:00Z"
Flat = dict[str, Any]
OVERRIDES: list[Flat] = [
    {},
    {"model_window": 2_500, "reserve_tokens": 200, "summary_max_tokens": 100},
    {"cuts": "exact"},
    {"working_budget": 300, "keep_recent_tokens": 0},
    {"compaction": False},
    {"model_window": 0},
]
"""What a conversation sets for itself midway; the last is not valid and has to change nothing."""


@dataclass(frozen=True, slots=True)
class Node:
    """One event in force, behind those before it."""

    before: Node | None
    offset: int
    flat: Flat

    def path(self) -> Iterator[tuple[int, Flat]]:
        """The events in force up to this one, newest first."""
        node: Node | None = self
        while node is not None:
            yield node.offset, node.flat
            node = node.before


class Story:
    """A conversation that writes itself: each :meth:`step` appends one event or a few, and folds
    them into ``window``.
    """

    def __init__(
        self, seed: int, rules: Rules, *, awkward: float = 1.0, huge: float = 0.01
    ) -> None:
        self.rng = random.Random(seed)
        self.rules, self.awkward, self.huge = rules, awkward, huge
        self.messages = MemoryLog(1)
        self.window = Window(KEY, 0, rules)
        self.log: list[Logged] = []
        self.mirror = Mirror()
        self.active: dict[int, Node | None] = {-1: None}
        self.newest: Node | None = None
        self.dropped: set[int] = set()
        self.call_ids: set[str] = set()
        self.seen: dict[str, int] = {}
        self._planned: list[tuple[int, Flat]] = []
        self._requests: list[CompactionRequest] = []
        self._open_ids: list[str] = []
        self._suspended: list[str] = []
        self._rollbacks: list[int] = []
        self._count = 0
        self._ids: list[tuple[int, str]] = []
        self._turn = 0
        self._model = ("gpt-a", "openai")
        self._loop = asyncio.new_event_loop()
        self._compactor = Compactor(Settings(), self.messages, lambda _: Terse())

    def close(self) -> None:
        """Let go of the event loop."""
        self._loop.close()

    # -- what is in force
    # ------------------------------------------------------------------------------------------

    def in_force(self) -> list[tuple[int, Flat]]:
        """The events that nothing took back, in order."""
        path = list(self.newest.path()) if self.newest else []
        return [item for item in reversed(path) if item[0] not in self.dropped]

    def signatures(self, provider: str) -> set[str]:
        """The signatures of a provider's reasoning in the log."""
        contents = [getattr(getattr(event, "data", None), "content", None) for _, event in self.log]
        parts = [part for content in contents if isinstance(content, list) for part in content]
        return {
            p.signature
            for p in parts
            if isinstance(p, events.ReasoningPart) and p.provider == provider and p.signature
        }

    # -- appending
    # ------------------------------------------------------------------------------------------

    def say(self, flat: Flat, *, id_: str | None = None) -> Outcome:
        """Append a flat event through intake and fold it."""
        self._count += 1
        operator = flat["type"] == "event.dropped"
        record = make_record(
            KEY, flat, where="story", now=NOW, new_id=id_ or f"e{self._count}", operator=operator
        )
        if self.rng.random() < 0.1:
            # Another conversation's record: offsets have gaps.
            self.messages.put(0, b"acme/other", b"{}")
        value = record.value
        if self.rng.random() < 0.04 * self.awkward:
            # A producer that counts no tokens: the fold goes by its bound.
            value = json.dumps(
                {name: field for name, field in json.loads(value).items() if name != "tokens"}
            ).encode()
        offset = self.messages.put(0, str(KEY).encode(), value).offset
        return self._fold(offset, decode_event(value), flat)

    def _fold(self, offset: int, event: AnyEvent, flat: Flat) -> Outcome:
        outcome = apply_with_log(self.window, offset, event, self.log)
        self.log.append((offset, event))
        kind = f"{flat['type']}:{outcome.status.value}"
        self.seen[kind] = self.seen.get(kind, 0) + 1
        if outcome.status is Status.APPLIED:
            if isinstance(event, events.RollbackEvent):
                self.newest = self.active[self._target(event.data.to)]
                self._rollbacks.append(offset)
            else:
                self.newest = Node(self.newest, offset, flat)
            self._ids.append((offset, event.id))
        self.active[offset] = self.newest
        self.mirror.write(self.window)
        request = request_for(self.window, 1)
        if request is not None and (
            not self._requests or self._requests[-1].request_id != request.request_id
        ):
            self._requests.append(request)
        return outcome

    def _target(self, to: str) -> int:
        return (
            int(to[2:])
            if to.startswith("0-")
            else next(offset for offset, id_ in self._ids if id_ == to)
        )

    def reload(self) -> None:
        """Go on with the window as it reads back from its stored fields, once there are any."""
        if self.mirror.fields:
            self.window = self.mirror.read(self.rules)

    # -- what happens
    # ------------------------------------------------------------------------------------------

    def step(self) -> None:
        """Let something happen."""
        due = [item for item in self._planned if item[0] <= self._count]
        if due and self.rng.random() < 0.8:
            item = due[0]
            self._planned.remove(item)
            self.say(item[1])
            return
        roll, odd = self.rng.random(), 0.55 + 0.3 * (1 - self.awkward)
        if roll < 0.2:
            self._user()
        elif roll < 0.35:
            self.say(sayings.answer(self.rng, self._model))
        elif roll < odd:
            self._calls()
        elif roll < odd + 0.15:
            self.summarise()
        else:
            self.rng.choice(
                [
                    self._suspend,
                    self._resolve,
                    self._rollback,
                    self._lane,
                    self._turns,
                    self._stray,
                    self._repeat,
                    self._other,
                    self._switch,
                ]
            )()

    def play(self, steps: int) -> Story:
        """Take so many steps."""
        for _ in range(steps):
            self.step()
        return self

    def _user(self) -> None:
        self.say(sayings.question(self.rng))

    def _calls(self) -> None:
        rng = self.rng
        pool = rng.choice(
            [
                ["a", "b", "c"],
                [f"call_{self._count}_{i}" for i in range(4)],
                ["functions.look:0", "a"],
            ]
        )
        ids = rng.sample(
            pool, rng.choice([1, 1, 1, 2, 2, min(4, len(pool))]) if len(pool) > 1 else 1
        )
        results = [sayings.result(rng, id_, self.huge) for id_ in ids]
        if rng.random() < 0.06 * self.awkward:
            self.say(results[0])  # before its call
            results = results[1:]
        self.call_ids.update(ids)
        self.say(sayings.calls(rng, ids, self._model))
        self._open_ids = ids
        late = rng.random() < 0.25
        rng.shuffle(results)
        for i, result in enumerate(results):
            if rng.random() < 0.08 * self.awkward:
                continue  # it never comes
            self._planned.append((self._count + (rng.randrange(1, 9) if late else i), result))
            if rng.random() < 0.05 * self.awkward:
                self._planned.append(
                    (self._count + rng.randrange(4), dict(result, content="once more"))
                )

    def summarise(self) -> None:
        """Answer a request: mostly the latest, now and then one that is late."""
        if not self._requests:
            self._user()
            return
        request = (
            self._requests[-1] if self.rng.random() < 0.85 else self.rng.choice(self._requests[-4:])
        )
        position = self._loop.run_until_complete(self._compactor.answer(request))
        (raw,) = self._loop.run_until_complete(self.messages.read([position])).values()
        event = decode_event(raw.value or b"")
        self._fold(position.offset, event, {"type": "summary"})

    def _suspend(self) -> None:
        name = f"s{self._count}"
        call_id = (
            self.rng.choice(self._open_ids) if self._open_ids and self.rng.random() < 0.7 else None
        )
        at = {"tool_call_id": call_id} if call_id else {}
        kind = self.rng.choice(["approval", "input", "external"])
        self.say(
            {
                "type": "suspension",
                "suspension_id": name,
                "kind": kind,
                "prompt": sayings.text(self.rng, 20),
                **at,
            }
        )
        self._suspended.append(name)

    def _resolve(self) -> None:
        if self._suspended:
            # The latest, or one that has waited for long; some are never resolved.
            name = self._suspended.pop(self.rng.choice([-1, 0]))
            outcome = self.rng.choice(["approved", "rejected", "answered", "expired", "cancelled"])
            self.say({"type": "resolution", "suspension_id": name, "outcome": outcome})

    def _rollback(self) -> None:
        if len(self._ids) < 4:
            return
        roll = self.rng.random()
        if roll < 0.25 and self._rollbacks:
            # where a rollback stood: it stays in force
            target = f"0-{self.rng.choice(self._rollbacks[-3:])}"
        elif roll < 0.45 and self._rollbacks:
            at = self._rollbacks[-1]
            # takes a rollback back
            target = f"0-{max(offset for offset, _ in self._ids if offset < at)}"
        elif roll < 0.6:
            target = self.rng.choice(self._ids)[1]
        else:
            target = f"0-{self.rng.choice(self._ids[-12:])[0]}"
        self.say({"type": "rollback", "to": target})

    def _lane(self) -> None:
        role = self.rng.choice(["system", "developer"])
        self.say(
            {
                "type": "message",
                "role": role,
                "content": sayings.text(self.rng, self.rng.choice([8, 30, 120])),
            }
        )

    def _turns(self) -> None:
        self._turn += 1
        for kind in ("turn.started", "turn.ended"):
            if self.rng.random() < 0.7:
                lease = (
                    {"policy": self.rng.choice(["queue", "interrupt"]), "seconds": 9}
                    if self.rng.random() < 0.5
                    else None
                )
                self.say(
                    {
                        "type": kind,
                        "turn_id": f"t{self._turn}",
                        **({"lease": lease} if lease and kind == "turn.started" else {}),
                    }
                )

    def _stray(self) -> None:
        """A result that nobody asked for, or one more of an id that is used again and again."""
        id_ = self.rng.choice(["nobody", "a"])
        self.call_ids.add(id_)
        self.say(sayings.result(self.rng, id_, self.huge))

    def _repeat(self) -> None:
        """An event that is in the log already."""
        if self.log:
            offset, event = self.rng.choice(self.log[-20:])
            (raw,) = [row for row in self.messages.rows(0) if row.position.offset == offset]
            again = self.messages.put(0, raw.key, raw.value).offset
            self._fold(again, event, {"type": "repeat"})

    def _other(self) -> None:
        rng = self.rng
        flats: list[Flat] = [
            {
                "type": "conversation.opened",
                "user": "u",
                "tools": [{"name": "look", "about": sayings.text(rng, 30)}],
            },
            {"type": "conversation.opened", "policy": rng.choice(OVERRIDES)},
            {"type": "session.closed", "reason": "idle"},
            {"type": "compaction.requested"},
            {"type": "loop.detected", "tool": "look", "arguments_sha256": "0" * 64, "count": 3},
        ]
        if rng.random() < 0.25 and self._ids:
            offset = rng.choice(self._ids)[0]
            if (
                self.say({"type": "event.dropped", "position": f"0-{offset}"}).status
                is Status.APPLIED
            ):
                self.dropped.add(offset)
        elif rng.random() < 0.25:
            self._foreign()
        else:
            self.say(rng.choice(flats))

    def _foreign(self) -> None:
        """An event of another producer, of a type that nobody here knows."""
        self._count += 1
        note = {
            "specversion": "1.0",
            "id": f"e{self._count}",
            "type": "acme.note.v1",
            "source": KEY.source,
        }
        value = json.dumps(note).encode()
        self._fold(
            self.messages.put(0, str(KEY).encode(), value).offset,
            decode_event(value),
            {"type": "acme.note"},
        )

    def _switch(self) -> None:
        """Another provider from here on."""
        self._model = self.rng.choice([("gpt-a", "openai"), ("claude-a", "anthropic")])


def whole_log(story: Story) -> str:
    """The log as JSON lines, to look at."""
    rows = [
        (raw.position.offset, json.loads(raw.value or b"null"))
        for raw in story.messages.rows(0)
        if raw.key == str(KEY).encode()
    ]
    return "\n".join(f"{offset}: {json.dumps(value)}" for offset, value in rows)
