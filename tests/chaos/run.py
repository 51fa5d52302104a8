"""One seed from its plan to its findings, and a run of many: what ``make chaos`` calls."""

from __future__ import annotations

import asyncio
import logging
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError

from projections.redis.store import RedisStore
from streams.log.kafka_log import KafkaLog
from streams.settings.settings import Settings
from tests.chaos.evidence import Evidence, Findings, keep
from tests.chaos.faults import carry_out
from tests.chaos.intruders import Intruder, intruding
from tests.chaos.learning import learnt
from tests.chaos.memories import check_memories
from tests.chaos.memory_producers import MemoryProducer, memory_producers_of
from tests.chaos.oracle import judge
from tests.chaos.platform import Platform, Stack, keep_logs, platform, until_ready
from tests.chaos.producers import Producer, producers_of
from tests.chaos.readers import reading
from tests.chaos.reading import collect, differing, settle
from tests.chaos.remains import remains
from tests.chaos.schedule import Plan, plan_of
from tests.chaos.spans import RIVAL

logger = logging.getLogger(__name__)
KEPT = Path("build/chaos")
"""Where the logs of seeds that failed are kept, below the working folder."""
SHOWN = 12
Say = Callable[[str], None]


@dataclass(slots=True)
class Outcome:
    """What a seed came to. ``trouble`` is what went wrong beside the oracle's findings; each counts
    as one that differs.
    """

    seed: int
    findings: Findings = field(default_factory=Findings)
    trouble: list[str] = field(default_factory=list)
    seconds: float = 0.0
    told: str = ""

    @property
    def clean(self) -> bool:
        """Whether nothing at all was found."""
        return self.findings.clean and not self.trouble

    @property
    def reasons(self) -> list[str]:
        """Everything that was found, in words."""
        found = self.findings
        named = (
            ("lost", found.lost),
            ("doubled", found.doubled),
            ("differing", found.differing + self.trouble),
        )
        return [f"{name}: {text}" for name, texts in named for text in texts]


def _unsaid(text: str) -> None:
    """Say nothing."""


def _timed(say: Say) -> Say:
    """Say things with the seconds since now."""
    begun = time.monotonic()
    return lambda text: say(f"  {time.monotonic() - begun:5.1f} s {text}")


async def run_seed(plan: Plan, stack: Stack, say: Say = _unsaid) -> Outcome:
    """Carry a plan out on a running stack; never raises for what the plan's processes do."""
    outcome, begun = Outcome(plan.seed), time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix=f"chaos-{plan.seed}-"))
    settings: Settings | None = None
    try:
        await stack.start()
        async with platform(plan, stack, folder, say) as made:
            settings = made.direct
            await _played(made, outcome, say)
    except Exception as error:
        # A fault of this suite's own is one of the seed, too: the others are run, and the last line
        # is written.
        logger.exception("seed %d", plan.seed)
        outcome.trouble.append(
            f"the seed could not be played to its end: {type(error).__name__}: {error}"
        )
    finally:
        if not outcome.clean:
            keep_logs(folder, KEPT / f"seed-{plan.seed}")
        shutil.rmtree(folder, ignore_errors=True)
        outcome.seconds = time.monotonic() - begun
    if settings is not None:
        await _drop_topics(settings)
    return outcome


async def _played(made: Platform, outcome: Outcome, say: Say) -> None:
    producers, memory_producers = producers_of(made), memory_producers_of(made)
    async with intruding(made.direct, made.plan) as intruder, reading(made) as readers:
        await _under_faults(made, [*producers, *memory_producers], say)
    say("all is acknowledged")
    await until_ready(made)
    acks = [ack for producer in producers for ack in producer.acks]
    log, store = (
        KafkaLog(made.direct, made.plan.partitions),
        RedisStore(made.direct.redis, made.direct.topic_prefix),
    )
    try:
        open_ = await settle(made, log, store, sorted({ack.key for ack in acks}))
        if open_ is not None:
            outcome.trouble.append(f"it did not come to rest: {open_}")
        say("settled" if open_ is None else open_)
        evidence = await collect(made, log, acks)
        say("evidence is collected")
        outcome.findings = judge(evidence)
        memories, wrong = await check_memories(made, evidence, memory_producers)
        outcome.findings.add(memories)
        outcome.trouble += wrong
        say("memories are checked")
        outcome.trouble += [
            f"{key}: the window is not what the log folds to" for key in await differing(made)
        ]
    finally:
        await log.stop()
        await store.close()
    for producer in (*producers, *memory_producers):
        outcome.trouble += [f"producer {producer.number}: {text}" for text in producer.refused]
    outcome.trouble += [f"while it ran, {text}" for reader in readers for text in reader.found]
    outcome.trouble += made.wrongs + await remains(made)
    if not outcome.clean:
        keep(evidence, KEPT / f"seed-{made.plan.seed}" / "evidence.json")
    outcome.trouble += await made.end()
    asked = (
        f"{sum(p.unknown for p in producers)} unknown answers,"
        f" {sum(reader.reads for reader in readers)} reads meanwhile,"
        f" {memories.acknowledged} memories saved, {learnt(evidence.log)} learnt"
    )
    outcome.told = _told(evidence, asked, intruder, made)


