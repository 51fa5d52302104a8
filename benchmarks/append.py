"""Figure `append`: acknowledged events a second in lists, tokens counted, by the client within a
process.

Our side is ``ConversationService.append``: it checks each event, counts its tokens, wraps it, and
has it acknowledged by all in-sync replicas. The peers are aiokafka's producer with the same
settings (idempotent, ``acks=all``, zstd, batches of 1 MiB) and the same bytes and partitions, ready
before the clock starts: ``bare_send`` sends record by record, as its documentation shows;
``bare_batch`` fills batches by hand, the fastest there is in Python, and what a client has to be
measured by. Each peer has the linger and the number of callers that were fastest for it when this
was written. Every side runs in a fresh process with a topic of its own on the same Kafka; each list
is of as many conversations as events, so that it goes to all partitions.
"""

from __future__ import annotations

from functools import partial

from benchmarks.harness import Args, Measured, Result, interleave
from benchmarks.support.children import run_side
from benchmarks.support.stacks import Bench, filled_log, running_stack

SIZE = 500
"""Events in one list: the most that the gateway takes at once."""
SIDES = {
    "ours": ("backend", 4, 0),
    "bare_send": ("bare_send", 1, 0),
    "bare_batch": ("bare_batch", 1, 0),
}
"""How, callers, and the linger in ms (the product's producer has its own)."""


class Append:
    """Events a second acknowledged to callers within a process."""

    name = "append"
    goal = "at least 0.6 x bare_send and, better, 0.6 x bare_batch"

    async def run(self, args: Args) -> Result:
        """Run all sides in turn."""
        events = 20_000 if args.quick else 200_000
        with running_stack() as bench:
            rounds = await interleave(
                {name: partial(_side, bench, name, events) for name in SIDES}, args.rounds()
            )
        parameters = {
            "events": events,
            "list": SIZE,
            "sides": {name: list(side) for name, side in SIDES.items()},
            "conversations_a_list": SIZE,
            "partitions": 8,
        }
        return rounds.result(self.name, "events/s", parameters)


_runs = iter(range(10**9))


async def _side(bench: Bench, name: str, events: int) -> Measured:
    how, callers, linger_ms = SIDES[name]
    settings = bench.settings(f"append{next(_runs)}", partitions=8)
    async with filled_log(settings, ()):
        pass
    job = {
        "how": how,
        "events": events,
        "size": SIZE,
        "spread": SIZE,
        "callers": callers,
        "linger_ms": linger_ms,
    }
    return await run_side("append_client", bench, settings, **job)


FIGURE = Append()
