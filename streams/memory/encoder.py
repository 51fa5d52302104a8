"""The encoder: reads a span from the log, finds what it teaches, and appends that as events of the
same log; then what of it is fused with what the memory has, and what it supersedes.

A request that fails half-way, or whose worker dies, is delivered again: what the rules find again
has the same ids, and of a model's answers the first counts. Whether it is taken is decided by the
fold, under the rule of summaries: the last rollback it knew is the latest. So the encoder waits
until its events are folded, and where a rollback came in between it says them anew.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence, Set
from functools import partial
from typing import Any
from weakref import WeakValueDictionary

from projections.errors import Erased, EventTooLarge, InvalidEvent
from projections.events.times import present
from projections.events.types import MemorySavedEvent
from projections.events.validation import Record, make_record
from projections.fold.apply import id_hash_of
from projections.memory.extraction.candidate import Candidate
from projections.memory.extraction.memory_events import (
    Taught,
    answer_id,
    candidate_of,
    judgement_id,
    memory_events,
    relation_events,
    said,
)
from projections.memory.extraction.model_records import Whose
from projections.memory.fusion import relations
from projections.names import Key, Position
from projections.storage.protocol import WindowReader
from projections.window.window import Window
from streams.log.history import read_events
from streams.log.log import Log
from streams.memory.extraction_requests import RULES, ExtractionRequest, decode_extraction
from streams.memory.folded_windows import BeyondLog, FoldedWindows
from streams.memory.fusion_judge import FusionJudge
from streams.memory.model_extraction import SpanExtraction
from streams.memory.neighbours import Neighbours
from streams.memory.spans import span_of_session, span_of_summary, standing
from streams.metrics.declared import EXTRACTED, EXTRACTION_FALLBACKS, EXTRACTIONS
from streams.metrics.metrics import Metrics
from streams.recovery.revival import Known
from streams.runtime.log_fields import about
from streams.settings.settings import Settings

logger = logging.getLogger(__name__)

APPENDED_AT_ONCE = 50
EVENT_SECONDS = 0.0005
"""What an event costs this worker: it is made, folded and announced. The tenant's next ones wait
for a multiple of it, in which the fold has others' events (``SpanExtraction.turns``).
"""
NEAR_SECONDS = 0.0005
"""What the search for what is near a record takes."""
MOST_LEARNT = 200
"""What the rules find in a span, the latest of it: who lists things all day teaches no more."""
MOST_ASKED = 1_000
"""Requests of which it is kept what a model was asked."""
MOST_SAID = 20_000
"""Events of which it is kept where they are in the log: about 6 MB."""
ROLLBACKS = 16
"""Rollbacks that may come between, one after another, while the same span is learnt from."""


class _Asked:
    """What has become of a request so far. ``end``: the partition's last record when it came here;
    ``found`` is what its span teaches; ``answered``: a model said so. ``judged``: what follows from
    it, with the rollback that was known.
    """

    def __init__(self, allowed: Callable[[], Awaitable[None]] | None) -> None:
        self.allowed = allowed
        self.end: int | None = None
        self.found: list[Candidate] | None = None
        self.answered = False
        self.judged: tuple[int | None, list[dict[str, Any]]] | None = None


class Encoder:
    """Answers extraction requests; any number of calls may run at once."""

    what = "learning from %s"
    failed = "learning from %s failed"
    fallback = RULES
    fallbacks = EXTRACTION_FALLBACKS
    counted = EXTRACTIONS

    def __init__(
        self,
        settings: Settings,
        log: Log,
        reader: Callable[[], WindowReader],
        rules: Known,
        live: Callable[[], int],
        neighbours: Neighbours,
        metrics: Metrics | None = None,
        extraction: SpanExtraction | None = None,
        judge: FusionJudge | None = None,
    ) -> None:
        """Args:
        reader: gives who reads windows, sleeping ones too.
        rules: gives a generation's rules.
        live: gives the live generation's number.
        neighbours: finds what the memory has that may say the same.
        extraction: finds what a span teaches; None: the rules do.
        judge: says what is fused and what supersedes; None: the rules do.
        """
        self._settings = settings
        self._log = log
        self._windows = FoldedWindows(log, reader, rules, live)
        self._neighbours = neighbours
        self._metrics = metrics or Metrics()
        self._extraction = extraction or SpanExtraction()
        self._judge = judge or FusionJudge()
        self._asked: dict[str, _Asked] = {}
        """What models were asked for, by request: one that is tried again asks none again."""
        self._said: dict[tuple[Key, str], Position] = {}
        """Where events are in the log, by their conversation and id, in the order in which they
        were appended.
        """
        self._appending: WeakValueDictionary[Key, asyncio.Lock] = WeakValueDictionary()
        """Of each conversation: several requests may say the same."""

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
            Healing: the fold is not where it must be yet, or the memory is not.
            KafkaUnavailable, RedisUnavailable: it is unknown what was appended; a repeat has the
                same ids.
        """
        key, asked = Key(request.tenant, request.conversation), _Asked(allowed)
        if self._extraction.has(request.summarizer):
            asked = self._asked.setdefault(request.request_id, asked)
            asked.allowed = allowed
            while len(self._asked) > MOST_ASKED:
                del self._asked[next(iter(self._asked))]
        elif request.summarizer != RULES:
            logger.warning(
                "this worker has no endpoint %r: the rules learn",
                request.summarizer,
                extra=about(key),
            )
        try:
            last = await self._learn(key, request, asked)
        except Erased:
            last = None
        except BeyondLog:
            self._said.clear()  # the log may have lost what it had
            logger.warning(
                "a request to learn is skipped: the log has no %d-%d",
                request.partition,
                request.at,
                extra=about(key),
            )
            last = None
        self._asked.pop(request.request_id, None)
        outcome = "nothing" if last is None else "made"
        by = request.summarizer if asked.answered else RULES
        self._metrics.add(EXTRACTIONS, request.reason, by, outcome)
        return last

    async def _learn(self, key: Key, request: ExtractionRequest, asked: _Asked) -> Position | None:
        partition = request.partition
        seed = request.request_id if self._extraction.has(request.summarizer) else None
        window = await self._windows.window(key, partition, await self._needed(request, asked))
        if window is None or window.meta.erased:
            return None
        if asked.found is None:
            asked.found = await self._extracted(key, request, window, asked)
        candidates = asked.found
        for _ in range(ROLLBACKS):
            taught = _taught(window)
            # The topic of memories hears of no rollback of a log that had taught nobody.
            alive = await standing(self._log, window, [one.offsets[-1] for one in asked.found])
            # What was said while it was another's is not this user's.
            given = window.state.given
            candidates = [
                one for one in asked.found if one.offsets[-1] in alive and one.offsets[0] > given
            ]
            flats = list(memory_events(taught, candidates, seed))
            last = await self._append(window, flats, whole=seed is not None)
            if last is None:
                return None
            head = await self._windows.head(key, partition, last.offset)
            if head is not None and head.rollback == taught.rollback:
                # What is learnt counts by now, so the memory has it.
                more = await self._append(
                    window, await self._relations(request, window, asked, candidates)
                )
                if more is None:
                    break
                last = more
                head = await self._windows.head(key, partition, last.offset)
            if head is None or head.rollback == taught.rollback:
                break
            # A rollback came before them: the fold took none of them.
            again = await self._windows.window(key, partition, last.offset)
            if again is None or again.meta.erased:
                return None
            window = again
        for found in candidates:
            self._metrics.add(EXTRACTED, found.memory_type)
        return last

    async def _needed(self, request: ExtractionRequest, asked: _Asked) -> int:
        """Up to where the window must be: where a model is asked, to the end that the log had when
        the request came here. Whoever had it before may have answered it, and not said so.
        """
        if not self._extraction.has(request.summarizer):
            return max(request.at, request.again or 0)
        if asked.end is None:
            asked.end = (await self._log.last_records()).get(request.partition, 0) - 1
        return max(request.at, asked.end)

    async def _extracted(
        self, key: Key, request: ExtractionRequest, window: Window, asked: _Asked
    ) -> list[Candidate]:
        if self._extraction.has(request.summarizer):
            answered = await self._answered(window, request.request_id)
            if answered:
                return answered
        if request.reason == "summary":
            at = Position(request.partition, request.at)
            events, span = await span_of_summary(self._log, key, at)
        else:
            whole = request.reason == "session"
            events = await span_of_session(self._log, window, request.at, summarised=whole)
            span = {offset for offset, _ in events}
        if not span or not self._extraction.has(request.summarizer):
            found = await self._extraction.by_rules(key.tenant, events, gists=request.gists)
            return _within(span, found)[-MOST_LEARNT:]
        whose = Whose(window.state.user, window.state.channel, key.conversation)
        found, asked.answered = await self._extraction.by_model(
            request.summarizer,
            key,
            whose,
            request.partition,
            events,
            asked.allowed,
            gists=request.gists,
        )
        return _within(span, found)

    async def _answered(self, window: Window, asked: str) -> list[Candidate]:
        """What the window took of a model's answer to a request. What follows from it may not be
        said yet.
        """
        taught, offsets = _taught(window), list[int]()
        while True:
            name = answer_id(taught, asked, len(offsets))
            seen = window.recent_ids.find(id_hash_of(name))
            if seen is None or seen.rejected:
                break
            offsets.append(seen.offset)
        found = await read_events(self._log, window.key, window.partition, offsets)
        return [candidate_of(one) for _, one in found if isinstance(one, MemorySavedEvent)]

    async def _relations(
        self,
        request: ExtractionRequest,
        window: Window,
        asked: _Asked,
        candidates: Sequence[Candidate],
    ) -> list[dict[str, Any]]:
        """The events that say what of this is fused, and what it supersedes. What a model judged is
        not asked again: it may judge otherwise.
        """
        taught, by = _taught(window), request.summarizer
        seed = request.request_id if self._extraction.has(by) else None
        if seed is not None:
            seen = window.recent_ids.find(id_hash_of(judgement_id(taught, seed)))
            if seen is not None and not seen.rejected:
                return []
        if asked.judged is None or asked.judged[0] != taught.rollback:
            several = said(taught, candidates)
            new = [one.statement for one in several]
            check = partial(self._check_erased, taught.key)
            near = await self._neighbours.near(taught.scope, new, check)
            async with self._extraction.turns.of(taught.key.tenant) as turn:
                turn.worked(NEAR_SECONDS * len(new))
                ruled = await turn.beside(partial(relations, new, near))
            found = await self._judge.relations(by, taught.key, ruled, new, near, check)
            # What a model judged comes last, so it is known of that all of it was said.
            asked.judged = (
                taught.rollback,
                [
                    flat
                    for one in sorted(found, key=lambda one: one.model is not None)
                    for flat in relation_events(taught, several, one, seed)
                ],
            )
        return asked.judged[1]

    def _check_erased(self, key: Key) -> None:
        """Raise :class:`Erased` once the erasure has begun: no model is sent its text any more."""
        if self._log.seals.is_erased(str(key).encode()):
            raise Erased(f"{key.shown} was erased")

    async def _append(
        self, window: Window, flats: list[dict[str, Any]], *, whole: bool = False
    ) -> Position | None:
        """Append those of these events that are not in the log yet, as far as is known; returns
        where the last of all is, None if there are none. A model's answer goes as a ``whole``: what
        the log has of it counts as all of it if this worker dies.

        While a conversation goes back to an old event, and with each rollback that asks anew, each
        repeat would otherwise put all of them behind what it waits for.
        """
        async with self._appending.setdefault(window.key, asyncio.Lock()):
            now, known, new = present(), list[Position](), list[dict[str, Any]]()
            # A text may say the same several times.
            for event_id, flat in {str(flat["id"]): flat for flat in flats}.items():
                place = self._place(window, event_id)
                if place is not None:
                    known.append(place)
                else:
                    new.append(flat)
            most = max(len(new), 1) if whole else APPENDED_AT_ONCE
            for at in range(0, len(new), most):
                some = new[at : at + most]
                async with self._extraction.turns.of(window.key.tenant) as turn:
                    turn.worked(EVENT_SECONDS * len(some))
                    made = (self._record(window.key, flat, now) for flat in some)
                    records = [record for record in made if record is not None]
                    places = await self._log.append(records)
                known += places
                self._said |= {(window.key, r.id): p for r, p in zip(records, places, strict=True)}
        while len(self._said) > MOST_SAID:
            del self._said[next(iter(self._said))]
        return max(known, default=None)

    def _place(self, window: Window, event_id: str) -> Position | None:
        """Where an event of a conversation is in the log, as far as is known."""
        seen = window.recent_ids.find(id_hash_of(event_id))
        if seen is not None and not seen.rejected:
            return Position(window.partition, seen.offset)
        return self._said.get((window.key, event_id))

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


def _within(span: Set[int], found: Sequence[Candidate]) -> list[Candidate]:
    """What follows from events of a span, not from what came with it alone."""
    return [one for one in found if not span.isdisjoint(one.offsets)]


def _taught(window: Window) -> Taught:
    """Whose memory the window's conversation teaches now."""
    state = window.state
    return Taught(window.key, window.partition, state.user, state.channel, window.meta.rollback)
