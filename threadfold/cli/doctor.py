"""``doctor``: checks all that a stack needs; each line says ``ok``, or what to look at or to do."""

from __future__ import annotations

import asyncio
import os
import platform
import re
import time
from contextlib import AsyncExitStack
from functools import partial
from importlib.metadata import version
from pathlib import Path

import click

from projections.errors import (
    KafkaUnavailable,
    MemoryUnavailable,
    RedisUnavailable,
    TopicMismatch,
)
from projections.redis.store import RedisStore
from projections.storage.records import Checkpoint
from streams.compaction.summarizers.failures import AttemptFailed, EndpointBusy
from streams.compaction.summarizers.trial import try_endpoints
from streams.control.control_topic import Control
from streams.control.key_ring import KeyRing
from streams.control.state import Generation, State
from streams.log.clients import admin_client
from streams.log.kafka_log import KafkaLog
from streams.log.login import why_refused
from streams.log.topics import check_topics, lost_summaries, partition_count, replication_for
from streams.maintenance.dead_letters import DeadLetters
from streams.memory.store_faults import try_folder
from streams.memory.store_folder import LANCE, LANCE_STORES, REDIS_STORE, folder_path
from streams.memory.stores import local_stores, redis_store
from streams.projector.effect_sink import NullSink
from streams.settings.callables import load_callables
from streams.settings.certificates import certificate_ends
from streams.settings.kafka_login import login_of
from streams.settings.memory_settings import ASKED
from streams.settings.settings import Settings
from threadfold.cli.common import data_option, load_settings, run
from threadfold.cli.findings import Findings
from threadfold.cli.fleet import status_of
from threadfold.cli.redis_refusal import explained
from threadfold.gateway.connections import descriptors, most_connections, most_descriptors
from threadfold.gateway.tls import certificate_of

REDIS_MINIMUM = (6, 2)
FEW_DESCRIPTORS = 4_096
FEW_DAYS = 14
"""Days before the end of a certificate from which on it is a fault."""
TOO_MANY_CALLS = 429
MODEL_PATIENCE = 10.0
"""Seconds within which a model's endpoint has to answer."""
PATIENCE = 3.0
"""Seconds after which a lagging partition that does not move stands still."""


@click.command()
@data_option
@click.pass_context
def doctor(ctx: click.Context, data: Path | None) -> None:
    """Check brokers, topics, Redis, the gateway of `up`, models, the live generation, dead letters
    and lag. Each line says `ok`, `note` with where to look, or `wrong` with what to do.

    It sends one short question to each summarizer's endpoint. Exit 1 if something is wrong, 2 if
    Kafka or Redis cannot be reached.
    """
    ctx.exit(run(examine(load_settings(data))).exit_code)


async def examine(settings: Settings) -> Findings:
    """Run all checks and print each finding. A check that cannot run does not stop the others."""
    found = Findings()
    found.ok("versions", _versions())
    found.ok("descriptors", _descriptors())
    await found.check("certificates", lambda: _certificates(found, settings))
    await found.check("memory models", lambda: _memory_models(found, settings))
    await _summarizers(found, settings)
    if settings.gateway_url:
        await _gateway(found, settings.gateway_url)
    async with AsyncExitStack() as closing:
        store = RedisStore(settings.redis, settings.topic_prefix)
        closing.push_async_callback(store.close)
        redis_answers = await found.check("redis", lambda: _redis(found, settings.redis, store))
        if redis_answers or settings.memory_store != REDIS_STORE:
            await found.check("memory store", lambda: _memory_store(found, settings))
        if await found.check("kafka", lambda: _brokers(found, settings)):
            await found.check("topics", lambda: _topics(found, settings))
            await found.check("keys", lambda: _keys(found, settings))
            if not await found.check("callables", lambda: _callables(settings)):
                return found
            control = Control(settings)
            closing.push_async_callback(control.stop)
            if (
                await found.check("generation", lambda: _generation(found, settings, control))
                and redis_answers
            ):
                log = KafkaLog(settings, control.state.live_generation.partitions)
                closing.push_async_callback(log.stop)
                letters = partial(_dead_letters, found, settings, control.state, log, store)
                await found.check("dead letters", letters)
                await found.check("lag", lambda: _lag(found, control.state, log, store))
    return found


