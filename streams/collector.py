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


class Sweep:
    """Frees fetches that were dropped before they were read to their end.

    aiokafka's records and the generator over them refer to each other until it is exhausted, so such a fetch, a MiB of bytes, would lie
    about until the collector looks, which by its count of objects may take minutes: a worker held 900 MiB by it.
    """

    EVERY = 32

    def __init__(self) -> None:
        self._count = 0

    def dropped(self) -> None:
        """Count one; now and then look among the youngest objects."""
        self._count += 1
        if self._count % self.EVERY == 0:
            gc.collect(0)
