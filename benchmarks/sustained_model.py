"""Figure `sustained_model`: the same as `sustained`, its summaries made by a model that takes its
time.

The endpoint is a process of its own that answers every call after 3 s and takes 256 at once; more
are answered 429. The settings name it, with what it takes (``max_concurrent``), and a policy of the
deployment asks for it; all else is the default. The time that is measured ends with the last
summary, so a share of it is the endpoint's 3 s. ``calls_at_once`` is the most the endpoint saw.
"""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks import projection
from benchmarks.harness import Args, Measured, Result, interleave
from benchmarks.support.children import answer_of, job_of, start_side
from benchmarks.support.played import play
from benchmarks.support.stacks import Bench, running_stack
from benchmarks.sustained import Talks

SECONDS, AT_ONCE = 3.0, 256
MODEL = "model"


class SustainedModel:
    """Events a second with every summary made by an endpoint that answers in 3 s."""

    name = "sustained_model"
    goal = "at least 0.15 of projection, more than 64 calls at once"

    async def run(self, args: Args) -> Result:
        """Fill the peer's topic once; ours gets a stack and an endpoint of its own every round."""
        talks = Talks.of(args)
        with TemporaryDirectory() as folder, running_stack() as bench:
            file, policy = talks.write(folder), Path(folder) / "policy.json"
            policy.write_text(json.dumps({"summarizer": MODEL}))
            plain = await projection.prepared(bench, args)
            rounds = await interleave(
                {
                    "ours": partial(_ours, bench, file, talks.events, policy),
                    "projection": partial(projection.ours, bench, plain),
                },
                args.rounds(),
            )
        table = [dict(one.more) for one in rounds.taken["ours"]]
        parameters = talks.parameters(args) | {"seconds": SECONDS, "at_once": AT_ONCE}
        more: dict[str, Any] = {
            "calls_at_once": min(row["calls_at_once"] for row in table),
            "table": {"ours": table},
        }
        return rounds.result(self.name, "events/s", parameters, more=more)


async def _ours(bench: Bench, file: Path, events: int, policy: Path) -> Measured:
    settings = bench.settings("model")
    endpoint = await start_side(
        "model_endpoint", job_of(bench, settings, seconds=SECONDS, at_once=AT_ONCE)
    )
    assert endpoint.stdout is not None
    try:
        address = (await endpoint.stdout.readline()).decode().strip()
        options = {"base_url": address, "model": "bench-1", "max_concurrent": AT_ONCE}
        env = {"policy": str(policy), "summarizers": json.dumps({MODEL: options})}
        played = await play(bench, "sustained-m", file, events, env)
    finally:
        seen = await answer_of("model_endpoint", endpoint, 60)
    calls = {"calls_at_once": seen["value"], "calls": seen["calls"], "refused": seen["refused"]}
    return Measured(played.value, played.usage, {**played.more, **calls})


FIGURE = SustainedModel()
