"""Memory that ended connections leave goes back to the system."""

from __future__ import annotations

import asyncio
import ctypes
import os
import sys
from pathlib import Path

import pytest

from streams.runtime import freed_memory
from streams.runtime.freed_memory import ENDED, ConnectionMemory
from tests.support.worker import until

MANY, SIZE = 8_000, 16 << 10


def resident() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(sys.platform != "linux", reason="another C library")
async def test_what_many_ended_connections_left_between_what_stays_is_given_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    library = ctypes.CDLL(None)
    if not hasattr(library, "malloc_trim"):
        pytest.skip("another C library")
    monkeypatch.setattr(freed_memory, "PAUSE", 0.0)
    library.malloc.restype, library.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
    memory, taken = ConnectionMemory(), [library.malloc(SIZE) for _ in range(MANY)]
    try:
        for place in taken:
            ctypes.memset(place, 1, SIZE)
        for number in range(0, MANY, 2):  # what lies between stays
            library.free(taken[number])
        held, half = resident(), MANY * SIZE // 2
        for _ in range(ENDED - 1):
            memory.ended()
        await asyncio.sleep(0.01)
        assert resident() > held - half // 4, "the C library keeps it, and few connections ended"
        memory.ended()
        await until(lambda: asyncio.sleep(0, resident() < held - half // 2))
    finally:
        for number in range(1, MANY, 2):
            library.free(taken[number])
