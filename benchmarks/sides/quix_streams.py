"""Peer `quix_streams`: a Quix Streams app that keeps the same bounded window in its state store
(RocksDB), with its own defaults.

It is written as a Quix user would who knows that a state value is encoded whole at every write:
each message has a state key of its own in a ring of the last ``keep``, and a small value tells
count, tokens and position. There are no pairing, lanes, digests or duplicates in it, so it does
less than our fold; nothing is written to Redis; the store's changelog topic and the commit every 5
seconds are Quix' defaults. The clock runs from the first event to the last; a commit that comes
after the last event is not in it.
"""

from __future__ import annotations

import os
import tempfile
import time
from typing import Any

from quixstreams import Application

from benchmarks.support.children import answer, read_job
from benchmarks.support.meters import Meter


def run(
    settings: Any, groups: dict[str, list[int]], events: int, keep: int, state_dir: str
) -> None:
    """Project ``events`` events, and answer with events a second."""
    app = Application(
        broker_address=settings.kafka,
        consumer_group=f"quix-{os.getpid()}",
        auto_offset_reset="earliest",
        state_dir=state_dir,
        loglevel="ERROR",
    )
    topic = app.topic(settings.topic("events"), key_deserializer="str", value_deserializer="json")
    seen: dict[str, Any] = {"done": 0}

    def fold(event: dict[str, Any], state: Any) -> None:
        if not seen["done"]:
            seen.update(begin=time.perf_counter(), meter=Meter(groups))
        window = state.get("window") or {"count": 0, "tokens": 0, "id": None}
        slot = f"m{window['count'] % keep}"
        if window["count"] >= keep:
            window["tokens"] -= state.get(slot)["tokens"]
        tokens = event["tokens"]["count"]
        data = event["data"]
        state.set(slot, {"role": data["role"], "content": data["content"], "tokens": tokens})
        state.set(
            "window",
            {"count": window["count"] + 1, "tokens": window["tokens"] + tokens, "id": event["id"]},
        )
        seen["done"] += 1
        if seen["done"] == events:
            seconds = time.perf_counter() - seen["begin"]
            answer(
                events / seconds,
                usage=seen["meter"].stop(),
                events=events,
                seconds=round(seconds, 3),
            )
            app.stop()

    frame = app.dataframe(topic)
    frame.update(fold, stateful=True)
    app.run()


if __name__ == "__main__":
    settings, groups, job = read_job()
    with tempfile.TemporaryDirectory(prefix="bench-quix-") as folder:
        run(settings, groups, job["events"], job["keep"], folder)
