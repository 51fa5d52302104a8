"""One conversation in a log in memory, for what is made of its summaries."""

from __future__ import annotations

from typing import Any

from projections.events.codec import decode_event
from projections.events.validation import make_record
from projections.fold.replay import replay
from projections.names import Key, partition_of
from projections.policy.policy import Rules
from projections.window.window import Window
from streams.compaction.summarizers.base import SummaryInput, SummaryText
from tests.support import sayings
from threadfold.testing import MemoryLog

KEY = Key("acme", "talk")
SMALL = {
    "model_window": 3000,
    "reserve_tokens": 300,
    "working_budget": 300,
    "keep_recent_tokens": 100,
    "min_messages": 4,
    "summary_max_tokens": 80,
}
"""A policy under which a few messages are due for a summary."""


async def append(log: MemoryLog, flats: list[dict[str, Any]], start: int = 0) -> None:
    """Append the conversation's events, one by one; their ids count from ``start``."""
    for i, flat in enumerate(flats, start):
        await log.append(
            [make_record(KEY, flat, where="e", now="2026-01-01T00:00:00Z", new_id=f"e{i}")]
        )


async def fold(log: MemoryLog, rules: Rules) -> Window:
    """The conversation's window."""
    partition = partition_of(KEY, log.partitions)
    rows = [raw async for raw in log.scan(partition, 0, (await log.end_offsets())[partition] - 1)]
    return replay(
        KEY,
        partition,
        rules,
        [(raw.position.offset, decode_event(raw.value or b"")) for raw in rows],
    )


class Terse:
    """A summariser that takes no time: it names the first and the last position and pads to a
    length of its own.
    """

    name = "extractive"

    async def summarize(self, request: SummaryInput) -> SummaryText:
        places = [message.position for message in request.messages] or ["-"]
        words = min(request.max_tokens - 30, 40 + 7 * len(places))
        text = f"From {places[0]} to {places[-1]}: " + "so " * max(0, words - 20)
        return SummaryText(text, sayings.tokens(text))
