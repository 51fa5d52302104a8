"""Little is received at once from who has shown no valid key."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest
import uvloop

from threadfold.gateway.receiving import LITTLE, received


class Heard(asyncio.Protocol):
    """Notes what comes, until it has ended."""

    def __init__(self, *, keyed: bool) -> None:
        self.keyed, self.parts, self.ended = keyed, list[bytes](), asyncio.Event()

    def has_key(self) -> bool:
        return self.keyed

    def data_received(self, data: bytes) -> None:
        self.parts.append(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self.ended.set()


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
@pytest.mark.parametrize("keyed", [False, True])
def test_what_comes_is_received_in_order_and_little_at_once_without_a_key(
    loop: object, keyed: bool
) -> None:
    sent = bytes(range(256)) * 4_000

    async def run() -> Heard:
        heard = Heard(keyed=keyed)
        server = await asyncio.get_running_loop().create_server(
            received(lambda: heard),  # type: ignore[arg-type, return-value]
            "127.0.0.1",
            0,
        )
        async with server:
            host, port = server.sockets[0].getsockname()
            _, writer = await asyncio.open_connection(host, port)
            writer.write(sent)
            await writer.drain()
            writer.close()
            await asyncio.wait_for(heard.ended.wait(), 20)
        return heard

    def served() -> Heard:
        with asyncio.Runner(loop_factory=loop) as runner:  # type: ignore[arg-type]
            return runner.run(run())

    with ThreadPoolExecutor(3) as threads:  # each with an event loop of its own
        for one in [threads.submit(served) for _ in range(3)]:
            heard = one.result()
            assert b"".join(heard.parts) == sent
            assert (max(map(len, heard.parts)) <= LITTLE) is not keyed
