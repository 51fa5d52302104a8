"""Ctrl-C ends a command, whatever swallows a cancellation on the way."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Coroutine
from types import FrameType
from typing import Any, TypeVar

T = TypeVar("T")
AGAIN = 1.0
"""Seconds after which a command that goes on after Ctrl-C is cancelled again."""


def run_until_interrupted(work: Coroutine[Any, Any, T]) -> T:
    """``asyncio.run`` whose cancellation by Ctrl-C is repeated until the work has ended: where
    aiokafka ends a task of its own, it takes the cancellation of the caller for that task's.

    A second Ctrl-C ends the work at once. Outside of the main thread it is ``asyncio.run``.

    Raises:
        KeyboardInterrupt: it was interrupted.
    """
    if threading.current_thread() is not threading.main_thread():
        return asyncio.run(work)
    interrupted = False

    async def insist(task: asyncio.Task[Any]) -> None:
        while True:
            await asyncio.sleep(AGAIN)
            if interrupted:
                task.cancel()

    async def insisting() -> T:
        task, first = asyncio.current_task(), signal.getsignal(signal.SIGINT)
        if task is None or not callable(first):  # a shell's background command ignores Ctrl-C
            return await work

        def interrupt(number: int, frame: FrameType | None) -> None:
            nonlocal interrupted
            interrupted = True
            first(number, frame)

        signal.signal(signal.SIGINT, interrupt)
        again = asyncio.create_task(insist(task))
        try:
            return await work
        finally:
            again.cancel()
            if signal.getsignal(signal.SIGINT) is interrupt:
                signal.signal(signal.SIGINT, first)

    try:
        return asyncio.run(insisting())
    except asyncio.CancelledError:
        if interrupted:
            raise KeyboardInterrupt from None
        raise
