"""The demo from end to end: play, look, wipe Redis, compare every window byte for byte, and follow
a fact through the long-term memory.

The demo reads all it shows from Kafka and Redis, as any other reader would. A broken promise ends
the run with :class:`~threadfold.demo.watch.PromiseBroken`.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from projections.events import types as events
from projections.events.codec import decode_event
from projections.events.untrusted import Undecodable
from projections.names import Key
from projections.policy.policy import Rules
from projections.redis.store import RedisStore
from projections.storage.records import Checkpoint
from streams.control.control_topic import Control
from streams.log.kafka_log import KafkaLog
from streams.log.topics import create_topics
from streams.settings.settings import Settings
from threadfold.demo.display import Display, Progress
from threadfold.demo.memory import MemoryAct
from threadfold.demo.parts import (
    check_alive,
    delete_topics,
    end_of,
    flush,
    make_generation,
    worker_process,
)
from threadfold.demo.player import DemoPlayer
from threadfold.demo.sources import Script, interleave
from threadfold.demo.subscriber import Subscriber
from threadfold.demo.watch import PromiseBroken, Watch
from threadfold.embedded.process import GuardedProcess

LOOK_EVERY = 0.1
RATE_OVER = 5.0
"""Seconds over which events/s is averaged."""
START_LIMIT = 60.0
STALL_LIMIT = 90.0
"""Seconds without any progress after which a wait is given up: more than a summary may take
(``summary_time_cap``), also on a machine that is busy with other work.
"""
CALM = 1.5
"""Seconds without anything new after which the pipeline counts as settled."""


@dataclass(frozen=True)
class Place:
    """The settings, generation number and folder of a run, and which servers are its own."""

    settings: Settings
    generation: int
    folder: Path
    own_kafka: bool
    own_redis: bool
    keep: bool


class Demo:
    """One run; ``run`` does it all and keeps only what ``--keep`` names."""

    def __init__(self, place: Place, scripts: list[Script], seed: int, show: Display) -> None:
        self.place = place
        self.scripts = scripts
        self.seed = seed
        self.show = show
        self.settings = place.settings
        self.partitions = place.settings.partitions
        self.progress = Progress(total=sum(script.length for script in scripts))
        self.log = KafkaLog(self.settings, self.partitions)
        self.summaries = KafkaLog(self.settings, self.partitions, "summaries")
        self.store = RedisStore(self.settings.redis, self.settings.topic_prefix)
        self.player = DemoPlayer(self.log, self.progress.total, len(scripts))
        self.worker: GuardedProcess = worker_process(self.settings, place.folder)
        self.subscriber = Subscriber.of(self.settings, place.folder)
        self.watch: Watch
        self._rates: deque[tuple[float, int]] = deque()

    async def run(self) -> None:
        """Play everything and check every promise.

        Raises:
            PromiseBroken: one does not hold.
            ThreadfoldError: Kafka, Redis or a process failed.
        """
        async with AsyncExitStack() as closing:
            closing.push_async_callback(self._clean)
            await self._start(closing)
            await self._report(*await self._play())
            await self._wipe_and_compare()
            self.show.say("Long-term memory: three conversations of one user")
            await MemoryAct(self.settings, self.place.folder, self.show).run()
        self.show.quiet()

    # -- starting and ending
    # ------------------------------------------------------------------------------------------

    async def _start(self, closing: AsyncExitStack) -> None:
        await create_topics(self.settings)
        control = Control(self.settings)
        closing.push_async_callback(control.stop)
        await control.start()
        generation = await make_generation(control, self.place.generation, self.partitions)
        rules = Rules(generation.policy, generation.tenants)
        self.watch = Watch(
            self.store,
            generation.number,
            self.partitions,
            rules,
            [script.key for script in self.scripts],
        )
        for process in (self.worker, self.subscriber.process):
            process.start()
            closing.push_async_callback(asyncio.to_thread, process.stop)
        began = time.monotonic()
        await self._wait_for_worker()
        self.show.say(
            f"a worker (pid {self.worker.pid}) and a subscriber (pid {self.subscriber.process.pid})"
            f" run, ready after {time.monotonic() - began:.1f} s"
        )

    async def _wait_for_worker(self) -> None:
        deadline = time.monotonic() + START_LIMIT
        while not all(c is not None for c in await self.watch.checkpoints()):
            self._check_processes()
            if time.monotonic() > deadline:
                raise PromiseBroken(
                    f"the worker is not ready after {START_LIMIT:g} s; its log"
                    f" ends:{self._worker_log()}"
                )
            await asyncio.sleep(0.05)

    async def _clean(self) -> None:
        """Runs last, after the worker: removes this run's own data from configured servers."""
        self.show.quiet()
        if not self.place.own_redis and not self.place.keep:
            await self.store.drop_generation(self.place.generation, self.partitions)
        await self.summaries.stop()
        await self.log.stop()
        await self.store.close()
        if not self.place.own_kafka and not self.place.keep:
            wrong = await delete_topics(self.settings)
            if wrong:
                self.show.say(wrong)

    def _check_processes(self) -> None:
        check_alive(self.worker, "worker", self.place.folder / "worker.log")
        check_alive(self.subscriber.process, "subscriber", self.subscriber.output)

    # -- playing
    # ------------------------------------------------------------------------------------------

    async def _play(self) -> tuple[float, float]:
        """Play all scripts until the pipeline has settled; returns the seconds until all events
        were applied, and until all summaries were made and received, too.
        """
        self.progress.began = began = time.monotonic()
        playing = asyncio.create_task(self.player.play(interleave(self.scripts, self.seed)))
        try:
            applied_at, settled_at = await self._follow(playing)
        finally:
            playing.cancel()
            await asyncio.gather(playing, return_exceptions=True)
            self.show.quiet()
        return applied_at - began, settled_at - began

    async def _follow(self, playing: asyncio.Task[None]) -> tuple[float, float]:
        """Observe until all is applied and nothing moves; returns the time of the last apply, and
        since when nothing has moved.
        """
        moved = calm = time.monotonic()
        applied_at, before, last_ends = 0.0, (-1,) * 5, {-1: -1}
        while True:
            if playing.done():
                playing.result()
            self._check_processes()
            await self._observe()
            p, now = self.progress, time.monotonic()
            if not applied_at and p.applied == p.total:
                applied_at = now
            state = (p.appended, p.applied, p.due, p.accepted, p.received)
            ends = await self.log.end_offsets()
            moved = now if state != before else moved
            calm = now if ends != last_ends or state != before else calm
            before, last_ends = state, ends
            settled = (
                playing.done()
                and p.applied == p.total
                and p.due == 0
                and p.received == p.accepted
                and await self._caught_up()
            )
            if settled and now - calm > CALM:
                return applied_at, calm
            if now - moved > STALL_LIMIT:
                raise PromiseBroken(
                    f"nothing moved for {STALL_LIMIT:g} s with {p.total - p.applied:,} events to"
                    f" apply, {p.due} summaries due, {p.accepted - p.received} summaries not"
                    f" received; the worker's log ends:{self._worker_log()}"
                )
            await asyncio.sleep(LOOK_EVERY)

    def _worker_log(self) -> str:
        return end_of(self.place.folder / "worker.log")

    async def _caught_up(self) -> bool:
        ends = await self.log.end_offsets()
        return all(
            c is not None and not c.healing and c.offset + 1 == ends[p]
            for p, c in enumerate(await self.watch.checkpoints())
        )

    async def _observe(self) -> None:
        """Measure everything once and show it."""
        p, watch = self.progress, self.watch
        self.player.observe(await watch.checkpoints(), await watch.due())
        await watch.look()
        self.subscriber.read()
        p.appended, p.applied, p.due = self.player.appended, self.player.applied, self.player.due
        p.accepted = sum((await self.summaries.end_offsets()).values())
        p.received = self.subscriber.records
        p.windows, p.renders, p.biggest = len(watch.gauges), watch.looks, watch.biggest
        p.within, fullest = watch.within, watch.fullest
        if fullest is not None:
            p.fullest_name, p.fullest = str(fullest[0]), fullest[1]
        p.sample, p.sample_of = self.subscriber.sample, self.subscriber.sample_of
        now = time.monotonic()
        self._rates.append((now, p.applied))
        while now - self._rates[0][0] > RATE_OVER:
            self._rates.popleft()
        since, applied = self._rates[0]
        p.rate = (p.applied - applied) / (now - since) if now > since else 0.0
        if not p.due:
            p.sustained = p.applied / (now - p.began)
        self.show.update(p)

    # -- the report
    # ------------------------------------------------------------------------------------------

    async def _report(self, seconds: float, settled: float) -> None:
        windows = await self.watch.all_windows()
        missing = [str(script.key) for script in self.scripts if script.key not in windows]
        if missing:
            raise PromiseBroken(
                f"{len(missing)} conversations have no window: {', '.join(missing[:3])}"
            )
        self.watch.judge_exactly(windows)
        active = {w.meta.summary.summary_id for w in windows.values() if w.meta.summary is not None}
        missed = active - self.subscriber.received
        if missed:
            raise PromiseBroken(
                f"the subscriber did not receive {len(missed)} active summaries, among them"
                f" {min(missed)}"
            )
        written = await self._summaries_in_log()
        renders = sum(gauge.render for gauge in self.watch.gauges.values())
        big = self.watch.biggest
        p, player = self.progress, self.player
        speed = f"{player.appended / seconds:,.0f} events/s"
        sustained = f"{player.appended / settled:,.0f} events/s"
        received = f"{len(self.subscriber.received):,} accepted and received by the subscriber"
        within = f"{self.watch.within:,} of {len(windows):,} within their working budget"
        tenants = len({key.tenant for key in windows})
        rows = [
            ("conversations", f"{len(windows):,} of {tenants} tenants"),
            ("events", f"{player.appended:,} played and applied in {seconds:.1f} s ({speed})"),
            ("with summaries", f"every summary made after {settled:.1f} s ({sustained})"),
            ("compactions", f"{written:,} summaries in the log, {received}"),
            ("summaries voided", f"{len(self.subscriber.voided):,}, by rollbacks into their spans"),
            ("tokens in the log", f"{player.tokens:,}"),
            ("tokens in the windows", f"{renders:,} ({renders / player.tokens:.1%})"),
            ("renders judged", f"{p.renders:,}: every one valid, none above its ceiling"),
            ("windows at the end", f"{within}, {player.due} wait for a summary"),
        ]
        if big is not None:
            size = f"{big.render:,} tokens, its ceiling is {big.ceiling:,}"
            rows.append(("biggest render", size))
        self.show.table("Results", rows)
        if not written:
            raise PromiseBroken("no compaction happened")

    async def _summaries_in_log(self) -> int:
        count = 0
        for partition, end in (await self.log.end_offsets()).items():
            async for raw in self.log.scan(partition, 0, end - 1):
                if b"threadfold.summary.v1" in (raw.value or b""):
                    count += _is_summary(raw.value or b"")
        return count

    # -- the wipe
    # ------------------------------------------------------------------------------------------

    async def _wipe_and_compare(self) -> None:
        before = {key: window.image() for key, window in (await self.watch.all_windows()).items()}
        marks = await self.watch.checkpoints()
        began = time.monotonic()
        if self.place.own_redis:
            keys = await flush(self.settings.redis)
            self.show.say(f"Redis is wiped: FLUSHALL deleted {keys:,} keys")
        else:
            keys = await self.store.drop_generation(self.place.generation, self.partitions)
            self.show.say(f"this run's {keys:,} keys are deleted from the configured Redis")
        healing = await self._healing()
        self.show.say(f"reads now: {healing} of {len(before)} windows answer `healing`")
        if not healing:
            raise PromiseBroken("no read answered `healing` after the wipe")
        await self._heal(marks, before)
        seconds = time.monotonic() - began
        after = {key: window.image() for key, window in (await self.watch.all_windows()).items()}
        same = sum(after.get(key) == image for key, image in before.items())
        records = sum((await self.log.end_offsets()).values())
        self.show.say(
            f"every partition is back after {seconds:.1f} s, from snapshots and a log of"
            f" {records:,} records"
        )
        self.show.say(f"{same} of {len(before)} windows byte-identical")
        if same != len(before) or after.keys() != before.keys():
            wrong = next(key for key in before if after.get(key) != before[key])
            raise PromiseBroken(
                f"{len(before) - same} windows differ from those before the wipe, among them"
                f" {wrong}"
            )

    async def _healing(self) -> int:
        """How many windows answer `healing` now."""
        return sum(
            len(self.watch.keys[p])
            for p, c in enumerate(await self.watch.checkpoints())
            if c is None or c.healing
        )

    async def _heal(self, marks: list[Checkpoint | None], before: dict[Key, bytes]) -> None:
        """Wait until each partition has healed. Its windows must equal those before the wipe."""
        left = {p: mark.offset for p, mark in enumerate(marks) if mark is not None}
        deadline = time.monotonic() + STALL_LIMIT + len(before) * 0.5
        while left:
            self._check_processes()
            for p in list(left):
                checkpoint, stored = await self.store.read(
                    self.place.generation, p, self.watch.keys[p]
                )
                if checkpoint is None or not checkpoint.whole:
                    continue
                for key, parts in zip(self.watch.keys[p], stored, strict=True):
                    if parts is None or parts.load(key, p, self.watch.rules).image() != before[key]:
                        raise PromiseBroken(
                            f"{key} was served at offset {checkpoint.offset} of {left[p]} and"
                            " differs from the window before the wipe"
                        )
                if checkpoint.offset >= left[p]:
                    del left[p]
            if time.monotonic() > deadline:
                raise PromiseBroken(
                    f"partitions {sorted(left)} did not heal; the worker's log"
                    f" ends:{self._worker_log()}"
                )
            await asyncio.sleep(0.05)


def _is_summary(value: bytes) -> bool:
    try:
        return isinstance(decode_event(value), events.SummaryEvent)
    except Undecodable:
        return False
