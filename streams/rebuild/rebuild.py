"""Rebuild: fold the log from zero into a new generation beside the live one, and switch to it.

The new generation publishes nothing while it is built. A rebuild that was interrupted goes on where
its checkpoints are, when it is asked for again with the same rules. After the switch the projector
catches up from the new generation's checkpoints; until then its partitions heal, so that readers
never step back.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from projections.errors import KafkaUnavailable, RedisUnavailable, ThreadfoldError
from projections.names import Key
from projections.storage.protocol import WindowStore
from streams.control.control_topic import Control
from streams.control.generations import Hold, begin, known_generation, make_live
from streams.control.state import Generation
from streams.log.log import Log
from streams.log.retention import check_whole
from streams.rebuild.build import Bounds, Builder, left_to_fold
from streams.rebuild.build_pool import build_in_processes, shares
from streams.rebuild.losses import UNKNOWN, Side, find_losses
from streams.settings.settings import Settings

Progress = Callable[[int, int], None]
NAMED = 5
"""Conversations that an error names."""


@dataclass(frozen=True, slots=True)
class Loss:
    """A conversation of which a switch loses something, or may: ``because`` says what, or why that
    is not known.
    """

    conversation: str
    because: str


class NotCompared(ThreadfoldError):
    """Whether a switch loses anything cannot be known now: nothing was switched."""

    exit_code = 1
    problem = 503


class WouldLose(ThreadfoldError):
    """A switch would make conversations forget what their windows hold: all of them, and why."""

    exit_code = 1
    problem = 409

    def __init__(self, message: str, losses: tuple[Loss, ...] = ()) -> None:
        super().__init__(message)
        self.losses = losses


@dataclass(frozen=True, slots=True)
class RebuildReport:
    """What a rebuild made: the generation, how many records it folded, whether it is live now, and
    all that the switch lost. Without a switch ``losses`` is None.
    """

    generation: int
    events: int
    resumed: bool
    live: bool
    losses: tuple[Loss, ...] | None = None


async def rebuild(
    settings: Settings,
    control: Control,
    log: Log,
    store: WindowStore,
    *,
    policy: dict[str, Any] | None = None,
    number: int | None = None,
    switch: bool = False,
    accept_loss: bool = False,
    jobs: int = 1,
    bounds: Bounds | None = None,
    progress: Progress | None = None,
) -> RebuildReport:
    """Build a generation under ``policy`` (None: the live generation's) and, with ``switch``, make
    it live.

    Args:
        number: build this one instead, which was begun before: it is brought up to where the live
            one is.
        accept_loss: switch even where a conversation would lose what its window holds. All are
            compared all the same, and the report names those.
        jobs: how many processes fold; 1 is this one. Of what runs there only ``settings`` is known:
            another log or store is not.
        progress: called with the records folded, and how many there were to fold when it began;
            more come while it runs.

    Raises:
        InvalidPolicy: the policy does not hold.
        LogTruncated: the log has lost its first events, and that is not accepted.
        UnknownGeneration: no generation has that number.
        WouldLose, NotCompared: the switch would make conversations forget, or nobody knows yet;
            what is built stays.
        GenerationBusy, Fenced: another process builds or drops this generation.
        BuildFailed: one of the processes died.
        KafkaUnavailable, RedisUnavailable: what is built stays, and the same call goes on.
    """
    await check_whole(log, settings.topic("events"), accept=settings.accept_truncated_log)
    generation, resumed = await _begun(control, policy, number)
    losses: tuple[Loss, ...] | None = None
    try:
        async with Hold(store, generation.number) as hold:
            generation = known_generation(await control.sync(), generation.number)
            if generation.number == control.state.live:
                # Whoever had it before has switched to it: its windows are the workers' now.
                return RebuildReport(generation.number, 0, resumed, True)
            left = await left_to_fold(control, log, store, generation.number)
            count, bounds = _Count(hold, progress, sum(left.values())), bounds or Bounds()
            count(0)
            if jobs > 1:
                parts = shares(left, jobs)
                await build_in_processes(settings, generation.number, parts, bounds, count)
            every = range(log.partitions)
            builder = Builder(
                settings, control, log, store, generation, every, bounds=bounds, progress=count
            )
            await builder.run()
            await _mark_ready(control, generation)
            if switch:
                losses = await _switch(control, log, store, generation, builder, accept_loss)
    except (KafkaUnavailable, RedisUnavailable) as error:
        stays = (
            f"what is built of generation {generation.number} stays, and the same command goes on"
        )
        raise type(error)(f"{error}; {stays}") from error
    return RebuildReport(generation.number, count.events, resumed, switch, losses)


async def _begun(
    control: Control, policy: dict[str, Any] | None, number: int | None
) -> tuple[Generation, bool]:
    """The generation to build, and whether it was begun before."""
    state = await control.sync()
    # A switch that was cut off right after it.
    await control.settle_policies(state.live_generation)
    if number is not None:
        return known_generation(state, number), True
    return await begin(control, policy)


async def _mark_ready(control: Control, generation: Generation) -> None:
    if generation.state != "ready":
        ready = msgspec.structs.replace(generation, state="ready")
        await control.write({f"generation/{generation.number}": ready})


async def _switch(
    control: Control,
    log: Log,
    store: WindowStore,
    generation: Generation,
    builder: Builder,
    accept_loss: bool,
) -> tuple[Loss, ...]:
    """Make a generation live, once it is where the live one is now; returns what that loses."""
    await builder.round()
    state = control.state
    live, other = (
        Side(one.number, state.rules(one)) for one in (state.live_generation, generation)
    )
    begins = await log.beginning_offsets()
    found = await find_losses(store, live, other, begins, builder.round)
    if not accept_loss:
        _refuse_losses(generation.number, found)
    await make_live(control, store, generation.number)
    return _losses(found)


def _losses(found: dict[Key, str]) -> tuple[Loss, ...]:
    return tuple(Loss(str(key), why) for key, why in sorted(found.items()))


def _refuse_losses(generation: int, found: dict[Key, str]) -> None:
    lost = {key: why for key, why in found.items() if why not in UNKNOWN}
    listed = _losses(lost or found)
    named = "; ".join(f"{one.conversation}: {one.because}" for one in listed[:NAMED])
    more = "; …" if len(listed) > NAMED else ""
    if lost:
        raise WouldLose(
            f"generation {generation} is not made live: {len(lost)} conversations would lose"
            f" what their windows hold ({named}{more}): accept the loss (--accept-loss) to"
            " switch anyway",
            _losses(found),
        )
    if found:
        raise NotCompared(
            f"generation {generation} is not made live: {len(found)} conversations could not"
            f" be compared with the live ones ({named}{more}): run it again later, when less"
            " comes in"
        )


@dataclass(slots=True)
class _Count:
    """Counts what is folded, and ends the work where another process has taken it over."""

    hold: Hold
    progress: Progress | None
    total: int
    events: int = 0

    def __call__(self, n: int) -> None:
        self.hold.check()
        self.events += n
        if self.progress is not None:
            self.progress(self.events, max(self.events, self.total))
