"""Figure `healing`: Redis emptied, and how long until every window is right again, for a log of
100,000 and of 1,000,000 events.

Both logs belong to the same number of conversations, whose windows stand on summaries and hold
about as much, whatever the log's length. A projector catches up with all but the last 20,000 events
and takes its snapshots; the 20,000 are folded by one that takes none. Each round Redis is emptied;
a new projector's time runs from the first partition it is assigned to all partitions at their ends
and none healing. Then every conversation's window has to have as many events as the log has of it,
and a sample is compared with a fold from zero, byte for byte.
"""

from __future__ import annotations

import random
from functools import partial
from typing import Any

from msgspec.structs import replace

from benchmarks.harness import Args, Measured, Result, interleave, say
from benchmarks.projection import fresh_group
from benchmarks.support.children import run_side
from benchmarks.support.grown import GrownLog
from benchmarks.support.stacks import Bench, filled_log, running_stack
from benchmarks.support.texts import Messages
from projections.events.validation import Record
from projections.names import Key, partition_of
from projections.policy.policy import Rules
from projections.redis.store import RedisStore
from projections.window.window import Window
from streams.settings.settings import Settings

CONVERSATIONS = 200
SAMPLE = 20
LAST = 20_000


class Healing:
    """The long log's time over the short one's."""

    name = "healing"
    goal = "1,000,000 events within 1.5 x the time of 100,000"

    async def run(self, args: Args) -> Result:
        """Heal both logs in turn."""
        short, long = (20_000, 60_000) if args.quick else (100_000, 1_000_000)
        conversations = 40 if args.quick else CONVERSATIONS
        with running_stack() as bench:
            logs = {
                name: await _Log.made(bench, name, events, conversations)
                for name, events in (("short", short), ("long", long))
            }
            sides = {
                "ours": partial(logs["long"].heal, bench),
                "short_log": partial(logs["short"].heal, bench),
            }
            rounds = await interleave(sides, args.rounds())
        table = {name: log.row for name, log in logs.items()}
        parameters = {
            "short": short,
            "long": long,
            "conversations": conversations,
            "partitions": 8,
            "last": LAST,
            "sample": SAMPLE,
        }
        return rounds.result(self.name, "s", parameters, better="lower", more={"table": table})


class _Log:
    """A log of one length, and what its windows have to be."""

    def __init__(
        self, settings: Settings, windows: dict[Key, Window], counts: dict[Key, int]
    ) -> None:
        self.settings = settings
        self.counts = counts
        names = random.Random(7).sample(sorted(windows), SAMPLE)
        self.images = {key: windows[key].image() for key in names}
        self.row: dict[str, Any] = {}

    @classmethod
    async def made(cls, bench: Bench, name: str, events: int, conversations: int) -> _Log:
        """Grow the log and append it."""
        settings = bench.settings(f"healing.{name}", partitions=8)
        grown = GrownLog(settings)
        await grown.grow(Messages().records(0, events, conversations))
        say(f"grew {sum(grown.counts.values())} events with {grown.summaries} summaries")
        records = await grown.records()
        for part, snapshot_events in zip(
            _parted(records, min(LAST, len(records) // 2), settings.partitions), (1, 0), strict=True
        ):
            async with filled_log(settings, part):
                pass
            caught_up = await run_side(
                "projector",
                bench,
                fresh_group(replace(settings, snapshot_events=snapshot_events)),
                whole=False,
            )
            say(f"caught up in {caught_up.more['seconds']} s")
        return cls(replace(settings, snapshot_events=0), grown.windows, grown.counts)

    async def heal(self, bench: Bench) -> Measured:
        """Empty Redis, and time the healing; no snapshots are taken meanwhile, so each round finds
        the same.
        """
        bench.flush()
        healed = await run_side("projector", bench, fresh_group(self.settings), whole=False)
        await self._check()
        seconds = healed.more["seconds"]
        self.row = {
            "log_events": sum(self.counts.values()),
            "healed_s": seconds,
            "folded": healed.more["events"],
            "windows": len(self.counts),
        }
        return Measured(seconds, healed.usage, self.row)

    async def _check(self) -> None:
        store, rules = RedisStore(self.settings.redis, self.settings.topic_prefix), Rules()
        try:
            for key, count in self.counts.items():
                partition = partition_of(key, self.settings.partitions)
                checkpoint, (stored,) = await store.read(1, partition, [key])
                if checkpoint is None or checkpoint.healing or stored is None:
                    raise RuntimeError(f"the window of {key} did not come back")
                window = stored.load(key, partition, rules)
                if window.meta.count != count:
                    raise RuntimeError(
                        f"the window of {key} has {window.meta.count} events, the log {count}"
                    )
                if key in self.images and window.image() != self.images[key]:
                    raise RuntimeError(f"the window of {key} differs from the fold of its log")
        finally:
            await store.close()


def _parted(records: list[Record], last: int, partitions: int) -> tuple[list[Record], list[Record]]:
    """The records in two parts; the second has the last ones of each partition, ``last`` in all. A
    partition keeps its order.
    """
    of: dict[int, list[Record]] = {}
    for record in records:
        of.setdefault(partition_of(record.key, partitions), []).append(record)
    size = last // partitions
    return [r for rows in of.values() for r in rows[:-size]], [
        r for rows in of.values() for r in rows[-size:]
    ]


FIGURE = Healing()
