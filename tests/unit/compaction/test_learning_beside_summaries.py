"""Learning waits for the processors while they are busy with summaries."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from projections.names import Position
from streams.compaction.dispatcher import AHEAD, COMPACTION, EXTRACTION, Dispatcher
from streams.metrics.declared import COMPACTIONS, FALLBACKS
from tests.support.worker import until

PROCESSES = 1
MANY = 12


class Held:
    """Answers as many requests as it may, and counts those under way."""

    what = failed = "%s"
    fallback = "none"
    fallbacks, counted = FALLBACKS, COMPACTIONS

    def __init__(self) -> None:
        self._may = asyncio.Semaphore(0)
        self.under_way = self.most = self.answered = 0

    def go_on(self, several: int) -> None:
        for _ in range(several):
            self._may.release()

    def read(self, value: bytes) -> Any:
        return msgspec.json.decode(value, type=_Request)

    async def answer_if_due(self, request: Any, allowed: Any = None) -> Position | None:
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        await self._may.acquire()
        self.under_way -= 1
        self.answered += 1
        return Position(0, self.answered)


class _Request(msgspec.Struct):
    request_id: str
    tenant: str
    conversation: str
    kind: str
    summarizer: str = "here"


async def _ask(dispatcher: Dispatcher, kind: str, several: int) -> None:
    for i in range(several):
        request = _Request(f"{kind}-{i}", "acme", f"talk{i}", kind)
        await dispatcher.take(msgspec.json.encode(request), lambda: None)


async def test_one_span_at_a_time_is_learnt_from_while_summaries_take_the_processors() -> None:
    summaries, learning = Held(), Held()
    dispatcher = Dispatcher(summaries, {}, PROCESSES, encoder=learning)
    await _ask(dispatcher, COMPACTION, PROCESSES + AHEAD)
    await _ask(dispatcher, EXTRACTION, MANY)

    async def begun() -> bool:
        return summaries.under_way == PROCESSES + AHEAD and learning.under_way == 1

    await until(begun)
    learning.go_on(3)

    async def going_on() -> bool:
        return learning.answered == 3 and learning.under_way == 1

    await until(going_on, what="more is learnt while summaries are made")
    assert learning.most == 1
    summaries.go_on(PROCESSES + AHEAD)

    async def free() -> bool:
        return learning.under_way > 1

    learning.go_on(1)
    await until(free, what="several spans at once when no summary is made")
    learning.go_on(MANY)
    await dispatcher.idle()
    assert learning.answered == MANY
    await dispatcher.close()


async def test_a_few_summaries_hold_up_no_learning() -> None:
    summaries, learning = Held(), Held()
    dispatcher = Dispatcher(summaries, {}, PROCESSES, encoder=learning)
    await _ask(dispatcher, COMPACTION, PROCESSES)
    await _ask(dispatcher, EXTRACTION, MANY)

    async def all_at_once() -> bool:
        return learning.under_way == MANY

    await until(all_at_once)
    await dispatcher.close()
