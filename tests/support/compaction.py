"""One conversation in a log in memory, for what is made of its summaries."""

from __future__ import annotations

from typing import Any

from projections.events.codec import decode_event
from projections.events.validation import make_record
from projections.fold.replay import replay
from projections.names import Key, partition_of
from projections.policy.policy import Rules
from projections.window.window import Window
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
