"""A gateway for figures to post to: its process, its address and a key."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import msgspec

from benchmarks.support.children import job_of, start_side
from benchmarks.support.stacks import Bench
from benchmarks.support.texts import TENANT
from streams.control import Control
from streams.settings import Settings
from streams.topics import create_topics


@dataclass(frozen=True, slots=True)
class Gateway:
    """A running gateway: ``host:port``, the value of the header ``Authorization``, and its process."""

    address: str
    authorization: str
    pid: int


@asynccontextmanager
async def running_gateway(bench: Bench, settings: Settings) -> AsyncIterator[Gateway]:
    """Make the topics, a generation, a tenant and its key, and run a gateway that is connected."""
    await create_topics(settings)
    control = await Control(settings).start()
    await control.ensure_generation(settings.partitions)
    await control.ensure_tenant(TENANT)
    key = await control.add_key(TENANT, None)
    await control.stop()
    process = await start_side("gateway", job_of(bench, msgspec.structs.replace(settings, gateway_port=0)))
    assert process.stdout is not None and process.stdin is not None
    try:
        async with asyncio.timeout(30):
            line = (await process.stdout.readline()).decode()
            address = line.strip().rpartition("//")[2]
            while not await _connected(address, key):  # noqa: ASYNC110 (another process, which tells nothing)
                await asyncio.sleep(0.05)
        yield Gateway(address, f"Bearer {key}", process.pid)
    finally:
        process.stdin.close()
        await process.wait()


async def _connected(address: str, key: str) -> bool:
    """Whether the gateway is connected: then it takes the tenant's key and refuses an empty list."""
    host, port = address.split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(
        f"POST /v1/events HTTP/1.1\r\nHost: g\r\nAuthorization: Bearer {key}\r\nContent-Length: 2\r\nConnection: close\r\n\r\n[]".encode()
    )
    status = await reader.readline()
    writer.close()
    return b" 422 " in status
