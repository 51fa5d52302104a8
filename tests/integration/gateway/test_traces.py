"""OpenTelemetry traces of the real pipeline: from an append to its event being visible, and to the
summary that it brings about.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

import httpx
import pytest
from opentelemetry.sdk.trace import ReadableSpan

from streams.settings.settings import Settings
from tests.support.platform import SUMMARIZING, running_platform
from tests.support.spans import recorded_spans
from tests.support.worker import until

pytestmark = pytest.mark.long
TRACE, CALLER = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
TRACEPARENT = f"00-{TRACE}-{CALLER}-01"
OWN = "00-11111111111111111111111111111111-2222222222222222-01"
TEXT = "the order of alice was shipped late because the harbour lost its papers again "


@pytest.fixture(scope="module")
async def http(settings: Settings) -> AsyncIterator[httpx.AsyncClient]:
    async with running_platform(settings, SUMMARIZING) as platform:
        headers = {"Authorization": f"Bearer {platform.key}"}
        async with httpx.AsyncClient(
            base_url=f"{platform.url}/v1/conversations", headers=headers, timeout=30
        ) as client:
            yield client


def say(number: int, **more: str) -> dict[str, Any]:
    role = "assistant" if number % 2 else "user"
    return {"type": "message", "role": role, "content": f"{number}: {TEXT * 3}", **more}


async def append(
    http: httpx.AsyncClient, name: str, events: Sequence[dict[str, Any]], **headers: str
) -> dict[str, Any]:
    answer = await http.post(f"/{name}/events?wait=applied", json=list(events), headers=headers)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def trace_of(span: ReadableSpan) -> str:
    assert span.context is not None
    return f"{span.context.trace_id:032x}"


def place_of(span: ReadableSpan) -> str:
    assert span.context is not None
    return f"{span.context.span_id:016x}"


def parent_of(span: ReadableSpan) -> str:
    assert span.parent is not None
    return f"{span.parent.span_id:016x}"


async def test_one_trace_holds_the_append_its_events_becoming_visible_and_the_summary(
    http: httpx.AsyncClient,
) -> None:
    with recorded_spans() as exporter:
        done = await append(http, "c1", [say(i) for i in range(20)], traceparent=TRACEPARENT)

        async def visible() -> list[ReadableSpan]:
            spans = [span for span in exporter.get_finished_spans() if trace_of(span) == TRACE]
            folded = [span for span in spans if span.name == "fold"]
            return spans if len(folded) >= 21 else []

        spans = await until(visible, 60, "the summary is visible")
    (appended,) = [span for span in spans if span.name == "append"]
    assert parent_of(appended) == CALLER
    assert appended.attributes is not None
    assert appended.attributes["threadfold.position"] == done["position"]
    assert appended.attributes["threadfold.events"] == 20
    folds = [span for span in spans if span.name == "fold"]
    of_append = [span for span in folds if parent_of(span) == place_of(appended)]
    positions = {str((span.attributes or {})["threadfold.position"]) for span in of_append}
    assert positions == {event["position"] for event in done["events"]}
    summary = next(span for span in spans if span.name == "summarise")
    assert parent_of(summary) == place_of(of_append[-1]), "the event by which it became due"
    assert (summary.attributes or {})["threadfold.summarizer"] == "extractive"
    (of_summary,) = [span for span in folds if parent_of(span) == place_of(summary)]
    assert (of_summary.attributes or {})["threadfold.status"] == "applied"
    assert appended.start_time < summary.start_time < of_summary.end_time  # type: ignore[operator]
    assert "harbour" not in "".join(span.to_json() for span in spans), "never content"


def of_test_before(span: ReadableSpan) -> bool:
    """Whether it is of the summaries of the other test's conversation, which may go on."""
    named = (span.attributes or {}).get("threadfold.conversation")
    return trace_of(span) == TRACE or named == "c1"


async def test_an_event_with_a_trace_of_its_own_stays_in_it(http: httpx.AsyncClient) -> None:
    with recorded_spans() as exporter:
        await append(http, "c2", [say(0, traceparent=OWN), say(1)])
        spans = [span for span in exporter.get_finished_spans() if not of_test_before(span)]
    found = {(span.name, trace_of(span)) for span in spans}
    (other,) = {trace_of(span) for span in spans} - {OWN[3:35]}
    names = ("append", "fold")
    assert found == {(name, trace) for name in names for trace in (OWN[3:35], other)}
    history = (await http.get("/c2/history")).json()["events"]
    assert history[1]["traceparent"] == OWN and history[0]["traceparent"][3:35] == other


async def test_without_a_tracer_provider_an_event_is_written_as_it_came(
    http: httpx.AsyncClient,
) -> None:
    await append(http, "c3", [say(0), say(1, traceparent=OWN)], traceparent=TRACEPARENT)
    history = (await http.get("/c3/history")).json()["events"]
    assert history[0]["traceparent"] == OWN and "traceparent" not in history[1]


async def test_what_an_error_says_is_not_in_its_span(http: httpx.AsyncClient) -> None:
    with recorded_spans() as exporter:
        answer = await http.post("/c4/events", json={"type": "message", "role": "harbour"})
        (span,) = exporter.get_finished_spans()
    assert answer.status_code == 422 and "harbour" not in span.to_json()
    assert (span.attributes or {})["error.type"] == "InvalidEvent"
