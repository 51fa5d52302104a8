"""How often the fold fails: beyond the deployment's share a partition halts, before each of its
conversations is quarantined.

Only failures of the fold count. A record that is no event is its producer's fault, not the fold's:
it is set aside, however many there are.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

WINDOW = 1_000
"""Events of a partition over which the share is taken."""
LEAST = 20
"""So many of them have to fail: one failure among the first three is no share to speak of."""


class Failing(NamedTuple):
    """An event on which the fold failed."""

    offset: int
    cause: str


class Excess(NamedTuple):
    """Too large a share: so many of the last events, the last of them, and how far was folded."""

    failing: int
    of: int
    last: Failing
    offset: int


class FailureShare:
    """Counts the events of each partition of one worker, and of them those on which the fold
    failed.
    """

    def __init__(self, most: float) -> None:
        """Args: ``most`` is the share that is allowed, 0 to 1; 1 allows all."""
        self._most = most
        self._counted: dict[int, int] = {}
        self._recent: dict[int, deque[bool]] = {}

    def begin(self, partition: int, since: int) -> None:
        """Count a partition from an offset on; what was counted before is not counted again."""
        self._counted[partition] = max(since, self._counted.get(partition, 0))

    def forget(self, partition: int) -> None:
        """The partition's log is another one: its offsets begin anew."""
        self._counted.pop(partition, None)
        self._recent.pop(partition, None)

    def accept(self, partition: int) -> None:
        """What has failed so far counts no more."""
        self._recent.pop(partition, None)

    def count(
        self, partition: int, offsets: Sequence[int], failing: Sequence[Failing], last: int
    ) -> Excess | None:
        """Count a batch that ends at offset ``last`` and its events, once however often it is
        folded; the excess if with it the share is too large.
        """
        since = self._counted.get(partition, 0)
        recent = self._recent.setdefault(partition, deque(maxlen=WINDOW))
        bad = {one.offset for one in failing if one.offset >= since}
        recent.extend(offset in bad for offset in offsets if offset >= since)
        if offsets:
            self._counted[partition] = max(since, offsets[-1] + 1)
        found = sum(recent) if bad else 0
        if found < LEAST or found <= self._most * len(recent):
            return None
        return Excess(found, len(recent), failing[-1], last)
