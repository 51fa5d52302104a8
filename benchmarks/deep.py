"""Figure `deep`: what one conversation of 1,000,000 events costs over one of 10,000.

Three conversations of 10,000, 100,000 and 1,000,000 messages lie in three partitions of one log,
with the summaries that the product's compactor wrote while they grew (their text alone is a fixed
one). A worker runs; the conversations are used as a gateway uses them. For each of them, in turn:

- ``append``: a message, until its window holds it
- ``context``: the context document after each of these
- ``newest``: the newest page of 50; ``half``: pages of 50 from the middle of the conversation
- ``rollback_near``: to the twentieth event from the end, until the window holds it
- ``rollback_far``: to the 5,000th event from the end, which is behind some twenty summaries
- ``rollback_half``: then to the event in its middle
- ``erase``: until the receipt is there

The first four are medians. Rollbacks and the erasure change the conversation, so they happen once,
and the figure has one round. The value is the worst ratio of the first four, largest conversation
over smallest; the table has all.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

from benchmarks.harness import Args, Measured, Result, Rounds, rounded, say
from benchmarks.support.flats import flats
from benchmarks.support.gateways import running_worker
from benchmarks.support.grown import grown_records
from benchmarks.support.stacks import filled_log, running_stack
from benchmarks.support.texts import TENANT
from projections.names import Key, partition_of
from threadfold.service.conversations import ConversationService
from threadfold.service.erasure import Eraser

SIZES = (10_000, 100_000, 1_000_000)
QUICK = (1_000, 2_000, 4_000)
PAGE, LONGEST_PAGE = 50, 500
NEAR, FAR = 20, 5_000
LIMIT = 300.0
FLAT = ("append", "context", "newest", "half")


class Deep:
    """The worst of four times in the largest conversation, over that in the smallest."""

    name = "deep"
    goal = "flat: at most 1.5 x from 10,000 to 1,000,000 events"

    async def run(self, args: Args) -> Result:
        """Grow the three, project them, and use each in turn."""
        sizes = QUICK if args.quick else SIZES
        times, far = (5, 500) if args.quick else (50, FAR)
        with running_stack() as bench:
            settings = bench.settings("deep")
            keys = _keys(len(sizes), settings.partitions)
            async with filled_log(settings, await grown_records(settings, keys, sizes)):
                pass
            async with AsyncExitStack() as stack:
                await stack.enter_async_context(running_worker(bench, settings))
                backend = await stack.enter_async_context(ConversationService(settings))
                begin = time.perf_counter()
                await backend.caught_up(range(settings.partitions), timeout=900)
                say(f"projected {sum(sizes)} events in {time.perf_counter() - begin:.1f} s")
                talks = [Talk(backend, key, size) for key, size in zip(keys, sizes, strict=True)]
                for talk in talks:
                    await talk.find_places(far)
                for talk in talks:
                    await talk.use(times)
                for talk in talks:
                    await talk.end()
        table = {str(talk.size): {k: rounded(v) for k, v in talk.ms.items()} for talk in talks}
        ratios = {name: rounded(talks[-1].ms[name] / talks[0].ms[name]) for name in talks[0].ms}
        rounds = Rounds(["ours"])
        rounds.taken["ours"].append(Measured(max(ratios[name] for name in FLAT)))
        made = rounds.result(
            self.name,
            "x of the smallest's (worst of append, context, pages)",
            {"sizes": list(sizes), "page": PAGE, "times": times, "near": NEAR, "far": far},
            better="lower",
            more={"table": table},
        )
        return Result(self.name, made.ours, made.unit, {}, ratios, made.conditions)


def _keys(count: int, partitions: int) -> list[Key]:
    """Conversations in partitions of their own."""
    found: dict[int, Key] = {}
    number = 0
    while len(found) < count:
        key = Key(TENANT, f"deep-{number}")
        found.setdefault(partition_of(key, partitions), key)
        number += 1
    return list(found.values())


class Talk:
    """One of the conversations, and the milliseconds that each thing took."""

    def __init__(self, backend: ConversationService, key: Key, size: int) -> None:
        self._backend = backend
        self._key = key
        self.size = size
        self.ms: dict[str, float] = {}
        self._cursor: str | None = None
        self._far = self._middle = ""

    async def find_places(self, far: int) -> None:
        """Page to the middle of the conversation, and note the event ``far`` from the end."""
        seen, middle = 0, self.size // 2
        while seen < middle:
            wanted = min((far if seen < far else middle) - seen, LONGEST_PAGE)
            page = await self._page(self._cursor, wanted)
            seen, self._cursor = seen + len(page["events"]), page["next_before"]
            self._middle = page["events"][-1]["position"]
            if seen == far:
                self._far = self._middle
        say(f"{self.size} events: paged to the middle")

    async def use(self, times: int) -> None:
        """What leaves the conversation as it is: the median of so many."""
        texts = flats(times)
        taken: dict[str, list[float]] = {name: [] for name in FLAT}
        for flat in texts:
            taken["append"].append(await _ms(lambda flat=flat: self._append(flat)))  # type: ignore[misc]
            taken["context"].append(await _ms(lambda: self._backend.context(*self._key)))
        for name, first in (("newest", None), ("half", self._cursor)):
            cursor = first
            for _ in range(times):
                begin = time.perf_counter()
                page = await self._page(cursor, PAGE)
                taken[name].append((time.perf_counter() - begin) * 1000)
                if first is not None:
                    cursor = page["next_before"] or first
        self.ms |= {name: statistics.median(values) for name, values in taken.items()}
        say(f"{self.size} events: {self.ms}")

    async def end(self) -> None:
        """What changes it, once each."""
        page = await self._page(None, NEAR + 1)
        near = {"type": "rollback", "to": page["events"][-1]["position"]}
        far = {"type": "rollback", "to": self._far}
        self.ms["rollback_near"] = await _ms(lambda: self._append(near))
        self.ms["rollback_far"] = await _ms(lambda: self._append(far))
        half = {"type": "rollback", "to": self._middle}
        self.ms["rollback_half"] = await _ms(lambda: self._append(half))
        eraser = Eraser(self._backend, _forget)
        self.ms["erase"] = await _ms(lambda: eraser.conversation(*self._key))
        say(f"{self.size} events: {self.ms}")

    async def _append(self, flat: dict[str, Any]) -> None:
        tenant, name = self._key
        appended = await self._backend.append(tenant, [(name, flat)])
        (applied,) = await self._backend.wait_applied(tenant, name, appended, timeout=LIMIT)
        if applied.status != "applied":
            raise RuntimeError(f"an event of {name} was not applied: {applied}")

    async def _page(self, before: str | None, limit: int) -> dict[str, Any]:
        return await self._backend.history(*self._key, before=before, limit=limit)


async def _ms(call: Callable[[], Awaitable[object]]) -> float:
    begin = time.perf_counter()
    await call()
    return (time.perf_counter() - begin) * 1000


async def _forget(*_: object) -> None:
    """There is no text in progress here."""


FIGURE = Deep()
