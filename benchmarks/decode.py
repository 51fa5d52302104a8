"""Figure `decode`: microseconds to turn a record's value into a validated event, beside what orjson needs for a plain dictionary.

Run: ``python -m benchmarks.decode``. Prints one JSON line. Both sides run in turn in one process; the figure is the median of the rounds.
"""

from __future__ import annotations

import json
import platform
import statistics
import time
from collections.abc import Callable

import msgspec
import orjson

from projections.events import DATA_TYPES, Message, decode_event
from projections.intake import make_record
from projections.names import Key

ROUNDS = 15
EVENTS = 20_000


def sample() -> bytes:
    """A message event of about 470 bytes, as the log holds it."""
    text = "The parcel left the harbour in Oslo on Tuesday and should arrive by the weekend. " * 2
    flat = {"type": "message", "role": "user", "content": text}
    return make_record(
        Key("acme", "support-4711"), flat, where="sample", now="2026-01-01T00:00:00Z", new_id="0192f7a4-5f7e-7cc1-9c1d-3a3c0f3f9b11"
    ).value


def orjson_validated(value: bytes) -> object:
    """What orjson would need to be comparable: a dictionary, then msgspec's check of the data."""
    event = orjson.loads(value)
    return msgspec.convert(event["data"], DATA_TYPES["message"])


def rate(call: Callable[[bytes], object], value: bytes) -> float:
    """Microseconds a call, over one round."""
    begin = time.perf_counter()
    for _ in range(EVENTS):
        call(value)
    return (time.perf_counter() - begin) / EVENTS * 1e6


def main() -> None:
    """Measure and print."""
    value = sample()
    assert isinstance(decode_event(value).data, Message)
    sides: dict[str, Callable[[bytes], object]] = {"ours": decode_event, "orjson_dict": orjson.loads, "orjson_validated": orjson_validated}
    rounds: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(ROUNDS):
        for name, call in sides.items():
            rounds[name].append(rate(call, value))
    medians = {name: round(statistics.median(times), 3) for name, times in rounds.items()}
    ours = medians.pop("ours")
    print(
        json.dumps(
            {
                "figure": "decode",
                "ours": ours,
                "unit": "us/event",
                "peers": medians,
                "ratios": {name: round(ours / peer, 3) for name, peer in medians.items()},
                "conditions": f"{len(value)} bytes, {ROUNDS} rounds of {EVENTS}, median, Python {platform.python_version()}",
            }
        )
    )


if __name__ == "__main__":
    main()
