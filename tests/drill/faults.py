"""The faults of the drill: how each is put into a deployment, by what an operator sees it, what
heals it, and by what the operator sees that it is well.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass

import httpx
import psutil
from aiokafka import AIOKafkaProducer

from streams.log.login import connection
from tests.drill.deployment import Deployment
from tests.support.worker import until

Act = Callable[[Deployment], Awaitable[None]]
Look = Callable[[Deployment], Awaitable[str]]
HEALINGS = "threadfold_healings_total"
FULL = 4_096
"""Bytes that a file may have while the disk is full."""


@dataclass(frozen=True)
class Fault:
    """``seen`` returns what shows the fault, and nothing while nothing does; ``well`` what still
    shows it, and nothing once all is well.
    """

    name: str
    put: Act
    seen: Look
    heal: Act
    well: Look


async def nothing(stack: Deployment) -> None:
    """It heals by itself."""


def doctor_says(*words: str) -> Look:
    """A line of ``doctor`` that begins with one of these words."""

    async def look(stack: Deployment) -> str:
        lines = await stack.doctor()
        return next((line for line in lines if line.startswith(tuple(words))), "")

    return look


def up_says(*words: str) -> Look:
    """The newest line of ``up`` that has all these words."""

    async def look(stack: Deployment) -> str:
        lines = [line for line in stack.said() if all(word in line for word in words)]
        return lines[-1] if lines else ""

    return look


def metric_over(metric: str, most: float = 0) -> Look:
    """A metric that is beyond what it is on a good day."""

    async def look(stack: Deployment) -> str:
        value = await stack.value(metric)
        return f"{metric} {value:g}" if value > most else ""

    return look


async def not_well(stack: Deployment) -> str:
    """What ``doctor`` and the gateway have against a good day, on which an append is applied."""
    if not await stack.runs("worker"):
        return "no worker runs"
    lines = await stack.doctor()
    if lines:
        return lines[0]
    with suppress(httpx.HTTPError):
        path = "/conversations/c1/messages?wait=applied"
        hello = [{"role": "user", "content": "Is anybody there?"}]
        answer = await stack.ask("plain", "POST", path, hello)
        return "" if answer.status_code == 200 else answer.text
    return "the gateway does not answer"


# -- processes


async def kill_worker(stack: Deployment) -> None:
    (await stack.process("worker")).kill()


async def freeze_worker(stack: Deployment) -> None:
    (await stack.process("worker")).send_signal(signal.SIGSTOP)
    await stack.talk("plain", "c1", 5)


# -- what is in the log


async def write_stray(stack: Deployment) -> None:
    async with AIOKafkaProducer(**connection(stack.settings)) as producer:
        topic = stack.settings.topic("events")
        await producer.send_and_wait(topic, b"what is this", b"plain/stray")


async def drop_strays(stack: Deployment) -> None:
    for line in (await stack.run("dead-letters", "list", "--json")).lines:
        found = json.loads(line)
        if found["kind"] in ("record", "parked"):
            await stack.run("dead-letters", "drop", found["position"])


async def letters(stack: Deployment) -> str:
    line = (await stack.run("dead-letters", "list")).lines[-1]
    return "" if line == "parked: 0, records: 0" else line


async def write_poison(stack: Deployment) -> None:
    call = {"id": "c", "name": "fetch", "arguments": "{}"}
    stack.fixed.unlink(missing_ok=True)
    trap = {"type": "tool.result", "tool_call_id": "c", "content": "trap " * 60}
    long = {"type": "message", "role": "assistant", "content": "word " * 200}
    for name in stack.names_in(1, "fragile", 30):
        asked = {"type": "message", "role": "assistant", "content": None, "tool_calls": [call]}
        events = [asked, trap, *[long] * 4]
        await stack.ask("fragile", "POST", f"/conversations/{name}/events", events)


async def install_the_fix(stack: Deployment) -> None:
    stack.fixed.touch()
    await kill_worker(stack)
    await stack.run("dead-letters", "accept", "1")
    await stack.run("dead-letters", "retry", "--all")


async def still_poison(stack: Deployment) -> str:
    return await not_well(stack) or await letters(stack)


# -- servers


async def fill_redis(stack: Deployment) -> None:
    stack.redis("CONFIG", "SET", "maxmemory", "1mb")
    await stack.talk("plain", "c1", 5)


async def make_room_in_redis(stack: Deployment) -> None:
    stack.redis("CONFIG", "SET", "maxmemory", "0")


async def flush_redis(stack: Deployment) -> None:
    stack.healed = await stack.value(HEALINGS)
    stack.redis("FLUSHALL")


async def healings(stack: Deployment) -> str:
    now = await stack.value(HEALINGS)
    # A worker that was started anew meanwhile counts from 0.
    healed = now > 0 and now != stack.healed
    return f"{HEALINGS} {now:g}, {stack.healed:g} before" if healed else ""


async def unlike_the_log(stack: Deployment) -> str:
    found = await not_well(stack)
    if found:
        return found
    last = (await stack.run("verify", "--all")).lines[-1]
    return "" if last.endswith("differing: 0") else last


async def freeze_kafka(stack: Deployment) -> None:
    (await stack.process("kafka")).send_signal(signal.SIGSTOP)


async def thaw_kafka(stack: Deployment) -> None:
    (await stack.process("kafka")).send_signal(signal.SIGCONT)


async def fill_kafkas_disk(stack: Deployment) -> None:
    limit = (FULL, psutil.RLIM_INFINITY)
    (await stack.process("kafka")).rlimit(psutil.RLIMIT_FSIZE, limit)
    with suppress(httpx.HTTPError):
        await stack.talk("plain", "c1", 60)


# -- models, tenants, certificates


async def long_talks(stack: Deployment, count: int) -> None:
    """Conversations that are due for a summary by the model."""

    async def taken() -> bool:
        # Just after an outage an append may be refused.
        return await stack.talk("modelled", f"c{os.urandom(4).hex()}", 40) == 202

    for _ in range(count):
        await until(taken, what="an append that is taken")


async def stop_model(stack: Deployment) -> None:
    stack.model = "down"
    await long_talks(stack, 3)


async def slow_model_down(stack: Deployment) -> None:
    stack.model = "slow"
    await long_talks(stack, 4)


async def let_model_answer(stack: Deployment) -> None:
    stack.model = "well"


async def due(stack: Deployment) -> str:
    lines = (await stack.run("conversations", "--over-budget")).lines
    waiting = await stack.value("threadfold_compactions_waiting")
    return f"threadfold_compactions_waiting {waiting:g}, over budget: {len(lines)}" * bool(lines)


async def waiting(stack: Deployment) -> str:
    found = await due(stack)
    return found if await stack.value("threadfold_compactions_waiting") >= 2 else ""


async def flood(stack: Deployment) -> None:
    stack.start_flood()


async def end_flood(stack: Deployment) -> None:
    await stack.run("tenants", "revoke", "flood")
    await stack.stop_flood()


async def let_certificate_end(stack: Deployment) -> None:
    stack.authority.issue("gateway", days=9)


async def renew_certificate(stack: Deployment) -> None:
    stack.authority.issue("gateway", days=90)


FAULTS = (
    Fault("worker-killed", kill_worker, up_says("worker", "ended"), nothing, not_well),
    Fault(
        "worker-frozen",
        freeze_worker,
        doctor_says("wrong lag: "),
        kill_worker,
        not_well,
    ),
    Fault("dead-letter", write_stray, letters, drop_strays, letters),
    Fault("poison", write_poison, doctor_says("wrong halted: "), install_the_fix, still_poison),
    Fault(
        "redis-full",
        fill_redis,
        doctor_says("wrong redis: "),
        make_room_in_redis,
        not_well,
    ),
    Fault(
        "redis-flushed",
        flush_redis,
        healings,
        nothing,
        unlike_the_log,
    ),
    Fault("kafka-frozen", freeze_kafka, doctor_says("wrong kafka: "), thaw_kafka, not_well),
    Fault(
        "kafka-disk-full",
        fill_kafkas_disk,
        up_says("kafka", "ended"),
        nothing,
        not_well,
    ),
    Fault(
        "model-down",
        stop_model,
        metric_over("threadfold_model_breaker_open"),
        let_model_answer,
        metric_over("threadfold_model_breaker_open"),
    ),
    Fault("summaries-late", slow_model_down, waiting, let_model_answer, due),
    Fault("flood", flood, metric_over("threadfold_quota_refusals_total"), end_flood, not_well),
    Fault(
        "certificate-ends",
        let_certificate_end,
        doctor_says("wrong certificates: "),
        renew_certificate,
        not_well,
    ),
)
