"""Rebuild: fold the log from zero into a new generation beside the live one, and switch to it.

The new generation says nothing while it is built. A rebuild that was interrupted goes on where its checkpoints are, when it is asked for
again with the same rules. After the switch the projector catches up from the new generation's checkpoints; until then its
partitions heal, so that readers never step back.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

import msgspec

from projections.persistence import Checkpoint, WindowStore
from projections.policy import Rules
from streams.control import Control, Generation, State
from streams.log import Log
from streams.partition import Fenced, Partition
from streams.publisher import Silence
from streams.settings import Settings
from streams.truncation import check_whole

Progress = Callable[[int, int], None]
ATTEMPTS = 5
UNWRITTEN = 400_000
"""Records folded at most before the store is written: their windows are in memory, and are folded again when a rebuild is cut off."""
UNWRITTEN_BYTES = 256 << 20
"""Bytes of those records, likewise: a write is one command, and Redis takes none of 1 GiB."""


@dataclass(frozen=True, slots=True)
class RebuildReport:
    """What a rebuild made: the generation, how many records it folded, and whether it is live now."""

    generation: int
    events: int
    resumed: bool
    live: bool


async def rebuild(
    settings: Settings,
    control: Control,
    log: Log,
    store: WindowStore,
    *,
    policy: dict[str, Any] | None = None,
    switch: bool = False,
    progress: Progress | None = None,
) -> RebuildReport:
    """Build a generation under ``policy`` (None: the live generation's) and, with ``switch``, make it live.

    Raises:
        InvalidPolicy: the policy does not hold.
        Fenced: another rebuild of the same generation runs.
        LogTruncated: the log has lost its first events, and that is not accepted.
    """
    await check_whole(log, settings.topic("events"), accept=settings.accept_truncated_log)
    state = await control.sync()
    generation, resumed = _candidate(state, policy)
    if not resumed:
        await control.write({f"generation/{generation.number}": generation})
    rules = control.state.rules(generation)
    learn = control.learner(rules)

    def partition(number: int) -> Partition:
        return Partition(number, generation.number, store, log, rules, learn=learn, voice=Silence(), cached_windows=settings.cached_windows)

    folded = _Counter(progress, sum((await log.ends()).values()))
    for _ in range(2):
        # The second round folds what came while the first, long one ran.
        ends = await _spoken(store, state.live_generation.number, await log.ends())
        await _fold_on({p: partition(p) for p in ends}, log, store, ends, folded)
    if switch:
        for number in range(log.partitions):
            await _heal_to_live(partition(number), store, state.live_generation.number)
    ready = msgspec.structs.replace(generation, state="ready")
    records: dict[str, msgspec.Struct | int | None] = {f"generation/{ready.number}": ready}
    if switch:
        records |= _switched(control.state, ready)
    await control.write(records)
    if switch:
        await control.settle_policies(ready)  # of tenants that were changed in that moment
    return RebuildReport(ready.number, folded.events, resumed, switch)


async def _heal_to_live(partition: Partition, store: WindowStore, live: int) -> None:
    """Let the candidate's partition count as healing until it is where readers of the live one have been."""
    old, new = await store.checkpoint(live, partition.number), await store.checkpoint(partition.generation, partition.number)
    if old is not None:
        partition.adopt(new or Checkpoint())
        await partition.set_target(max(old.offset, old.target))


async def _spoken(store: WindowStore, live: int, ends: dict[int, int]) -> dict[int, int]:
    """Where to stop: what the live generation has not folded has not been announced, and a rebuild says nothing. The projector goes on."""
    stops: dict[int, int] = {}
    for partition, end in ends.items():
        checkpoint = await store.checkpoint(live, partition)
        stops[partition] = 0 if checkpoint is None else min(end, max(checkpoint.offset, checkpoint.target) + 1)
    return stops


def _candidate(state: State, policy: dict[str, Any] | None) -> tuple[Generation, bool]:
    """The generation to build: one begun under the same rules after the live one, or a new one."""
    live = state.live_generation
    rules_policy = live.policy if policy is None else policy
    tenants = {t.name: t.policy if t.next_policy is None else t.next_policy for t in state.tenants.values()}
    tenants = {name: layer for name, layer in tenants.items() if layer or state.tenants[name].next_policy is not None}
    rules = Rules(rules_policy, tenants, state.callables, state.summarizers)
    if policy is not None:
        rules.check(None)
    for number, known in sorted(state.generations.items(), reverse=True):
        if number > live.number and (known.policy, known.tenants, known.partitions) == (rules_policy, tenants, live.partitions):
            return known, True
    number = max(state.generations) + 1
    return Generation(number, live.partitions, rules_policy, tenants, "building"), False


def _switched(state: State, ready: Generation) -> dict[str, msgspec.Struct | int | None]:
    """The records of a switch: the old generation keeps its tenants' policies, the tenants get the new ones, and it is live."""
    old = state.live_generation
    kept = {t.name: t.policy for t in state.tenants.values() if t.policy}
    records: dict[str, msgspec.Struct | int | None] = {
        f"generation/{old.number}": msgspec.structs.replace(old, tenants={**kept, **old.tenants})
    }
    for tenant in state.tenants.values():
        # A policy that came after the rebuild was begun is not the one these windows were folded under: it waits for the next one.
        if tenant.next_policy is not None and ready.tenants.get(tenant.name) == tenant.next_policy:
            records[f"tenant/{tenant.name}"] = msgspec.structs.replace(tenant, policy=tenant.next_policy, next_policy=None).after(tenant)
    records["generation/live"] = ready.number
    return records


class _Counter:
    def __init__(self, progress: Progress | None, total: int) -> None:
        self.events = 0
        self._progress = progress
        self._total = total

    def add(self, n: int) -> None:
        self.events += n
        if self._progress is not None:
            self._progress(min(self.events, self._total), self._total)


async def _fold_on(partitions: dict[int, Partition], log: Log, store: WindowStore, ends: dict[int, int], folded: _Counter) -> None:
    """The same, begun again where it was when an erasure wrote beside it; another rebuild would fence it every time."""
    for left in range(ATTEMPTS, 0, -1):
        try:
            await _fold(partitions, log, store, ends, folded)
        except Fenced:
            if left == 1:
                raise
        else:
            return


async def _fold(partitions: dict[int, Partition], log: Log, store: WindowStore, ends: dict[int, int], folded: _Counter) -> None:
    """Fold each partition from its checkpoint up to its end; the store is written now and then only, and at the end."""
    for partition in partitions.values():
        checkpoint = await store.checkpoint(partition.generation, partition.number)
        if checkpoint is None:
            # A drop that was cut off may have left windows of an earlier generation of this number.
            await store.drop_partition(partition.generation, partition.number)
        partition.adopt(checkpoint or Checkpoint())
    unwritten, size = dict.fromkeys(partitions, 0), dict.fromkeys(partitions, 0)
    ranges = {number: (partition.checkpoint.offset + 1, ends[number] - 1) for number, partition in partitions.items()}
    async with aclosing(log.stream(ranges)) as batches:
        async for number, rows in batches:
            await partitions[number].fold(rows)
            folded.add(len(rows))
            unwritten[number] += len(rows)
            size[number] += sum([len(row.value or b"") for row in rows])
            if unwritten[number] >= UNWRITTEN // len(partitions) or size[number] >= UNWRITTEN_BYTES // len(partitions):
                await partitions[number].write()
                unwritten[number] = size[number] = 0
    for partition in partitions.values():
        await partition.write()