def _versions() -> str:
    names = ("threadfold", "aiokafka", "faust-streaming", "redis")
    return ", ".join(
        [f"Python {platform.python_version()}", *(f"{name} {version(name)}" for name in names)]
    )


def _descriptors() -> str:
    """A gateway that is started from here may open as many."""
    now, most = descriptors(), most_descriptors()
    if now is None or most is None:
        return "no limit"
    text = f"{now}, a gateway raises it to {most}, for {most_connections(most)} connections"
    return text if most >= FEW_DESCRIPTORS else f"{text} (for more: the hard limit, ulimit -Hn)"


async def _certificates(found: Findings, settings: Settings) -> None:
    for name, end in certificate_ends(settings).items():
        days = (end - time.time()) / 86_400
        if days < 0:
            found.fault("certificates", f"{name} expired {-days:.0f} days ago: replace it")
        elif days < FEW_DAYS:
            found.fault("certificates", f"{name} expires in {days:.0f} days: replace it")
        else:
            found.ok("certificates", f"{name} expires in {days:.0f} days")
    # Raises InvalidSettings where a gateway would not start with its files.
    certificate_of(settings)


async def _memory_models(found: Findings, settings: Settings) -> None:
    """Which models the long-term memory asks. Raises InvalidSettings where one has no key."""
    named = {
        name: endpoint
        for name in ("memory_embeddings", *ASKED)
        if (endpoint := getattr(settings, name))
    }
    for setting, endpoint in named.items():
        table = settings.embeddings if setting == "memory_embeddings" else settings.summarizers
        if endpoint in table:
            table[endpoint].find_key(endpoint, os.environ)
    if named:
        found.ok(
            "memory models", ", ".join(f"{name} asks {which}" for name, which in named.items())
        )


async def _summarizers(found: Findings, settings: Settings) -> None:
    tried = await try_endpoints(settings.summarizers, os.environ, MODEL_PATIENCE)
    for name, answer in tried.items():
        if isinstance(answer, float):
            model = settings.summarizers[name].model
            found.ok("summarizers", f"{name} ({model}) answered in {answer:.1f} s")
        elif isinstance(answer, EndpointBusy) and answer.status == TOO_MANY_CALLS:
            found.note("summarizers", f"{answer}: it is there, and takes no more calls now")
        elif isinstance(answer, AttemptFailed):
            found.fault("summarizers", f"{answer}; until it answers, summaries are extractive")
        else:
            found.fault("summarizers", str(answer))


async def _gateway(found: Findings, url: str) -> None:
    """Ask the gateway that these settings name (that of an ``up``) whether it is alive."""
    if await asyncio.to_thread(status_of, f"{url}/healthz", PATIENCE) == 200:
        found.ok("gateway", f"it answers at {url}")
    else:
        found.fault(
            "gateway",
            f"{url} does not answer within {PATIENCE:g} s: start a gateway, or end with kill -9 the"
            " one that hangs",
        )


async def _redis(found: Findings, url: str, store: RedisStore) -> None:
    try:
        server = await store.ping()
    except RedisUnavailable as error:
        raise RedisUnavailable(explained(url, error)) from error
    shown = str(server["version"])
    numbers = tuple(int(part) for part in re.findall(r"\d+", shown)[:2])
    if numbers < REDIS_MINIMUM:
        found.fault("redis", f"version {shown} is too old: install 6.2 or later")
    elif server["maxmemory_policy"] != "noeviction":
        found.fault(
            "redis",
            f"maxmemory-policy is {server['maxmemory_policy']}: set it to noeviction, so that Redis"
            " deletes no windows. What it deleted, `threadfold verify --all --repair` brings back",
        )
    elif server["refuses"]:
        found.fault("redis", str(server["refuses"]))
    else:
        used, most = server["used_memory"] >> 20, server["maxmemory"] >> 20
        limit = f"{used} of {most} MiB (maxmemory)" if most else f"{used} MiB"
        found.ok("redis", f"version {shown}, noeviction, {limit} used")


