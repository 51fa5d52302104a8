"""Figure `encode`: events a second that the rules of the long-term memory read for what they teach,
in one process.

Each event is decoded from its bytes in the log and read by the rules, span by span, as the encoder
does; what is found becomes events. Three kinds of conversations: tau-bench's airline runs (left out
where the shared data is missing), chat turns of the chitchat dataset, and the demo's simulated
agents. The figure is for all of them together. The peer ``read_only`` decodes the same bytes and
nothing else.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from itertools import islice
from typing import Any

from benchmarks.harness import Args, Measured, Result, interleave, rounded
from benchmarks.support.long_talks import airline_file, airline_runs, generated_sets
from benchmarks.support.machine import note_load
from benchmarks.support.texts import NOW, TENANT
from projections.events.codec import decode_event
from projections.events.validation import make_record
from projections.memory.extraction.extractor import extract
from projections.memory.extraction.memory_events import Taught, memory_events
from projections.names import Key
from projections.window.bodies import to_flat
from threadfold.demo.agents import agent_events

KEY = Key(TENANT, "encode")
SPAN = 200
"""Events of a span."""
Span = Sequence[bytes]


class Encode:
    """Events read a second, of all kinds."""

    name = "encode"
    goal = "at least 5,000 events/s"

    async def run(self, args: Args) -> Result:
        """Read the same spans in every round."""
        note_load()
        kinds = _kinds(400 if args.quick else 6_000)
        spans = [span for found in kinds.values() for span in found]
        sides = {"ours": partial(_encode, spans), "read_only": partial(_read, spans)}
        rounds = await interleave(sides, args.rounds(5))
        more = {
            "by_kind": {kind: rounded(_encode(found).value) for kind, found in kinds.items()},
            "memory_events": {
                kind: sum(len(_extracted(span)) for span in found) for kind, found in kinds.items()
            },
        }
        events = {kind: sum(map(len, found)) for kind, found in kinds.items()}
        return rounds.result(self.name, "events/s", {"events": events, "span": SPAN}, more=more)


def _extracted(span: Span) -> list[Any]:
    found = extract(enumerate(map(decode_event, span)))
    return list(memory_events(Taught(KEY, 0, "u-1", None, None), found))


def _encode(spans: Sequence[Span]) -> Measured:
    begin = time.perf_counter()
    for span in spans:
        _extracted(span)
    return Measured(sum(map(len, spans)) / (time.perf_counter() - begin))


def _read(spans: Sequence[Span]) -> Measured:
    begin = time.perf_counter()
    for span in spans:
        for value in span:
            decode_event(value)
    return Measured(sum(map(len, spans)) / (time.perf_counter() - begin))


def _kinds(count: int) -> dict[str, list[Span]]:
    path = airline_file()
    kinds: dict[str, list[dict[str, Any]]] = {}
    if path is not None:
        runs = [message for run in airline_runs(path) for message in run]
        kinds["airline"] = [to_flat(message, f"{i}") for i, message in enumerate(runs[:count])]
    chat = generated_sets(count)["chat"][0]
    kinds["chat"] = [to_flat(message, f"{i}") for i, message in enumerate(chat[:count])]
    kinds["agent"] = [*islice(agent_events(5, 1_000_000), count)]
    return {kind: _spans(flats) for kind, flats in kinds.items()}


def _spans(flats: Sequence[dict[str, Any]]) -> list[Span]:
    values = [
        make_record(KEY, {"id": f"{i}", **flat}, where="encode", now=NOW, new_id="x").value
        for i, flat in enumerate(flats)
    ]
    return [values[at : at + SPAN] for at in range(0, len(values), SPAN)]


FIGURE = Encode()
