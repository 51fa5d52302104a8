"""Sets of long conversations as lists of OpenAI messages: real ones joined end to end, and
generated ones; the same at every run.

- ``airline``: tau-bench's airline runs (``airline.jsonl`` of the shared data, 100 runs of one agent
  with one system prompt), five in their order making one conversation, 20 in all, of some 120
  messages. Five is what gives the peers of figure `prefix` the shares published for them (issue 5:
  the last 30 messages 0.13, LangChain's ``trim_messages`` 0.84, a bare low-water cut 0.95) at 4,000
  tokens, counted after every message: 0.140, 0.843, 0.954; by four 0.162, 0.858, 0.955, by six
  0.095, 0.830, 0.951. It was chosen by that, not by our own share.
- ``airline_long``: all 100 in one conversation of some 2,400 messages, in their order and in a
  shuffled one.
- ``chat``: what pairs of people wrote each other in the chitchat dataset, its turns as they are (20
  tokens on average, half of them 14 or less), one person as the user and the other as the
  assistant, sessions joined end to end.
- ``assistant``: users and an assistant in turn, 60 and 180 tokens on average: the typical window of
  figure `memory`.
- ``agent``: a user's questions, some steps of one to three parallel calls with JSON results each,
  an answer; 78 % of it are results.
"""

from __future__ import annotations

import json
import os
import random
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.support.texts import text
from threadfold.demo.sources import LONG_SESSION, load_sessions

Message = dict[str, Any]
Talk = list[Message]
FEW = 5
"""Runs that make one conversation of set ``airline``."""
SHARED = "THREADFOLD_SHARED"
"""The environment variable that names the folder of shared data; without it, ``../shared`` beside
the repository.
"""


def airline_file() -> Path | None:
    """Where the airline conversations are, None where they are not."""
    shared = os.environ.get(SHARED) or Path(__file__).resolve().parents[3] / "shared"
    found = Path(shared) / "data" / "airline.jsonl"
    return found if found.is_file() else None


def airline_runs(path: Path) -> list[Talk]:
    """The messages of each run, in the file's order."""
    return [json.loads(line)["messages"] for line in path.read_text().splitlines()]


def joined(runs: list[Talk]) -> Talk:
    """Runs end to end under the first one's system prompt; the others' (they are the same) are left
    out.
    """
    lead = [message for message in runs[0] if message["role"] == "system"]
    return lead + [message for run in runs for message in run if message["role"] != "system"]


def airline_sets(path: Path, most: int | None = None) -> dict[str, list[Talk]]:
    """The first ``most`` runs (None: all): joined by :data:`FEW`; and all in one, in their order
    and in one shuffled by a fixed seed.
    """
    runs = airline_runs(path)[:most]
    shuffled = list(runs)
    random.Random(5).shuffle(shuffled)
    few = [joined(runs[i : i + FEW]) for i in range(0, len(runs), FEW)]
    return {"airline": few, "airline_long": [joined(runs), joined(shuffled)]}


def generated_sets(calls: int) -> dict[str, list[Talk]]:
    """One conversation a set, of about ``calls`` model calls each; twice as many of the short ones
    of ``chat``.
    """
    return {
        "chat": [list(_chat(2 * calls))],
        "assistant": [list(_assistant(calls))],
        "agent": [list(_agent(calls))],
    }


PROMPT = (
    "You help the customers of a parcel service. Look things up before you answer, and say plainly"
    " when a tool failed."
)


@cache
def _chat(calls: int) -> tuple[Message, ...]:
    """Whole turns of the dataset's sessions in the order of their times, those of at least
    ``LONG_SESSION`` messages, as in the demo.
    """
    talk: Talk = [{"role": "system", "content": PROMPT}]
    for session in load_sessions():
        if len(session.in_order) >= LONG_SESSION:
            first = session.messages[0][0].sender
            for turn in session.messages:
                text = "\n".join(message.text for message in turn if message.text.strip())
                if text:
                    talk.append(
                        {
                            "role": "user" if turn[0].sender == first else "assistant",
                            "content": text,
                        }
                    )
            if len(talk) > 2 * calls:
                break
    return tuple(talk)


@cache
def _assistant(calls: int) -> tuple[Message, ...]:
    """Users and assistants in turn, of 60 and 180 tokens on average."""
    rng = random.Random(11)
    talk: Talk = [{"role": "system", "content": PROMPT}]
    for _ in range(calls):
        talk.append({"role": "user", "content": text(rng, round(240 * rng.uniform(0.4, 1.6)))})
        talk.append({"role": "assistant", "content": text(rng, round(780 * rng.uniform(0.4, 1.6)))})
    return tuple(talk)


@cache
def _agent(calls: int) -> tuple[Message, ...]:
    """A user's short question, some steps of one to three parallel calls (ids numbered anew in
    every turn), an answer.

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
            talk.append(
                {
                    "role": "assistant",
                    "content": None,
                    "tool_calls": [_call(rng, call_id) for call_id in ids],
                }
            )
            talk += [
                {
                    "role": "tool",
                    "tool_call_id": call_id,
                    "name": "find_parcels",
                    "content": _rows(rng),
                }
                for call_id in ids
            ]
            made += 1
        talk.append({"role": "assistant", "content": text(rng, round(500 * rng.uniform(0.4, 1.6)))})
        made += 1
    return tuple(talk)


def _call(rng: random.Random, call_id: str) -> Message:
    arguments = json.dumps({"number": rng.randrange(10_000), "days": rng.randrange(1, 30)})
    return {
        "id": call_id,
        "type": "function",
        "function": {"name": "find_parcels", "arguments": arguments},
    }


def _rows(rng: random.Random) -> str:
    rows = 70 if rng.random() < 0.05 else rng.randrange(2, 12)
    return json.dumps(
        [
            {"parcel": rng.randrange(10**6), "weight": rng.randrange(900), "note": text(rng, 60)}
            for _ in range(rows)
        ]
    )
