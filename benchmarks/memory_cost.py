"""Figure `memory_cost`: what learning by itself costs the pipeline.

``ours`` is figure `sustained` with the policy key ``memory_auto`` at ``summaries``: an encoder
learns from what each summary covers, and what it learns is appended, folded and republished beside.
``off`` is the same without. ``projection`` and ``projection_off`` are our side of figure
`projection` with and without that key; its log has no summaries, so it is the fold alone that is
compared. Both pairs run in turn.
"""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from benchmarks import projection
from benchmarks.harness import Args, Result, interleave, rounded
from benchmarks.support.played import play
from benchmarks.support.stacks import running_stack
from benchmarks.sustained import Talks

POLICY = {"memory_auto": "summaries"}


class MemoryCost:
    """Events a second with every summary made and every one learnt from."""

    name = "memory_cost"
    goal = "at least 0.9 of off, of projection at least 0.9 of projection_off"

    async def run(self, args: Args) -> Result:
        """Each side gets a stack of its own in each round."""
        talks = Talks.of(args)
        with TemporaryDirectory() as folder, running_stack() as bench:
            file, policy = talks.write(folder), Path(folder) / "policy.json"
            policy.write_text(json.dumps(POLICY))
            env = {"policy": str(policy)}
            off = await projection.prepared(bench, args)
            on = msgspec.structs.replace(off, policy=str(policy))
            rounds = await interleave(
                {
                    "ours": partial(play, bench, self.name, file, talks.events, env),
                    "off": partial(play, bench, self.name, file, talks.events, {}),
                    "projection": partial(projection.ours, bench, on),
                    "projection_off": partial(projection.ours, bench, off),
                },
                args.rounds(),
            )
        pairs = zip(rounds.values("projection"), rounds.values("projection_off"), strict=True)
        more = {
            "table": {
                name: [dict(one.more) for one in rounds.taken[name]] for name in ("ours", "off")
            },
            "projection_ratios": [rounded(on_ / off_) for on_, off_ in pairs],
        }
        return rounds.result(self.name, "events/s", talks.parameters(args), more=more)


FIGURE = MemoryCost()
