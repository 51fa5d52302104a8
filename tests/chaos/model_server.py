"""A model endpoint for summaries, and for what a conversation teaches, that answers well, badly, late or not at all, as the seed says,
and can see its caller die.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Protocol

from aiohttp import web

from tests.chaos.schedule import Plan
from tests.chaos.statements import PLANTED, SECRET
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

LEARNING = "what a conversation teaches"
"""What a question for the memory says."""


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


async def learns(
    server: ModelServer, request: web.Request, asked: dict[str, Any]
) -> web.StreamResponse:
    """What users state, each time in other words."""
    calls, records = len(server.calls) % 1_000, []
    for line in asked["messages"][1]["content"].splitlines():
        row = json.loads(line) if line.startswith('{"position"') else {"text": "", "role": ""}
        for found in PLANTED.finditer(row["text"]) if row["role"] == "user" else ():
            said = f"The user told in words {calls} that {found[0].removeprefix('I ')}"
            records.append(
                {
                    "type": "fact",
                    "text": said.replace("My", "their"),
                    "positions": [row["position"]],
                    "confidence": 0.9,
                }
            )
    return web.json_response(completion(json.dumps({"records": records})))


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
        self.leaks = 0
        """Questions about the memory with something private."""

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
        learning = LEARNING in asked["messages"][0]["content"]
        self.leaks += learning and SECRET in asked["messages"][1]["content"]
        answer = learns if learning else summarises
        return await (self._rng.choice(TROUBLES) if trouble else answer)(server, request, asked)


@asynccontextmanager
async def troubled_model(plan: Plan) -> AsyncIterator[Troubled]:
    """A running endpoint."""
    troubled = Troubled(plan)
    async with model_server(troubled.handle) as server:
        troubled.url = server.url
        yield troubled
