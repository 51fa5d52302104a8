"""A TCP proxy on a free port that can be slow, stand still, or cut connections: a network as it is
on its bad days.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Proxy:
    """Forwards to ``target`` on the loopback interface. ``delay``: seconds (at most) before each
    piece of data; 0: none.
    """

    def __init__(self, target: int, seed: int) -> None:
        self.target = target
        self.delay = 0.0
        self.port = 0
        self._rng = random.Random(seed)
        self._open = asyncio.Event()
        self._open.set()
        self._refusing = False
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def stall(self) -> None:
        """Keep connections, and let nothing through until :meth:`heal`."""
        self._open.clear()

    def cut(self) -> None:
        """Break all connections, also those that come until :meth:`heal`."""
        self._refusing = True
        for writer in list(self._writers):
            writer.transport.abort()

    def heal(self) -> None:
        """Forward everything at once again."""
        self.delay, self._refusing = 0.0, False
        self._open.set()

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection to its end."""
        task = asyncio.current_task()
        if task is not None:
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        if self._refusing:
            writer.transport.abort()
            return
        self._writers.add(writer)
        try:
            there, back = await asyncio.open_connection("127.0.0.1", self.target)
        except OSError:
            writer.transport.abort()
            self._writers.discard(writer)
            return
        self._writers.add(back)
        try:
            await asyncio.gather(self._pump(reader, back), self._pump(there, writer))
        except (OSError, asyncio.CancelledError):
            # One end is gone, so the other has to go.
            pass
        finally:
            for end in (writer, back):
                self._writers.discard(end)
                end.transport.abort()

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        while data := await source.read(1 << 16):
            if self.delay:
                await asyncio.sleep(self._rng.uniform(0, self.delay))
            await self._open.wait()
            sink.write(data)
            await sink.drain()
        raise ConnectionResetError("the other end closed")

    async def stop(self) -> None:
        """Cut everything for good."""
        self.cut()
        self._open.set()
        for task in list(self._tasks):
            task.cancel()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(2):
                await asyncio.gather(*self._tasks, return_exceptions=True)


@asynccontextmanager
async def proxied(target: int, seed: int) -> AsyncIterator[Proxy]:
    """A running proxy before the port ``target``."""
    proxy = Proxy(target, seed)
    server = await asyncio.start_server(proxy.accept, "127.0.0.1", 0)
    proxy.port = server.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        server.close()
        await proxy.stop()
