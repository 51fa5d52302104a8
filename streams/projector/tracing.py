"""OpenTelemetry spans of cuts, for whoever runs a collector: one span ``compaction`` for each, with
what it did.

Without a tracer provider (the SDK is the deployment's to configure) these cost next to nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from opentelemetry import trace

from projections.names import Key
from projections.window.trace_steps import Step


def compaction_span(key: Key, utilization: float, steps: Sequence[Step], *, where: str) -> None:
    """Report one cut: ``utilization`` is how full the window was before it, tokens over the
    ceiling; ``where``: ``fold`` or ``render``.
    """
    with trace.get_tracer("threadfold").start_as_current_span("compaction") as span:
        if span.is_recording():
            span.set_attributes(
                {
                    "threadfold.tenant": key.tenant,
                    "threadfold.conversation": key.conversation,
                    "threadfold.where": where,
                    "utilization": utilization,
                    "steps": msgspec.json.encode([step.to_dict() for step in steps]).decode(),
                }
            )
