"""Generations: which one a rebuild builds, who may work on it, making one live, dropping one.

A number belongs to whoever's claim stands first on the control topic. Each claim is a record of its
own, so compaction keeps all of them in their order, and a number is never given twice. A switch is
one record, ``generation/live``: all that has to be there with it is written before, all that may
come later follows from it.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Collection
from dataclasses import replace
from types import TracebackType
from typing import Any

import msgspec

from projections.errors import Conflict, Healing, ThreadfoldError
from projections.events.times import present
from projections.policy.policy import Rules
from projections.storage.protocol import WindowStore
from projections.storage.records import Checkpoint, Verdict
from streams.control.control_topic import Control
from streams.control.state import Generation, State
from streams.runtime.tasks import end_tasks

logger = logging.getLogger(__name__)
ATTEMPTS = 20
"""How often a number is claimed because others came first, and how often a partition is marked that
somebody writes beside it.
"""
HOLD = 10.0
"""Seconds for which the right to work on a generation is taken; a process that was killed leaves it
free after so long.
"""
RENEW = 2.0
HEARD = 60.0
"""Seconds within which all processes hear of a switch."""
SETTLE = 0.5


class UnknownGeneration(ThreadfoldError):
    """No generation has this number."""

    exit_code = 1
    problem = 404


class LiveGeneration(ThreadfoldError):
    """The generation is the one that readers see."""

    problem = 409


class GenerationBusy(Conflict):
    """Another process builds this generation, switches to it or drops it."""


def known_generation(state: State, number: int) -> Generation:
    """The generation of this number; raises :class:`UnknownGeneration`."""
    if number not in state.generations:
        raise UnknownGeneration(
            f"there is no generation {number}: see `threadfold generations list`"
        )
    return state.generations[number]


def candidate(
    state: State, policy: dict[str, Any] | None, known_unusable: Collection[str] = ()
) -> tuple[Generation, bool]:
    """The generation that a rebuild under ``policy`` (None: the live one's) builds, and whether it
    was begun before.

    That is the latest one after the live one under the same rules, else a new one. Tenants'
    policies that wait are part of its rules.

    Raises:
        InvalidPolicy: the policy does not hold.
        UnusablePolicy: a tenant's does not, that is none of ``known_unusable``; its windows could
            not be built.
    """
    live = state.live_generation
    rules_policy = live.policy if policy is None else policy
    tenants = {
        t.name: state.policy_of(t) if t.next_policy is None else t.next_policy
        for t in state.tenants.values()
    }
    tenants = {
        name: layer
        for name, layer in tenants.items()
        if layer or state.tenants[name].next_policy is not None
    }
    rules = Rules(rules_policy, tenants, state.callables, state.summarizers)
    for name in sorted(rules.unusable.keys() - known_unusable):
        rules.check_usable(name)
    if policy is not None:
        rules.check(None)
    for number, known in sorted(state.generations.items(), reverse=True):
        if number > live.number and (known.policy, known.tenants, known.partitions) == (
            rules_policy,
            tenants,
            live.partitions,
        ):
            return known, True
    number = max(state.generations.keys() | state.claims.keys()) + 1
    new = Generation(
        number, live.partitions, rules_policy, tenants, "building", created=present("seconds")
    )
    return new, False


def compared_generation(
    state: State, policy: dict[str, Any] | None, number: int | None
) -> Generation:
    """What the live generation is compared with: the generation ``number``, or the one that
    :func:`candidate` says. Tenants whose policy cannot be used under the live generation either are
    no reason to refuse. Raises InvalidPolicy, UnusablePolicy, UnknownGeneration.
    """
    if number is not None:
        return known_generation(state, number)
    return candidate(state, policy, state.rules(state.live_generation).unusable.keys())[0]


async def begin(control: Control, policy: dict[str, Any] | None) -> tuple[Generation, bool]:
    """Begin a generation under a number of its own, or find the one to go on with; raises like
    :func:`candidate`, and Conflict.
    """
    for _ in range(ATTEMPTS):
        generation, known = candidate(await control.sync(), policy)
        if known:
            return generation, True
        claimant = secrets.token_hex(8)
        await control.write({f"claim/{generation.number}/{claimant}": generation.number})
        if control.state.claims.get(generation.number) == claimant:
            await control.write({f"generation/{generation.number}": generation})
            return generation, False
    raise Conflict("other rebuilds keep starting: try again")


class Hold:
    """The right to work on one generation, for as long as the context lasts: of a rebuild, a switch
    and a drop one at a time.

    It keeps people from doing two things at once; what would go wrong with the windows is prevented
    by their revisions.
    """

    def __init__(
        self, store: WindowStore, generation: int, *, patience: float = HOLD + 2.0
    ) -> None:
        """Args: ``patience`` is for how many seconds to wait for one who has it: one that was
        killed cannot give it back.
        """
        self._store = store
        self._generation = generation
        self._patience = patience
        self._holder = secrets.token_hex(8)
        self._task: asyncio.Task[None] | None = None
        self._lost = False

    async def __aenter__(self) -> Hold:
        limit = time.monotonic() + self._patience
        while not await self._store.hold(self._generation, self._holder, HOLD):
            if time.monotonic() > limit:
                raise GenerationBusy(
                    f"generation {self._generation} is being built, switched to or dropped by"
                    " another process: wait until it is done"
                )
            await asyncio.sleep(0.25)
        self._task = asyncio.create_task(self._keep(), name=f"hold-{self._generation}")
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await end_tasks([self._task])
        try:
            await self._store.hold(self._generation, self._holder, 0)
        except ThreadfoldError as away:
            logger.info("generation %d is free in %g s: %s", self._generation, HOLD, away)

    def check(self) -> None:
        """Raise :class:`GenerationBusy` where another process has taken the right meanwhile."""
        if self._lost:
            raise GenerationBusy(
                f"another process took over generation {self._generation} while this one was"
                " stopped"
            )

    async def _keep(self) -> None:
        while not self._lost:
            await asyncio.sleep(RENEW)
            try:
                self._lost = not await self._store.hold(self._generation, self._holder, HOLD)
            except ThreadfoldError as error:
                logger.warning("holding generation %d: %s", self._generation, error)


async def make_live(control: Control, store: WindowStore, number: int) -> None:
    """Switch readers to a generation that has been built up to where the live one is.

    Until a reader has read of it, everybody reads the old generation; from then on the new one, of
    which no partition is served before it is where the old one was (it counts as healing until the
    workers have brought it there). Cut off in the middle, either nothing has changed for readers or
    all of it; asked for again, it goes on.

    Raises:
        UnknownGeneration: it was dropped meanwhile.
        KafkaUnavailable, RedisUnavailable: it may have been switched; ask again.
    """
    state = await control.sync()
    old, ready = (
        state.live_generation,
        msgspec.structs.replace(known_generation(state, number), state="ready"),
    )
    records: dict[str, msgspec.Struct | int | None] = {f"generation/{ready.number}": ready}
    if old.number != ready.number:
        await control.write({f"generation/{old.number}": kept_rules(state, old), **records})
        await asyncio.gather(
            *(
                heal_to_live(store, old.number, ready.number, partition)
                for partition in range(ready.partitions)
            )
        )
        ready = msgspec.structs.replace(ready, live_at=present("seconds"))
        # It was folded on while it was not live: where it halted once says nothing now.
        passed = (p for p, halt in state.halts.items() if halt.generation == ready.number)
        records = {f"generation/{ready.number}": ready, "generation/live": ready.number}
        records |= {f"halt/{partition}": None for partition in passed}
    await control.write(records)
    await control.settle_policies(control.state.live_generation)


def kept_rules(state: State, old: Generation) -> Generation:
    """The old generation with the tenants' policies that it was folded under: they may have others
    when it is looked at or goes on.
    """
    tenants = {
        t.name: t.policy for t in state.tenants.values() if t.policy or t.next_policy is not None
    }
    return msgspec.structs.replace(old, tenants={**tenants, **old.tenants})


async def whole(store: WindowStore, live: int, partition: int) -> Checkpoint | None:
    """The checkpoint of a partition of the live generation, of which no window is behind what
    readers have seen; None: nothing is folded.

    Otherwise windows lack what they held, and what was not folded again may not have been
    announced: no other generation may take their place. Raises :class:`Healing` when it stays so.
    """
    for _ in range(ATTEMPTS):
        found = await store.checkpoint(live, partition)
        if found is None or found.whole:
            return found
        await asyncio.sleep(SETTLE)
    assert found is not None
    raise live_heals(live, partition, found)


def live_heals(live: int, partition: int, found: Checkpoint) -> Healing:
    """The error that says how far a partition of the live generation is, which is not whole."""
    reached = f"offset {found.offset} of {found.target}" if found.behind else "not begun yet"
    return Healing(
        f"partition {partition} of the live generation {live} is healing ({reached}): try again"
        " when it is done"
    )


async def heal_to_live(store: WindowStore, live: int, number: int, partition: int) -> None:
    """Let a generation's partition count as healing until it is where readers of the live one have
    been. Raises :class:`Healing`.
    """
    for _ in range(ATTEMPTS):
        old = await whole(store, live, partition)
        new = await store.checkpoint(number, partition) or Checkpoint()
        if old is None:
            if new.offset < 0:
                return
            await asyncio.sleep(SETTLE)  # it was lost: a worker is about to heal it
            continue
        marked = replace(new, target=max(old.latest, old.target), withheld_until=0)
        if (await store.apply(number, partition, marked, [])).verdict is Verdict.APPLIED:
            return
    raise Healing(
        f"partition {partition} of generation {live} or {number} is healing or being written: try"
        " again shortly"
    )


async def withhold(store: WindowStore, former: int, partition: int) -> None:
    """Keep the former generation's partition from readers for :data:`HEARD` seconds: those that
    have not heard of the switch would be served older windows than others are.

    To be called before the live generation is folded on. Where others keep writing the former one,
    it stays as it is. Raises :class:`RedisUnavailable`.
    """
    for _ in range(ATTEMPTS):
        found = await store.checkpoint(former, partition)
        if found is None:
            return
        marked = replace(found, withheld_until=int((time.time() + HEARD) * 1000))
        if (await store.apply(former, partition, marked, [])).verdict is Verdict.APPLIED:
            return


async def drop(control: Control, store: WindowStore, number: int) -> int:
    """Delete a generation's record and windows; returns how many keys went. The log is not touched.

    Raises:
        UnknownGeneration, LiveGeneration: as named.
        GenerationBusy: a rebuild or a switch works on it.
    """
    generation = _droppable(await control.sync(), number)
    async with Hold(store, number):
        _droppable(await control.sync(), number)
        # The record goes first, so that nobody begins to read or build windows that are being
        # deleted.
        await control.write({f"generation/{number}": None})
        return await store.drop_generation(number, generation.partitions)


def _droppable(state: State, number: int) -> Generation:
    if number == state.live:
        raise LiveGeneration(
            f"generation {number} is live: switch to another first (`threadfold rebuild --switch`)"
        )
    return known_generation(state, number)
