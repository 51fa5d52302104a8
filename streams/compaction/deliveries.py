"""Requests as their topic delivers them, acknowledged in its order whatever order they end in."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(slots=True)
class _Open:
    acknowledge: Callable[[], object]
    done: bool = False


class Deliveries:
    """The deliveries of each partition that are not acknowledged yet, oldest first.

    A consumer's own account of what was acknowledged out of order is not relied on: Faust's commits
    past a partition's very first record while that one is under way.
    """

    def __init__(self) -> None:
        self._open: dict[int, deque[_Open]] = {}
        self._round = 0

    def __len__(self) -> int:
        return sum(map(len, self._open.values()))

    def add(
        self, partition: int, acknowledge: Callable[[], object]
    ) -> tuple[Callable[[], None], Callable[[], bool]]:
        """Take note of a partition's next delivery. Returns what is to be called once it is done,
        and what says whether it is still this worker's.
        """
        line = self._open.setdefault(partition, deque())
        one, given = _Open(acknowledge), self._round
        line.append(one)

        def done() -> None:
            one.done = True
            while line and line[0].done:
                line.popleft().acknowledge()

        return done, lambda: given == self._round

    def forget(self) -> None:
        """Partitions are given out anew: what is not acknowledged is delivered again, here or to
        another worker.
        """
        for line in self._open.values():
            line.clear()
        self._open.clear()
        self._round += 1
