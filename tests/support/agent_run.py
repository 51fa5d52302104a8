"""One long run of an agent, the same every time, folded live under a policy; the figures of
``docs/policy.md`` are its.

The desk of a parcel service: a user's question, up to four steps of one to three parallel calls, an
answer. Results are JSON lists, prices and texts, of 30 to 1,500 tokens, now and then a log of 3,000
to 5,000. Everything goes the way of the product: flat events through intake, requests for due
summaries to the real compactor with the extractive summariser, whose answers come a few events
late.

``python -m tests.support.agent_run`` prints the table.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from projections.events.codec import decode_event
from projections.events.validation import make_record
from projections.fold.apply import Outcome
from projections.fold.replay import Logged, apply_with_log
from projections.names import Key
from projections.policy.policy import Rules
from projections.render.parts import Render
from projections.render.render import render_openai
from projections.window.window import Window
from streams.compaction.compactor import Compactor
from streams.compaction.requests import CompactionRequest, request_for
from streams.settings.settings import Settings
from threadfold.testing.memory_log import MemoryLog

Flat = dict[str, Any]
KEY = Key("acme", "desk-1")
NOW = "2026-01-01T00:00:00Z"
MESSAGES = 400
LATE = 2
"""Events between a window being due and its summary."""
PROFILES = ("bounded", "pruning", "composed", "sliding")
COMPOSED: Flat = {
    "reducers": [
        {"name": "keep_last_n_turns", "n": 12},
        {"name": "summarize_tool_results", "top": 5},
    ]
}
"""What the run under ``composed`` lists: without reducers of its own that profile shortens nothing
before the ceiling.
"""
PROMPT = (
    "You help the customers of a parcel service. Look things up before you answer, ask before you"
    " change anything."
)
PLACES = ("Turku", "Malmö", "Gdańsk", "Riga", "Bergen", "Kiel", "Tallinn", "Aarhus")
THINGS = ("parcel", "crate", "label", "invoice", "pallet", "receipt", "barrel", "trunk")
STATES = (
    "waits at the depot",
    "was weighed again",
    "is on the van",
    "has no customs form",
    "was refused at the door",
    "is insured",
)
TOOLS = ("find_parcels", "open_depot", "read_log", "quote_price")


def _sentence(rng: random.Random) -> str:
    number, day = rng.randrange(1_000, 9_999), rng.randrange(1, 29)
    return (
        f"{rng.choice(THINGS).title()} {number} in {rng.choice(PLACES)} {rng.choice(STATES)} since"
        f" day {day}."
    )


def _text(rng: random.Random, sentences: int) -> str:
    return " ".join(_sentence(rng) for _ in range(sentences))


def _rows(rng: random.Random, count: int) -> str:
    return json.dumps(
        [
            {"number": rng.randrange(10**6), "place": rng.choice(PLACES), "note": _sentence(rng)}
            for _ in range(count)
        ]
    )


def _result(rng: random.Random) -> tuple[str, str]:
    """A tool's name and what it said."""
    roll = rng.random()
    if roll < 0.06:
        return "read_log", "\n".join(
            f"day {i}: {_sentence(rng)}" for i in range(rng.randrange(150, 260))
        )
    if roll < 0.55:
        return "find_parcels", _rows(rng, rng.randrange(2, 40))
    if roll < 0.8:
        return "open_depot", _text(rng, rng.randrange(3, 100))
    return "quote_price", json.dumps(
        {"price": rng.randrange(5, 90), "currency": "EUR", "note": _sentence(rng)}
    )


@cache
def agent_run(messages: int = MESSAGES, seed: int = 7) -> tuple[Flat, ...]:
    """The flat events of the run: at least ``messages`` of them, ending with an answer."""
    rng = random.Random(seed)
    run: list[Flat] = [{"type": "message", "role": "system", "content": PROMPT}]
    while len(run) < messages:
        run.append({"type": "message", "role": "user", "content": _text(rng, rng.randrange(1, 4))})
        number = 0
        for _ in range(rng.choice([0, 1, 1, 2, 4])):
            said = [_result(rng) for _ in range(rng.choice([1, 1, 1, 3]))]
            # Ids are numbered anew in each turn, as real agents do.
            ids = [f"call_{number + i}" for i in range(len(said))]
            number += len(said)
            calls = [
                {"id": id_, "name": tool, "arguments": json.dumps({"number": rng.randrange(10**4)})}
                for id_, (tool, _) in zip(ids, said, strict=True)
            ]
            run.append(
                {"type": "message", "role": "assistant", "content": None, "tool_calls": calls}
            )
            run += [
                {"type": "tool.result", "tool_call_id": id_, "name": tool, "content": text}
                for id_, (tool, text) in zip(ids, said, strict=True)
            ]
        run.append(
            {"type": "message", "role": "assistant", "content": _text(rng, rng.randrange(2, 9))}
        )
    return tuple(run)


