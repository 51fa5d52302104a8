"""Python's cycle collector in processes that fold or serve: it has little to find there, and much to walk."""

from __future__ import annotations

import gc


def rest_collector() -> None:
    """Let the collector look less often: such a process keeps hundreds of thousands of objects for long, and makes hardly a cycle of them.

    With the defaults (700, 10, 10) it walked them every few thousand records: 19 us of processor an event instead of 16. In a gateway a
    walk stops every request under way. To be called by the owner of a process, once what stays has been made.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
