"""A log of which generations are built, and what is stored of them."""

from __future__ import annotations

from projections.names import Key, partition_of
from streams.control.generations import drop
from streams.settings.settings import Settings
from streams.worker_parts import Runtime

POLICY = {"min_messages": 8}
KEYS = [Key("acme", f"c{i}") for i in range(60)]
EVENTS = 9_000


async def caught_up(runtime: Runtime) -> bool:
    ends = await runtime.log.end_offsets()
    for partition, end in ends.items():
        checkpoint = await runtime.store.checkpoint(runtime.control.state.live, partition)
        if end and (checkpoint is None or checkpoint.healing or checkpoint.offset < end - 1):
            return False
    return True


async def images(runtime: Runtime, number: int) -> list[bytes | None]:
    rules = runtime.control.state.rules(runtime.control.state.generations[number])
    found = []
    for key in KEYS:
        partition = partition_of(key, runtime.log.partitions)
        _, (stored,) = await runtime.store.read(number, partition, [key])
        found.append(None if stored is None else stored.load(key, partition, rules).image())
    return found


async def forgotten(settings: Settings, runtime: Runtime, number: int) -> None:
    """Leave nothing for the next test to go on with."""
    await runtime.control.sync()
    await drop(runtime.control, runtime.store, number)
