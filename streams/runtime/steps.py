"""Work in steps: a generator that rests between them, so that others have their turn, and returns
what it has found.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from typing import ParamSpec, TypeAlias, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
Steps: TypeAlias = Generator[None, None, T]


def at_once(steps: Steps[T]) -> T:
    """What they come to, without a rest."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: T = end.value
            return found


def timed(steps: Steps[T]) -> Steps[tuple[T, float]]:
    """The same steps; they come to what these do, and the seconds that were worked."""
    seconds = 0.0
    while True:
        began = time.perf_counter()
        try:
            next(steps)
        except StopIteration as end:
            return end.value, seconds + time.perf_counter() - began
        seconds += time.perf_counter() - began
        yield


def one_step(work: Callable[P, T]) -> Callable[P, Steps[T]]:
    """The same work, as a single step."""

    def steps(*args: P.args, **named: P.kwargs) -> Steps[T]:
        yield from ()
        return work(*args, **named)

    return steps
