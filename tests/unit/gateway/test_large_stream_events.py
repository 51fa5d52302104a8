"""Large events in streams go out in pieces, within their tenant's turn."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import AsyncIterator, Callable

from starlette.types import Message

from streams.runtime.keyed_limit import KeyedLimit
from threadfold.gateway.admission import in_turns
from threadfold.gateway.event_stream import PIECE, EventStream, pieces_of
from threadfold.streaming.reader import Reader
from threadfold.streaming.sse_event import SseEvent

LARGE = SseEvent("event", "1-2", b"x" * (20 * PIECE))
SMALL = [SseEvent("event", "1-1", b"{}"), SseEvent("event", "1-3", b"{}")]


class Client:
    """Takes what is sent while it reads."""

    def __init__(self, reads: bool = True) -> None:
        self.bodies: list[bytes] = []
        self.reads = asyncio.Event()
        if reads:
            self.reads.set()

    async def send(self, message: Message) -> None:
        await self.reads.wait()
        if message.get("body"):
            self.bodies.append(message["body"])

    async def receive(self) -> Message:
        await asyncio.Event().wait()
        raise AssertionError

    def stream(
        self, *batches: list[SseEvent], on_cut: Callable[[Callable[[], None]], None] | None = None
    ) -> EventStream:
        async def every() -> AsyncIterator[list[SseEvent]]:
            for batch in batches:
                yield batch

        return EventStream(every(), lambda: None, on_cut=on_cut or (lambda _: None))


async def test_a_stream_hands_over_a_piece_of_a_large_event_at_a_time_and_all_in_order() -> None:
    client = Client()
    batch = [SMALL[0], LARGE, SMALL[1]]
    await client.stream(batch)({}, client.receive, client.send)
    assert max(map(len, client.bodies)) <= PIECE
    assert b"".join(client.bodies[1:]) == b"".join(event.frame for event in batch)
    assert len(list(pieces_of(SMALL))) == 1


async def test_streams_of_a_tenant_take_turns_and_one_that_reads_nothing_holds_up_nobody() -> None:
    turns = KeyedLimit(1)
    deaf, client = Client(reads=False), Client()
    stuck = asyncio.create_task(
        deaf.stream([LARGE])({}, deaf.receive, in_turns(deaf.send, turns, "acme"))
    )
    sent: list[int] = []

    async def noted(message: Message) -> None:
        sent.append(len(message.get("body", b"")))
        await client.send(message)

    await client.stream([LARGE])({}, client.receive, in_turns(noted, turns, "acme"))
    large = [i for i, size in enumerate(sent) if size == PIECE]
    # Before each of them it is waited until the one before is read.
    assert large and all(sent[i - 1] == 0 for i in large)
    assert b"".join(client.bodies[1:]) == LARGE.frame
    assert not stuck.done()
    stuck.cancel()
    await asyncio.gather(stuck, return_exceptions=True)


async def test_a_stream_that_is_cut_stops_in_the_midst_of_an_event() -> None:
    client = Client(reads=False)
    cut: asyncio.Future[Callable[[], None]] = asyncio.get_running_loop().create_future()
    stream = asyncio.create_task(
        client.stream([LARGE], on_cut=cut.set_result)({}, client.receive, client.send)
    )
    stop = await cut
    await asyncio.sleep(0)
    stop()
    await stream
    assert not client.bodies


async def test_what_a_stream_held_is_freed_as_soon_as_its_client_has_left() -> None:
    client, reader = Client(reads=False), Reader()
    left = asyncio.Event()

    async def receive() -> Message:
        await left.wait()
        return {"type": "http.disconnect"}

    def on_cut(callback: Callable[[], None]) -> None:
        reader.on_cut = callback

    async def every() -> AsyncIterator[list[SseEvent]]:
        yield [LARGE]

    stream = EventStream(every(), reader.close, on_cut=on_cut)
    held = weakref.ref(stream)
    gc.collect()
    gc.disable()
    try:
        sending = asyncio.create_task(stream({}, receive, client.send))
        del stream
        await asyncio.sleep(0)
        left.set()
        await sending
        del sending
        assert held() is None
    finally:
        gc.enable()
