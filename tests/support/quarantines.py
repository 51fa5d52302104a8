"""Code that fails on marked events, a writer of random histories of such events, and what is expected of them."""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass, field

from projections.events import types as events
from projections.events.codec import decode_event
from projections.events.types import AnyEvent
from projections.fold.replay import apply_with_log
from projections.names import Key, Position
from projections.policy.policy import Rules
from projections.window.window import Window
from streams.log.log import Raw
from streams.partition.partition import Partition
from tests.support.partitions import NUMBER, Parts, RecordingSink, keys_of
from tests.support.talks import encode, event_for

GENERATIONS = itertools.count(50_000)


class Panic(BaseException):
    """What a native library raises that a deployment's callable is written with: no ``Exception``,
    so nothing in between catches it.
    """


@dataclass
class Code:
    """A deployment's callable, and the version of it that is installed."""

    broken: bool = True

    def __call__(self, tool: str, call_id: str, text: str) -> str:
        if self.broken and "trap" in text:
            raise Panic("trapped")
        return f"{tool}: {len(text)} characters"


POLICY = {
    "model_window": 2000,
    "reserve_tokens": 200,
    "working_budget": 300,
    "keep_recent_tokens": 100,
    "min_messages": 3,
    "summary_max_tokens": 60,
    "reducers": [{"name": "compact_tool_results", "replacement": "callable:fragile"}],
}


def rules_of(code: Code) -> Rules:
    return Rules(POLICY, callables={"fragile": code})


