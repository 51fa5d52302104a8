"""Ctrl-C ends a command."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal

import pytest

from threadfold.cli.interruptible import run_until_interrupted


async def swallowing(times: int) -> str:
    """Work that swallows so many cancellations, after Ctrl-C."""
    os.kill(os.getpid(), signal.SIGINT)
    for _ in range(times):
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(20)
    await asyncio.sleep(20)
    return "went on"


@pytest.mark.parametrize("times", [0, 1, 2])
def test_ctrl_c_ends_work_that_swallows_a_cancellation(times: int) -> None:
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        run_until_interrupted(swallowing(times))
    assert signal.getsignal(signal.SIGINT) is before


async def timed() -> str:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(0.01):
            await asyncio.sleep(20)
    return "done"


def test_work_that_is_not_interrupted_returns_what_it_returned() -> None:
    assert run_until_interrupted(timed()) == "done"


def test_work_goes_on_where_ctrl_c_is_ignored() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        assert run_until_interrupted(timed()) == "done"
    finally:
        signal.signal(signal.SIGINT, before)
