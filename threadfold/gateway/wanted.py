"""A read or a wait ends when its client leaves: nobody is there for its answer, others wait."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from starlette.requests import ClientDisconnect
from starlette.types import Receive

from streams.runtime.tasks import end_tasks

WATCHED_AFTER = 0.05
"""Seconds after which it is seen whether a client is still there: most reads end before."""
Answer = TypeVar("Answer")


async def while_wanted(receive: Receive, answer: Awaitable[Answer]) -> Answer:
    """The answer of a request whose body, if it has one, was read; it is cancelled when its client
    leaves.

    A client that only shut its writing side counts as present for as long as the server keeps the
    connection.

    Raises:
        ClientDisconnect: the client left before the answer was there.
    """
    loop = asyncio.get_running_loop()
    watching: asyncio.Task[None] | None = None

    async def watch(until_left: asyncio.Timeout) -> None:
        message = await receive()
        if message["type"] == "http.request" and not message.get("more_body"):
            message = await receive()
        if message["type"] == "http.disconnect":
            until_left.reschedule(loop.time())

    def begin(until_left: asyncio.Timeout) -> None:
        nonlocal watching
        watching = loop.create_task(watch(until_left), name="client-watch")

    try:
        async with asyncio.timeout(None) as until_left:
            later = loop.call_later(WATCHED_AFTER, begin, until_left)
            try:
                return await answer
            finally:
                later.cancel()
                if watching is not None:
                    await end_tasks([watching])
    except TimeoutError:
        if until_left.expired():
            raise ClientDisconnect from None
        raise
