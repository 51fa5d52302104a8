"""Figure `sustained`: the whole pipeline flat out, summaries included.

128 conversations of a real agent (840 messages of 89 tokens each, a third of them calls and tools'
results) are played by ``threadfold play`` into one ``threadfold up`` with its default policy and
settings, on the same cores as Kafka, Redis and the player. ``ours`` is events a second from the
first one in the log until all are applied and no summary is awaited. The peers are parts of it, in
the same run: ``projection`` is our side of that figure, catching up without a compactor;
``projection_of_these`` is the same with this figure's events, which are longer. Tokens are counted
before the clock starts, on all sides.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from benchmarks import projection
from benchmarks.harness import Args, Result, interleave, rounded
from benchmarks.support.agent_talks import AgentRecords, mean_tokens, source, write_talks
from benchmarks.support.played import play
from benchmarks.support.stacks import filled_log, running_stack


class Talks(NamedTuple):
    """What is played: conversations of real messages."""

    conversations: int = 128
    messages: int = 840
    """In each conversation."""

    @classmethod
    def of(cls, args: Args) -> Talks:
        """As many as a run plays; a quick one plays few."""
        return cls(6, 500) if args.quick else cls()

    @property
    def events(self) -> int:
        """Messages in all."""
        return self.conversations * self.messages

    def write(self, folder: str) -> Path:
        """Write them into a new file of a folder."""
        file = Path(folder) / "talks.jsonl"
        write_talks(file, self.conversations, self.messages)
        return file

    def parameters(self, args: Args) -> dict[str, Any]:
        """What a result says of them, and of `projection` beside them."""
        return {
            "events": self.events,
            "conversations": self.conversations,
            "texts": source(),
            "projection_events": projection.events_of(args),
        }


class Sustained:
    """Events a second with every summary made."""

    name = "sustained"
    goal = "at least 0.2 of projection"

    async def run(self, args: Args) -> Result:
        """Fill the peers' topics once; ours gets a stack of its own in each round."""
        talks = Talks.of(args)
        with TemporaryDirectory() as folder, running_stack() as bench:
            file = talks.write(folder)
            plain = await projection.prepared(bench, args)
            these = bench.settings("sustained-p", partitions=8)
            records = AgentRecords().all(range(talks.conversations), talks.messages)
            async with filled_log(these, records):
                pass
            rounds = await interleave(
                {
                    "ours": partial(play, bench, self.name, file, talks.events, {}),
                    "projection": partial(projection.ours, bench, plain),
                    "projection_of_these": partial(projection.ours, bench, these),
                },
                args.rounds(),
            )
        more = {
            "event_tokens": rounded(mean_tokens()),
            "table": {"ours": [dict(one.more) for one in rounds.taken["ours"]]},
        }
        return rounds.result(self.name, "events/s", talks.parameters(args), more=more)


FIGURE = Sustained()
