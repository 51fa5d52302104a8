"""OpenTelemetry spans that a test's process reports, in memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter


@contextmanager
def recorded_spans() -> Iterator[InMemorySpanExporter]:
    """What is reported until the block ends. The process has no tracer provider before and after:
    OpenTelemetry's own setter works once only.
    """
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    before = trace.get_tracer_provider
    trace.get_tracer_provider = lambda: provider
    try:
        yield exporter
    finally:
        trace.get_tracer_provider = before
        provider.shutdown()
