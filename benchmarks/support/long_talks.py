"""Long conversations as lists of OpenAI messages: real ones joined end to end, and generated ones; the same at every run.

The real ones are tau-bench's airline runs (``airline.jsonl`` of the shared data, 100 runs of one agent with one system prompt): joined in
their order, and once more in a shuffled one, they read as one customer desk's thread of some 2,400 messages. The generated ones take their
texts from the chitchat dataset, as the other figures do.
"""

from __future__ import annotations

import json
import os
import random
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.support.texts import text

Message = dict[str, Any]
Talk = list[Message]
SHARED = "THREADFOLD_SHARED"
"""The environment variable that names the folder of shared data; without it, ``../shared`` beside the repository."""


def airline_file() -> Path | None:
    """Where the airline conversations are, None where they are not."""
    shared = os.environ.get(SHARED) or Path(__file__).resolve().parents[3] / "shared"
    found = Path(shared) / "data" / "airline.jsonl"
    return found if found.is_file() else None


def airline_runs(path: Path) -> list[Talk]:
    """The messages of each run, in the file's order."""
    return [json.loads(line)["messages"] for line in path.read_text().splitlines()]


def joined(runs: list[Talk]) -> Talk:
    """Runs end to end under the first one's system prompt; the others' (they are the same) are left out."""
    lead = [message for message in runs[0] if message["role"] == "system"]
    return lead + [message for run in runs for message in run if message["role"] != "system"]


def airline_talks(path: Path, most: int | None = None) -> dict[str, Talk]:
    """The first ``most`` runs joined in their order, and in one that is shuffled by a fixed seed."""
    runs = airline_runs(path)[:most]
    shuffled = list(runs)
    random.Random(5).shuffle(shuffled)
    return {"airline": joined(runs), "airline_shuffled": joined(shuffled)}


def generated_talks(calls: int) -> dict[str, Talk]:
    """A chat, and a run of an agent, of about ``calls`` model calls each."""
    return {"chat": list(_chat(calls)), "agent": list(_agent(calls))}


PROMPT = "You help the customers of a parcel service. Look things up before you answer, and say plainly when a tool failed."


@cache
def _chat(calls: int) -> tuple[Message, ...]:
    """Users and assistants in turn, of 60 and 180 tokens on average: the typical window of figure `memory`."""
    rng = random.Random(11)
    talk: Talk = [{"role": "system", "content": PROMPT}]
    for _ in range(calls):
        talk.append({"role": "user", "content": text(rng, round(240 * rng.uniform(0.4, 1.6)))})
        talk.append({"role": "assistant", "content": text(rng, round(780 * rng.uniform(0.4, 1.6)))})
    return tuple(talk)


@cache
def _agent(calls: int) -> tuple[Message, ...]:
    """A user's short question, some steps of one to three parallel calls (ids numbered anew in every turn), an answer.

    Results are JSON lists, of 60 to 400 tokens mostly, one in twenty of some 2,500.
    """
    rng = random.Random(13)
    talk: Talk = [{"role": "system", "content": PROMPT}]
    made = 0
    while made < calls:
        talk.append({"role": "user", "content": text(rng, round(160 * rng.uniform(0.4, 1.6)))})
        number = 0
        for _ in range(rng.choice([0, 1, 1, 2, 4])):
            ids = [f"call_{number + i}" for i in range(rng.choice([1, 1, 1, 3]))]
            number += len(ids)
            talk.append({"role": "assistant", "content": None, "tool_calls": [_call(rng, call_id) for call_id in ids]})
            talk += [{"role": "tool", "tool_call_id": call_id, "name": "find_parcels", "content": _rows(rng)} for call_id in ids]
            made += 1
        talk.append({"role": "assistant", "content": text(rng, round(500 * rng.uniform(0.4, 1.6)))})
        made += 1
    return tuple(talk)


def _call(rng: random.Random, call_id: str) -> Message:
    arguments = json.dumps({"number": rng.randrange(10_000), "days": rng.randrange(1, 30)})
    return {"id": call_id, "type": "function", "function": {"name": "find_parcels", "arguments": arguments}}


def _rows(rng: random.Random) -> str:
    rows = 70 if rng.random() < 0.05 else rng.randrange(2, 12)
    return json.dumps([{"parcel": rng.randrange(10**6), "weight": rng.randrange(900), "note": text(rng, 60)} for _ in range(rows)])
