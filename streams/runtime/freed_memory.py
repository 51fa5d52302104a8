"""Memory that is freed goes back to the system, where the C library is glibc: by itself it keeps
more for itself the larger the values were, and the more their sizes differ.
"""

from __future__ import annotations

import asyncio
import ctypes
import sys
from typing import Any

M_MMAP_THRESHOLD = -3
"""The number of ``mallopt``'s option in glibc."""
LARGE = 256 << 10
"""Bytes from which on a value's memory goes back to the system when it is freed."""
ENDED = 500
PAUSE = 5.0
"""After so many connections ended, and so many seconds, what they left is given back."""


def return_memory() -> None:
    """Have what is freed of large values go back to the system at once."""
    mallopt = _of_the_c_library("mallopt")
    if mallopt is not None:
        mallopt(M_MMAP_THRESHOLD, LARGE)


class ConnectionMemory:
    """Gives back what the TLS of ended connections left. Its buffers of 256 KiB, of which a few
    pages are touched, come to lie in what smaller values left, each time elsewhere: at last all of
    their pages would be there for good. Giving back takes 6 ms for a thousand connections.
    """

    def __init__(self) -> None:
        self._trim = _of_the_c_library("malloc_trim")
        self._ended = 0

    def ended(self) -> None:
        """A connection ended."""
        self._ended += 1
        if self._ended == ENDED and self._trim is not None:
            asyncio.get_running_loop().call_later(PAUSE, self._give_back, self._trim)

    def _give_back(self, trim: Any) -> None:
        self._ended = 0
        trim(0)


def _of_the_c_library(name: str) -> Any:
    """A function of glibc; None: the C library is another one."""
    return getattr(ctypes.CDLL(None), name, None) if sys.platform == "linux" else None
