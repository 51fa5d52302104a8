"""Ctrl-C in a moment in which it may raise."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def interrupts_wait() -> Iterator[None]:
    """Let Ctrl-C take effect at the end of the block.

    For imports: an interruption within one surfaces as another error of the library, or as none.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
