"""Python's cycle collector in processes that fold or serve: it has little to find there, and much
to walk.
"""

from __future__ import annotations

import gc


def tune_gc() -> None:
    """Let the collector look less often: such a process keeps hundreds of thousands of objects for
    long, and makes hardly a cycle of them.

    With the defaults (700, 10, 10) it walked them every few thousand records: 19 us of processor an
    event instead of 16. In a gateway a walk stops every request under way. To be called by the
    owner of a process, once what stays has been made.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


class Sweep:
    """Frees fetches that were dropped before they were read to their end.

    aiokafka's records and the generator over them refer to each other until it is exhausted, so
    such a fetch, a MiB of bytes, would lie about until the collector looks, which by its count of
    objects may take minutes: a worker held 900 MiB by it. Each look sets that count back, so the
    collector never comes to look itself at what was alive in one and died later; that is done here
    as well, less often.
    """

    EVERY = 32
    """Drops between two looks among the youngest objects."""
    OLDER, ALL = 16, 1_024
    """Looks of which the last goes through what one or two of them found alive, and through
    everything.
    """

    def __init__(self) -> None:
        self._count = 0

    def dropped(self) -> None:
        """Count one; now and then look."""
        self._count += 1
        looks, rest = divmod(self._count, self.EVERY)
        if not rest:
            gc.collect(2 if looks % self.ALL == 0 else 1 if looks % self.OLDER == 0 else 0)
