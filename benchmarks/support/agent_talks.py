"""Long conversations of a real agent with its customers and tools: as files to play, and as records
of a log.

A conversation joins tau-bench's airline runs (``benchmarks.support.long_talks``) in an order of its
own, shuffled by its number, until it has as many messages as are asked for. A message has about 89
tokens, one in four is a tool's result. Without the shared data the generated set ``agent`` takes
their place, and :func:`source` says so.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

from benchmarks.support.long_talks import Message, Talk, airline_file, airline_runs, generated_sets
from benchmarks.support.texts import TENANT, Template
from projections.events.tokenizer import count
from projections.events.validation import Record
from projections.names import Key
from projections.window.bodies import to_flat

BURST = 4
"""Messages of one conversation that follow one another in a log before the next one's."""


def source() -> str:
    """What the conversations are made of: ``airline``, or ``agent`` where that is missing."""
    return "agent" if airline_file() is None else "airline"


@cache
def _runs() -> tuple[Talk, ...]:
    """The messages of each run without its system prompt."""
    file = airline_file()
    if file is not None:
        runs = airline_runs(file)
    else:
        (talk,) = generated_sets(2_400)["agent"]
        runs = [talk[i : i + 25] for i in range(0, len(talk), 25)]
    return tuple([message for message in run if message["role"] != "system"] for run in runs)


@cache
def prompt() -> Message:
    """The system prompt that all conversations begin with."""
    file = airline_file()
    talk = generated_sets(1)["agent"][0] if file is None else airline_runs(file)[0]
    return talk[0]


def _places(number: int, messages: int) -> Iterator[tuple[int, int]]:
    """Which messages conversation ``number`` consists of after its prompt: run, and place in it."""
    rng = random.Random(number)
    left = messages - 1
    while True:
        order = list(range(len(_runs())))
        rng.shuffle(order)
        for run in order:
            for place in range(len(_runs()[run])):
                if not left:
                    return
                left -= 1
                yield run, place


def talk(number: int, messages: int) -> Talk:
    """Conversation ``number``, of so many messages, its prompt included; always the same."""
    return [prompt(), *(_runs()[run][place] for run, place in _places(number, messages))]


def write_talks(path: Path, conversations: int, messages: int) -> None:
    """A file that ``threadfold play`` takes: a line for each conversation."""
    with path.open("w") as file:
        for number in range(conversations):
            row = {"conversation": f"agent-{number:05}", "messages": talk(number, messages)}
            file.write(json.dumps(row, ensure_ascii=False) + "\n")


def mean_tokens(messages: int = 1_000) -> float:
    """Tokens of a message's texts on average, of the first conversation."""
    found = talk(0, messages)
    calls = [c["function"] for m in found for c in m.get("tool_calls") or ()]
    texts = [m.get("content") or "" for m in found]
    return sum(count(text) for text in [*texts, *(c["arguments"] for c in calls)]) / len(found)


class AgentRecords:
    """The same conversations as records of one tenant, made without counting tokens again."""

    def __init__(self, tenant: str = TENANT) -> None:
        self.tenant = tenant
        self._first = Template(to_flat(prompt(), "prompt"), tenant)
        self._made = [
            [Template(to_flat(message, "message"), tenant) for message in run] for run in _runs()
        ]

    def key(self, number: int) -> Key:
        """The conversation of a number."""
        return Key(self.tenant, f"agent-{number:05}")

    def of(self, number: int, messages: int) -> Iterator[Record]:
        """One conversation's records, in order."""
        key, base = self.key(number), number * 1_000_000
        yield self._first.record(key, base)
        for i, (run, place) in enumerate(_places(number, messages)):
            yield self._made[run][place].record(key, base + i + 1)

    def all(self, numbers: Sequence[int], messages: int) -> Iterator[Record]:
        """All of these conversations' records; each in its order, in turn a few at a time."""
        running = [self.of(number, messages) for number in numbers]
        for _ in range(0, messages, BURST):
            for records in running:
                for _, record in zip(range(BURST), records, strict=False):
                    yield record
