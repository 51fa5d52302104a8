"""Background tasks end when they are told to, even where a cancellation got lost."""

from __future__ import annotations

import asyncio

import pytest

from streams.runtime import tasks
from streams.runtime.tasks import end_tasks


async def test_a_task_that_swallowed_its_first_cancellation_ends_with_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tasks, "AGAIN", 0.01)
    swallowed = 0

    async def loop() -> None:
        nonlocal swallowed
        while True:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                swallowed += 1
                if swallowed == 2:
                    raise

    task = asyncio.create_task(loop())
    await asyncio.sleep(0)
    await end_tasks([task, None])
    assert task.cancelled()
    assert swallowed == 2


async def test_a_task_that_never_ends_is_left_behind_with_a_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(tasks, "AGAIN", 0.01)
    monkeypatch.setattr(tasks, "LONGEST", 0.05)
    let_go = asyncio.Event()

    async def deaf() -> None:
        while not let_go.is_set():
            try:
                await let_go.wait()
            except asyncio.CancelledError:
                continue

    task = asyncio.create_task(deaf(), name="deaf-one")
    await asyncio.sleep(0)
    await end_tasks([task])
    assert "deaf-one" in caplog.text
    assert not task.done()
    let_go.set()
    await task


async def test_what_a_task_failed_with_is_dropped() -> None:
    async def fails() -> None:
        raise RuntimeError("before it was ended")

    task = asyncio.create_task(fails())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await end_tasks([task])
    assert isinstance(task.exception(), RuntimeError)
