"""Work that holds the event loop."""

from __future__ import annotations

import time


def busy(seconds: float) -> None:
    """Hold the event loop for so long."""
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass
