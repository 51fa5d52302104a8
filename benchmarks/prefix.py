"""Figure `prefix`: how much of one model call's prompt the next call's begins with, unchanged, so
that a provider's cache takes it.

A model call is a render (OpenAI's format) right before each of the assistant's messages. Of its
messages those of the system lane are left out (they would only help); the summary and the note of
what was left out count. The share is: over all calls but the last, the tokens that the next call's
render begins with, over the tokens of the render. A cache works on tokens, so these are counted:
the whole messages from the first on that are the same byte for byte, and of the first that is not,
where all before its text is the same (as its role), the tokens of the common beginning of the
texts. One counter and one rule for all sides.

The shares published for the peers (issue 5) come out where a call is made after every message
instead (see ``benchmarks.support.long_talks``), so ours is told that way as well, as
``by_message``: twice as many calls with as many cuts among them. By the looks of it the goals were
set on that scale: 0.94 and 0.985 are just below what a bare low-water cut has on it. The figure is
the stricter one: before the assistant's messages, on set ``airline``, at a budget of 4,000; `table`
has both, for every set at every budget, and pooled by tokens.

Conversations are folded event by event; when a window is due, the real compactor answers with the
extractive summariser a few events later (one to five, seeded), as in life, and the fold has to
accept its summary. Row ``ours`` sets nothing but ``working_budget``: all else is the policy's
default. Rows ``with …`` show what a user gets who sets other keys, too. A cut is a call of which
less than all is kept; causes tell what changed since the call before. `fit` is how many messages of
the conversation, as they were said, a call is given on average (and at most) where all of a render
but the system lane has to keep within 16k, 32k and 64k tokens.

Peers, in the same run on the same conversations: the last 30 messages; LangChain's
``trim_messages`` to the same budget; and a bare cut of the oldest groups to half the budget
whenever it is passed. None of the three keeps anything of what it leaves out.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec

from benchmarks.harness import Args, Measured, Result, interleave
from benchmarks.support.long_talks import Talk, airline_file, airline_sets, generated_sets
from benchmarks.support.prefixes import (
    Peer,
    Tallies,
    Weights,
    langchain_trim,
    low_water,
    peer_tally,
    sliding,
)
from benchmarks.support.texts import NOW, TENANT
from projections.events.codec import decode_event
from projections.events.validation import Record, make_record
from projections.fold.apply import Status, apply
from projections.names import Key
from projections.policy.policy import Rules
from projections.render.read_header import lead_of, read_header_of
from projections.render.render import render_openai
from projections.window.bodies import to_flat
from projections.window.entry import RENDERED
from projections.window.trace_steps import Step
from projections.window.window import Window
from streams.compaction.compactor import Compactor
from streams.compaction.requests import CompactionRequest, request_for
from streams.log.rollback_history import fetch_needed
from streams.settings.settings import Settings
from threadfold.testing.memory_log import MemoryLog

BUDGETS = (4_000, 30_000)
FITS = (16_000, 32_000, 64_000)
SUMMARY = 1_500
"""The default of ``summary_max_tokens``: in `fit` the working budget leaves room for it, and for
what comes before it does.
"""
LATEST = 5
"""Events that come, at most, between a window being due and its summary."""
COMPACT = [{"name": "compact_tool_results", "replacement": "template", "keep_last_n": 3}]
SETTINGS: dict[str, dict[int, dict[str, Any]]] = {
    "ours": {4_000: {}, 30_000: {}},
    "with keep_recent_tokens a quarter": {
        4_000: {"keep_recent_tokens": 1_000},
        30_000: {"keep_recent_tokens": 7_500},
    },
    "with keep_recent_tokens an eighth": {
        4_000: {"keep_recent_tokens": 500},
        30_000: {"keep_recent_tokens": 3_750},
    },
    "with compact_tool_results": {4_000: {"reducers": COMPACT}, 30_000: {"reducers": COMPACT}},
    "with both": {
        4_000: {"reducers": COMPACT, "keep_recent_tokens": 500},
        30_000: {"reducers": COMPACT, "keep_recent_tokens": 3_750},
    },
}
"""What is set beside ``working_budget``, by row and budget."""

Sets = dict[str, list[Talk]]
_encode = msgspec.json.Encoder().encode


class Prefix:
    """The share of a call's tokens that the next call's render begins with."""

    name = "prefix"
    goal = "at least 0.94 at a budget of 4,000 tokens, 0.985 at 30,000"

    async def run(self, args: Args) -> Result:
        """Measure every side at every budget; the figure is that of the first set at the
        smallest.
        """
        path = airline_file()
        sets = airline_sets(path, 10 if args.quick else None) if path is not None else {}
        sets |= generated_sets(100 if args.quick else 1_200)
        weights = Weights()
        table: dict[str, Any] = {}
        peers: dict[str, Callable[[], Peer]] = {
            "sliding_30": lambda: sliding,
            "langchain_trim": lambda: langchain_trim(weights),
            "low_water": lambda: low_water(weights),
        }

        async def ours() -> Measured:
            first = Measured(0.0)
            for row, overrides in list(SETTINGS.items())[: 2 if args.quick else None]:
                found = {
                    b: await _ours(sets, {"working_budget": b, **overrides[b]}, weights)
                    for b in BUDGETS
                }
                measured = _noted(table, row, found)
                first = measured if row == "ours" else first
            return first

        def side(name: str) -> Callable[[], Measured]:
            def measure() -> Measured:
                return _noted(
                    table, name, {b: _peers(sets, peers[name], b, weights) for b in BUDGETS}
                )

            return measure

        # Nothing here is a matter of speed: every round gives the same.
        rounds = await interleave(
            {"ours": ours, **{name: side(name) for name in peers}}, args.runs or 1
        )
        fits = await _fits(sets, weights, peers)
        parameters = {
            "budgets": list(BUDGETS),
            "figure_of": f"{next(iter(sets))} at {BUDGETS[0]}",
            "sets": {
                name: {"conversations": len(talks), "messages": sum(map(len, talks))}
                for name, talks in sets.items()
            },
            "settings": {
                row: {str(b): keys for b, keys in overrides.items()}
                for row, overrides in SETTINGS.items()
            },
            "latest": LATEST,
        }
        missing = (
            {}
            if path is not None
            else {
                "skipped": "airline.jsonl is not there: only generated conversations were measured"
            }
        )
        return rounds.result(
            self.name, "share", parameters, more={"table": table, "fit": fits, **missing}
        )


async def _ours(sets: Sets, overrides: dict[str, Any], weights: Weights) -> dict[str, Tallies]:
    found = {}
    for name, talks in sets.items():
        found[name] = Tallies(weights)
        for talk in talks:
            found[name] += await tally_of(talk, overrides, weights)
    return found


def _peers(
    sets: Sets, make: Callable[[], Peer], budget: int, weights: Weights
) -> dict[str, Tallies]:
    found = {}
    for name, talks in sets.items():
        found[name] = Tallies(weights)
        for talk in talks:
            found[name] += peer_tally(make(), talk, budget, weights)
    return found


def _noted(table: dict[str, Any], side: str, found: dict[int, dict[str, Tallies]]) -> Measured:
    """Write a side's tallies into the table; its value is the share over the first set at the
    smallest budget.
    """
    for budget, tallies in found.items():
        rows = {name: tally.row() for name, tally in tallies.items()}
        pooled = Tallies(Weights())
        for tally in tallies.values():
            pooled += tally
        table.setdefault(str(budget), {})[side] = {**rows, "pooled": pooled.row()}
    first = next(iter(found[min(found)].values()))
    return Measured(first.by_call.share)


async def tally_of(talk: Talk, overrides: dict[str, Any], weights: Weights) -> Tallies:
    """Our side over one conversation under the default policy with ``overrides``."""
    found = Tallies(weights)
    async for window, is_call in calls_of(talk, overrides):
        bodies, trace = sent_messages(window)
        marks = _marks(window, trace)
        found.by_message.call(bodies, marks)
        if is_call:
            found.by_call.call(bodies, marks)
    return found


def sent_messages(window: Window) -> tuple[list[bytes], list[Step]]:
    """What a model is sent but for the system lane, and what was shortened; put together as a
    reader does where the window is flat.
    """
    lead = len(window.state.pinned)
    header = read_header_of(window)
    if header.flat:
        bodies = [entry.body for entry in window.tail if entry.kind in RENDERED and entry.body]
        before = lead_of(window.state, window.meta.summary, window.omitted, window.partition)
        return before[lead:] + bodies, header.trace
    render = render_openai(window)
    return render.bodies[lead:], render.trace


def _marks(window: Window, trace: list[Step]) -> dict[str, Any]:
    """What may have changed a render elsewhere than at its end: the summary, what only the log
    still holds, and what each step saved.
    """
    summary = window.meta.summary
    marks: dict[str, Any] = {"summary": summary and summary.summary_id}
    marks["held"] = [entry.offset for entry in window.tail if entry.first >= 0]
    for i, step in enumerate(trace):
        marks[f"{i + 1} {step.reducer}"] = (
            step.messages_before - step.messages_after,
            step.tokens_before - step.tokens_after,
        )
    return marks


async def calls_of(talk: Talk, overrides: dict[str, Any]) -> AsyncIterator[tuple[Window, bool]]:
    """The window after each message, and whether the assistant speaks next; summaries come a few
    events after their request.

    Raises:
        RuntimeError: the fold did not take a summary, or anything else that was appended.
    """
    rng, key, log = random.Random(3), Key(TENANT, "prefix"), MemoryLog(1)
    window, compactor = Window(key, 0, Rules(overrides)), Compactor(Settings(), log)
    pending: CompactionRequest | None = None
    answer_at = 0
    for number, message in enumerate(talk):
        flat = to_flat(message, f"message {number}")
        await _append(
            window, log, make_record(key, flat, where="prefix", now=NOW, new_id=f"m{number}")
        )
        request = request_for(window, 1)
        if request is not None and (pending is None or request.request_id != pending.request_id):
            pending, answer_at = request, number + rng.randint(1, LATEST)
        if pending is not None and number >= answer_at:
            await _fold(window, log, (await compactor.answer(pending)).offset)
            pending = None
        if message["role"] != "system":
            yield window, number + 1 < len(talk) and talk[number + 1]["role"] == "assistant"


async def _append(window: Window, log: MemoryLog, record: Record) -> None:
    (position,) = await log.append([record])
    await _fold(window, log, position.offset)


async def _fold(window: Window, log: MemoryLog, offset: int) -> None:
    """Fold what stands at an offset, as the projector does: where the fold needs more of the log,
    it is read.
    """
    (row,) = [row async for row in log.scan(0, offset, offset)]
    event = decode_event(row.value or b"")
    outcome = apply(window, offset, event)
    if outcome.status is Status.NEEDS_HISTORY:
        outcome = apply(window, offset, event, await fetch_needed(log, window, outcome))
    if outcome.status is not Status.APPLIED:
        raise RuntimeError(
            f"the fold did not take the {type(event).__name__} at offset {offset}:"
            f" {outcome.reason or outcome.status.value}"
        )


async def _fits(
    sets: Sets, weights: Weights, peers: dict[str, Callable[[], Peer]]
) -> dict[str, Any]:
    """Messages that a call is given as they were said, by limit and side, over one long
    conversation of each kind.
    """
    found: dict[str, Any] = {}
    for name in [name for name in ("airline_long", "agent") if name in sets]:
        talk = sets[name][0]
        whole_messages = {_meaning(_encode(message)) for message in talk}
        for limit in FITS:
            whole: list[int] = []
            i = 0
            async for window, is_call in calls_of(
                talk, {"working_budget": limit - SUMMARY - 2_000}
            ):
                i += is_call
                if is_call and i % 10 == 0:
                    bodies = render_openai(window, limit + window.state.pinned_tokens).bodies[
                        len(window.state.pinned) :
                    ]
                    whole.append(sum(_meaning(body) in whole_messages for body in bodies))
            row = {"ours": {"mean": round(sum(whole) / len(whole), 1), "most": max(whole)}}
            for peer in ("langchain_trim", "low_water"):
                tally = peer_tally(peers[peer](), talk, limit, weights).by_call
                row[peer] = {"mean": round(tally.messages / tally.calls, 1), "most": tally.most}
            found.setdefault(name, {})[str(limit)] = row
    return found


def _meaning(body: bytes) -> tuple[str, str, bool]:
    """A message's role, content and calls, whatever the order of its fields."""
    message = msgspec.json.decode(body)
    return (
        message["role"],
        msgspec.json.encode(message.get("content")).decode(),
        bool(message.get("tool_calls")),
    )


FIGURE = Prefix()