async def _memory_store(found: Findings, settings: Settings) -> None:
    if settings.memory_store != REDIS_STORE:
        folder = folder_path(settings.memory_store)
        if folder is not None:
            _memory_folder(found, folder, lance=settings.memory_store.startswith(LANCE_STORES))
        return
    store = redis_store(settings)
    try:
        engine = await asyncio.to_thread(store.place.server.check)
        there = await asyncio.to_thread(lambda: store.place.exists)
    finally:
        store.close()
    more = "" if there else "; it is made with the first call of a gateway"
    found.ok("memory store", f"in Redis, query engine {engine}{more}")


def _memory_folder(found: Findings, folder: Path, *, lance: bool) -> None:
    kind = "SQLite"
    if lance:
        local_stores(LANCE)
        kind = f"LanceDB {version('lancedb')}"
    try:
        try_folder(folder)
    except MemoryUnavailable as error:
        found.fault(
            "memory store",
            f"{error.with_folder}: free space, or let memory_store name a folder that can be"
            " written",
        )
    else:
        more = "" if folder.is_dir() else ", which a gateway makes when it starts"
        found.ok("memory store", f"{kind} in {folder}{more}")


async def _brokers(found: Findings, settings: Settings) -> None:
    try:
        async with admin_client(settings) as admin:
            cluster = await admin.describe_cluster()
    except KafkaUnavailable:
        for address in settings.kafka.split(","):
            why = await why_refused(settings, address)
            if why is not None:
                found.fault("kafka", f"{address.strip()}: {why}")
        raise
    brokers = len(cluster["brokers"])
    if brokers < settings.replication:
        found.fault(
            "kafka",
            f"{brokers} brokers for a replication of {settings.replication}: start more, or set"
            " THREADFOLD_REPLICATION",
        )
    else:
        replication, _ = replication_for(settings, brokers)
        there = f"{brokers} broker{'s' if brokers != 1 else ''} at {settings.kafka}"
        there += f", logged in {login}" if (login := login_of(settings)) else ""
        found.ok("kafka", f"{there}, new topics are replicated {replication}-fold")


async def _topics(found: Findings, settings: Settings) -> None:
    wrong = await check_topics(settings)
    for sentence in wrong:
        found.fault("topics", sentence)
    if not wrong:
        found.ok("topics", f"all of {settings.topic_prefix}.* have the shape they need")
    # A note: windows do not depend on it, and nothing brings the records back.
    if lost := await lost_summaries(settings):
        found.note("summaries", lost)


async def _keys(found: Findings, settings: Settings) -> None:
    """Read the keys topic whole, as every service does."""
    keys = KeyRing(settings, lambda _: False)
    try:
        await keys.start()
    finally:
        await keys.stop()
    found.ok("keys", f"{_count(len(keys.table), 'conversation')} with data keys")


async def _callables(settings: Settings) -> None:
    """Raises InvalidSettings where one cannot be imported: then no policy can be read."""
    load_callables(settings.callables)


