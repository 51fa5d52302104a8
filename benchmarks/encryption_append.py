"""Figure `encryption_append`: what sealing payloads costs a process that appends lists.

Both sides are ``ConversationService.append`` as in figure `append`, on topics of their own:
``ours`` with policy key ``encryption``, ``plain`` without. The conversations have their keys before
the clock starts: a conversation's first event costs one more acknowledged record, once.
"""

from __future__ import annotations

from functools import partial

import msgspec

from benchmarks.harness import Args, Measured, Result, interleave
from benchmarks.support.children import run_side
from benchmarks.support.sealed import sealed_and_plain
from benchmarks.support.stacks import Bench, filled_log, running_stack
from streams.settings.settings import Settings

SIZE = 500
CALLERS = 4
_runs = iter(range(10**9))


class EncryptionAppend:
    """Events a second acknowledged to callers within a process, sealed."""

    name = "encryption_append"
    goal = "reported: the share of plain that is left"

    async def run(self, args: Args) -> Result:
        """Run both sides in turn."""
        events = 20_000 if args.quick else 200_000
        with running_stack() as bench, sealed_and_plain(bench, self.name, 8) as settings:
            sides = {name: partial(_side, bench, one, events) for name, one in settings.items()}
            rounds = await interleave(sides, args.rounds())
        parameters = {
            "events": events,
            "list": SIZE,
            "callers": CALLERS,
            "conversations_a_list": SIZE,
            "partitions": 8,
        }
        return rounds.result(self.name, "events/s", parameters)


async def _side(bench: Bench, settings: Settings, events: int) -> Measured:
    fresh = msgspec.structs.replace(settings, topic_prefix=f"{settings.topic_prefix}.{next(_runs)}")
    async with filled_log(fresh, ()):
        pass
    return await run_side(
        "append_client",
        bench,
        fresh,
        how="backend",
        events=events,
        size=SIZE,
        spread=SIZE,
        callers=CALLERS,
    )


FIGURE = EncryptionAppend()
