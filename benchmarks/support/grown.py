"""Logs with summaries in them, as a running platform has: built in memory, to be appended to Kafka
or folded as they are.

Events are folded while the log grows, and whenever a window is due, the product's compactor reads
the span from the log and appends a summary event, just as live. Only the summary's text is a fixed
one: a figure that reads windows or logs does not depend on what a summary says.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence

from benchmarks.harness import say
from benchmarks.support.texts import Messages
from projections.events.codec import decode_event
from projections.events.tokenizer import count
from projections.events.validation import Record
from projections.fold.apply import Status, apply
from projections.names import Key
from projections.policy.policy import Rules
from projections.window.window import Window
from streams.compaction.compactor import Compactor
from streams.compaction.requests import request_for
from streams.compaction.summarizers.base import SummaryInput, SummaryText
from streams.log.rollback_history import fetch_needed
from streams.settings.settings import Settings
from threadfold.testing.memory_log import MemoryLog

SENTENCE = (
    "The customer asked where the parcel was, was told the depot and the day, and accepted what was"
    " proposed. "
)


class FixedSummarizer:
    """Answers every request with the same text of about 400 tokens."""

    name = "fixed"

    def __init__(self) -> None:
        self._text = SENTENCE * 18
        self._tokens: dict[str, int] = {}

    async def summarize(self, request: SummaryInput) -> SummaryText:
        """The fixed text."""
        if request.encoding not in self._tokens:
            self._tokens[request.encoding] = count(self._text, request.encoding)
        return SummaryText(self._text, self._tokens[request.encoding])


class GrownLog:
    """A log in memory that grows by records, with the windows folded from it."""

    def __init__(self, settings: Settings) -> None:
        self.log = MemoryLog(settings.partitions)
        self.windows: dict[Key, Window] = {}
        self.counts: dict[Key, int] = {}
        self.summaries = 0
        self._rules = Rules()
        fixed = FixedSummarizer()
        self._compactor = Compactor(settings, self.log, lambda _: fixed)

    async def grow(
        self, records: Iterable[Record], *, until: Callable[[], bool] | None = None
    ) -> int:
        """Append and fold records, compacting what is due; returns how many there were.

        Args:
            until: asked after each record, and ends it; asked before what that record made due is
                compacted.
        """
        appended = 0
        for record in records:
            appended += 1
            window = await self._append(record)
            if until is not None and until():
                return appended
            if window.meta.due is not None:
                await self._compact(window)
        return appended

    async def _append(self, record: Record) -> Window:
        position = (await self.log.append([record]))[0]
        window = self.windows.get(record.key)
        if window is None:
            window = self.windows[record.key] = Window(record.key, position.partition, self._rules)
        await self._fold(window, position.offset, record.value)
        self.counts[record.key] = self.counts.get(record.key, 0) + 1
        return window

    async def _fold(self, window: Window, offset: int, value: bytes) -> None:
        event = decode_event(value)
        outcome = apply(window, offset, event)
        if outcome.status is Status.NEEDS_HISTORY:
            apply(window, offset, event, await fetch_needed(self.log, window, outcome))

    async def _compact(self, window: Window) -> None:
        request = request_for(window, 1)
        if request is None:
            return
        position = await self._compactor.answer(request)
        raw = (await self.log.read([position]))[position]
        if raw.value is None:
            raise RuntimeError(f"the summary at {position} has no value")
        await self._fold(window, position.offset, raw.value)
        self.counts[window.key] += 1
        self.summaries += 1

    async def records(self) -> list[Record]:
        """All records, in an order that gives each the same offset in a fresh topic."""
        found = []
        for partition, end in (await self.log.end_offsets()).items():
            async for raw in self.log.scan(partition, 0, end - 1):
                tenant, _, conversation = (raw.key or b"").decode().partition("/")
                found.append(Record(Key(tenant, conversation), "", "", raw.value or b""))
        return found


async def grown_records(
    settings: Settings, keys: Sequence[Key], sizes: Sequence[int]
) -> list[Record]:
    """The records of a log in which each of the conversations has as many messages as its size
    says, one conversation after the other, with their summaries.
    """
    messages = Messages()

    def records() -> Iterator[Record]:
        number = 0
        for place, (key, size) in enumerate(zip(keys, sizes, strict=True)):
            for turn in range(size):
                yield messages.template(turn, place + turn // 4_000).record(key, number)
                number += 1

    grown = GrownLog(settings)
    begin = time.perf_counter()
    await grown.grow(records())
    all_ = await grown.records()
    say(f"grew {len(all_)} events in {time.perf_counter() - begin:.1f} s")
    return all_
