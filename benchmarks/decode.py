"""Figure `decode`: microseconds to turn a record's value into a validated event, beside what orjson
needs for a plain dictionary.

All sides run in turn in one process, on the same values. ``orjson_validated`` is what orjson would
need to be comparable: a dictionary, then msgspec's check of the data.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import msgspec
import orjson

from benchmarks.harness import Args, Measured, Result, interleave
from benchmarks.support.machine import note_load
from benchmarks.support.texts import Messages
from projections.events.codec import DATA_TYPES, decode_event
from projections.events.types import Message

VALUES = 2_000


class Decode:
    """Microseconds an event."""

    name = "decode"
    goal = "below orjson_dict, with the check included"

    async def run(self, args: Args) -> Result:
        """Decode the same values by every side."""
        note_load()
        passes = 2 if args.quick else 20
        messages = Messages(texts=VALUES)
        values = [messages.record(number, 1_000).value for number in range(VALUES)]
        if not all(isinstance(decode_event(value).data, Message) for value in values):
            raise RuntimeError("a message event was not decoded as one")
        sides: dict[str, Callable[[bytes], object]] = {
            "ours": decode_event,
            "orjson_dict": orjson.loads,
            "orjson_validated": _validated,
        }
        rounds = await interleave(
            {name: partial(_rate, call, values, passes) for name, call in sides.items()},
            args.rounds(15),
        )
        size = round(sum(map(len, values)) / len(values))
        return rounds.result(
            self.name,
            "us/event",
            {"values": VALUES, "passes": passes, "bytes": size},
            better="lower",
        )


def _validated(value: bytes) -> object:
    event = orjson.loads(value)
    return msgspec.convert(event["data"], DATA_TYPES["message"])


def _rate(call: Callable[[bytes], object], values: list[bytes], passes: int) -> Measured:
    begin = time.perf_counter()
    for _ in range(passes):
        for value in values:
            call(value)
    return Measured((time.perf_counter() - begin) / (passes * len(values)) * 1e6)


FIGURE = Decode()
