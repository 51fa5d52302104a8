"""What a seed means: how many processes, which load, which policy, and which faults when. Nothing
here touches a process.

The same seed gives the same plan. When exactly a fault meets which request is up to the machine, so
a seed that found something may have to be run more than once.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

KINDS = (
    "worker-kill",
    "redis-flush",
    "worker-freeze",
    "kafka-kill",
    "redis-older",
    "worker-kill-compacting",
    "gateway-kill",
    "redis-stall",
    "worker-add",
    "redis-kill",
    "kafka-freeze",
    "redis-empty",
    "worker-remove",
    "redis-cut",
    "redis-slow",
    "worker-freeze-compacting",
    "kafka-slow",
    "kafka-stall",
    "kafka-cut",
    "redis-full",
    "gateway-stop",
    "generation-switch",
    "kafka-disk-full",
    "policy-change",
    "conversation-erase",
)
"""Every kind of fault; seed n always has the n-th, so as many seeds in a row as there are kinds
have them all.
"""

HOUR = 3_600.0
DEAR = frozenset({"kafka-kill", "kafka-disk-full", "generation-switch", "policy-change"})
"""Kinds of which a seed has one at most, because each costs seconds of waiting."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault: when (seconds from the load's begin), what, how long it lasts, and which of the
    processes (modulo how many there are).
    """

    at: float
    kind: str
    seconds: float
    target: int

    def __str__(self) -> str:
        return f"{self.at:.1f}s {self.kind}"


@dataclass(frozen=True, slots=True)
class Plan:
    """All that a seed decides. ``load`` is for how many seconds producers append, at least;
    ``pause`` how long each waits between two; ``rollbacks`` how many of about a hundred requests
    are some; ``garbage`` how many records are no events; ``patient``: with the time-outs that are
    the defaults; ``shared_memory``: with the memory store in Redis, where it has the query engine;
    ``learning``: what the memory learns from by itself, ``learner``: the model's endpoint if that
    says what, empty: the rules.
    """

    seed: int
    workers: int
    gateways: int
    tenants: int
    conversations: int
    producers: int
    partitions: int
    load: float
    pause: float
    session_timeout: float
    patient: bool
    garbage: int
    hibernate_after: float
    snapshot_events: int
    summarizer: str
    model_trouble: float
    rivals: bool
    repeats: bool
    rollbacks: int
    policy: dict[str, object]
    faults: tuple[Fault, ...]
    shared_memory: bool
    learning: str
    learner: str

    def __str__(self) -> str:
        extras = [
            f"summaries by {self.summarizer}",
            *(["rivals"] if self.rivals else []),
            *(["repeats"] if self.repeats else []),
            *([f"{self.garbage} records of garbage"] if self.garbage else []),
            *(["default time-outs"] if self.patient else []),
            *(["memories in Redis"] if self.shared_memory else []),
            *([self._learns] if self.learning != "off" else []),
            *([f"sleep after {self.hibernate_after:g} s"] if self.hibernate_after < HOUR else []),
        ]
        return (
            f"{self.workers} workers, {self.gateways} gateways, {self.producers} producers,"
            f" {self.tenants}x{self.conversations} conversations on {self.partitions} partitions,"
            f" {', '.join(extras)}; {', '.join(map(str, self.faults))}"
        )

    @property
    def _learns(self) -> str:
        return f"learning from {self.learning} by {self.learner or 'rules'}"


def plan_of(seed: int, *, load: float = 7.0) -> Plan:
    """The plan of a seed; ``load``: seconds for which events are appended."""
    rng = random.Random(seed)
    kinds = [KINDS[seed % len(KINDS)], *rng.choices(KINDS, k=rng.randint(2, 3))]
    faults = []
    for i, kind in enumerate(kinds):
        if kind in DEAR and kind in kinds[:i]:
            kind = "worker-kill"
        faults.append(
            Fault(
                round(rng.uniform(1.0, load - 2.0), 2),
                kind,
                round(rng.uniform(0.8, 2.0), 2),
                rng.randrange(12),
            )
        )
    compacting = any(fault.kind.endswith("-compacting") for fault in faults)
    budget = rng.choice((250, 400, 700))
    patient = rng.random() < 0.25
    summarizer = "model" if compacting or rng.random() < 0.5 else "extractive"
    # Of a generator of its own: a seed of former releases stays what it was.
    own = random.Random(f"learning {seed}")
    learning = own.choice(("off", "sessions", "summaries", "summaries"))
    return Plan(
        seed=seed,
        workers=rng.randint(2, 3),
        gateways=rng.randint(1, 2),
        tenants=rng.randint(2, 3),
        conversations=50,
        producers=rng.randint(6, 12),
        partitions=rng.randint(2, 4),
        load=load,
        pause=rng.choice((0.01, 0.03, 0.06)),
        session_timeout=10.0 if patient else 2.0,
        patient=patient,
        garbage=rng.choice((0, 5, 15)),
        hibernate_after=rng.choice((HOUR, HOUR, 2.0)),
        snapshot_events=rng.choice((0, 40, 100, 400)),
        summarizer=summarizer,
        model_trouble=rng.choice((0.1, 0.4, 0.8)),
        rivals=rng.random() < 0.6,
        repeats=rng.random() < 0.6,
        rollbacks=rng.choice((1, 4, 12)),
        policy={
            "model_window": 40_000,
            "reserve_tokens": 4_000,
            "working_budget": budget,
            "keep_recent_tokens": budget // 3,
            "min_messages": 4,
            "summary_max_tokens": 120,
            "summarizer": summarizer,
            "memory_auto": learning,
        },
        faults=tuple(sorted(faults, key=lambda fault: fault.at)),
        shared_memory=rng.random() < 0.5,
        learning=learning,
        learner=own.choice(("", "", "model")),
    )
