"""An HTTP proxy on a free port that treats each request as a bad network does: late, cut at any
place, or delivered more than once, also long after it was answered.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
FAULTS = (
    "cut before the request",
    "cut in the request",
    "cut before the answer",
    "cut in the answer",
    "late",
    "too late",
    "repeated",
    "repeated later",
)
FAULTLESS = "none"


class LossyProxy:
    """Forwards requests to ``port``, one connection each, and spoils ``share`` of them.

    ``done`` counts what was done, by fault. ``patience``: seconds after which the client gives up.
    """

    def __init__(self, port: int, *, seed: int, share: float, patience: float) -> None:
        self.port, self.share, self.patience = port, share, patience
        self.url = ""
        self.done: Counter[str] = Counter()
        self._rng = random.Random(seed)
        self._tasks: set[asyncio.Task[None]] = set()

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection of the client's, request by request."""
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        with suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            while not await self._serve(await _message(reader), writer):
                pass
        writer.transport.abort()

    async def settle(self) -> None:
        """Wait until what comes late has come, and end all connections."""
        self.share = 0.0
        late = [task for task in self._tasks if task.get_name() == "late"]
        await asyncio.gather(*late)
        for task in self._tasks:
            task.cancel()

    async def _serve(self, request: bytes, writer: asyncio.StreamWriter) -> bool:
        """Treat one request; whether the connection is to be cut."""
        rng = self._rng
        fault = rng.choice(FAULTS) if rng.random() < self.share else FAULTLESS
        self.done[fault] += 1
        if fault == "cut before the request":
            return True
        if fault == "cut in the request":
            await self._send(request[: rng.randrange(1, len(request))])
            return True
        if fault in ("late", "too late"):
            await asyncio.sleep(rng.uniform(0, 0.3) if fault == "late" else self.patience * 1.2)
        if fault == "repeated later":
            task = asyncio.create_task(self._again(request, rng.uniform(0.1, 3.0)), name="late")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        if fault == "repeated":
            answer, _ = await asyncio.gather(self._send(request), self._send(request))
        else:
            answer = await self._send(request)
        if fault == "cut before the answer":
            return True
        cut = rng.randrange(1, len(answer)) if fault == "cut in the answer" else len(answer)
        writer.write(answer[:cut])
        await writer.drain()
        return cut < len(answer)

    async def _again(self, request: bytes, seconds: float) -> None:
        await asyncio.sleep(seconds)
        await self._send(request)

    async def _send(self, request: bytes) -> bytes:
        """Send a request, or the beginning of one, over a connection of its own; its answer."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            writer.write(request)
            if len(request) < len(request.partition(b"\r\n\r\n")[0]) + 4 + _body(request):
                await writer.drain()
                return b""
            return await _message(reader)
        finally:
            writer.close()


def _body(head: bytes) -> int:
    found = _LENGTH.search(head)
    return int(found[1]) if found else 0


async def _message(reader: asyncio.StreamReader) -> bytes:
    """One request or answer, whole."""
    head = await reader.readuntil(b"\r\n\r\n")
    return head + await reader.readexactly(_body(head))


@asynccontextmanager
async def lossy_proxy(
    port: int, *, seed: int, share: float, patience: float
) -> AsyncIterator[LossyProxy]:
    """A running proxy before a gateway's port."""
    proxy = LossyProxy(port, seed=seed, share=share, patience=patience)
    server = await asyncio.start_server(proxy.accept, "127.0.0.1", 0)
    proxy.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield proxy
    finally:
        server.close()
        await proxy.settle()
