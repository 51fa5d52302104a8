"""What each kind of fault does to a platform."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import time
from collections.abc import Awaitable, Callable

import psutil
import redis.asyncio as aredis
from redis.exceptions import RedisError

from tests.chaos.operators import erase, rebuild
from tests.chaos.platform import Platform
from tests.chaos.proxy import Proxy
from tests.chaos.schedule import Fault
from tests.chaos.services import Service

MARGIN = 1.2
"""Seconds beyond the session time-out for which a frozen worker stands still: the others have its
partitions by then.
"""
FULL = 4_096
"""Bytes that a file may have while the disk is full."""
PATIENCE = 6.0
"""Seconds that a broker is given to notice it."""
Do = Callable[[Platform, Fault], Awaitable[None]]


async def carry_out(platform: Platform) -> None:
    """All faults of the plan, each at its time, beside one another where they overlap; those of one
    server take turns.
    """
    await asyncio.gather(*(_at_its_time(platform, fault) for fault in platform.plan.faults))


async def _at_its_time(platform: Platform, fault: Fault) -> None:
    await asyncio.sleep(fault.at)
    server = fault.kind.partition("-")[0]
    if server in platform.server_locks:
        async with platform.server_locks[server]:
            await FAULTS[fault.kind](platform, fault)
    else:
        await FAULTS[fault.kind](platform, fault)


# -- workers and gateways
# ------------------------------------------------------------------------------------------


async def _kill(service: Service | None, pause: float) -> None:
    if service is not None:
        service.not_before = time.monotonic() + pause
        await asyncio.to_thread(service.kill)


async def worker_kill(platform: Platform, fault: Fault) -> None:
    """kill -9; it is started again a moment later."""
    await _kill(platform.pick(platform.workers, fault.target), fault.seconds)


async def gateway_kill(platform: Platform, fault: Fault) -> None:
    """kill -9 with requests under way."""
    await _kill(platform.pick(platform.gateways, fault.target), fault.seconds / 2)


async def worker_freeze(platform: Platform, fault: Fault) -> None:
    """SIGSTOP past the session time-out, then a zombie that believes it owns what others have by
    now.
    """
    await _freeze(platform, platform.pick(platform.workers, fault.target), fault.seconds)


async def _freeze(platform: Platform, worker: Service | None, seconds: float) -> None:
    if worker is not None:
        worker.freeze()
        await asyncio.sleep(platform.plan.session_timeout + MARGIN + seconds)
        worker.wake()


async def worker_kill_compacting(platform: Platform, fault: Fault) -> None:
    """kill -9 of a worker whose call to the model is not answered yet."""
    caller = await platform.model.lurk(4.0)
    if caller is None:
        platform.notes.append("no compaction was under way to kill a worker in")
    await _kill(
        caller if isinstance(caller, Service) else platform.pick(platform.workers, fault.target),
        fault.seconds,
    )


async def worker_freeze_compacting(platform: Platform, fault: Fault) -> None:
    """The same, frozen: its summary comes when others have answered the request again."""
    caller = await platform.model.lurk(4.0)
    await _freeze(
        platform,
        caller if isinstance(caller, Service) else platform.pick(platform.workers, fault.target),
        fault.seconds,
    )


async def worker_add(platform: Platform, fault: Fault) -> None:
    """One worker more: a rebalance under load."""
    platform.add_worker()
    await asyncio.sleep(0)


async def worker_remove(platform: Platform, fault: Fault) -> None:
    """SIGTERM: it hands over in order, another rebalance; it comes back when the faults are
    over.
    """
    worker = platform.pick(platform.workers, fault.target)
    if worker is not None:
        worker.wanted = False
        await worker.end()


async def gateway_stop(platform: Platform, fault: Fault) -> None:
    """SIGTERM with requests under way; it is started again at once."""
    gateway = platform.pick(platform.gateways, fault.target)
    if gateway is not None:
        await gateway.end()


# -- Redis
# ------------------------------------------------------------------------------------------


async def redis_kill(platform: Platform, fault: Fault) -> None:
    """kill -9, and back with its data."""
    platform.stack.redis.kill()
    await asyncio.sleep(fault.seconds)
    await platform.stack.start_redis()


async def redis_empty(platform: Platform, fault: Fault) -> None:
    """kill -9, and back with nothing."""
    platform.stack.redis.kill()
    shutil.rmtree(platform.stack.aof)
    await asyncio.sleep(fault.seconds / 2)
    await platform.stack.start_redis()


async def redis_older(platform: Platform, fault: Fault) -> None:
    """Back with the data it had some time before: a checkpoint that has regressed."""
    older = platform.folder / "older"
    shutil.rmtree(older, ignore_errors=True)
    shutil.copytree(platform.stack.aof, older)
    await asyncio.sleep(1.0 + fault.seconds)
    platform.stack.redis.kill()
    shutil.rmtree(platform.stack.aof)
    shutil.copytree(older, platform.stack.aof)
    await platform.stack.start_redis()


async def redis_flush(platform: Platform, fault: Fault) -> None:
    """FLUSHALL, with everything running."""
    client = aredis.Redis.from_url(platform.stack.redis.url)
    try:
        await client.flushall()
    except RedisError as error:
        platform.notes.append(f"Redis could not be flushed: {error}")
    finally:
        await client.aclose()


async def redis_full(platform: Platform, fault: Fault) -> None:
    """No memory for any write; reads go on."""
    client = aredis.Redis.from_url(platform.stack.redis.url)
    try:
        await client.config_set("maxmemory", 1)
        await asyncio.sleep(fault.seconds)
        await client.config_set("maxmemory", 0)
    except RedisError as error:
        platform.notes.append(f"Redis could not be filled: {error}")
    finally:
        await client.aclose()


# -- the network between the services and either
# -----------------------------------------------------------------------------


def _proxy(platform: Platform, fault: Fault) -> Proxy:
    return platform.proxy if fault.kind.startswith("redis") else platform.stack.kafka_proxy


async def slow(platform: Platform, fault: Fault) -> None:
    """Every piece of data takes up to 80 ms."""
    proxy = _proxy(platform, fault)
    proxy.delay = 0.08
    await asyncio.sleep(fault.seconds)
    proxy.delay = 0.0


async def stall(platform: Platform, fault: Fault) -> None:
    """Connections stand, and nothing comes through: writes may have been done, and nobody is
    told.
    """
    proxy = _proxy(platform, fault)
    proxy.stall()
    await asyncio.sleep(fault.seconds)
    proxy.heal()


async def cut(platform: Platform, fault: Fault) -> None:
    """Connections break in the middle of calls, several times."""
    proxy = _proxy(platform, fault)
    for _ in range(4):
        proxy.cut()
        await asyncio.sleep(fault.seconds / 8)
        proxy.heal()
        await asyncio.sleep(fault.seconds / 8)


# -- what operators do
# ------------------------------------------------------------------------------------------


async def generation_switch(platform: Platform, fault: Fault) -> None:
    """All windows are folded anew beside the live ones, and take their place."""
    await rebuild(platform)


async def policy_change(platform: Platform, fault: Fault) -> None:
    """The same, under a policy with another budget."""
    budget = int(str(platform.plan.policy["working_budget"]))
    budget = budget * 2 if fault.target % 2 else budget - budget // 3
    await rebuild(
        platform,
        {**platform.plan.policy, "working_budget": budget, "keep_recent_tokens": budget // 3},
    )


async def conversation_erase(platform: Platform, fault: Fault) -> None:
    """A conversation is erased while it is appended to."""
    await erase(platform, f"t{fault.target % platform.plan.tenants}", f"c{fault.target % 6}")


# -- Kafka
# ------------------------------------------------------------------------------------------


async def kafka_kill(platform: Platform, fault: Fault) -> None:
    """kill -9 of the broker, and back with its data."""
    platform.stack.kafka.kill()
    await platform.stack.start_kafka()


async def kafka_disk_full(platform: Platform, fault: Fault) -> None:
    """No file of the broker may grow: it ends by itself, as on a full disk, and is back once there
    is room.
    """
    kafka = platform.stack.kafka
    psutil.Process(kafka.pid).rlimit(psutil.RLIMIT_FSIZE, (FULL, psutil.RLIM_INFINITY))
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if kafka.poll() is not None:
            break
        await asyncio.sleep(0.1)
    if kafka.poll() is None:
        platform.notes.append("the broker lived on with a full disk")
        kafka.kill()
    await asyncio.sleep(fault.seconds)
    await platform.stack.start_kafka()


async def kafka_freeze(platform: Platform, fault: Fault) -> None:
    """SIGSTOP of the broker: calls are neither answered nor refused."""
    pid = platform.stack.kafka.pid
    os.kill(pid, signal.SIGSTOP)
    try:
        await asyncio.sleep(fault.seconds + 1.0)
    finally:
        os.kill(pid, signal.SIGCONT)


FAULTS: dict[str, Do] = {
    "worker-kill": worker_kill,
    "worker-kill-compacting": worker_kill_compacting,
    "worker-freeze": worker_freeze,
    "worker-freeze-compacting": worker_freeze_compacting,
    "worker-add": worker_add,
    "worker-remove": worker_remove,
    "gateway-kill": gateway_kill,
    "redis-kill": redis_kill,
    "redis-empty": redis_empty,
    "redis-older": redis_older,
    "redis-flush": redis_flush,
    "redis-slow": slow,
    "redis-stall": stall,
    "redis-cut": cut,
    "kafka-slow": slow,
    "kafka-stall": stall,
    "kafka-cut": cut,
    "kafka-kill": kafka_kill,
    "kafka-freeze": kafka_freeze,
    "kafka-disk-full": kafka_disk_full,
    "redis-full": redis_full,
    "gateway-stop": gateway_stop,
    "generation-switch": generation_switch,
    "policy-change": policy_change,
    "conversation-erase": conversation_erase,
}
