"""Peer `faust_agent`: a Faust app whose agent does the same fold (``projections.fold.apply.apply``)
and writes the windows into Redis.

It is written as a Faust user would who knows that a round trip an event is dear: events are taken
in lists (``take_events``, which also tells partition and offset), each is decoded and folded into a
window kept in a dict, and the windows that a list touched are written with one pipeline: new
messages are pushed, a hash has position and count. There is no fence and no atomic checkpoint.
``per_event`` in the job writes after every event instead. Settings are Faust's own, but for what it
needs to run here: no leader topic and no declaring of topics (Faust's topic creation fails on Kafka
4), no web server, raw values. The clock runs from the first event to the last of ``events``.
"""

from __future__ import annotations

import os
import time
from typing import Any

import faust
import redis.asyncio as aredis

from benchmarks.support.children import answer, read_job
from benchmarks.support.meters import Meter
from projections.events.codec import decode_event
from projections.events.types import MessageEvent
from projections.fold.apply import apply
from projections.names import Key, parse_key
from projections.policy.policy import Rules
from projections.window.bodies import message_body
from projections.window.window import Window
from streams.settings.settings import Settings

TAKE = 500
WITHIN = 0.2
KEEP = 400


class _App(faust.App):  # type: ignore[misc]
    def _create_directories(self) -> None:
        """Faust would make folders for tables in the working directory; there are no tables."""


class Folder:
    """The windows and how they are written."""

    def __init__(self, settings: Settings) -> None:
        self.redis = aredis.Redis.from_url(settings.redis)
        self.rules = Rules()
        self.windows: dict[Key, Window] = {}

    def fold(self, event: Any, new: dict[Key, list[bytes]]) -> None:
        """Decode and fold one event, and note what is to be written."""
        key = parse_key(event.message.key)
        if key is None:
            return
        decoded = decode_event(event.value)
        window = self.windows.get(key)
        if window is None:
            window = self.windows[key] = Window(key, event.message.partition, self.rules)
        apply(window, event.message.offset, decoded)
        bodies = new.setdefault(key, [])
        if isinstance(decoded, MessageEvent):
            bodies.append(message_body(decoded.data))

    async def write(self, new: dict[Key, list[bytes]]) -> None:
        """Write what the events changed."""
        pipe = self.redis.pipeline(transaction=False)
        for key, bodies in new.items():
            meta = self.windows[key].meta
            pipe.hset(f"faust:{key}:meta", mapping={"position": meta.position, "count": meta.count})
            pipe.rpush(f"faust:{key}:tail", *bodies)
            pipe.ltrim(f"faust:{key}:tail", -KEEP, -1)
        await pipe.execute()


def make_app(settings: Settings, groups: dict[str, list[int]], events: int, per_event: bool) -> Any:
    """The app; its process ends with an answer once ``events`` events are written."""
    app = _App(
        f"faust-{os.getpid()}",
        broker=f"kafka://{settings.kafka}",
        store="memory://",
        topic_disable_leader=True,
        topic_allow_declare=False,
        web_enabled=False,
        consumer_auto_offset_reset="earliest",
    )
    topic = app.topic(
        settings.topic("events"),
        key_type=bytes,
        value_type=bytes,
        key_serializer="raw",
        value_serializer="raw",
    )
    folder = Folder(settings)
    state: dict[str, Any] = {"done": 0}

    async def taken(batch: Any) -> None:
        if not state["done"]:
            state.update(begin=time.perf_counter(), meter=Meter(groups))
        new: dict[Key, list[bytes]] = {}
        for event in batch:
            folder.fold(event, new)
        await folder.write(new)
        state["done"] += len(batch)
        if state["done"] >= events:
            seconds = time.perf_counter() - state["begin"]
            answer(
                state["done"] / seconds,
                usage=state["meter"].stop(),
                events=state["done"],
                seconds=round(seconds, 3),
            )
            os._exit(0)  # nothing more of Faust is wanted, and its orderly end takes seconds

    @app.agent(topic)  # type: ignore[untyped-decorator]
    async def project(stream: Any) -> None:
        if per_event:
            async for event in stream.events():
                await taken([event])
        else:
            async for batch in stream.take_events(TAKE, within=WITHIN):
                await taken(batch)

    return app


if __name__ == "__main__":
    settings, groups, job = read_job()
    app = make_app(settings, groups, job["events"], job.get("per_event", False))
    faust.Worker(
        app, loglevel="error", quiet=True, redirect_stdouts=False
    ).execute_from_commandline()
