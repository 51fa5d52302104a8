"""Figure `encryption_projection`: what opening payloads costs the projector.

As figure `projection`: catching up with a filled topic, one process, into Redis. ``ours`` is of a
topic whose payloads are sealed, each of its 1,000 conversations with a key of its own; ``plain`` of
the same events as they are.
"""

from __future__ import annotations

from functools import partial

from benchmarks.harness import Args, Result, interleave
from benchmarks.projection import CONVERSATIONS, ours
from benchmarks.support.sealed import sealed_and_plain
from benchmarks.support.stacks import filled_log, running_stack
from benchmarks.support.texts import Messages


class EncryptionProjection:
    """Events a second from a sealed log into windows in Redis."""

    name = "encryption_projection"
    goal = "reported: the share of plain that is left"

    async def run(self, args: Args) -> Result:
        """Fill both topics once, then run both sides in turn."""
        events = 20_000 if args.quick else 300_000
        with running_stack() as bench, sealed_and_plain(bench, self.name, 8) as settings:
            for one in settings.values():
                async with filled_log(one, Messages().records(0, events, CONVERSATIONS)):
                    pass
            sides = {name: partial(ours, bench, one) for name, one in settings.items()}
            rounds = await interleave(sides, args.rounds())
        return rounds.result(
            self.name,
            "events/s",
            {"events": events, "conversations": CONVERSATIONS, "partitions": 8},
        )


FIGURE = EncryptionProjection()
