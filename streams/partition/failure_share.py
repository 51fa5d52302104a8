"""How much of what comes in is poison: beyond the deployment's share a worker stops, before it
quarantines every conversation there is.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

from projections.errors import TooMuchPoison
from streams.partition.effects import DeadLetter
from streams.partition.step import WAITING

WINDOW = 1_000
"""Records of one worker over which the share is taken."""
LEAST = 20
"""So many of them have to be poison: one bad record among the first three is no share to speak of.
"""


class FailureShare:
    """Counts the records of one worker's partitions, and of them those that could not be applied;
    events that wait are not among these.
    """

    def __init__(self, most: float, announced_before: Mapping[int, int]) -> None:
        """Args:
        most: the share that is allowed, 0 to 1; 1 allows all.
        announced_before: for each partition the offset from which on records are new. What passed
        once is not counted on a replay.
        """
        self._most = most
        self._announced_before = announced_before
        self._counted: dict[int, int] = {}
        self._recent: deque[bool] = deque(maxlen=WINDOW)

    def forget(self, partition: int) -> None:
        """The partition's log is another one: its offsets begin anew."""
        self._counted.pop(partition, None)

    def count(self, partition: int, offsets: Sequence[int], dead: Sequence[DeadLetter]) -> None:
        """Count a batch, once however often it is folded.

        Raises:
            TooMuchPoison: with it the share is too large; the batch is not to be written, and is
                counted again by whoever starts next.
        """
        since = max(self._announced_before.get(partition, 0), self._counted.get(partition, 0))
        bad = {letter.position.offset: letter for letter in dead if letter.kind != WAITING}
        for offset in offsets:
            if offset >= since:
                self._recent.append(offset in bad)
        if offsets:
            self._counted[partition] = max(since, offsets[-1] + 1)
        found = sum(self._recent)
        if found >= LEAST and found > self._most * len(self._recent) and bad:
            last = bad[max(bad)]
            raise TooMuchPoison(
                f"{found} of the last {len(self._recent)} records could not be applied, over the"
                f" share of {self._most:g} (setting max_poison_share): the last is {last.position},"
                f" {last.cause}; find out who writes them or what fails on them, or raise the"
                " setting; nothing of this batch was written, nothing is lost"
            )
