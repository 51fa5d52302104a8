"""What was rolled back or dropped does not come back in a summary, even where the window holds its
range of the log only.
"""

from __future__ import annotations

from typing import Any

from projections.events.validation import make_record
from projections.names import Key
from projections.policy.policy import Rules
from streams.compaction.compactor import Compactor
from streams.compaction.requests import request_for
from streams.partition.partition import Partition
from streams.settings.settings import Settings
from threadfold.testing import MemoryLog, MemoryStore

KEY = Key("acme", "c1")


class _Quiet:
    def report(self, *_: object) -> None:
        """Cuts are none of this test's business."""

    async def publish(self, *_: object) -> None:
        """Publish nothing."""


async def _learn(_: str) -> None:
    """Nothing to learn."""


async def test_a_held_range_is_summarised_without_what_was_taken_back() -> None:
    log = MemoryLog(1)
    rules = Rules({"working_budget": 200, "min_messages": 1, "keep_recent_tokens": 20})
    part = Partition(0, 1, MemoryStore(), log, rules, learn=_learn, sink=_Quiet())
    count = 0

    async def put(flat: dict[str, Any]) -> str:
        nonlocal count
        count += 1
        record = make_record(
            KEY, flat, where="e", now="2026-01-01T00:00:00Z", new_id=f"e{count}", operator=True
        )
        return str((await log.append([record]))[0])

    def user(text: str) -> dict[str, Any]:
        return {"type": "message", "role": "user", "content": text}

    first = await put(user("We talk about the weather."))
    await put(user("The password is hunter2."))
    await put({"type": "rollback", "to": first})
    dropped = await put(user("The card is 4111111111111111."))
    await put({"type": "event.dropped", "position": dropped})
    for i in range(60):
        await put(user(f"Plain sentence number {i} about rain."))
    await part.process([raw async for raw in log.scan(0, 0, 1000)])
    (window,) = await part.windows([KEY])
    assert window is not None
    request = request_for(window, 1)
    assert request is not None
    at = await Compactor(Settings(), log).answer(request)
    raw = (await log.read([at]))[at]
    assert raw.value is not None and b"weather" in raw.value
    assert b"hunter2" not in raw.value
    assert b"4111111111111111" not in raw.value
