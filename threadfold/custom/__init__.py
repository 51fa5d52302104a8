"""Your own projections: you write what an event changes, in about 20 lines. Reading, checkpoints,
healing, rebuilds and verification are provided.

``docs/projections.md`` has an example. Use :class:`threadfold.testing.MemoryProjection` in unit
tests.
"""

from streams.control.custom_projections import ProjectionRecord
from streams.custom.events import Event
from streams.custom.projection import Projection
from streams.custom.result import Result
from streams.custom.verify import ProjectionReport
from threadfold.custom.access import drop, rebuild, run, verify
from threadfold.custom.reader import ProjectionReader

__all__ = [
    "Event",
    "Projection",
    "ProjectionReader",
    "ProjectionRecord",
    "ProjectionReport",
    "Result",
    "drop",
    "rebuild",
    "run",
    "verify",
]
