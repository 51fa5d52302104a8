"""Figure `replay`: folding the whole log from zero, one process; in the table also two processes,
as the command takes on two cores.

The log is that of figure `projection`, projected once before, so that there is a live generation.
Ours is a rebuild of a candidate generation; ``verify`` in the table folds all of it in memory and
compares every window with the store's. The peer reads and parses, nothing else.
"""

from __future__ import annotations

from functools import partial

from benchmarks.harness import Args, Result, interleave, say
from benchmarks.projection import CONVERSATIONS, ours
from benchmarks.support.children import run_side
from benchmarks.support.stacks import filled_log, running_stack
from benchmarks.support.texts import Messages


class Replay:
    """Events a second folded from zero."""

    name = "replay"
    goal = "at least 100,000 events/s"

    async def run(self, args: Args) -> Result:
        """Fill and project once, then fold again and again."""
        events = 20_000 if args.quick else 300_000
        with running_stack() as bench:
            settings = bench.settings("replay", partitions=8)
            async with filled_log(settings, Messages().records(0, events, CONVERSATIONS)):
                pass
            live = await ours(bench, settings)
            say(f"the live generation was projected at {live.value:.0f} events/s")
            rounds = await interleave(
                {
                    "ours": partial(run_side, "rebuild", bench, settings, how="rebuild"),
                    "read_only": partial(run_side, "read_only", bench, settings),
                },
                args.rounds(),
            )
            by_two = await run_side("rebuild", bench, settings, how="rebuild", jobs=2)
            verified = await run_side("rebuild", bench, settings, how="verify")
        table = {
            "rebuild": round(rounds.median("ours")),
            "rebuild, 2 processes": round(by_two.value),
            "verify": round(verified.value),
            "projected": round(live.value),
        }
        parameters = {"events": events, "conversations": CONVERSATIONS, "partitions": 8}
        return rounds.result(self.name, "events/s", parameters, more={"table": table})


FIGURE = Replay()
