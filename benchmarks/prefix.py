"""Figure `prefix`: how much of one model call's prompt the next call's begins with, unchanged, so that a provider's cache takes it.

A model call is a render (OpenAI's format) right before each of the assistant's messages. Of its messages, those of the system lane are left
out (they would only help); the summary and the note of what was left out count. The share is: over all calls but the last, the tokens of
the longest run of messages from the first on that the next call's render begins with, byte for byte, over the tokens of the render; a
message that changed at its end counts as lost whole. Tokens are counted by one counter for all sides.

Conversations are those of ``benchmarks.support.long_talks``, folded event by event; when a window is due, the real compactor answers with
the extractive summariser a few events later (one to five, seeded), as in life, and the fold accepts its summary. Only ``working_budget``
is set, all else is the policy's default. A cut is a call of which less than all is kept; causes tell what changed since the call before.
The figure is over all conversations at a budget of 4,000; `table` has each at each budget, with the share kept at a cut. `fit` is how many
messages of the conversation, as they were said, a call is given on average (and at most) where all of a render but the system lane has to
keep within 16k, 32k and 64k tokens.

Peers, in the same run on the same conversations: the last 30 messages; LangChain's ``trim_messages`` to the same budget; and a bare cut of
the oldest groups to half the budget whenever it is passed. None of the three keeps anything of what it leaves out.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec

from benchmarks.harness import Args, Measured, Result, interleave
from benchmarks.support.long_talks import Talk, airline_file, airline_talks, generated_talks
from benchmarks.support.prefixes import Peer, Tally, Weights, langchain_trim, low_water, peer_tally, sliding
from benchmarks.support.texts import NOW, TENANT
from projections.events import decode_event
from projections.fold import apply
from projections.intake import Record, make_record
from projections.names import Key
from projections.openai import to_flat
from projections.parts import Render
from projections.policy import Rules
from projections.render import render_openai
from projections.window import Window
from streams.compactor import Compactor
from streams.requests import CompactionRequest, request_for
from streams.settings import Settings
from threadfold.testing.memory_log import MemoryLog

BUDGETS = (4_000, 30_000)
FITS = (16_000, 32_000, 64_000)
SUMMARY = 1_500
"""The default of ``summary_max_tokens``: in `fit` the working budget leaves room for it, and for what comes before it does."""
LATEST = 5
"""Events that come, at most, between a window being due and its summary."""


_encode = msgspec.json.Encoder().encode


class Prefix:
    """The share of a call's tokens that the next call's render begins with."""

    name = "prefix"
    goal = "at least 0.94 at a budget of 4,000 tokens, 0.985 at 30,000"

    async def run(self, args: Args) -> Result:
        """Measure every side at every budget; the figure is that of the smallest."""
        path = airline_file()
        talks = generated_talks(150 if args.quick else 1_200)
        if path is not None:
            talks |= airline_talks(path, 20 if args.quick else None)
        weights = Weights()
        table: dict[str, Any] = {}
        peers: dict[str, Callable[[], Peer]] = {
            "sliding_30": lambda: sliding,
            "langchain_trim": lambda: langchain_trim(weights),
            "low_water": lambda: low_water(weights),
        }

        async def ours() -> Measured:
            return _noted(
                table, "ours", {b: [(n, await tally_of(t, {"working_budget": b}, weights)) for n, t in talks.items()] for b in BUDGETS}
            )

        def side(name: str) -> Callable[[], Measured]:
            def measure() -> Measured:
                make = peers[name]
                return _noted(table, name, {b: [(n, peer_tally(make(), t, b, weights)) for n, t in talks.items()] for b in BUDGETS})

            return measure

        # Nothing here is a matter of speed: every round gives the same.
        rounds = await interleave({"ours": ours, **{name: side(name) for name in peers}}, args.runs or 1)
        fits = await _fits(talks, weights, peers)
        parameters = {"budgets": list(BUDGETS), "talks": {name: len(talk) for name, talk in talks.items()}, "latest": LATEST}
        missing = {} if path is not None else {"skipped": "airline.jsonl is not there: only generated conversations were measured"}
        return rounds.result(self.name, "share", parameters, more={"table": table, "fit": fits, **missing})


def _noted(table: dict[str, Any], side: str, found: dict[int, list[tuple[str, Tally]]]) -> Measured:
    """Write a side's tallies into the table; its value is the share over all conversations at the smallest budget."""
    pooled = {}
    for budget, tallies in found.items():
        rows = {name: tally.row() for name, tally in tallies}
        pooled[budget] = sum(t.kept for _, t in tallies) / sum(t.tokens for _, t in tallies)
        table.setdefault(str(budget), {})[side] = {"share": round(pooled[budget], 4), **rows}
    return Measured(pooled[min(pooled)])


