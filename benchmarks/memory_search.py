"""Figure `memory_search`: how long a search of the long-term memory takes.

A memory store and an index of turns in files hold real chat of 1,000 tenants: half of the texts are
records, half are turns. Searches ask for both, with real messages as queries, one after another in
one process, without a network. ``ours`` is p99 at the larger size, over tenants at random; the
peers are other tenants and sizes in the same run. ``flat`` is of a tenant that is the same at both
sizes; ``large`` is of one with 10,000 texts of one user, searched whole.
"""

from __future__ import annotations

import asyncio
import random
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import count, islice
from pathlib import Path

from benchmarks.harness import Args, Measured, Result, interleave, percentile, rounded, say
from benchmarks.support.texts import memory, text
from projections.events.types import (
    Message,
    MessageEvent,
    Opened,
    OpenedEvent,
)
from projections.memory.news import Fact
from projections.names import Key, Position
from streams.memory.sqlite_store import SqliteMemories
from streams.memory.store import Filter
from streams.memory.turns import Said, SqliteTurns
from threadfold.service.question import Question
from threadfold.service.recall import Recall

TENANTS, USERS = 1_000, 10
SMALL, LARGE = ("small", 1_000), ("large", 10_000)
"""Tenants that are the same at every size, and how many texts they have."""
AT_ONCE = 10_000
DAY = 86_400_000_000
NOW = 1_760_000_000_000_000
"""Microseconds since 1970."""


class MemorySearch:
    """Milliseconds of a search, p99."""

    name = "memory_search"
    goal = "p99 at most 30 ms at 100,000 texts, 60 ms at 1,000,000; flat in other tenants' size"

    async def run(self, args: Args) -> Result:
        """Fill both sizes, then search them in turn."""
        few, many = (2_000, 20_000) if args.quick else (100_000, 1_000_000)
        searches = 100 if args.quick else 1_000
        folder = Path(tempfile.mkdtemp(prefix="memory-search-"))
        try:
            sizes = {size: _Filled(folder / str(size), size) for size in (few, many)}
            tenants = [f"tenant-{n}" for n in range(TENANTS)]
            sides = {
                "ours": partial(sizes[many].search, tenants, searches),
                f"{few}": partial(sizes[few].search, tenants, searches),
                "flat": partial(sizes[many].search, [SMALL[0]], searches),
                f"flat_{few}": partial(sizes[few].search, [SMALL[0]], searches),
                "large": partial(sizes[many].search, [LARGE[0]], searches),
                f"large_{few}": partial(sizes[few].search, [LARGE[0]], searches),
            }
            rounds = await interleave(sides, args.rounds())
            for one in sizes.values():
                one.close()
        finally:
            shutil.rmtree(folder)
        parameters = {
            "texts": [few, many],
            "tenants": TENANTS,
            "searches": searches,
            "same": dict((SMALL, LARGE)),
        }
        table = {name: dict(taken[-1].more) for name, taken in rounds.taken.items()}
        return rounds.result(self.name, "ms", parameters, better="lower", more={"table": table})


class _Filled:
    """A memory of so many texts, beside the tenants that are always the same."""

    def __init__(self, folder: Path, size: int) -> None:
        folder.mkdir()
        begin = time.perf_counter()
        self._store = SqliteMemories(folder / "memories.db", building=True)
        self._turns = SqliteTurns(folder / "turns.db", building=True)
        sizes = [(f"tenant-{n}", size // TENANTS) for n in range(TENANTS)]
        numbers = count()
        for tenant, texts in (SMALL, LARGE, *sizes):
            self._fill(tenant, texts, numbers)
        self._store.finish()
        self._turns.finish()
        self._recall = Recall(self._store, self._turns)
        say(f"{size} texts: {time.perf_counter() - begin:.0f} s")

    def _fill(self, tenant: str, texts: int, numbers: Iterator[int]) -> None:
        rng = random.Random(tenant)
        users = 1 if tenant == LARGE[0] else USERS
        said: list[Said] = []
        for user in range(users):
            log = Key(tenant, f"chat-{user}")
            said += self._turns_of(log, f"user-{user}", texts // users // 2, rng, numbers)
        for some in _chunks(said, AT_ONCE):
            self._turns.apply(some, {})
        facts = [_fact(tenant, n, users, rng, numbers) for n in range(texts // 2)]
        for part in _chunks(facts, AT_ONCE):
            self._store.apply(part, {})

    @staticmethod
    def _turns_of(
        log: Key, user: str, turns: int, rng: random.Random, numbers: Iterator[int]
    ) -> Iterator[Said]:
        for n in range(turns + 1):
            offset = next(numbers)
            kind, data = OpenedEvent, Opened(user=user)
            if n:
                role = "user" if n % 2 else "assistant"
                kind, data = MessageEvent, Message(role, text(rng, 80))  # type: ignore[assignment,arg-type]
            event = kind(specversion="1.0", id=f"e{offset}", source=log.source, data=data)
            yield Said(log, Position(0, offset), NOW - n * DAY // 24, event)

    async def search(self, tenants: Sequence[str], searches: int) -> Measured:
        """Search again and again, with what people really said."""
        rng = random.Random(searches)
        taken: list[float] = []
        for _ in range(searches):
            tenant = rng.choice(tenants)
            user = None if tenant == LARGE[0] else f"user-{rng.randrange(USERS)}"
            question = Question(Filter(tenant, user=user), text(rng, rng.choice((30, 80, 200))))
            begin = time.perf_counter()
            await self._recall.ask(question)
            taken.append(1_000 * (time.perf_counter() - begin))
            await asyncio.sleep(0)
        more = {"p50_ms": rounded(percentile(taken, 0.5)), "most_ms": rounded(max(taken))}
        return Measured(percentile(taken, 0.99), more=more)

    def close(self) -> None:
        """Let go of the files."""
        self._store.close()
        self._turns.close()


def _fact(tenant: str, n: int, users: int, rng: random.Random, numbers: Iterator[int]) -> Fact:
    user = f"user-{n % users}"
    log = Key(tenant, f"chat-{n % users}")
    return Fact(log, next(numbers), NOW - n * DAY // 24, (), memory(rng, log, user, n))


def _chunks(things: Sequence, size: int) -> Iterator[Sequence]:  # type: ignore[type-arg]
    left = iter(things)
    while part := list(islice(left, size)):
        yield part


FIGURE = MemorySearch()
