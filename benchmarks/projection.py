"""Figure `projection`: catching up with a filled topic, one process, into Redis.

The topic holds message events of about 470 bytes of 1,000 conversations that take turns. Every side
runs in a fresh process on the same Kafka and the same topic, with a consumer group of its own;
Redis and our snapshots are emptied before each. The slow peer reads only a part of the topic: a
rate counts, and its windows are shorter then, which favours it.
"""

from __future__ import annotations

from functools import partial

import msgspec

from benchmarks.harness import Args, Measured, Result, interleave
from benchmarks.support.children import run_side
from benchmarks.support.stacks import Bench, filled_log, running_stack
from benchmarks.support.texts import Messages
from streams.settings.settings import Settings

CONVERSATIONS = 1_000
KEEP = 680
"""Messages in Quix' ring: 30,000 tokens, our working budget, are about as many messages here."""


class Projection:
    """Events a second from the log into windows in Redis."""

    name = "projection"
    goal = "at least 10 x faust_agent, 1.2 x quix_streams, 0.35 x read_only"

    async def run(self, args: Args) -> Result:
        """Fill the topic once, then run all sides in turn."""
        events, faust_events = events_of(args), 4_000 if args.quick else 30_000
        with running_stack() as bench:
            settings = await prepared(bench, args)
            rounds = await interleave(
                {
                    "ours": partial(ours, bench, settings),
                    "read_only": partial(run_side, "read_only", bench, settings),
                    "faust_agent": partial(_faust, bench, settings, faust_events),
                    "quix_streams": partial(
                        run_side, "quix_streams", bench, settings, events=events, keep=KEEP
                    ),
                },
                args.rounds(),
            )
        messages = Messages()
        size = sum(len(messages.record(i, CONVERSATIONS).value) for i in range(1000)) / 1000
        parameters = {
            "events": events,
            "faust_events": faust_events,
            "conversations": CONVERSATIONS,
            "partitions": 8,
            "quix_keep": KEEP,
        }
        return rounds.result(self.name, "events/s", parameters, more={"event_bytes": round(size)})


async def prepared(bench: Bench, args: Args) -> Settings:
    """Settings whose topic holds this figure's events, for figures that measure :func:`ours`
    beside.
    """
    settings = bench.settings("projection", partitions=8)
    async with filled_log(settings, Messages().records(0, events_of(args), CONVERSATIONS)):
        pass
    return settings


def events_of(args: Args) -> int:
    """How many events this figure's topic holds."""
    return 20_000 if args.quick else 300_000


_groups = iter(range(10**9))


def fresh_group(settings: Settings) -> Settings:
    """The same settings with a consumer group that has read nothing yet."""
    return msgspec.structs.replace(settings, group=f"{settings.topic_prefix}.g{next(_groups)}")


async def ours(bench: Bench, settings: Settings) -> Measured:
    """Our projector, from nothing: neither Redis nor snapshots hold anything of an earlier
    round.
    """
    await bench.forget(settings)
    return await run_side("projector", bench, fresh_group(settings))


async def _faust(bench: Bench, settings: Settings, events: int) -> Measured:
    bench.flush()
    return await run_side("faust_agent", bench, settings, events=events)


FIGURE = Projection()
