"""Figure `tokens`: messages counted a second, and the share of append's time that counting takes.

Our side is ``projections.events.tokenizer.count_all`` on lists of 500, as append calls it; the
peers are tiktoken, text by text, and toktok's bare ``batch_count`` on the same lists. All give the
same counts, which is checked. The texts are chat messages as in figure `append`, and prose and code
of about 300 characters (Python's own help texts), where fewer words repeat; the figure is for the
chat messages. The share is measured within figure `append`'s own side: the CPU seconds of
``count_all`` over those of the process while all its lists were appended.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from pydoc_data import topics

import toktok

from benchmarks.harness import Args, Measured, Result, interleave, rounded
from benchmarks.support.children import run_side
from benchmarks.support.flats import flats
from benchmarks.support.stacks import filled_log, running_stack
from projections.events.encodings import DEFAULT_ENCODING, get_encoding
from projections.events.tokenizer import count_all

SIZE = 500
Count = Callable[[Sequence[str]], list[int]]


def chat(count: int) -> list[str]:
    """Texts of chat messages."""
    return [str(flat["content"]) for flat in flats(count)]


def prose(count: int) -> list[str]:
    """Stretches of Python's help texts: English, code and tables, from 100 to 500 characters."""
    whole = "\n".join(topics.topics.values())
    return [whole[(i * 37) % (len(whole) - 600) :][: 100 + (i * 7) % 400] for i in range(count)]


def ours(texts: Sequence[str]) -> list[int]:
    """As append counts."""
    return count_all(texts)[0]


def with_tiktoken(texts: Sequence[str]) -> list[int]:
    """One by one: tiktoken's own batch starts threads for each call, which costs more than texts of
    this length.
    """
    encode = get_encoding(DEFAULT_ENCODING).encode_ordinary
    return [len(encode(text)) for text in texts]


def with_toktok(texts: Sequence[str]) -> list[int]:
    """The bare library: no look at the texts, which for some recent characters gives other counts
    than tiktoken.
    """
    return list(toktok.batch_count(texts, DEFAULT_ENCODING, threads=1))


def rate(count: Count, lists: Sequence[Sequence[str]]) -> float:
    """Messages a second."""
    begin = time.perf_counter()
    for texts in lists:
        count(texts)
    return sum(map(len, lists)) / (time.perf_counter() - begin)


class Tokens:
    """Messages counted a second."""

    name = "tokens"
    goal = "never the bottleneck of append: under half of its time"

    async def run(self, args: Args) -> Result:
        """Count, then append with the clock in counting."""
        messages = 10_000 if args.quick else 40_000
        kinds = {kind.__name__: _lists(kind(messages)) for kind in (chat, prose)}
        counters: dict[str, Count] = {
            "ours": ours,
            "tiktoken": with_tiktoken,
            "toktok": with_toktok,
        }
        for lists in kinds.values():
            for texts in lists:
                assert ours(texts) == with_tiktoken(texts) == with_toktok(texts)
        rounds = await interleave(
            {name: partial(_measured, count, kinds) for name, count in counters.items()},
            args.rounds(5),
        )
        more = {
            "prose": {name: rounded(rounds.taken[name][-1].more["prose"]) for name in counters},
            "append": await _shares(messages),
        }
        return rounds.result(
            self.name,
            "messages/s",
            {"messages": messages, "list": SIZE, "encoding": DEFAULT_ENCODING},
            more=more,
        )


def _lists(texts: list[str]) -> list[list[str]]:
    return [texts[i : i + SIZE] for i in range(0, len(texts), SIZE)]


def _measured(count: Count, kinds: dict[str, list[list[str]]]) -> Measured:
    found = {kind: rate(count, lists) for kind, lists in kinds.items()}
    return Measured(found["chat"], more=found)


async def _shares(events: int) -> dict[str, float]:
    """The share of counting in append's time, with toktok, and with tiktoken alone as where toktok
    has no wheel.
    """
    shares = {}
    with running_stack() as bench:
        for name, fast in (("share", True), ("share_with_tiktoken_alone", False)):
            settings = bench.settings(f"tokens-{name}", partitions=8)
            async with filled_log(settings, ()):
                pass
            job = {
                "how": "backend",
                "events": events,
                "size": SIZE,
                "spread": SIZE,
                "callers": 4,
                "linger_ms": 0,
                "clock": True,
                "fast": fast,
            }
            measured = await run_side("append_client", bench, settings, **job)
            shares[name] = rounded(measured.more["counting_s"] / measured.usage["process"]["cpu_s"])
    return shares


FIGURE = Tokens()
