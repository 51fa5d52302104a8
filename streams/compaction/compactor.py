"""The compactor: reads a span from the log, has it summarised, and appends the summary as an event.

It holds no state. A request that fails, or whose worker dies, is sent again by the projector; two
answers to one request have the same ids, and whether a summary is taken is decided by the fold when
it reaches it in the log.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from hashlib import sha256
from typing import Any

from projections.errors import InvalidPolicy
from projections.events import types as events
from projections.events.times import present
from projections.events.types import absolute, delta
from projections.events.untrusted import Undecodable, json_decoder
from projections.events.validation import Record, make_record
from projections.fold.apply import id_hash_of
from projections.fold.replay import Logged
from projections.names import Key, Position
from streams.compaction.left_behind import LeftBehind
from streams.compaction.requests import Asked, CompactionRequest, event_id_of, what_is_asked
from streams.compaction.span import Span, SpanLost, content_of, read_span
from streams.compaction.summarizers.base import Summarizer, SummaryInput, SummaryText
from streams.compaction.summarizers.registry import Summarizers
from streams.compaction.summarizers.segments import summarize
from streams.compaction.summarizers.span_messages import messages_of
from streams.log.history import read_events
from streams.log.log import Log
from streams.metrics.declared import COMPACTIONS, FALLBACKS, SUMMARY_SECONDS
from streams.metrics.metrics import Metrics
from streams.runtime.log_fields import about
from streams.runtime.processor import Here, Processor
from streams.runtime.tracing import present_traceparent, summary_span, trace_of
from streams.settings.endpoints import EXTRACTIVE
from streams.settings.settings import Settings

logger = logging.getLogger(__name__)

MOST_MADE = 10_000
"""Summaries that are remembered, to be used again."""
_TRUST = ("user", "model", "tool")


class Compactor:
    """Answers compaction requests; any number of calls may run at once."""

    what = "compaction of %s"
    failed = "compaction of %s failed, it will be asked for again"
    fallback = EXTRACTIVE
    fallbacks = FALLBACKS
    counted = COMPACTIONS

    def __init__(
        self,
        settings: Settings,
        log: Log,
        summarizers: Callable[[str], Summarizer] | None = None,
        still_due: Callable[[CompactionRequest], Awaitable[bool]] | None = None,
        metrics: Metrics | None = None,
        processor: Processor | None = None,
    ) -> None:
        """Nothing is connected yet.

        Args:
            summarizers: by name, raising ``InvalidPolicy`` for one it does not know; None: those of
                the settings.
            still_due: awaited before each answer of :meth:`answer_if_due`: whether its window
                still asks for it; None: it always does.
            metrics: where all is counted; None: nobody looks.
            processor: where a summary's text is counted; None: on the event loop.

        Raises:
            InvalidSettings: a summariser of the settings lacks its key.
        """
        self.settings = settings
        self.log = log
        self._own = None if summarizers else Summarizers(settings)
        self._summarizers = summarizers or self._own.get  # type: ignore[union-attr]
        self._still_due = still_due
        self.metrics = metrics or Metrics()
        self._processor = processor or Here()
        self._under_way: set[Asked] = set()
        self._answered: dict[Asked, tuple[float, int]] = {}
        """What was asked, by the time at which it was answered, in that order, and the offset of
        the summary: the fold may not have come to it yet.
        """
        self._left_behind = LeftBehind(log)
        self._making: dict[bytes, asyncio.Event] = {}
        """What texts are being made of, until they are in the log."""
        self._made: dict[bytes, int] = {}
        """What texts were made of, by the offset of the summary, in that order."""

    def read(self, value: bytes) -> CompactionRequest | None:
        """As :func:`decode_request`."""
        return decode_request(value)

    async def close(self) -> None:
        """End the connections of its own summarisers."""
        if self._own is not None:
            await self._own.close()

    async def answer_if_due(
        self, request: CompactionRequest, allowed: Callable[[], Awaitable[None]] | None = None
    ) -> Position | None:
        """Like :meth:`answer`, but None where it was answered just now, by this call or another
        one, or is not asked for any more. ``allowed`` is awaited in between: until a call may be
        made.

        What is asked again after a rollback is not made twice: the window takes the first answer,
        or the first one's text is appended again.
        """
        name, now = what_is_asked(request), asyncio.get_running_loop().time()
        while (
            self._answered
            and (first := next(iter(self._answered.items())))[1][0]
            < now - self.settings.summary_time_cap
        ):
            del self._answered[first[0]]
        # A window that has passed the answer did not take it.
        to_come = name in self._answered and self._answered[name][1] > request.known_to
        if name in self._under_way or to_come:
            return None
        self._under_way.add(name)
        try:
            if self._still_due is not None and not await self._still_due(request):
                self.metrics.add(COMPACTIONS, request.reason, request.summarizer, "not_due")
                return None
            if allowed is not None:
                await allowed()
            position = await self.answer(request, once=True)
            self._answered.pop(name, None)  # the latest is the last
            self._answered[name] = asyncio.get_running_loop().time(), position.offset
            return position
        finally:
            self._under_way.discard(name)

    async def answer(self, request: CompactionRequest, *, once: bool = False) -> Position:
        """Summarise a request's span and append the summary; returns where the summary event
        stands. ``once``: a text that this compactor makes or made of the same is used again.

        Raises:
            ThreadfoldError: nothing was appended (or, for KafkaUnavailable, unknown: the repeat has
                the same ids).
        """
        key = Key(request.tenant, request.conversation)
        most = self.settings.summary_input_tokens
        span = await read_span(self.log, request, key, most_tokens=most)
        traces = (trace_of(event) for _, event in span.summarised)
        how = {"threadfold.reason": request.reason, "threadfold.summarizer": request.summarizer}
        with summary_span(key, request.traceparent, traces, how):
            previous = await self._previous(request, key)
            if not once:
                return await self._append_summary(request, key, span, previous)
            return await self._append_once(request, key, span, previous)

    async def _append_once(
        self, request: CompactionRequest, key: Key, span: Span, previous: events.Summary | None
    ) -> Position:
        """Requests of other spans and predecessors may come down to the same text."""
        content = content_of(request, span, previous)
        while (other := self._making.get(content)) is not None:
            await other.wait()
        made = self._making[content] = asyncio.Event()
        try:
            position = await self._append_summary(
                request, key, span, previous, self._made.get(content)
            )
            self._made.pop(content, None)  # the latest is the last
            self._made[content] = position.offset
            if len(self._made) > MOST_MADE:
                del self._made[next(iter(self._made))]
            return position
        finally:
            del self._making[content]
            made.set()

    async def _append_summary(
        self,
        request: CompactionRequest,
        key: Key,
        span: Span,
        previous: events.Summary | None,
        made_at: int | None = None,
    ) -> Position:
        """Append the summary of a span. ``made_at`` is where one of the same text may stand."""
        summarizer = self._summarizer(request.summarizer)
        begun = time.perf_counter()
        covers = _span_of(request, span)
        left = await self._left_behind.text(request, key, covers, previous, made_at)
        answer = left or await summarize(
            summarizer,
            SummaryInput(
                previous=previous.text if previous else None,
                messages=tuple(
                    m
                    for offset, event in span.summarised
                    for m in messages_of(event, str(Position(request.partition, offset)))
                ),
                max_tokens=request.max_tokens,
                encoding=request.encoding,
                tenant=request.tenant,
                conversation=request.conversation,
            ),
        )
        flat = _summary_event(request, span, covers, previous, answer)
        made_by = answer.summarizer or summarizer.name
        self.metrics.observe(SUMMARY_SECONDS, time.perf_counter() - begun, made_by)
        flat |= {"summarizer": made_by, "model": answer.model, "cost": answer.cost}
        if (place := present_traceparent()) is not None:
            flat["traceparent"] = place
        for refused in answer.refused:
            name, _, reason = refused.partition(": ")
            logger.warning(
                "an answer of %s was refused: %s",
                name,
                reason,
                extra={**about(key), "summarizer": name, "reason": reason},
            )
        if not span.whole:
            _shorten(flat, request, span.events[-1][0])
        record = await self._processor.run(
            request.tenant, _record_of, key, flat, request.encoding, self.settings.max_event_bytes
        )
        position = (await self.log.append([record]))[0]
        self.metrics.add(COMPACTIONS, request.reason, made_by, "made")
        return position

    def _summarizer(self, name: str) -> Summarizer:
        """The summariser a policy names; the default one where there is none of that name, so that
        no window stays due for ever.
        """
        try:
            return self._summarizers(name)
        except InvalidPolicy as error:
            logger.warning("%s; %s is used instead", error, EXTRACTIVE)
            return self._summarizers(EXTRACTIVE)

    async def _previous(self, request: CompactionRequest, key: Key) -> events.Summary | None:
        if request.previous_offset is None:
            return None
        found = await read_events(self.log, key, request.partition, [request.previous_offset])
        event = found[0][1] if found else None
        if not isinstance(event, events.SummaryEvent):
            raise SpanLost(
                f"the summary before offset {request.first} of {key} is not in the log at"
                f" {request.previous_offset}"
            )
        return event.data


def _record_of(key: Key, flat: dict[str, Any], encoding: str, max_bytes: int) -> Record:
    """The record of a summary event. It counts the text: the first time in a process that takes
    half a second.
    """
    return make_record(
        key,
        flat,
        where=f"summary of {key}",
        now=present(),
        new_id=event_id_of(flat["summary_id"]),
        encoding=encoding,
        max_bytes=max_bytes,
    )


def _summary_event(
    request: CompactionRequest,
    span: Span,
    covers: dict[str, Any],
    previous: events.Summary | None,
    answer: SummaryText,
) -> dict[str, Any]:
    """The flat summary event that answers a request whole; ``covers`` is its span."""
    return {
        "type": "summary",
        "summary_id": request.request_id,
        "text": answer.text,
        "tokens": answer.tokens,
        "span": covers,
        "previous": request.previous,
        "previous_position": (
            None
            if request.previous_offset is None
            else str(Position(request.partition, request.previous_offset))
        ),
        "rollback": (
            None if request.rollback is None else str(Position(request.partition, request.rollback))
        ),
        "reason": request.reason,
        "summarizer": request.summarizer,
        "policy": request.policy,
        "trust": _trust(span.summarised, previous),
        "tokens_before": span.tokens,
        "tokens_after": answer.tokens,
    }


def _span_of(request: CompactionRequest, span: Span) -> dict[str, Any]:
    """The run of events that an answer to a request covers."""
    ids = sha256()
    for _, id_ in span.events:
        ids.update(id_hash_of(id_))
    summarised = {offset for offset, _ in span.summarised}
    return {
        "from": str(Position(request.partition, request.first)),
        "to": str(Position(request.partition, request.last)),
        "count": len(span.events),
        "positions": delta([offset for offset, _ in span.events]),
        "digest": ids.hexdigest(),
        "stands": "".join("1" if offset in summarised else "0" for offset, _ in span.events),
        **({"kept": request.kept} if request.kept else {}),
        **({"apart": request.apart} if request.apart else {}),
        "survives_rollbacks": True,
    }


def _shorten(flat: dict[str, Any], request: CompactionRequest, last: int) -> None:
    """A span that the input cap shortened ends at offset ``last`` and has an id of its own; the
    rest is asked for next.
    """
    flat["summary_id"] = sha256(f"{request.request_id}:{last}".encode()).hexdigest()[:32]
    flat["span"]["to"] = str(Position(request.partition, last))
    for name, offsets in (("kept", request.kept), ("apart", request.apart)):
        within = delta([offset for offset in absolute(offsets) if offset <= last])
        flat["span"].pop(name, None)
        flat["span"] |= {name: within} if within else {}


def _trust(logged: list[Logged], previous: events.Summary | None) -> str:
    """The least trust of what the summary covers, the earlier summary included."""
    least = _TRUST.index(previous.trust) if previous else 0
    for _, event in logged:
        if isinstance(event, events.ToolResultEvent):
            return "tool"
        if isinstance(event, events.MessageEvent) and event.data.role == "assistant":
            least = max(least, 1)
    return _TRUST[least]


_request = json_decoder(CompactionRequest)


def decode_request(value: bytes | None) -> CompactionRequest | None:
    """A request as it stands on its topic, None for what is not one."""
    try:
        return _request(value)
    except Undecodable:
        return None