@dataclass
class Expected:
    """What quarantine gives, told in the plainest way: each event is folded into a copy, and
    there is no batch and no store.
    """

    key: Key
    rules: Rules
    window: Window = field(init=False)
    history: list[tuple[int, AnyEvent]] = field(default_factory=list)
    quarantined: int | None = None
    waiting: list[tuple[int, AnyEvent | None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.window = Window(self.key, NUMBER, self.rules)

    def take(self, offset: int, event: AnyEvent | None) -> None:
        if self.quarantined is None:
            if not self.fold(offset, event):
                self.quarantined = offset
            return
        self.waiting.append((offset, event))
        if _drops(event) == self.quarantined:
            todo, self.waiting, self.quarantined = self.waiting, [], None
            dropped = {_drops(e) for _, e in todo}
            for at, one in todo:
                if self.quarantined is not None:
                    self.waiting.append((at, one))
                elif not self.fold(at, one) and at not in dropped:
                    self.quarantined = at

    def fold(self, offset: int, event: AnyEvent | None) -> bool:
        if event is None:
            return False
        before = self.window.copy()
        try:
            apply_with_log(self.window, offset, event, self.history)
        except Panic:
            self.window = before
            return False
        self.history.append((offset, event))
        return True


def _drops(event: AnyEvent | None) -> int | None:
    if isinstance(event, events.EventDroppedEvent):
        partition, _, offset = event.data.position.partition("-")
        return int(offset) if partition == str(NUMBER) else None
    return None


class Writer:
    """Random rows of several conversations with poison in them, and what each window is to be."""

    def __init__(self, seed: int, parts: Parts, rules: Rules) -> None:
        self.rng = random.Random(seed)
        self.rows: list[tuple[bytes | None, bytes | None]] = []
        self.first = parts.first
        self.expected = {key: Expected(key, rules) for key in parts.keys}

    def put(self, key: Key, data: object, text: bytes | None = None) -> int:
        offset = self.first + len(self.rows)
        value = text or encode(
            event_for(key, data, f"{key.conversation}-{offset}", self.rng.choice([None, 30]))
        )
        self.rows.append((str(key).encode(), value))
        self.expected[key].take(offset, None if text else decode_event(value))
        return offset

    def drop(self, key: Key, offset: int) -> int:
        return self.put(key, events.EventDropped(str(Position(NUMBER, offset))))

    def some(self, count: int) -> Writer:
        rng = self.rng
        for _ in range(count):
            key = rng.choice(list(self.expected))
            quarantined, roll = self.expected[key].quarantined, rng.random()
            if roll < 0.04:
                self.put(key, None, rng.choice([b"{not json", b"[]", b'{"specversion":"1.0"}']))
            elif roll < 0.30 and quarantined is not None:
                self.drop(
                    key,
                    rng.choice(
                        [
                            quarantined,
                            quarantined,
                            quarantined,
                            self.first + rng.randrange(len(self.rows)),
                        ]
                    ),
                )
            elif roll < 0.40:
                self.put(
                    key,
                    events.Message(
                        "assistant", None, tool_calls=[events.ToolCall("a", "look", "{}")]
                    ),
                )
                text = rng.choice(["trap ", "fine ", "fine "]) * rng.choice([10, 40])
                self.put(key, events.ToolResult("a", text))
            elif roll < 0.45 and self.rows:
                self.put(
                    key, events.Rollback(f"{NUMBER}-{self.first + rng.randrange(len(self.rows))}")
                )
            else:
                self.put(
                    key,
                    events.Message(
                        rng.choice(["user", "assistant"]), "word " * rng.choice([5, 40])
                    ),
                )
        return self


def bare(window: Window) -> bytes:
    """A window's image but for being quarantined."""
    window = window.copy()
    window.release()
    return window.image()


async def same(parts: Parts, writer: Writer, rules: Rules) -> int:
    """Compare all stored windows with what is expected; returns how many are quarantined."""
    stored = (await parts.store.read(parts.generation, NUMBER, parts.keys))[1]
    quarantined = 0
    for (key, expected), found in zip(writer.expected.items(), stored, strict=True):
        if found is None:
            assert expected.window.meta.position < 0 and expected.quarantined is None
            continue
        window = found.load(key, NUMBER, rules)
        assert bare(window) == expected.window.image()
        at = window.meta.quarantine
        assert (at and at.offset) == expected.quarantined
        if at is not None:
            quarantined += 1
            assert at.count == len(expected.waiting)
            assert at.last == max([at.offset, *(offset for offset, _ in expected.waiting)])
    return quarantined


def owner(
    parts: Parts, rules: Rules, sink: RecordingSink | None = None, cached: int = 4096
) -> Partition:
    made = parts.partition(cached, sink)
    made.rules = rules
    return made


class PartitionlessSink(RecordingSink):
    """A sink for letters of events that waited, whose records are of earlier batches."""

    async def publish(self, partition, effects, batch) -> None:  # type: ignore[no-untyped-def]
        self.dead += [(letter.position.offset, letter.kind) for letter in effects.dead]


async def fresh(parts: Parts) -> None:
    """Conversations, and a generation, that nobody has written of."""
    await parts.begin()
    parts.generation = next(GENERATIONS)
    parts.keys = keys_of(f"acme-parking-{parts.generation}")


async def load(parts: Parts, rules: Rules) -> dict[Key, bytes]:
    stored = (await parts.store.read(parts.generation, NUMBER, parts.keys))[1]
    return {
        key: found.load(key, NUMBER, rules).image()
        for key, found in zip(parts.keys, stored, strict=True)
        if found is not None
    }


async def trapped(parts: Parts, rules: Rules) -> tuple[Writer, list[Raw]]:
    """The first conversation goes until the callable fails on it and a little beyond, the second
    one runs beside.
    """
    await fresh(parts)
    writer = Writer(1, parts, rules)
    one, other, _ = parts.keys
    writer.put(
        one, events.Message("assistant", None, tool_calls=[events.ToolCall("a", "look", "{}")])
    )
    writer.put(one, events.ToolResult("a", "trap " * 100))
    while writer.expected[one].quarantined is None:
        writer.put(one, events.Message("assistant", "word " * 40))
        writer.put(other, events.Message("user", "beside"))
        assert len(writer.rows) < 200
    for i in range(5):
        writer.put(one, events.Message("user", f"later {i}"))
        writer.put(other, events.Message("user", "beside"))
    return writer, await parts.put(writer.rows)
