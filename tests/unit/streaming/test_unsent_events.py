"""What the streams of one tenant may hold: live events that are not sent, and pages of the log."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from projections.names import Position
from streams.log.log import Raw, Row
from streams.runtime.keyed_limit import KeyedLimit
from threadfold.streaming.reader import SLOW, Reader
from threadfold.streaming.sse_event import HEARTBEAT, SseEvent
from threadfold.streaming.unsent import COPIES, READING, PastRoom, TenantStreams, Unsent


def event(size: int) -> SseEvent:
    return SseEvent("event", "1-1", b"x" * size)


def tenant(most: int) -> TenantStreams:
    shared = TenantStreams("acme", KeyedLimit(1))
    shared.unsent = Unsent(most)
    return shared


def reader(shared: TenantStreams) -> Reader:
    made = Reader(tenant=shared)
    made.joining = False
    return made


async def test_an_event_counts_once_for_all_its_streams_until_the_last_has_sent_it() -> None:
    shared = tenant(100)
    readers = [reader(shared) for _ in range(50)]
    large = event(60)
    for one in readers:
        one.put(large)
        one.put(HEARTBEAT)
    assert shared.unsent.bytes == 60
    for one in readers:
        await one.take()
        assert shared.unsent.bytes == 60  # it is being sent
    for one in readers:
        one.close()
    assert shared.unsent.bytes == 0
    assert all(one.ended == "closed" for one in readers)


async def test_the_stream_that_has_sent_nothing_for_longest_ends_where_all_hold_too_much() -> None:
    shared = tenant(100)
    silent, sending, quick = (reader(shared) for _ in range(3))
    cuts: list[Reader] = []
    for one in (silent, sending, quick):
        one.on_cut = lambda one=one: cuts.append(one)  # type: ignore[misc]
    silent.put(event(40))
    sending.put(event(40))
    await sending.take()
    silent.put(event(1))
    assert silent.ended is None
    quick.put(event(40))
    assert silent.ended == SLOW
    assert await silent.take() == []  # it ends with the reason: nothing of it was being sent
    assert not cuts
    quick.put(event(40))
    assert cuts == [sending]
    assert sending.ended == SLOW
    assert quick.ended is None
    assert len(await quick.take()) == 2
    assert shared.unsent.bytes == 80


async def test_one_stream_alone_may_hold_an_event_of_any_size() -> None:
    shared = tenant(10)
    one = reader(shared)
    one.put(event(1_000))
    assert one.ended is None
    assert len(await one.take()) == 1


async def test_a_stream_that_joins_reads_from_the_log_what_others_need_the_room_of() -> None:
    shared = tenant(100)
    joins = Reader(tenant=shared)
    joins.put(event(90))
    reader(shared).put(event(90))
    assert joins.overflowed
    assert joins.ended is None
    assert shared.unsent.bytes == 90


class Log:
    """Gives pages of rows of so many bytes, and counts the reads."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.reads = 0

    async def read(self) -> Sequence[Row]:
        self.reads += 1
        return [Raw(Position(0, self.reads), b"k", b"x" * self.size, 0)]


async def settled() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_streams_that_resume_hold_a_bounded_part_of_the_log_and_come_in_order() -> None:
    log, room = Log(100), PastRoom(most=2 * COPIES * 100)
    tasks = [asyncio.create_task(room.page(log.read, lambda: None)) for _ in range(20)]
    order: list[asyncio.Task[object]] = []
    for task in tasks:
        task.add_done_callback(order.append)  # type: ignore[arg-type]
    for done in range(2, 21):
        await settled()
        assert len(order) == done
        assert room.bytes == 2 * COPIES * 100
        assert log.reads <= done + READING
        page = tasks[done - 2].result()
        assert page is not None
        page.leave()
        page.leave()
    assert order == tasks
    last = tasks[-1].result()
    assert last is not None
    last.leave()
    assert room.bytes == 0


async def test_a_stream_that_does_not_send_its_page_is_cut_once_another_waits_for_it() -> None:
    log, room = Log(100), PastRoom(most=COPIES * 100, patience=0.0)
    cuts: list[str] = []
    assert await room.page(log.read, lambda: cuts.append("first")) is not None
    await settled()
    assert not cuts  # nobody waits
    second = await room.page(log.read, lambda: cuts.append("second"))
    assert cuts == ["first"]
    assert second is not None
    assert room.bytes == COPIES * 100


async def test_one_that_leaves_while_it_waits_holds_nothing() -> None:
    log, room = Log(100), PastRoom(most=COPIES * 100)
    first = await room.page(log.read, lambda: None)
    waits = asyncio.create_task(room.page(log.read, lambda: None))
    await settled()
    waits.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waits
    assert first is not None
    first.leave()
    assert room.bytes == 0


async def test_a_conversations_past_does_not_wait_for_pages_of_summaries_that_take_long() -> None:
    tenant, log, never = TenantStreams("acme", KeyedLimit(1)), Log(100), asyncio.Event()

    async def read() -> list[Raw]:
        await never.wait()
        return []

    slow = [
        asyncio.create_task(tenant.past_summaries.page(read, lambda: None)) for _ in range(READING)
    ]
    await settled()
    page = await asyncio.wait_for(tenant.past.page(log.read, lambda: None), 1)
    assert page is not None
    never.set()
    await asyncio.gather(*slow)


async def test_a_stream_of_which_all_that_waited_was_erased_holds_nothing() -> None:
    erased, shared = set[bytes](), tenant(10)
    idle, busy = Reader(tenant=shared, is_erased=erased.__contains__), reader(shared)
    idle.joining = False
    idle.put(SseEvent("summary", "1", b"12345", b"acme/a"))
    erased.add(b"acme/a")
    takes = asyncio.create_task(idle.take())
    await asyncio.sleep(0)
    for _ in range(4):
        busy.put(event(5))
    await asyncio.sleep(0)
    assert idle.ended is None
    takes.cancel()
