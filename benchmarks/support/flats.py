"""Flat events as callers send them: lists of one conversation, or of several."""

from __future__ import annotations

import random
from typing import Any

from benchmarks.support.texts import TENANT, conversation, text

Items = list[tuple[str, object]]
CHARACTERS = 164
"""Characters of an event's text, on average: an event of about 470 bytes, as in figure
`projection`.
"""

__all__ = ["CHARACTERS", "TENANT", "Items", "flats", "item_lists"]


def flats(events: int, seed: int = 1) -> list[dict[str, Any]]:
    """Message events without id and time, as a platform's own code would hand them in; no two texts
    are the same object.
    """
    rng = random.Random(seed)
    roles = ("user", "assistant")
    return [
        {
            "type": "message",
            "role": roles[i % 2],
            "content": text(rng, round(CHARACTERS * rng.uniform(0.5, 1.5))),
        }
        for i in range(events)
    ]


def item_lists(events: int, size: int, spread: int, conversations: int = 1000) -> list[Items]:
    """``events`` in lists of ``size``; the events of one list belong to ``spread`` conversations,
    in turn; each list to the next ones.
    """
    lists: list[Items] = []
    made = flats(events)
    for number, start in enumerate(range(0, events, size)):
        names = [
            conversation((number * spread + i) % conversations).conversation for i in range(spread)
        ]
        lists.append(
            [(names[i % spread], flat) for i, flat in enumerate(made[start : start + size])]
        )
    return lists
