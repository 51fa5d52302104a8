"""Ending background tasks for sure."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, TypeVar

logger = logging.getLogger(__name__)
T = TypeVar("T")
AGAIN = 2.0
LONGEST = 10.0
"""Seconds until a task that goes on is cancelled once more, and until it is left alone."""


async def end_tasks(tasks: Iterable[asyncio.Future[Any] | None]) -> None:
    """Cancel tasks and wait until they are over; what they raise is dropped. ``None`` among them is
    passed over.

    A single cancellation is not enough: clients that wait with a time-out of their own can swallow
    it in the moment in which their answer comes, and a loop around them goes on for ever. A task
    that does not end within :data:`LONGEST` seconds is left behind with a warning, so that a
    process that stops does stop.
    """
    every = {task for task in tasks if task is not None}
    loop = asyncio.get_running_loop()
    deadline = loop.time() + LONGEST
    while (pending := {task for task in every if not task.done()}) and loop.time() < deadline:
        for task in pending:
            task.cancel()
        await asyncio.wait(pending, timeout=AGAIN)
    for task in every - pending:
        if not task.cancelled():
            task.exception()  # looked at, so that asyncio does not log it later
    for task in pending:
        logger.warning(
            "a task does not end and is abandoned: %s",
            task.get_name() if isinstance(task, asyncio.Task) else task,
        )


async def some_at_a_time(most: int, calls: Sequence[Callable[[], Awaitable[T]]]) -> list[T]:
    """What these calls return, of which at most ``most`` run at a time. If one fails the others end
    with it, and none begins.
    """
    found: dict[int, T] = {}
    left = iter(enumerate(calls))

    async def run() -> None:
        for number, call in left:
            found[number] = await call()

    tasks = [asyncio.create_task(run()) for _ in range(min(most, len(calls)))]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return [found[number] for number in range(len(calls))]
