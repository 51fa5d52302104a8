"""Your own projections: about 20 lines that say what an event changes; reading, checkpoints,
healing, rebuilds and verify are done for you.

``docs/projections.md`` has an example. :class:`threadfold.testing.MemoryView` is for the unit tests
of one.
"""

from streams.control.custom_projections import ViewRecord
from streams.custom.events import Event
from streams.custom.projection import Projection
from streams.custom.result import Result
from streams.custom.verify import ViewReport
from threadfold.views.access import drop, rebuild, run, verify
from threadfold.views.view import View

__all__ = [
    "Event",
    "Projection",
    "Result",
    "View",
    "ViewRecord",
    "ViewReport",
    "drop",
    "rebuild",
    "run",
    "verify",
]
