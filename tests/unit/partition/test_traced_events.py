"""What of a batch belongs to traces: nothing is noted or reported unless somebody traces."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from projections.events.validation import make_record
from projections.names import Key
from projections.policy.policy import Rules
from streams.partition.partition import Partition
from streams.projector.effect_sink import NullSink
from streams.runtime.tracing import append_span, fold_spans, is_tracing, present_traceparent
from tests.support.spans import recorded_spans
from threadfold.testing import MemoryLog, MemoryStore

KEY = Key("acme", "c1")
PLACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
FLATS: list[dict[str, Any]] = [
    {"type": "message", "role": "user", "content": "in a trace", "traceparent": PLACE},
    {"type": "message", "role": "user", "content": "in none"},
    {"type": "acme.note.v1", "text": "of another family", "traceparent": PLACE},
    {"type": "tool.result", "tool_call_id": "c", "content": "42", "traceparent": PLACE},
    {"type": "rollback", "to": "0-900", "traceparent": PLACE},
]


async def folded(*, traced: bool) -> Partition:
    log = MemoryLog(1)

    async def learn(tenant: str) -> None:
        assert tenant == KEY.tenant

    now = "2026-01-01T00:00:00Z"
    await log.append(
        [make_record(KEY, flat, where="e", now=now, new_id=f"e{i}") for i, flat in enumerate(FLATS)]
    )
    made = Partition(0, 1, MemoryStore(), log, Rules(), learn=learn, sink=NullSink())
    made.traced = [] if traced else None
    await made.process([raw async for raw in log.scan(0, 0, len(FLATS) - 1)])
    return made


async def test_events_of_traces_are_noted_with_what_became_of_them() -> None:
    made = await folded(traced=True)
    assert made.traced is not None
    assert [(one.offset, one.status) for one in made.traced] == [
        (0, "applied"),
        (3, "applied"),
        (4, "rejected"),
    ]
    assert {(one.key, one.traceparent) for one in made.traced} == {(KEY, PLACE)}


async def test_tracing_changes_nothing_of_what_is_folded() -> None:
    plain, traced = await folded(traced=False), await folded(traced=True)
    assert plain.traced is None
    assert plain.counts == traced.counts
    # The log gives its records the time at which they came.
    assert replace(plain.checkpoint, timestamp=0) == replace(traced.checkpoint, timestamp=0)


async def test_each_visible_event_is_a_span_within_its_trace() -> None:
    made = await folded(traced=True)
    with recorded_spans() as exporter:
        places = fold_spans(0, made.traced or [], 5)
        spans = exporter.get_finished_spans()
    assert [span.name for span in spans] == ["fold"] * 3
    assert all(span.start_time == 5 for span in spans)
    context = spans[-1].context
    assert context is not None and places == {KEY: f"00-{PLACE[3:35]}-{context.span_id:016x}-01"}


def test_without_a_tracer_provider_an_append_has_no_span() -> None:
    assert not is_tracing()
    with append_span("acme") as span:
        assert span is None and present_traceparent() is None
