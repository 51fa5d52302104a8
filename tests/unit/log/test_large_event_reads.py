"""Reading many large events back from the log."""

from __future__ import annotations

import asyncio
import json

from projections.events.validation import Record
from projections.names import Key
from streams.log.history import read_events
from threadfold.testing.memory_log import MemoryLog

KEY = Key("acme", "large")


async def test_others_are_served_while_large_events_are_read_back() -> None:
    log = MemoryLog(1)
    text = '"quoted" ' * 100_000
    for i in range(40):
        flat = {"specversion": "1.0", "id": f"e{i}", "type": "threadfold.message.v1"}
        value = {**flat, "source": KEY.source, "data": {"role": "user", "content": text}}
        await log.append([Record(KEY, f"e{i}", flat["type"], json.dumps(value).encode())])
    reading = asyncio.create_task(read_events(log, KEY, 0, range(40)))
    turns = 0
    while not reading.done():
        await asyncio.sleep(0)
        turns += 1
    assert len(reading.result()) == 40
    assert turns > 4  # in one go it is one
