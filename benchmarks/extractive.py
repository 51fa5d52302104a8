"""Figure `extractive`: tokens that the extractive summariser takes in a second of one core, and
what its summaries keep.

Spans of 3,000, 15,000 and 75,000 tokens of three kinds of conversations: tau-bench's airline runs
(left out where the shared data is missing), chat turns of the chitchat dataset, and the demo's
simulated agents. Each is read as the compactor reads it and summarised into half of the default
budget, as a first summary is. The seconds are the process' own CPU time, all of its threads
together. ``kept`` are shares of distinct facts and decisions (see ``benchmarks.support.kept``),
summed over the spans of a kind and size.

The peer ``read_only`` splits the same texts at blanks and puts them in a set: the least that any
look at every word costs in Python.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from itertools import islice
from typing import Any

import msgspec
import numpy as np

from benchmarks.harness import Args, Measured, Result, interleave, rounded
from benchmarks.support.kept import added, kept, shares
from benchmarks.support.long_talks import Talk, airline_file, airline_sets, generated_sets
from benchmarks.support.machine import note_load
from benchmarks.support.texts import NOW, TENANT
from projections.events.codec import decode_event
from projections.events.tokenizer import count_all
from projections.events.validation import make_record
from projections.names import Key
from projections.window.bodies import to_flat
from streams.compaction.summarizers.base import SpanMessage, SummaryInput
from streams.compaction.summarizers.extractive import summarize_extractive
from streams.compaction.summarizers.span_messages import messages_of
from threadfold.demo.agents import agent_events

ENCODING = "o200k_base"
BUDGET = 750
"""Half of the default ``summary_max_tokens``, as a first summary is asked for."""
SIZES = {3_000: 24, 15_000: 12, 75_000: 6}
"""Tokens of a span, and how many spans of that size are summarised of each kind."""
KEY = Key(TENANT, "extractive")


class Span(msgspec.Struct, frozen=True):
    """One span: its kind, its nominal size, its tokens."""

    kind: str
    size: int
    tokens: int
    request: SummaryInput


class Extractive:
    """Tokens a second of CPU time."""

    name = "extractive"
    goal = "at least 1,000,000 tokens/s a core, 4x that of 2026-11; kept shares no worse"

    async def run(self, args: Args) -> Result:
        """Summarise the same spans in every round; what is kept is the same in each."""
        note_load()
        sizes = {3_000: 2, 15_000: 1} if args.quick else SIZES
        spans = list(_spans(sizes))
        for span in spans[:2]:
            summarize_extractive(span.request)
        sides = {"ours": partial(_ours, spans), "read_only": partial(_read_only, spans)}
        rounds = await interleave(sides, args.rounds(5))
        read: dict[str, int] = {}
        for span in spans:
            read[span.kind] = read.get(span.kind, 0) + span.tokens
        parameters = {
            "budget": BUDGET,
            "spans": {str(size): number for size, number in sizes.items()},
            "tokens": read,
        }
        cells = {
            cell: rounded(max(taken.more["cells"][cell] for taken in rounds.taken["ours"]))
            for cell in rounds.taken["ours"][0].more["cells"]
        }
        more = {"best_by_span": cells, "kept": _kept(spans)}
        return rounds.result(self.name, "tokens/s", parameters, more=more)


def _spans(sizes: dict[int, int]) -> Iterator[Span]:
    """The spans of all kinds, spread evenly over each conversation; they may overlap."""
    for kind, messages in _conversations(2 * max(sizes)):
        tokens = np.cumsum(count_all([message.text for message in messages], ENCODING)[0])
        for size, number in sizes.items():
            for start in np.linspace(0, max(0, tokens[-1] - size), number):
                begin = int(np.searchsorted(tokens, start))
                end = int(np.searchsorted(tokens, start + size)) + 1
                taken = tuple(messages[begin:end])
                held = tokens[begin + len(taken) - 1] - (tokens[begin - 1] if begin else 0)
                yield Span(kind, size, int(held), SummaryInput(None, taken, BUDGET, ENCODING))


def _conversations(tokens: int) -> Iterator[tuple[str, list[SpanMessage]]]:
    path = airline_file()
    if path is not None:
        yield "airline", _read(airline_sets(path)["airline_long"][0])
    yield "chat", _read(generated_sets(tokens // 20)["chat"][0])
    events = islice(agent_events(5, tokens), tokens // 15)
    yield (
        "agent",
        [m for event in events for m in _messages({k: v for k, v in event.items() if k != "id"})],
    )


def _read(talk: Talk) -> list[SpanMessage]:
    return [m for i, message in enumerate(talk) for m in _messages(to_flat(message, f"{i}"))]


def _messages(flat: dict[str, Any]) -> list[SpanMessage]:
    """What a summariser is given of a flat event, after a stay in the log."""
    record = make_record(KEY, flat, where="extractive", now=NOW, new_id="x")
    return messages_of(decode_event(record.value), "0:0")


def _ours(spans: list[Span]) -> Measured:
    used: dict[str, float] = {}
    read: dict[str, int] = {}
    for span in spans:
        begin = time.process_time()
        summarize_extractive(span.request)
        cell = f"{span.kind} {span.size}"
        used[cell] = used.get(cell, 0.0) + time.process_time() - begin
        read[cell] = read.get(cell, 0) + span.tokens
    return Measured(
        sum(read.values()) / sum(used.values()),
        more={"cells": {cell: read[cell] / used[cell] for cell in used}},
    )


def _read_only(spans: list[Span]) -> Measured:
    begin = time.process_time()
    for span in spans:
        set("\n".join(message.text for message in span.request.messages).split())
    return Measured(sum(span.tokens for span in spans) / (time.process_time() - begin))


def _kept(spans: list[Span]) -> dict[str, dict[str, float]]:
    tallies: dict[str, list[Any]] = {}
    for span in spans:
        found = kept(span.request.messages, summarize_extractive(span.request).text)
        tallies.setdefault(f"{span.kind} {span.size}", []).append(found)
    return {cell: shares(added(found)) for cell, found in tallies.items()}


FIGURE = Extractive()
