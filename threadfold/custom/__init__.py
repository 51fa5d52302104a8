"""Your own projections: about 20 lines that say what an event changes; reading, checkpoints,
healing, rebuilds and verify are done for you.

``docs/projections.md`` has an example. :class:`threadfold.testing.MemoryProjection` is for the unit
tests of one.
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
