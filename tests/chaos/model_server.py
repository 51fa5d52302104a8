"""A model endpoint for summaries that answers well, badly, late or not at all, as the seed says,
and can see its caller die.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Protocol

from aiohttp import web

from tests.chaos.schedule import Plan
from tests.support.model_server import (
    Behaviour,
    ModelServer,
    breaks_off,
    completion,
    fails,
    gives,
    model_server,
    says,
    stalls,
)


class Caller(Protocol):
    """Whoever asked for a summary."""

    def kill(self) -> None:
        """End it."""

    def freeze(self) -> None:
        """Stop it."""


async def summarises(
    server: ModelServer, request: web.Request, asked: dict[str, Any]
) -> web.StreamResponse:
    """The beginnings of what it was sent, in a few sentences: enough of it that no check refuses
    it.
    """
    texts = re.findall(r'"text":"(.*?)"', asked["messages"][1]["content"])
    said = " ".join(text.replace("\\n", " ").partition(". ")[0] + "." for text in texts[-6:])
    return web.json_response(
        completion(
            said[:300] or "Nothing was said yet that would have to be remembered by anybody."
        )
    )


TROUBLES: tuple[Behaviour, ...] = (
    fails(500),
    fails(429, headers={"Retry-After": "1"}),
    stalls,
    breaks_off,
    says(""),
    says("la " * 400),
    gives("<html>no</html>", content_type="text/html"),
    gives('{"choices": []}'),
    gives(b"\xff\xfe{"),
)


class Troubled:
    """The server's side of the seed: ``lurk`` waits for a call and hands over who made it before it
    is answered.
    """

    def __init__(self, plan: Plan) -> None:
        self._rng = random.Random(plan.seed * 31 + 7)
        self._share = plan.model_trouble
        self.url = ""
        self.find: Callable[[int], Caller | None] = lambda port: None
        self._lurking: asyncio.Future[Caller] | None = None

    def behave(self) -> None:
        """No more trouble."""
        self._share = 0.0
        self._lurking = None

    async def lurk(self, limit: float) -> Caller | None:
        """The worker whose compaction is under way now (its call is not answered before this
        returns); None when none came.
        """
        self._lurking = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(limit):
                return await self._lurking
        except TimeoutError:
            return None
        finally:
            self._lurking = None

    async def handle(
        self, server: ModelServer, request: web.Request, asked: dict[str, Any]
    ) -> web.StreamResponse:
        """Answer one call."""
        peer = (
            request.transport.get_extra_info("peername") if request.transport is not None else None
        )
        if self._lurking is not None and not self._lurking.done() and peer is not None:
            caller = await asyncio.to_thread(self.find, peer[1])
            if caller is not None and self._lurking is not None and not self._lurking.done():
                self._lurking.set_result(caller)
                await asyncio.sleep(0.3)
        trouble = self._rng.random() < self._share
        return await (self._rng.choice(TROUBLES) if trouble else summarises)(server, request, asked)


@asynccontextmanager
async def troubled_model(plan: Plan) -> AsyncIterator[Troubled]:
    """A running endpoint."""
    troubled = Troubled(plan)
    async with model_server(troubled.handle) as server:
        troubled.url = server.url
        yield troubled
