"""A read ends when its client leaves, and not before."""

from __future__ import annotations

import asyncio

import pytest
from starlette.requests import ClientDisconnect
from starlette.types import Message

from tests.support.worker import until
from threadfold.gateway import wanted
from threadfold.gateway.wanted import while_wanted

WHOLE = {"type": "http.request", "body": b"", "more_body": False}
LEFT = {"type": "http.disconnect"}


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wanted, "WATCHED_AFTER", 0.0)


class Client:
    """What comes from a client, and whether somebody listens for it."""

    def __init__(self, *messages: Message) -> None:
        self.messages = asyncio.Queue[Message]()
        self.asked = asyncio.Event()
        for message in messages:
            self.messages.put_nowait(message)

    async def receive(self) -> Message:
        if self.messages.empty():
            self.asked.set()
        return await self.messages.get()


async def test_a_read_whose_client_leaves_is_cancelled() -> None:
    ended = asyncio.Event()

    async def read() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    client = Client(WHOLE)
    async with asyncio.timeout(10):
        reading = asyncio.create_task(while_wanted(client.receive, read()))
        await client.asked.wait()
        assert not reading.done()
        client.messages.put_nowait(LEFT)
        with pytest.raises(ClientDisconnect):
            await reading
    assert ended.is_set()
    assert reading.cancelling() == 0


async def test_a_read_is_answered_while_its_client_is_there_and_nobody_listens_after_it() -> None:
    client, go_on = Client(WHOLE), asyncio.Event()

    async def read() -> str:
        await go_on.wait()
        return "answer"

    async with asyncio.timeout(10):
        reading = asyncio.create_task(while_wanted(client.receive, read()))
        await client.asked.wait()
        go_on.set()
        assert await reading == "answer"
    client.messages.put_nowait(LEFT)
    await asyncio.sleep(0)
    assert client.messages.qsize() == 1


@pytest.mark.parametrize(
    "message", [WHOLE | {"more_body": True}, WHOLE], ids=["a-body-comes", "the-request-again"]
)
async def test_a_client_that_sends_something_else_is_there(message: Message) -> None:
    client, go_on = Client(WHOLE, message, message, message), asyncio.Event()

    async def read() -> str:
        await go_on.wait()
        return "answer"

    async with asyncio.timeout(10):
        reading = asyncio.create_task(while_wanted(client.receive, read()))
        await until(lambda: asyncio.sleep(0, client.messages.qsize() == 2))
        go_on.set()
        assert await reading == "answer"
    assert client.messages.qsize() == 2


async def test_what_a_read_raises_by_itself_is_raised() -> None:
    async def late() -> None:
        async with asyncio.timeout(0):
            await asyncio.Event().wait()

    with pytest.raises(TimeoutError):
        await while_wanted(Client(WHOLE).receive, late())