async def _under_faults(
    made: Platform, producers: Sequence[Producer | MemoryProducer], say: Say
) -> None:
    """Append while the faults come, until they are over and everything is acknowledged."""
    enough = asyncio.Event()
    tasks = [
        asyncio.create_task(producer.run(enough), name=f"producer-{producer.number}")
        for producer in producers
    ]
    try:
        await asyncio.gather(carry_out(made), asyncio.sleep(made.plan.load))
        await made.heal()
        say("faults are over")
        enough.set()
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _told(evidence: Evidence, asked: str, intruder: Intruder, made: Platform) -> str:
    chain = sum(len(seen.summaries) for seen in evidence.windows.values())
    taken = sum(
        told["summarizer"] == RIVAL for seen in evidence.windows.values() for told in seen.summaries
    )
    ended = [
        f"{service.name} ended {times}x with {why}"
        for service in made.services
        for why, times in service.ended.items()
    ]
    if ended or made.notes:
        keep_logs(made.folder, KEPT / f"seed-{made.plan.seed}")
    counts = (
        f"{len(evidence.acks)} acknowledgements, {asked}",
        (
            f"{len(evidence.log)} records in {len(evidence.windows)} conversations,"
            f" {intruder.repeated} of them repeated whole"
        ),
        (
            f"{chain} summaries in force ({intruder.rivals} rivals, {taken} taken),"
            f" {len(evidence.summaries)} announcements, {made.switches} switches,"
            f" {len(made.erased)} erased,"
            f" {len(evidence.letters)} dead letters"
        ),
        (
            f"{max(service.peak for service in made.services) >> 20} MiB at most, ended within"
            f" {max((s for service in made.services for s in service.endings), default=0):.1f} s"
        ),
    )
    return "; ".join((*counts, *made.notes, *ended))


async def _drop_topics(settings: Settings) -> None:
    """Take the seed's topics away, so that a hundred seeds do not burden one broker; one that is
    away keeps them.
    """
    admin = AIOKafkaAdminClient(bootstrap_servers=settings.kafka)
    try:
        async with asyncio.timeout(10):
            await admin.start()
            names = [
                name
                for name in await admin.list_topics()
                if name.startswith(f"{settings.topic_prefix}.")
            ]
            await admin.delete_topics(names)
    except (KafkaError, TimeoutError) as error:
        print(f"the topics of {settings.topic_prefix} stay: {error}")
    finally:
        await admin.close()


async def run_seeds(
    seeds: Sequence[int],
    say: Say = print,
    *,
    verbose: bool = False,
    shared_memory: bool | None = None,
) -> int:
    """Run seeds one after the other on one stack, print each and the sums; returns the exit code, 0
    only when all are clean.

    ``verbose``: also the steps of each with their times. ``shared_memory``: whether the memory
    store is in Redis; None: each seed chooses.
    """
    total, failed = Findings(), list[Outcome]()
    with tempfile.TemporaryDirectory(prefix="chaos-") as folder:
        stack = Stack(Path(folder))
        try:
            for seed in seeds:
                plan = plan_of(seed)
                if shared_memory is not None:
                    plan = replace(plan, shared_memory=shared_memory)
                say(f"seed {seed}: {plan}")
                outcome = await run_seed(plan, stack, _timed(say) if verbose else _unsaid)
                found = outcome.findings
                total.acknowledged += found.acknowledged
                total.lost += found.lost
                total.doubled += found.doubled
                total.differing += found.differing + outcome.trouble
                say(
                    f"seed {seed}: {'clean' if outcome.clean else 'FAILED'} in"
                    f" {outcome.seconds:.0f} s: {outcome.told}"
                )
                if not outcome.clean:
                    failed.append(outcome)
                    tell_failure(outcome, say)
        finally:
            await stack.stop()
    if failed:
        say(f"failed seeds: {', '.join(str(outcome.seed) for outcome in failed)}")
    say(
        f"seeds: {len(seeds)}, acknowledged: {total.acknowledged}, lost: {len(total.lost)},"
        f" doubled: {len(total.doubled)}, differing: {len(total.differing)}"
    )
    return 1 if failed else 0


def tell_failure(outcome: Outcome, say: Say = print) -> None:
    """Say what a seed found, and how to run it again."""
    for reason in outcome.reasons[:SHOWN]:
        say(f"  {reason}")
    if len(outcome.reasons) > SHOWN:
        say(f"  and {len(outcome.reasons) - SHOWN} more")
    say(f"  run it again with: make chaos SEED={outcome.seed}   (logs: {KEPT}/seed-{outcome.seed})")
