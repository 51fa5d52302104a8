"""Conversation files for ``play``: seeded agent runs of the project's own words, as awkward as real
ones.

Each line is ``{"conversation": id, "messages": [OpenAI messages]}``: a system prompt, user turns,
tool calls whose ids are used again within the conversation, parallel calls (also two of one id at
once), results in another order than their calls, large results, errors, a call nobody answers, and
now and then a long run.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

TOOLS = ("find_parcel", "list_parcels", "open_depot", "change_address", "quote_price", "ask_driver")
NOUNS = [
    "parcel",
    "depot",
    "driver",
    "address",
    "receipt",
    "crate",
    "label",
    "scale",
    "route",
    "van",
    "customs",
    "invoice",
]
PLACES = ["Turku", "Malmö", "Gdańsk", "Riga", "Bergen", "Kiel", "Tallinn", "Aarhus"]
VERBS = ["move", "weigh", "return", "hold", "insure", "track", "split", "repack"]

PROMPT = (
    "You help the customers of a parcel service. Look things up before you answer, ask before you"
    " change anything, and say plainly when a tool failed. "
)


class _Writer:
    """Writes one conversation; all choices come from its own seed."""

    def __init__(self, seed: int, name: str, turns: int) -> None:
        self.rng = random.Random(seed)
        self.name = name
        self.turns = turns
        self.messages: list[dict[str, Any]] = [
            {"role": "system", "content": PROMPT + self._sentences(12)}
        ]

    def _sentence(self) -> str:
        rng = self.rng
        return (
            f"{rng.choice(['The', 'My', 'Our', 'That'])} {rng.choice(NOUNS)}"
            f" {rng.randrange(1000, 9999)} has to {rng.choice(VERBS)} in {rng.choice(PLACES)} on"
            f" day {rng.randrange(1, 29)}{rng.choice(['.', ', please.', ', or not?', ' – 😀.'])}"
        )

    def _sentences(self, most: int) -> str:
        return " ".join(self._sentence() for _ in range(self.rng.randrange(1, most + 1)))

    def write(self) -> dict[str, Any]:
        for _ in range(self.turns):
            self.messages.append({"role": "user", "content": self._sentences(4)})
            for _ in range(self.rng.choice([0, 1, 1, 2, 5])):
                self._calls()
            self.messages.append({"role": "assistant", "content": self._sentences(5)})
        if self.rng.random() < 0.3:
            # A run that was cut off: the last call has no result.
            self.messages.append(
                {"role": "assistant", "content": None, "tool_calls": [self._call("cut_off")]}
            )
        return {"conversation": self.name, "messages": self.messages}

    def _call(self, call_id: str) -> dict[str, Any]:
        arguments = {"number": self.rng.randrange(1000, 9999), "place": self.rng.choice(PLACES)}
        return {
            "id": call_id,
            "type": "function",
            "function": {"name": self.rng.choice(TOOLS), "arguments": json.dumps(arguments)},
        }

    def _calls(self) -> None:
        rng = self.rng
        # Few ids for many calls: real agents number them anew in every step.
        calls = [self._call(f"call_{rng.randrange(4)}") for _ in range(rng.choice([1, 1, 1, 2, 3]))]
        content = self._sentence() if rng.random() < 0.3 else None
        self.messages.append({"role": "assistant", "content": content, "tool_calls": calls})
        results = [
            {
                "role": "tool",
                "tool_call_id": c["id"],
                "name": c["function"]["name"],
                "content": self._result(),
            }
            for c in calls
        ]
        if rng.random() < 0.3:
            rng.shuffle(results)
        self.messages += results

    def _result(self) -> str:
        rng = self.rng
        kind = rng.random()
        if kind < 0.1:
            return "Error: the depot did not answer"
        if kind < 0.2:
            rows = [
                {"number": rng.randrange(10**6), "place": rng.choice(PLACES), "kilos": rng.random()}
                for _ in range(rng.randrange(50, 400))
            ]
            return json.dumps(rows)
        return json.dumps({"number": rng.randrange(10**6), "note": self._sentences(6)})


def conversations(count: int, seed: int = 1, name: str = "parcel") -> list[dict[str, Any]]:
    """``count`` conversations, the same ones for the same seed; every tenth is long (about 300
    messages).
    """
    rng = random.Random(seed)
    return [
        _Writer(rng.randrange(10**9), f"{name}-{i:03}", 60 if i % 10 == 9 else rng.randrange(1, 12)).write() for i in range(count)
    ]  # fmt: skip


def write_conversations(path: Path, made: list[dict[str, Any]]) -> int:
    """Write a conversation file; returns how many messages it has."""
    path.write_text(
        "".join(json.dumps(each, ensure_ascii=False) + "\n" for each in made), encoding="utf-8"
    )
    return sum(len(each["messages"]) for each in made)
