"""Figure `fair`: how long others wait for a summary beside a tenant with 10,000 of them due.

All conversations are a real agent's, with one policy: a summary of 10,000 tokens is due at 12,000
(by default at 30,000; the spans are as long, and the log is a third as large). In the side with the
backlog, 10,000 conversations of one tenant are folded by a projector alone before the worker
starts, so that each waits for its summary. Then two other tenants go on, each with two
conversations: a list of 10,000 tokens makes a window due, and its summary is waited for; half a
second later the next list comes. The value is the p99 of the time from due to accepted, of all
rounds, over that of a worker without the backlog. Who waits for longer than ``LIMIT`` counts with
that and is reported; so does what is left of the backlog.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.harness import (
    Args,
    Measured,
    Result,
    interleave,
    percentile,
    rounded,
)
from benchmarks.support.agent_talks import AgentRecords, source, talk
from benchmarks.support.awaited import Family, watched
from benchmarks.support.due import fold_without_compactor
from benchmarks.support.gateways import running_worker
from benchmarks.support.stacks import Bench, running_stack
from projections.names import Key
from projections.window.bodies import to_flat
from threadfold.service.conversations import ConversationService

POLICY = {"working_budget": 12_000, "keep_recent_tokens": 2_000}
DUE, MESSAGES = 10_000, 160
OTHERS = {"other-a": 2, "other-b": 2}
LIST = 130
PAUSE, LOOK = 0.5, 0.002
LIMIT = 60.0


class Fair:
    """The p99 of others' waits for summaries beside a backlog, over that alone."""

    name = "fair"
    goal = "p99 at most 1.5 x alone"

    async def run(self, args: Args) -> Result:
        """Each side on topics and a worker of its own, in turn."""
        due, seconds = (60, 5.0) if args.quick else (DUE, 30.0)
        with TemporaryDirectory() as folder, running_stack() as bench:
            policy = Path(folder) / "policy.json"
            policy.write_text(json.dumps(POLICY))
            rounds = await interleave(
                {
                    "ours": partial(_round, bench, policy, seconds, due),
                    "alone": partial(_round, bench, policy, seconds, 0),
                },
                args.rounds(),
            )
        pooled = {
            name: [ms for one in taken for ms in one.more["waits_ms"]]
            for name, taken in rounds.taken.items()
        }
        table = {
            name: [{k: v for k, v in one.more.items() if k != "waits_ms"} for one in taken]
            for name, taken in rounds.taken.items()
        }
        parameters = {"due": due, "seconds": seconds, "others": OTHERS, "texts": source()}
        made = rounds.result(
            self.name, "x of the p99 alone", parameters, better="lower", more={"table": table}
        )
        ratios = {
            word: rounded(percentile(pooled["ours"], share) / percentile(pooled["alone"], share))
            for word, share in (("p50", 0.5), ("p99", 0.99))
        }
        peers = {
            f"{name}_{word}_ms": rounded(percentile(pooled[side], share))
            for name, side in (("beside", "ours"), ("alone", "alone"))
            for word, share in (("p50", 0.5), ("p99", 0.99))
        }
        return Result(self.name, ratios["p99"], made.unit, peers, ratios, made.conditions)


_rounds = iter(range(10**9))


async def _round(bench: Bench, policy: Path, seconds: float, due: int) -> Measured:
    bench.flush()
    settings = bench.settings(f"fair{next(_rounds)}", policy=str(policy))
    records = AgentRecords("busy").all(range(due), MESSAGES)
    await fold_without_compactor(bench, settings, records)
    async with (
        watched(settings) as awaited,
        running_worker(bench, settings) as pid,
        Family(pid).sampled() as family,
        ConversationService(settings) as backend,
    ):
        before = await awaited.due()
        waits: list[float] = []
        first = itertools.count()
        others = [
            Other(backend, Key(tenant, f"other-{i}"), next(first))
            for tenant, count in OTHERS.items()
            for i in range(count)
        ]
        await asyncio.gather(*(other.begin() for other in others))
        end = time.monotonic() + seconds
        await asyncio.gather(*(other.go_on(end, waits) for other in others))
        more = {
            "waits_ms": waits,
            "samples": len(waits),
            "over_limit": sum(wait >= LIMIT * 1000 for wait in waits),
            "due_before": before,
            "due_after": await awaited.due(),
            "worker": family.usage(),
        }
    return Measured(percentile(waits, 0.99), more=more)


class Other:
    """A conversation of another tenant that becomes due again and again."""

    def __init__(self, backend: ConversationService, key: Key, number: int) -> None:
        self._backend = backend
        self._key = key
        messages = [to_flat(message, "message") for message in talk(number, 2_400)[1:]]
        self._lists = itertools.cycle(
            [messages[i : i + LIST] for i in range(0, len(messages) - LIST, LIST)]
        )

    async def begin(self) -> None:
        """A window that the next list makes due, after a first summary: it waits for the start of
        the worker and of its processes.
        """
        for flats in (next(self._lists)[: LIST // 2], next(self._lists)):
            await self._append(flats, 120.0)
        await self._wait(120.0)

    async def go_on(self, end: float, waits: list[float]) -> None:
        """Make it due until the end; adds the milliseconds of each wait for a summary."""
        while time.monotonic() < end:
            await self._append(next(self._lists), LIMIT)
            waited = await self._wait(LIMIT)
            if waited:
                waits.append(waited * 1000)
            await asyncio.sleep(PAUSE)

    async def _wait(self, limit: float) -> float:
        """Wait for the summary, ``limit`` seconds at most; returns the seconds; 0: none was due."""
        begin, waited = time.perf_counter(), 0.0
        while await self._due() and waited < limit:
            await asyncio.sleep(LOOK)
            waited = time.perf_counter() - begin
        return waited

    async def _append(self, flats: Sequence[dict[str, object]], limit: float) -> None:
        tenant, name = self._key
        appended = await self._backend.append(tenant, [(name, flat) for flat in flats])
        await self._backend.wait_applied(tenant, name, appended, timeout=limit)

    async def _due(self) -> bool:
        return (await self._backend.head(self._key)).due is not None


FIGURE = Fair()
