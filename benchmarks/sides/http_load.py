"""Callers over keep-alive connections, as cheap as Python gets, so that the server is what is
measured.

Each connection sends its next request when its last answer is there. Requests are made before the
clock starts; of an answer only status and length are looked at. The job has ``address``,
``callers``, ``seconds``, ``status`` and ``requests``: a file with a JSON list of ``[method, path,
headers, body]`` that is gone through in turn.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.harness import percentile
from benchmarks.support.children import answer, read_job
from benchmarks.support.http import raw
from benchmarks.support.meters import Meter


class Caller(asyncio.Protocol):
    """One connection: the next request goes out when the last answer is in."""

    def __init__(
        self,
        requests: Iterator[bytes],
        status: bytes,
        took: list[float],
        done: asyncio.Future[None],
    ) -> None:
        self._requests = requests
        self._status = status
        self._took = took
        self._done = done
        self._held = bytearray()
        self._need = 0
        self._begin = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the first request."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._next()

    def _next(self) -> None:
        request = next(self._requests, None)
        if request is None:
            self._transport.close()
            if not self._done.done():
                self._done.set_result(None)
            return
        self._begin = time.perf_counter()
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        """Wait for the whole answer, look at its status, go on."""
        self._held += data
        if not self._need:
            end = self._held.find(b"\r\n\r\n")
            if end < 0:
                return
            head = bytes(self._held[: end + 2]).lower()
            at = head.find(b"\r\ncontent-length:")
            if at < 0 or not head.startswith(self._status):
                self._fail(f"the server answered {bytes(self._held[:300])!r}")
                return
            self._need = end + 4 + int(head[at + 17 : head.index(b"\r\n", at + 17)])
        if len(self._held) >= self._need:
            self._took.append((time.perf_counter() - self._begin) * 1000)
            self._held.clear()
            self._need = 0
            self._next()

    def connection_lost(self, exc: Exception | None) -> None:
        """A connection that ends before the work does is an error."""
        if not self._done.done():
            self._fail(f"the server closed the connection: {exc}")

    def _fail(self, reason: str) -> None:
        if not self._done.done():
            self._done.set_exception(RuntimeError(reason))
        self._transport.close()


async def call_all(
    address: str, requests: Iterator[bytes], status: int, callers: int
) -> list[float]:
    """Send all requests over so many connections; returns the milliseconds each took."""
    loop = asyncio.get_running_loop()
    host, _, port = address.rpartition(":")
    took: list[float] = []
    futures = [loop.create_future() for _ in range(callers)]
    begin = f"http/1.1 {status}".encode()
    for future in futures:
        await loop.create_connection(
            functools.partial(Caller, requests, begin, took, future), host, int(port)
        )
    await asyncio.gather(*futures)
    return took


def until(requests: Iterator[bytes], seconds: float) -> Iterator[bytes]:
    """The requests until so many seconds are over."""
    end = time.perf_counter() + seconds
    return itertools.takewhile(lambda _: time.perf_counter() < end, requests)


async def run(job: dict[str, Any], groups: dict[str, list[int]], made: list[bytes]) -> None:
    """Warm up for a quarter of the time, then ask for all of it; answer with requests a second."""
    turn = itertools.cycle(made)
    address, status, callers, seconds = (
        job["address"],
        job["status"],
        job["callers"],
        job["seconds"],
    )
    await call_all(address, until(turn, seconds / 4), status, callers)
    meter, begin = Meter(groups), time.perf_counter()
    took = await call_all(address, until(turn, seconds), status, callers)
    lasted = time.perf_counter() - begin
    usage = meter.stop()
    answer(
        len(took) / lasted,
        usage=usage,
        ms_p50=round(percentile(took, 0.5), 3),
        ms_p99=round(percentile(took, 0.99), 3),
    )


if __name__ == "__main__":
    _, groups, job = read_job()
    asyncio.run(
        run(
            job,
            groups,
            [raw(*request) for request in json.loads(Path(job["requests"]).read_text())],
        )
    )