async def tally_of(talk: Talk, overrides: dict[str, Any], weights: Weights) -> Tally:
    """Our side over one conversation under the default policy with ``overrides``."""
    tally = Tally(weights)
    async for window in calls_of(talk, overrides):
        render = render_openai(window)
        tally.call(render.bodies[len(window.lanes.pinned) :], _marks(window, render))
    return tally


def _marks(window: Window, render: Render) -> dict[str, Any]:
    """What may have changed a render elsewhere than at its end: the summary, what only the log still holds, and what each step saved."""
    summary = window.meta.summary
    marks: dict[str, Any] = {"summary": summary and summary.summary_id}
    marks["held"] = [entry.offset for entry in window.tail if entry.first >= 0]
    for i, step in enumerate(render.trace):
        marks[f"{i + 1} {step.reducer}"] = (step.messages_before - step.messages_after, step.tokens_before - step.tokens_after)
    return marks


async def calls_of(talk: Talk, overrides: dict[str, Any]) -> AsyncIterator[Window]:
    """The window right before each of the assistant's messages, summaries coming a few events after they were asked for."""
    rng, key, log = random.Random(3), Key(TENANT, "prefix"), MemoryLog(1)
    window, compactor = Window(key, 0, Rules(overrides)), Compactor(Settings(), log)
    asked: CompactionRequest | None = None
    answer_at = 0

    async def fold(record: Record) -> None:
        (position,) = await log.append([record])
        apply(window, position.offset, decode_event(record.value))

    for number, message in enumerate(talk):
        if message["role"] == "assistant" and number:
            yield window
        await fold(make_record(key, to_flat(message, f"message {number}"), where="prefix", now=NOW, new_id=f"m{number}"))
        request = request_for(window, 1)
        if request is not None and (asked is None or request.request_id != asked.request_id):
            asked, answer_at = request, number + rng.randint(1, LATEST)
        if asked is not None and number >= answer_at:
            position = await compactor.answer(asked)
            raw = (await log.read([position]))[position]
            apply(window, position.offset, decode_event(raw.value or b""))
            asked = None


async def _fits(talks: dict[str, Talk], weights: Weights, peers: dict[str, Callable[[], Peer]]) -> dict[str, Any]:
    """Messages that a call is given as they were said, by limit and side, over one conversation of each kind."""
    found: dict[str, Any] = {}
    for name in [name for name in ("airline", "agent") if name in talks]:
        said = {_said(_encode(message)) for message in talks[name]}
        for limit in FITS:
            overrides = {"working_budget": limit - SUMMARY - 2_000}
            whole: list[int] = []
            i = 0
            async for window in calls_of(talks[name], overrides):
                i += 1
                if i % 10 == 0:
                    bodies = render_openai(window, limit + window.lanes.pinned_tokens).bodies[len(window.lanes.pinned) :]
                    whole.append(sum(_said(body) in said for body in bodies))
            row = {"ours": {"mean": round(sum(whole) / len(whole), 1), "most": max(whole)}}
            for peer in ("langchain_trim", "low_water"):
                tally = peer_tally(peers[peer](), talks[name], limit, weights)
                row[peer] = {"mean": round(tally.messages / tally.calls, 1), "most": tally.most}
            found.setdefault(name, {})[str(limit)] = row
    return found


def _said(body: bytes) -> tuple[str, str, bool]:
    """What a message says, whatever the order of its fields."""
    message = msgspec.json.decode(body)
    return message["role"], msgspec.json.encode(message.get("content")).decode(), bool(message.get("tool_calls"))


FIGURE = Prefix()
