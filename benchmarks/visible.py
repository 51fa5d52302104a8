"""Figure `visible`: from an append's acknowledgement to its being readable in the window, at 5,000
events a second.

This process appends through the backend (``ConversationService.append``, as the gateway does) in
lists of 50 events, each of another conversation: that spreads a list over all partitions
(`turns_of_ten` has ten of each of five conversations, like agents' turns). Lists come on a fixed
schedule that does not wait for answers; a worker as ``threadfold worker`` runs it folds them in
another process. For every second append one of its events is followed: its partition's checkpoint
is read until it is at or past the event. Reads come half a millisecond apart, which is in the
figure. The first seconds are a warm-up.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from benchmarks.harness import Args, Measured, Result, interleave, percentile
from benchmarks.support.children import job_of, start_side
from benchmarks.support.gateways import until_applied
from benchmarks.support.meters import Meter
from benchmarks.support.stacks import Bench, filled_log, running_stack
from benchmarks.support.texts import TENANT, conversation, text
from threadfold.service.append_result import Appended
from threadfold.service.conversations import ConversationService

LIST = 50
SPREAD = 50
TURNS = 5
"""Conversations in one list: each event of another one, or ten of each."""
CONVERSATIONS = 1_000
GIVE_UP = 10.0


@dataclass(slots=True)
class Seen:
    """Times in seconds: from call to acknowledgement, from there to the window, and how late calls
    began.
    """

    acknowledged: list[float] = field(default_factory=list)
    visible: list[float] = field(default_factory=list)
    late: list[float] = field(default_factory=list)
    events: int = 0


class Visible:
    """Milliseconds from acknowledged to readable."""

    name = "visible"
    goal = "p50 at most 15 ms, p99 at most 50 ms, at 5,000 events/s"

    async def run(self, args: Args) -> Result:
        """Offer the load, with a fresh topic and worker each round."""
        rate, seconds, warm = (2_000, 3.0, 2.0) if args.quick else (5_000, 20.0, 5.0)
        with running_stack() as bench:
            rounds = await interleave(
                {
                    "ours": partial(_round, bench, rate, seconds, warm, SPREAD),
                    "turns_of_ten": partial(_round, bench, rate, seconds, warm, TURNS),
                },
                args.rounds(),
            )
        table = {
            name: [{"p50_ms": m.value, **m.more} for m in taken]
            for name, taken in rounds.taken.items()
        }
        parameters = {
            "events_s": rate,
            "list": LIST,
            "conversations_a_list": SPREAD,
            "conversations": CONVERSATIONS,
            "partitions": 16,
            "seconds": seconds,
        }
        return rounds.result(
            self.name, "ms (p50)", parameters, better="lower", more={"table": table}
        )


_rounds = iter(range(10**9))


async def _round(bench: Bench, rate: int, seconds: float, warm: float, spread: int) -> Measured:
    bench.flush()
    settings = bench.settings(f"visible{next(_rounds)}", log_level="warning")
    async with filled_log(settings, ()):
        pass
    worker = await start_side("worker", job_of(bench, settings))
    try:
        async with ConversationService(settings) as backend:
            first = await backend.append(
                TENANT,
                [
                    (
                        conversation(0).conversation,
                        {"type": "message", "role": "user", "content": "Hello"},
                    )
                ],
            )
            await backend.wait_applied(TENANT, conversation(0).conversation, first, timeout=60)
            items = _items(20_000, spread)
            await _offer(backend, items, rate, warm, Seen())
            seen, groups = Seen(), {"appender": [os.getpid()], "worker": [worker.pid], **bench.pids}
            meter = Meter(groups)
            await _offer(backend, items, rate, seconds, seen)
            usage = meter.stop()
            achieved = seen.events / meter.seconds
    finally:
        worker.terminate()
        await worker.communicate()
    if achieved < 0.95 * rate:
        raise RuntimeError(
            f"only {achieved:.0f} of {rate} events/s were appended: the machine is too slow or too"
            " busy for this figure"
        )
    return Measured(_ms(seen.visible, 0.5), usage, _more(seen, achieved))


def _more(seen: Seen, achieved: float) -> dict[str, Any]:
    return {
        "p99_ms": _ms(seen.visible, 0.99),
        "max_ms": _ms(seen.visible, 1.0),
        "acknowledged_p50_ms": _ms(seen.acknowledged, 0.5),
        "acknowledged_p99_ms": _ms(seen.acknowledged, 0.99),
        "calls_late_p99_ms": _ms(seen.late, 0.99),
        "samples": len(seen.visible),
        "events_s": round(achieved),
    }


def _ms(times: list[float], share: float) -> float:
    return round(percentile(times, share) * 1e3, 2)


def _items(count: int, spread: int) -> list[tuple[str, object]]:
    """Flat events of conversations in turn; ids are left to the backend, so a list can be offered
    again.
    """
    rng = random.Random(3)
    made: list[tuple[str, object]] = []
    for i in range(count):
        place = (i // LIST * spread + i % spread) % CONVERSATIONS
        content = text(rng, round(164 * rng.uniform(0.5, 1.5)))
        made.append(
            (
                conversation(place).conversation,
                {
                    "type": "message",
                    "role": ("user", "assistant")[i % LIST // spread % 2],
                    "content": content,
                },
            )
        )
    return made


async def _offer(
    backend: ConversationService,
    items: list[tuple[str, object]],
    rate: int,
    seconds: float,
    seen: Seen,
) -> None:
    """Start an append every ``LIST / rate`` seconds, whatever became of the ones before, and follow
    every second one.
    """
    begin, pause = time.perf_counter(), LIST / rate
    running: set[asyncio.Task[None]] = set()
    for number in range(int(seconds / pause)):
        due = begin + number * pause
        if (early := due - time.perf_counter()) > 0:
            await asyncio.sleep(early)
        seen.late.append(max(0.0, time.perf_counter() - due))
        at = number * LIST % len(items)
        task = asyncio.create_task(_append(backend, items[at : at + LIST], number, seen))
        running.add(task)
        task.add_done_callback(running.discard)
    await asyncio.gather(*running)


async def _append(
    backend: ConversationService, items: list[tuple[str, object]], number: int, seen: Seen
) -> None:
    begin = time.perf_counter()
    appended = await backend.append(TENANT, items)
    acknowledged = time.perf_counter()
    seen.acknowledged.append(acknowledged - begin)
    seen.events += len(items)
    if number % 2 == 0:
        await _follow(backend, appended[number % len(appended)], acknowledged, seen)


async def _follow(backend: ConversationService, item: Appended, since: float, seen: Seen) -> None:
    await until_applied(backend, item.position, GIVE_UP)
    seen.visible.append(time.perf_counter() - since)


FIGURE = Visible()
