"""Streams send in turns of their tenants: an event of one conversation may be for a thousand."""

from __future__ import annotations

import asyncio

from streams.runtime.keyed_limit import KeyedLimit
from threadfold.gateway.loop_turns import Turns
from threadfold.streaming.reader import Reader
from threadfold.streaming.sse_event import SseEvent
from threadfold.streaming.unsent import TenantStreams


def event(number: int) -> SseEvent:
    return SseEvent("event", f"1-{number}", b"{}", of=b"acme/c")


def readers(turns: Turns, tenant: str, many: int, erased: set[bytes] | None = None) -> list[Reader]:
    shared = TenantStreams(tenant, KeyedLimit(1), turns.take)
    erased = set[bytes]() if erased is None else erased
    made = [Reader(tenant=shared, is_erased=erased.__contains__) for _ in range(many)]
    for one in made:
        one.joining = False
    return made


async def test_many_streams_of_one_tenant_send_few_in_a_step_and_anothers_stream_is_next() -> None:
    turns, sent = Turns(2), list[str]()
    many, (other,) = readers(turns, "many", 50), readers(turns, "other", 1)

    async def send(name: str, reader: Reader) -> None:
        await reader.take()
        sent.append(name)

    tasks = [asyncio.create_task(send("many", one)) for one in many]
    tasks.append(asyncio.create_task(send("other", other)))
    await asyncio.sleep(0)
    for one in (*many, other):
        one.put(event(1))
    before, most = 0, 0
    while len(sent) < len(tasks):
        await asyncio.sleep(0)
        most, before = max(most, len(sent) - before), len(sent)
    assert most <= 4  # a turn that is given, and one that is taken at once
    assert sent.index("other") < 8


async def test_what_comes_while_a_stream_waits_for_its_turn_is_sent_with_the_rest() -> None:
    turns = Turns(1)
    first, second = readers(turns, "acme", 2)
    first.put(event(1))
    second.put(event(1))
    await first.take()
    taken = asyncio.create_task(second.take())
    second.put(event(2))
    assert [one.id for one in await taken] == ["1-1", "1-2"]


async def test_what_is_erased_while_a_stream_waits_for_its_turn_is_not_sent() -> None:
    turns, erased = Turns(1), set[bytes]()
    first, second = readers(turns, "acme", 2, erased)
    first.put(event(1))
    second.put(event(1))
    await first.take()
    taken = asyncio.create_task(second.take())
    erased.add(b"acme/c")
    second.end("gone")
    assert await taken == []
