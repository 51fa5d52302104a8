"""Figure `hibernation`: 100,000 conversations of which one in a hundred is active: what Redis holds
of them, and how fast the others wake.

The log holds conversations of 6 to 200 messages (:data:`LENGTHS`), mixed as a busy platform mixes
them: all speak in turns, so a conversation's events lie far apart. A projector folds them; then a
worker as ``threadfold worker`` runs it puts the idle ones to sleep, while events go on coming in
the active ones. Each round reads sleeping conversations and speaks in others, each of them once,
one every :data:`PAUSE` seconds, beside that light load:

- ``ours``: a context document of a sleeping conversation, through the backend, which has nothing of
  it;
- ``read_awake``: the same of an active one;
- ``event``: from an append's acknowledgement in a sleeping conversation to its window having it;
  ``event_awake`` in an active one;
- ``scattered``: fetching the events of a sleeping window's tail at their positions, which is what a
  read would have to wait for at least if the snapshot did not carry the text.

All are p99 in ms; the table has the rest. ``MEMORY USAGE`` of stubs is Redis' own account of their
keys; a conversation's places in the lists of its tenant and of what is idle are not in it, and are
in ``redis_mib``.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import redis.asyncio as aredis
from msgspec.structs import replace

from benchmarks.harness import Args, Measured, Result, interleave, percentile, rounded, say
from benchmarks.support.children import job_of, run_side, start_side
from benchmarks.support.stacks import Bench, filled_log, running_stack
from benchmarks.support.texts import TENANT, Messages, conversation
from projections.events.validation import Record
from projections.names import Key, Position, partition_of
from projections.storage.stubs import STUB, decode_stub
from streams.settings.settings import Settings
from threadfold.service.conversations import ConversationService

CONVERSATIONS = 100_000
SAMPLES = 1_000
"""Reads, and events, of each kind in a round."""
LENGTHS = (6,) * 10 + (20,) * 6 + (60,) * 3 + (200,)
"""Messages in conversations: of twenty, ten have 6, six have 20, three have 60, one has 200: 28 on
average.
"""
ACTIVE = 100
"""One conversation in so many is active."""
REST = 60.0
"""Seconds after which an idle conversation goes to sleep here; the active ones speak more often."""
RATE = 50.0
"""Events a second in active conversations meanwhile."""
PAUSE = 0.02
PARTITIONS = 16
SAMPLE = 300


class Hibernation:
    """Milliseconds to wake, and bytes asleep."""

    name = "hibernation"
    goal = (
        "p99 of reads and events of sleeping conversations at most 300 ms; a stub at most 300 bytes"
    )

    async def run(self, args: Args) -> Result:
        """Put them to sleep once, and wake some in every round."""
        count, samples = (2_000, 60) if args.quick else (CONVERSATIONS, SAMPLES)
        with running_stack() as bench:
            base = bench.settings(
                "hibernation",
                partitions=PARTITIONS,
                hibernate_after=0.0,
                log_level="warning",
                read_cache_bytes=0,
            )
            empty = bench.used_memory()
            async with filled_log(base, _records(count)):
                pass
            folded = await run_side("projector", bench, base, whole=False)
            awake = bench.used_memory() - empty
            say(
                f"folded {folded.more['events']} events in {folded.more['seconds']} s:"
                f" {awake / count:,.0f} bytes of Redis a conversation"
            )
            settings = replace(base, hibernate_after=20.0 if args.quick else REST)
            async with _worker(bench, settings), ConversationService(settings) as backend:
                ward = _Ward(backend, settings, count, samples)
                table: dict[str, Any] = {"asleep": await ward.all_asleep()}
                table["memory"] = await ward.memory(bench, empty, awake)
                rounds = await interleave(ward.sides(), args.rounds())
                table["latency_ms"] = {name: taken[-1].more for name, taken in rounds.taken.items()}
                table["healed"] = await ward.healed(bench)
                await ward.stop()
        parameters = {
            "conversations": count,
            "active": count // ACTIVE,
            "events": folded.more["events"],
            "samples": samples,
            "events_s": RATE,
        }
        return rounds.result(
            self.name, "ms (p99, read)", parameters, better="lower", more={"table": table}
        )


@asynccontextmanager
async def _worker(bench: Bench, settings: Settings) -> AsyncIterator[None]:
    worker = await start_side("worker", job_of(bench, settings))
    try:
        yield
    finally:
        worker.terminate()
        await worker.communicate()


def _records(count: int) -> Iterator[Record]:
    """All conversations' messages, in turns: in each turn every conversation speaks that is not at
    its end.
    """
    messages, number = Messages(), 0
    for turn in range(max(LENGTHS)):
        for place in range(count):
            if turn < LENGTHS[place % len(LENGTHS)]:
                yield messages.template(turn, place).record(conversation(place), number)
                number += 1


class _Ward:
    """The conversations, those that are active among them, and what is asked of each."""

    def __init__(
        self, backend: ConversationService, settings: Settings, count: int, samples: int
    ) -> None:
        self.backend = backend
        self.settings = settings
        self.samples = samples
        self.count = count
        self.active = [conversation(i) for i in range(0, count, ACTIVE)]
        others = [conversation(i) for i in range(count) if i % ACTIVE]
        random.Random(5).shuffle(others)
        self._others = iter(others)
        self.redis = aredis.Redis.from_url(settings.redis)
        self._load = asyncio.create_task(self._speak())

    async def stop(self) -> None:
        """End the load."""
        self._load.cancel()
        await asyncio.gather(self._load, return_exceptions=True)
        await self.redis.aclose()

    async def _speak(self) -> None:
        """Events in the active conversations, in turn; each gets one well before it would fall
        asleep.
        """
        pause = min(1 / RATE, self.settings.hibernate_after / 3 / len(self.active))
        n = 0
        while True:
            await self._append(self.active[n % len(self.active)], "the load goes on")
            n += 1
            await asyncio.sleep(pause)

    async def _append(self, key: Key, text: str) -> Position:
        (done,) = await self.backend.append(
            key.tenant, [(key.conversation, {"type": "message", "role": "user", "content": text})]
        )
        return done.position

    async def all_asleep(self) -> dict[str, Any]:
        """Wait until only the active ones are awake; returns how long that took."""
        begin = time.perf_counter()
        names = [f"{self.settings.topic_prefix}:{{1:{p}}}:idle" for p in range(PARTITIONS)]
        first, first_at = 0, begin
        while True:
            awake = sum([int(await self.redis.zcard(name)) for name in names])
            now = time.perf_counter()
            if not first and awake < self.count:
                first, first_at = awake, now
            if awake <= len(self.active):
                break
            if now - begin > 3_600:
                raise RuntimeError(f"{awake} conversations are still awake after an hour")
            await asyncio.sleep(0.5)
        seconds = now - first_at
        say(f"{first - awake} fell asleep in {seconds:.1f} s")
        return {
            "seconds": round(seconds, 1),
            "a_second": round((first - awake) / max(seconds, 0.5)),
        }

    async def memory(self, bench: Bench, empty: int, awake: int) -> dict[str, Any]:
        """What Redis holds now, and what a stub and its record take."""
        asleep = bench.used_memory() - empty
        stubs, records = [], []
        for key in [conversation(i) for i in range(self.count) if i % ACTIVE][: SAMPLE * 5 : 5]:
            partition = partition_of(key, PARTITIONS)
            name = f"{self.settings.topic_prefix}:{{1:{partition}}}:w:{key}"
            stubs.append(int(await self.redis.memory_usage(name) or 0))
            _, fields = await self.backend.store.fields(1, partition, key, [STUB])
            at = decode_stub(fields[STUB]).at
            records.append(
                len((await self.backend.snapshots.read(partition, [at]))[at].value or b"")
            )
        found = {
            "redis_mib": {"awake": rounded(awake / 2**20), "asleep": rounded(asleep / 2**20)},
            "bytes_a_conversation": {
                "awake": round(awake / self.count),
                "asleep": round(asleep / self.count),
            },
            "stub_bytes": {
                "mean": round(sum(stubs) / len(stubs)),
                "max": max(stubs),
                "key_length": len(name),
            },
            "record_bytes": {"mean": round(sum(records) / len(records)), "max": max(records)},
        }
        say(f"{found}")
        return found

    def sides(self) -> dict[str, Callable[[], Awaitable[Measured]]]:
        """What is measured in each round."""
        return {
            "ours": partial(self._measured, self._read, asleep=True),
            "read_awake": partial(self._measured, self._read, asleep=False),
            "event": partial(self._measured, self._event, asleep=True),
            "event_awake": partial(self._measured, self._event, asleep=False),
            "scattered": partial(self._measured, self._scattered, asleep=True),
        }

    async def _measured(
        self, ask: Callable[[Key], Coroutine[Any, Any, float]], *, asleep: bool
    ) -> Measured:
        """Ask of conversations one after another, each at its time, whether the one before is done
        or not.
        """
        keys = (
            [next(self._others) for _ in range(self.samples)]
            if asleep
            else random.Random(6).choices(self.active, k=self.samples)
        )
        tasks: list[asyncio.Task[float]] = []
        for key in keys:
            tasks.append(asyncio.create_task(ask(key)))
            await asyncio.sleep(PAUSE)
        times = [1e3 * seconds for seconds in await asyncio.gather(*tasks)]
        more = {
            f"p{round(100 * share)}": round(percentile(times, share), 1)
            for share in (0.5, 0.9, 0.99)
        }
        return Measured(percentile(times, 0.99), {}, {**more, "max": round(max(times), 1)})

    async def _read(self, key: Key) -> float:
        begin = time.perf_counter()
        await self.backend.context(key.tenant, key.conversation)
        return time.perf_counter() - begin

    async def _event(self, key: Key) -> float:
        position = await self._append(key, "is anybody there?")
        begin = time.perf_counter()
        await self.backend.wait_for(position)
        return time.perf_counter() - begin

    async def _scattered(self, key: Key) -> float:
        window = await self.backend.window(key.tenant, key.conversation)
        positions = [Position(window.partition, entry.offset) for entry in window.tail]
        begin = time.perf_counter()
        rows = await self.backend.log.read(positions)
        if len(rows) != len(positions):
            raise RuntimeError(f"{key}: the log does not hold its tail")
        return time.perf_counter() - begin

    async def healed(self, bench: Bench) -> dict[str, Any]:
        """Empty Redis, and wait until all partitions answer again."""
        begin = time.perf_counter()
        bench.flush()
        while True:
            checkpoints = [await self.backend.store.checkpoint(1, p) for p in range(PARTITIONS)]
            if all(c is not None and not c.healing and c.offset >= 0 for c in checkpoints):
                break
            if time.perf_counter() - begin > 3_600:
                raise RuntimeError("the partitions have not healed after an hour")
            await asyncio.sleep(0.2)
        seconds = time.perf_counter() - begin
        there = await self._there(
            [conversation(i) for i in range(0, self.count, max(1, self.count // SAMPLE))]
        )
        say(f"healed in {seconds:.1f} s")
        return {"seconds": round(seconds, 1), "sampled": there}

    async def _there(self, keys: Sequence[Key]) -> int:
        """How many of these have a window again, with as many events as the log has at least; all,
        or it is an error.
        """
        for key in keys:
            window = await self.backend.window(TENANT, key.conversation)
            if window.meta.count < LENGTHS[int(key.conversation[-7:]) % len(LENGTHS)]:
                raise RuntimeError(f"the window of {key} came back with {window.meta.count} events")
        return len(keys)


FIGURE = Hibernation()
