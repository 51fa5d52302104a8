"""The parts of a demo run: its settings, its generation and its worker, and their removal."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import redis.asyncio as aredis

from projections.errors import ThreadfoldError
from streams.control.control_topic import Control
from streams.control.state import Generation
from streams.log.clients import admin_client
from streams.log.topics import SPECS
from streams.settings.settings import PREFIX, Settings
from threadfold.demo.agents import AGENTS
from threadfold.demo.memory import POLICY, TENANT
from threadfold.demo.watch import PromiseBroken
from threadfold.embedded.process import GuardedProcess, last_lines
from threadfold.embedded.stack import EmbeddedStack

PARTITIONS = 8
CHAT_POLICY: dict[str, Any] = {
    "model_window": 8_000,
    "reserve_tokens": 1_000,
    "working_budget": 1_500,
    "keep_recent_tokens": 600,
    "min_messages": 6,
    "summary_max_tokens": 300,
}
"""Small enough that a chat of short messages is summarised every few dozen of them."""
AGENT_POLICY: dict[str, Any] = {
    "model_window": 32_000,
    "reserve_tokens": 4_000,
    "working_budget": 6_000,
    "keep_recent_tokens": 2_000,
    "summary_max_tokens": 500,
}
"""What the agents' tenant has otherwise: one of its results alone may have 4,000 tokens."""


def demo_settings(base: Settings, stack: EmbeddedStack, run: str) -> Settings:
    """Settings of one run. On a configured Kafka it gets topics of its own, named by ``run``, so
    that nothing else is touched.
    """
    own: dict[str, Any] = {
        **stack.addresses,
        "partitions": PARTITIONS,
        "policy": "",
    }
    if stack.embedded_kafka is not None:
        own |= {"replication": 1, "min_isr": 1}
    else:
        own |= {
            "topic_prefix": f"threadfold-demo-{run}",
            "group": f"threadfold-demo-{run}.projector",
        }
    return msgspec.structs.replace(base, **own)


def generation_number(stack: EmbeddedStack, run: str) -> int:
    """1 in the demo's own Redis; elsewhere a number that no deployment's generation has."""
    return 1 if stack.embedded_redis is not None else 1_000_000_000 + int(run, 16) % 1_000_000_000


async def make_generation(control: Control, number: int, partitions: int) -> Generation:
    """Record the generation with the demo's policies and make it the live one."""
    made = Generation(number, partitions, CHAT_POLICY, {AGENTS: AGENT_POLICY, TENANT: POLICY})
    await control.write({f"generation/{number}": made, "generation/live": number})
    return made


def environment(settings: Settings, base: Mapping[str, str]) -> dict[str, str]:
    """The environment of a service with these settings and no others."""
    env = {name: value for name, value in base.items() if not name.startswith(PREFIX)}
    env |= {
        PREFIX + name.upper(): str(value)
        for name, value in msgspec.structs.asdict(settings).items()
        if str(value)
    }
    return env


def worker_process(settings: Settings, folder: Path) -> GuardedProcess:
    """``threadfold worker``, not started yet; its output goes to ``folder/worker.log``, and Faust's
    own folder into ``folder``.
    """
    command = [sys.executable, "-m", "threadfold.cli", "worker"]
    return GuardedProcess(
        command, env=environment(settings, os.environ), log=folder / "worker.log", cwd=folder
    )


def end_of(log: Path) -> str:
    """The end of a log, for an error message."""
    lines = last_lines(log, 8)
    return "\n  ".join(["", *lines]) if lines else " (it is empty)"


def check_alive(process: GuardedProcess, name: str, log: Path) -> None:
    """Raise :class:`PromiseBroken` when a process that should run has ended."""
    code = process.poll()
    if code is not None:
        raise PromiseBroken(f"the {name} ended with exit code {code}; its log ends:{end_of(log)}")


async def flush(url: str) -> int:
    """FLUSHALL on a Redis of the demo's own; returns how many keys were in its database."""
    client = aredis.Redis.from_url(url)
    try:
        size = int(await client.dbsize())
        await client.flushall()
    finally:
        await client.aclose()
    return size


async def delete_topics(settings: Settings) -> str | None:
    """Delete a run's own topics from a configured Kafka; returns the error, if any."""
    try:
        async with admin_client(settings) as admin:
            await admin.delete_topics([settings.topic(spec.name) for spec in SPECS])
    except ThreadfoldError as error:
        return f"the topics {settings.topic_prefix}.* could not be deleted: {error}"
    return None
