"""The encoder: reads a span from the log, finds what it teaches, and appends that as events of the
same log.

It holds no state. A request that fails half-way, or whose worker dies, is delivered again; what is
found again has the same ids. Whether it is taken is decided by the fold, under the rule of
summaries: the last rollback it knew is the latest. So the encoder waits until its events are
folded, and where a rollback came in between it says them anew.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from projections.errors import Erased, EventTooLarge, Healing, InvalidEvent
from projections.events.times import present
from projections.events.validation import Record, make_record
from projections.fold.replay import Logged
from projections.memory.extraction.candidate import Candidate
from projections.memory.extraction.extractor import Extractor
from projections.memory.extraction.memory_events import Taught, memory_events
from projections.names import Key, Position
from projections.storage.layout import HEAD, Head, decode_head
from projections.storage.protocol import WindowReader
from projections.storage.records import stored_form
from projections.window.window import Window
from streams.log.log import Log
from streams.memory.extraction_requests import RULES, ExtractionRequest, decode_extraction
from streams.memory.spans import span_of_session, span_of_summary, stands
from streams.metrics.declared import EXTRACTED, EXTRACTIONS
from streams.metrics.metrics import Metrics
from streams.recovery.revival import Known
from streams.runtime.log_fields import about
from streams.settings.settings import Settings

logger = logging.getLogger(__name__)

APPENDED_AT_ONCE = 200
PART = 200
"""Events that are read for what they teach without a pause of the event loop."""
PAUSE = 0.02
LONGEST_PAUSE = 0.5
"""Seconds between two looks whether the fold is where it must be, at first and at most."""
PATIENCE = 10.0
"""Seconds after which the request waits behind others."""
ROLLBACKS = 16
"""Rollbacks that may come between, one after another, while the same span is learnt from."""


class Encoder:
    """Answers extraction requests; any number of calls may run at once."""

    what = "learning from %s"
    failed = "learning from %s failed"
    fallback = RULES
    counted = EXTRACTIONS

    def __init__(
        self,
        settings: Settings,
        log: Log,
        reader: Callable[[], WindowReader],
        rules: Known,
        live: Callable[[], int],
        metrics: Metrics | None = None,
    ) -> None:
        """Args:
        reader: gives who reads windows, sleeping ones too.
        rules: gives a generation's rules.
        live: gives the live generation's number.
        """
        self._settings = settings
        self._log = log
        self._reader = reader
        self._rules = rules
        self._live = live
        self._metrics = metrics or Metrics()

    def read(self, value: bytes) -> ExtractionRequest | None:
        """The request of a record, None where it is none."""
        return decode_extraction(value)

    async def answer_if_due(
        self,
        request: ExtractionRequest,
        allowed: Callable[[], Awaitable[None]] | None = None,
    ) -> Position | None:
        """Learn from a request's span, and append what was learnt. Returns where the last of it
        stands; None where there was nothing to learn.

        Raises:
            Healing: the fold is not where it must be yet.
            KafkaUnavailable, RedisUnavailable: it is unknown what was appended; a repeat has the
                same ids.
        """
        del allowed  # rules ask nobody
        key = Key(request.tenant, request.conversation)
        try:
            last = await self._learn(key, request)
        except Erased:
            last = None
        outcome = "nothing" if last is None else "made"
        self._metrics.add(EXTRACTIONS, request.reason, request.summarizer, outcome)
        return last

    async def _learn(self, key: Key, request: ExtractionRequest) -> Position | None:
        window = await self._window(key, request.partition, request.at)
        if window is None or window.meta.erased:
            return None
        candidates = await self._extracted(key, request, window)
        for _ in range(ROLLBACKS):
            state, rollback = window.state, window.meta.rollback
            taught = Taught(key, request.partition, state.user, state.channel, rollback)
            # The topic of memories hears of no rollback of a log that had taught nobody.
            candidates = [one for one in candidates if stands(window, one.offsets[-1])]
            last = await self._append(key, list(memory_events(taught, candidates)))
            if last is None:
                return None
            head = await self._head(key, request.partition, last.offset)
            if head is None or head.rollback == rollback:
                break
            # A rollback came before them: the fold took none of them.
            again = await self._window(key, request.partition, last.offset)
            if again is None or again.meta.erased:
                return None
            window = again
        for found in candidates:
            self._metrics.add(EXTRACTED, found.memory_type)
        return last

    async def _extracted(
        self, key: Key, request: ExtractionRequest, window: Window
    ) -> list[Candidate]:
        before: Sequence[Logged] = ()
        if request.reason == "summary":
            at = Position(request.partition, request.at)
            before, span = await span_of_summary(self._log, key, at)
        else:
            whole = request.reason == "session"
            span = await span_of_session(self._log, window, request.at, summarised=whole)
        extractor = Extractor(gists=request.gists)
        first = span[0][0] if span else 0
        found: list[Candidate] = []
        events = [*before, *span]
        for at_event in range(0, len(events), PART):
            part = events[at_event : at_event + PART]
            found += [one for offset, event in part for one in extractor.feed(offset, event)]
            await asyncio.sleep(0)
        return [one for one in found if one.offsets[-1] >= first]

    async def _append(self, key: Key, flats: list[dict[str, Any]]) -> Position | None:
        now, last = present(), None
        records = [record for flat in flats if (record := self._record(key, flat, now)) is not None]
        for at in range(0, len(records), APPENDED_AT_ONCE):
            last = (await self._log.append(records[at : at + APPENDED_AT_ONCE]))[-1]
        return last

    def _record(self, key: Key, flat: dict[str, Any], now: str) -> Record | None:
        """The record of an event; None where none can be made of what another producer wrote."""
        try:
            return make_record(
                key,
                flat,
                where=f"memory of {key}",
                now=now,
                new_id=str(flat["id"]),
                max_bytes=self._settings.max_event_bytes,
                operator=True,
            )
        except (InvalidEvent, EventTooLarge) as error:
            logger.warning("a statement is not learnt: %s", error, extra=about(key))
            return None

    async def _window(self, key: Key, partition: int, offset: int) -> Window | None:
        """The conversation's window, once it includes what stands at ``offset``; None where it has
        none. Raises as :meth:`_head`.
        """
        if await self._head(key, partition, offset) is None:
            return None
        generation = self._live()
        _, (stored,) = await self._reader().read(generation, partition, [key])
        if stored is None:
            return None
        return stored.load(key, partition, await self._rules(generation, {key.tenant}))

    async def _head(self, key: Key, partition: int, offset: int) -> Head | None:
        """The head of the conversation's window, once it includes what stands at ``offset``; None
        where it has none.

        Raises:
            Healing: it does not for long.
        """
        loop, pause = asyncio.get_running_loop(), PAUSE
        end = loop.time() + PATIENCE
        while True:
            checkpoint, fields = await self._reader().fields(self._live(), partition, key, [HEAD])
            if (
                checkpoint is not None
                and not checkpoint.healing
                and checkpoint.includes(offset, key)
            ):
                with stored_form(key):
                    return decode_head(fields[HEAD]) if HEAD in fields else None
            if loop.time() > end:
                raise Healing(f"partition {partition} is not folded up to {offset} yet")
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)
