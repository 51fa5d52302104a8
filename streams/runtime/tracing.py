"""OpenTelemetry spans of an event's way, for whoever runs a collector: ``append`` in a gateway,
``fold`` in a worker (it ends when the event is visible), ``summarise`` in a compactor. The events'
``traceparent`` links them.

Without a tracer provider (the SDK is the deployment's to configure) none of it is done.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import msgspec
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, SpanKind, Status, StatusCode
from opentelemetry.trace import Span as Span
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from projections.errors import ThreadfoldError
from projections.events.types import AnyEvent, OtherEvent
from projections.events.validation import Record
from projections.names import Key, Position
from streams.runtime.current_request import current_request

MOST = 32
"""Other traces that one span is linked to, at most."""
_w3c = TraceContextTextMapPropagator()


class Traced(NamedTuple):
    """An event that was folded and belongs to a trace."""

    key: Key
    offset: int
    traceparent: str
    status: str


def trace_of(event: AnyEvent) -> str | None:
    """The trace parent of an event; None of one of another family's type."""
    return None if isinstance(event, OtherEvent) else event.traceparent


class _Traceparent(msgspec.Struct):
    traceparent: str | None = None


_traceparent_in = msgspec.json.Decoder(_Traceparent).decode


def is_tracing() -> bool:
    """Whether the process has a tracer provider."""
    return not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)


def traceparent_of(span: Span) -> str | None:
    """A span's place as a W3C trace parent; None where it has none."""
    place = span.get_span_context()
    if not place.is_valid:
        return None
    return f"00-{place.trace_id:032x}-{place.span_id:016x}-{place.trace_flags:02x}"


def present_traceparent() -> str | None:
    """The place of the span that this runs in; None without tracing."""
    return traceparent_of(trace.get_current_span()) if is_tracing() else None


@contextmanager
def append_span(tenant: str) -> Iterator[Span | None]:
    """The span of one append, within the caller's trace; None without tracing."""
    if not is_tracing():
        yield None
        return
    request = current_request()
    within = trace.get_current_span().get_span_context().is_valid
    parent = None if within or request is None else request.traceparent
    attributes = {"threadfold.tenant": tenant} | (
        {} if request is None else {"threadfold.request_id": request.id}
    )
    with _span("append", parent, attributes, kind=SpanKind.PRODUCER) as span:
        yield span


def note_appended(span: Span, records: Sequence[Record], positions: Sequence[Position]) -> None:
    """Say what was appended. Each other trace that an event belongs to gets a span of its own."""
    span.set_attributes(
        {
            "threadfold.conversation": records[0].key.conversation,
            "threadfold.events": len(records),
            "threadfold.position": str(positions[-1]),
        }
    )
    own = traceparent_of(span)
    others = dict.fromkeys(_traceparent_in(record.value).traceparent for record in records)
    for other in [one for one in others if one is not None and one != own][:MOST]:
        _tracer().start_span(
            "append",
            _context(other),
            SpanKind.PRODUCER,
            links=[Link(span.get_span_context())],
            start_time=getattr(span, "start_time", None),
        ).end()


def fold_spans(partition: int, traced: Iterable[Traced], began_ns: int) -> dict[Key, str]:
    """Report events that are visible now, folded since ``began_ns``; returns each conversation's
    last place.
    """
    places: dict[Key, str] = {}
    for event in traced:
        span = _tracer().start_span(
            "fold",
            _context(event.traceparent),
            SpanKind.CONSUMER,
            attributes={
                "threadfold.tenant": event.key.tenant,
                "threadfold.conversation": event.key.conversation,
                "threadfold.position": str(Position(partition, event.offset)),
                "threadfold.status": event.status,
            },
            start_time=began_ns,
        )
        span.end()
        places[event.key] = traceparent_of(span) or event.traceparent
    return places


@contextmanager
def summary_span(
    key: Key, parent: str | None, summarized: Iterable[str | None], attributes: Mapping[str, Any]
) -> Iterator[Span | None]:
    """The span of one summary: in the trace of the event by which it became due, else of the last
    event that it summarises; linked to the others of these. None without tracing.
    """
    if not is_tracing():
        yield None
        return
    places = [one for one in dict.fromkeys(summarized) if one is not None]
    parent = parent or (places[-1] if places else None)
    links = [
        Link(trace.get_current_span(_context(one)).get_span_context())
        for one in places[-MOST:]
        if one != parent
    ]
    about = {"threadfold.tenant": key.tenant, "threadfold.conversation": key.conversation}
    kind = SpanKind.CONSUMER
    with _span("summarise", parent, {**about, **attributes}, kind=kind, links=links) as span:
        yield span


@contextmanager
def _span(
    name: str,
    parent: str | None,
    attributes: Mapping[str, Any],
    *,
    kind: SpanKind,
    links: Sequence[Link] = (),
) -> Iterator[Span]:
    """A current span. Of an error it has the class: its text may quote what users wrote."""
    with _tracer().start_as_current_span(
        name,
        None if parent is None else _context(parent),
        kind,
        attributes=dict(attributes),
        links=links,
        record_exception=False,
        set_status_on_exception=False,
    ) as span:
        try:
            yield span
        except Exception as error:
            span.set_attribute("error.type", type(error).__name__)
            if not isinstance(error, ThreadfoldError) or error.problem >= 500:
                span.set_status(Status(StatusCode.ERROR))
            raise


def _tracer() -> trace.Tracer:
    return trace.get_tracer("threadfold")


def _context(traceparent: str) -> Context:
    return _w3c.extract({"traceparent": traceparent}, Context())