async def _generation(found: Findings, settings: Settings, control: Control) -> None:
    await control.start()
    generation = control.state.live_generation
    partitions = await partition_count(settings)
    try:
        generation.check_partitions(settings.topic("events"), partitions)
    except TopicMismatch as error:
        found.fault("generation", str(error))
    else:
        others = len(control.state.generations) - 1
        more = f", {others} {'other exists' if others == 1 else 'others exist'}" if others else ""
        found.ok("generation", f"{generation.number} is live, {partitions} partitions{more}")
    rules = control.state.rules(generation)
    for tenant in sorted(rules.unusable):
        found.fault("policies", str(rules.unusable[tenant]))
    if missing := rules.missing_callables():
        found.fault(
            "callables",
            f"policies name {', '.join(missing)}, which these settings do not register: the default"
            " template is used in their place. Set THREADFOLD_CALLABLES as for the workers",
        )
    for number, halt in control.state.halted().items():
        found.fault("halted", halt.sentence(number))
    for tenant, record in sorted(control.state.maintenance.items()):
        whose = f"of tenant {tenant}" if tenant else "of all tenants"
        option = f" --tenant {tenant}" if tenant else ""
        why = f" ({record.reason})" if record.reason else ""
        found.fault(
            "maintenance",
            f"appends {whose} are refused since {record.since}{why}: `threadfold maintenance"
            f" off{option}` accepts them again",
        )
    unfinished = [name for name, copy in control.state.copies.items() if copy.ends is None]
    for tenant in sorted(unfinished):
        found.fault("maintenance", f"the import of tenant {tenant} is not finished: repeat it")


async def _dead_letters(
    found: Findings, settings: Settings, state: State, log: KafkaLog, store: RedisStore
) -> None:
    """Count what is parked and what is nobody's: a tenant's trouble, not the deployment's."""
    generation = state.live_generation
    topic = KafkaLog(settings, await partition_count(settings, "dead-letters"), "dead-letters")
    letters = DeadLetters(log, topic, store, generation.number, state.rules(generation), NullSink())
    try:
        parked, records = await letters.count()
    finally:
        await topic.stop()
    if parked or records:
        found.note(
            "dead letters",
            f"{_count(parked, 'conversation')} parked, {_count(records, 'record')} of no"
            " conversation: see `threadfold dead-letters list`",
        )
    else:
        found.ok("dead letters", "none")


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


async def _lag(found: Findings, state: State, log: KafkaLog, store: RedisStore) -> None:
    """Compare the log's ends with the checkpoints. A partition that lags and does not move within
    :data:`PATIENCE` has no worker, unless it is halted.
    """
    generation, halted = state.live_generation, state.halted()
    ends = await log.last_records()
    first = await _checkpoints(generation, store)
    lag = {p: behind for p, behind in _lag_of(ends, first).items() if p not in halted}
    if not lag and not halted:
        found.ok("lag", f"none: {sum(ends.values())} events applied")
        return
    deadline = time.monotonic() + PATIENCE
    now = first
    while (still := _standing(lag, first, now)) and time.monotonic() < deadline:
        await asyncio.sleep(0.1)
        now = await _checkpoints(generation, store)
    for partition, behind in sorted(lag.items()):
        if partition in still:
            found.fault(
                "lag",
                f"partition {partition} is {behind} events behind and stands still: start a worker"
                " (`threadfold worker`), or see its log",
            )
        else:
            found.ok("lag", f"partition {partition} is {behind} events behind and moves")


async def _checkpoints(generation: Generation, store: RedisStore) -> dict[int, Checkpoint | None]:
    return {p: await store.checkpoint(generation.number, p) for p in range(generation.partitions)}


def _lag_of(ends: dict[int, int], checkpoints: dict[int, Checkpoint | None]) -> dict[int, int]:
    lag = {p: end - 1 - _offset(checkpoints.get(p)) for p, end in ends.items()}
    return {partition: behind for partition, behind in lag.items() if behind > 0}


def _standing(
    lag: dict[int, int], first: dict[int, Checkpoint | None], now: dict[int, Checkpoint | None]
) -> set[int]:
    return {p for p in lag if _offset(first.get(p)) == _offset(now.get(p))}


def _offset(checkpoint: Checkpoint | None) -> int:
    return checkpoint.offset if checkpoint else -1