@dataclass
class Run:
    """A conversation as it is folded; ``calls`` are the renders right before each of the
    assistant's messages.

    ``asked`` are the requests in their order, ``summaries`` the accepted ones' tokens, ``steps``
    how many of the calls' traces name each reducer, ``said`` the tokens of all messages as they
    were said.
    """

    policy: Flat
    log: list[Logged] = field(default_factory=list)
    calls: list[Render] = field(default_factory=list)
    asked: list[CompactionRequest] = field(default_factory=list)
    summaries: list[int] = field(default_factory=list)
    steps: Counter[str] = field(default_factory=Counter)
    said: int = 0

    def __post_init__(self) -> None:
        self.window = Window(KEY, 0, Rules(self.policy))
        self.messages = MemoryLog(1)
        self._compactor = Compactor(Settings(), self.messages)
        self._wait = 0

    async def say(self, flat: Flat) -> Outcome:
        """Append one event and fold it; then the summary that was asked for some events ago."""
        if flat.get("role") == "assistant":
            render = render_openai(self.window)
            self.calls.append(render)
            self.steps.update({step.reducer for step in render.trace})
        record = make_record(KEY, flat, where="run", now=NOW, new_id=f"e{len(self.log)}")
        (position,) = await self.messages.append([record])
        outcome = self._fold(position.offset, record.value)
        if flat["type"] in ("message", "tool.result"):
            tokens = self.log[-1][1].tokens
            self.said += tokens.count if tokens else 0
        request = request_for(self.window, 1)
        if request is not None and (
            not self.asked or self.asked[-1].request_id != request.request_id
        ):
            self.asked.append(request)
            self._wait = LATE
        elif request is not None:
            self._wait -= 1
            if self._wait <= 0:
                await self.summarise()
        return outcome

    async def summarise(self) -> Outcome:
        """The compactor's answer to the latest request, folded."""
        position = await self._compactor.answer(self.asked[-1])
        raw = (await self.messages.read([position]))[position]
        outcome = self._fold(position.offset, raw.value or b"")
        self.summaries += [accepted.tokens for accepted in outcome.accepted]
        return outcome

    def _fold(self, offset: int, value: bytes) -> Outcome:
        event = decode_event(value)
        outcome = apply_with_log(self.window, offset, event, self.log)
        self.log.append((offset, event))
        return outcome

    def kept(self) -> float:
        """The share of the calls' bytes that the next call's messages begin with, unchanged."""
        same = total = 0
        for before, after in zip(self.calls, self.calls[1:], strict=False):
            n = 0
            while (
                n < min(len(before.bodies), len(after.bodies))
                and before.bodies[n] == after.bodies[n]
            ):
                n += 1
            same += sum(map(len, before.bodies[:n]))
            total += sum(map(len, before.bodies))
        return same / total


def policy_of(profile: str) -> Flat:
    """The policy of the run under a profile: its defaults, but for what ``composed`` has to
    list.
    """
    return {"profile": profile, **(COMPOSED if profile == "composed" else {})}


@cache
def folded(profile: str) -> Run:
    """The run under a profile; whoever goes on with it takes :func:`fold` instead."""
    return asyncio.run(fold(policy_of(profile)))


async def fold(policy: Flat) -> Run:
    """The whole run under a policy."""
    run = Run(policy)
    for flat in agent_run():
        await run.say(flat)
    return run


def row(profile: str) -> tuple[str, int, int, int, int, float, str]:
    """Profile, tokens of a call (mean, most), its messages (mean), summaries, the prefix kept, what
    the traces name.
    """
    run = folded(profile)
    tokens = [render.tokens for render in run.calls]
    messages = sum(len(render.bodies) for render in run.calls) / len(run.calls)
    named = ", ".join(f"`{name}`" for name in sorted(run.steps))
    return (
        profile,
        round(sum(tokens) / len(tokens)),
        max(tokens),
        round(messages),
        len(run.summaries),
        round(run.kept(), 2),
        named,
    )


if __name__ == "__main__":
    said = folded("bounded")
    print(f"{len(agent_run())} events, {said.said} tokens, {len(said.calls)} calls")
    for name in PROFILES:
        print("| " + " | ".join(map(str, row(name))) + " |")
