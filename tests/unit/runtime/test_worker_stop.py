"""The end of a worker's services whose threads ended before."""

from __future__ import annotations

import asyncio

import pytest
from mode.threads import QueueServiceThread

from streams.settings.settings import Settings
from streams.worker import StopsOnce, create_app
from tests.support.worker import until


class Thread(StopsOnce, QueueServiceThread):  # type: ignore[misc]
    abstract = False

    def on_crash(self, msg: str, *fmt: object, **kwargs: object) -> None:
        """Prints a traceback otherwise."""


async def _nothing() -> None:
    """What the thread is to call."""


async def _crashed(thread: QueueServiceThread) -> None:
    """Start a thread, and have it come to its end by itself, as after a crash of its worker."""
    await thread.start()
    await thread.call_thread(_nothing)
    crash = thread.crash(ValueError("of another service"))
    asyncio.run_coroutine_threadsafe(crash, thread.thread_loop)
    await until(lambda: asyncio.sleep(0, thread.thread_loop.is_closed()))


async def test_a_thread_that_came_to_its_end_by_itself_is_stopped_without_an_error() -> None:
    thread = Thread()
    await _crashed(thread)
    with pytest.raises(asyncio.CancelledError):
        await thread.call_thread(_nothing)
    await thread.stop()
    assert thread.should_stop


async def test_a_thread_that_runs_is_called_and_stopped() -> None:
    thread = Thread()
    await thread.start()
    await thread.call_thread(_nothing)
    await thread.stop()
    assert thread.thread_loop.is_closed()


async def test_the_workers_consumer_runs_in_such_a_thread() -> None:
    app = create_app(Settings(kafka="127.0.0.1:1", redis="redis://127.0.0.1:1/0"))
    assert issubclass(app.transport.Consumer.thread, StopsOnce)
