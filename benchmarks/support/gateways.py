"""A gateway for figures to talk to: its process, its address and a key; a worker beside it, and
conversations in its windows.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import msgspec
import psutil

from benchmarks.support.children import job_of, start_side
from benchmarks.support.http import Caller
from benchmarks.support.stacks import Bench
from benchmarks.support.texts import TENANT
from projections.names import Position
from streams.control.control_topic import Control
from streams.log.topics import create_topics
from streams.settings.quotas import Quota
from streams.settings.settings import Settings
from threadfold.embedded.ports import free_port
from threadfold.service.conversations import ConversationService

STARTS = 60.0


@dataclass(frozen=True, slots=True)
class Gateway:
    """A running server: ``host:port``, the value of the header ``Authorization``, and its
    process.
    """

    address: str
    authorization: str
    pid: int

    @property
    def pids(self) -> list[int]:
        """Its process and those it started."""
        return [
            self.pid,
            *(child.pid for child in psutil.Process(self.pid).children(recursive=True)),
        ]


async def prepare(
    settings: Settings, tenants: Mapping[str, Quota | None] | Sequence[str] = (TENANT,)
) -> dict[str, str]:
    """Make the topics, a generation, and tenants with their quotas; returns each one's header
    ``Authorization`` (all scopes but admin).
    """
    await create_topics(settings)
    control = await Control(settings).start()
    try:
        await control.ensure_generation(settings.partitions)
        keys = {}
        for tenant in tenants:
            await control.ensure_tenant(tenant)
            keys[tenant] = (
                f"Bearer {await control.add_key(tenant, ['append', 'read', 'subscribe', 'erase'])}"
            )
            quota = tenants[tenant] if isinstance(tenants, Mapping) else None
            if quota is not None:
                await control.change_tenant(tenant, None, lambda _, own=quota: own)  # type: ignore[misc]
        return keys
    finally:
        await control.stop()


@asynccontextmanager
async def running_gateway(bench: Bench, settings: Settings) -> AsyncIterator[Gateway]:
    """Make the topics, a generation, a tenant and its key, and run a gateway that is connected."""
    keys = await prepare(settings)
    async with running_server(bench, settings, keys[TENANT]) as gateway:
        yield gateway


@asynccontextmanager
async def running_server(
    bench: Bench, settings: Settings, authorization: str, side: str = "gateway", **job: Any
) -> AsyncIterator[Gateway]:
    """Run a side that serves, on what :func:`prepare` has made, and wait until it takes the key and
    refuses an empty list.
    """
    port = (
        free_port() if job.get("server") == "granian" else 0
    )  # which does not tell the port it was given
    process = await start_side(
        side, job_of(bench, msgspec.structs.replace(settings, gateway_port=port), **job)
    )
    assert process.stdout is not None and process.stdin is not None
    try:
        async with asyncio.timeout(STARTS):
            line = (await process.stdout.readline()).decode()
            address = line.strip().rpartition("//")[2]
            while not await _connected(address, authorization):  # noqa: ASYNC110 (another process, which tells nothing)
                await asyncio.sleep(0.05)
        yield Gateway(address, authorization, process.pid)
    finally:
        process.stdin.close()
        await process.wait()


@asynccontextmanager
async def running_worker(bench: Bench, settings: Settings) -> AsyncIterator[int]:
    """Run a worker as ``threadfold worker`` does; yields its process' id."""
    worker = await start_side(
        "worker", job_of(bench, msgspec.structs.replace(settings, log_level="warning"))
    )
    try:
        yield worker.pid
    finally:
        worker.terminate()
        await worker.communicate()


@asynccontextmanager
async def served(
    bench: Bench, settings: Settings, keys: Mapping[str, str]
) -> AsyncIterator[tuple[Gateway, int]]:
    """A gateway and a worker on what :func:`prepare` has made; yields the gateway, with the first
    key, and the worker's pid.
    """
    async with AsyncExitStack() as stack:
        worker = await stack.enter_async_context(running_worker(bench, settings))
        gateway = await stack.enter_async_context(
            running_server(bench, settings, next(iter(keys.values())))
        )
        yield gateway, worker


async def append_all(
    settings: Settings, tenant: str, items: Sequence[tuple[str, object]]
) -> list[Position]:
    """Append flat events of several conversations, wait until a worker has applied them, and return
    their positions.
    """
    found: list[Position] = []
    async with ConversationService(settings) as backend:
        for start in range(0, len(items), 500):
            appended = await backend.append(tenant, items[start : start + 500])
            found += [one.position for one in appended]
        await backend.caught_up(range(settings.partitions), timeout=120)
    return found


async def until_applied(backend: ConversationService, position: Position, limit: float) -> None:
    """Look every half millisecond until the windows hold a position, for ``limit`` seconds."""
    generation = backend.control.state.live_generation.number
    async with asyncio.timeout(limit):
        while True:
            checkpoint = await backend.store.checkpoint(generation, position.partition)
            if (
                checkpoint is not None
                and not checkpoint.healing
                and checkpoint.offset >= position.offset
            ):
                return
            await asyncio.sleep(0.0005)


async def _connected(address: str, authorization: str) -> bool:
    """Whether the gateway is connected: then it takes the tenant's key and refuses an empty
    list.
    """
    asker = Caller(address, authorization)
    try:
        status, _ = await asker.ask("POST", "/v1/events", [])
    except (OSError, asyncio.IncompleteReadError):
        return False  # granian does not listen yet
    finally:
        asker.close()
    return status == 422
