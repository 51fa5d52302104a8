"""A real HTTP server on a free port that answers chat completions and embeddings as it is told: well, badly, late,
or not at all.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

Behaviour = Callable[["ModelServer", web.Request, dict[str, Any]], Awaitable[web.StreamResponse]]


class ModelServer:
    """Answers the n-th call with the n-th behaviour, and all later ones with the last; ``calls``
    holds the bodies, ``headers`` theirs, ``times`` when each came (monotonic). ``most`` is how many
    were under way at once.
    """

    def __init__(self, *behaviours: Behaviour) -> None:
        self.behaviours = list(behaviours)
        self.calls: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.times: list[float] = []
        self.under_way = self.most = 0
        self.url = ""
        self.stopping = asyncio.Event()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        body = json.loads(await request.text())
        self.calls.append(body)
        self.headers.append(dict(request.headers))
        self.times.append(time.monotonic())
        behaviour = self.behaviours[min(len(self.calls), len(self.behaviours)) - 1]
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        try:
            return await behaviour(self, request, body)
        finally:
            self.under_way -= 1


@asynccontextmanager
async def model_server(*behaviours: Behaviour) -> AsyncIterator[ModelServer]:
    """A running server; its ``url`` is the base URL of the endpoint."""
    server = ModelServer(*behaviours)
    app = web.Application(client_max_size=64 << 20)
    app.router.add_post("/v1/chat/completions", server.handle)
    app.router.add_post("/v1/embeddings", server.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.2)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    server.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    try:
        yield server
    finally:
        server.stopping.set()
        await runner.cleanup()


def completion(text: Any, *, finish: str = "stop", usage: Any = None) -> dict[str, Any]:
    body = {
        "id": "c1",
        "object": "chat.completion",
        "model": "small-1",
        "choices": [{"index": 0, "finish_reason": finish}],
    }
    body["choices"][0]["message"] = {"role": "assistant", "content": text}  # type: ignore[index]
    return body | ({"usage": usage} if usage is not None else {})


def says(text: Any, *, finish: str = "stop", usage: Any = None) -> Behaviour:
    return gives(json.dumps(completion(text, finish=finish, usage=usage)))


def gives(
    body: str | bytes,
    *,
    status: int = 200,
    content_type: str = "application/json",
    headers: dict[str, str] | None = None,
) -> Behaviour:
    async def behave(
        server: ModelServer, request: web.Request, asked: dict[str, Any]
    ) -> web.StreamResponse:
        raw = body.encode() if isinstance(body, str) else body
        return web.Response(body=raw, status=status, content_type=content_type, headers=headers)

    return behave


def fails(status: int, *, headers: dict[str, str] | None = None, code: str = "oops") -> Behaviour:
    return gives(
        json.dumps({"error": {"message": "what was sent: secret", "code": code}}),
        status=status,
        headers=headers,
    )


def says_once_there_are(calls: int, text: str, limit: float = 30.0) -> Behaviour:
    """Answers nobody before that many calls were under way at once, or the limit is over."""
    there = asyncio.Event()

    async def behave(
        server: ModelServer, request: web.Request, asked: dict[str, Any]
    ) -> web.StreamResponse:
        if server.under_way >= calls:
            there.set()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(there.wait(), limit)
        return web.json_response(completion(text))

    return behave


def takes(seconds: float, text: str) -> Behaviour:
    """Answers after that time."""

    async def behave(
        server: ModelServer, request: web.Request, asked: dict[str, Any]
    ) -> web.StreamResponse:
        await asyncio.sleep(seconds)
        return web.json_response(completion(text))

    return behave


async def echoes(
    server: ModelServer, request: web.Request, asked: dict[str, Any]
) -> web.StreamResponse:
    return web.json_response(completion(asked["messages"][1]["content"]))


async def stalls(
    server: ModelServer, request: web.Request, asked: dict[str, Any]
) -> web.StreamResponse:
    await server.stopping.wait()
    return web.json_response(completion("too late"))


async def breaks_off(
    server: ModelServer, request: web.Request, asked: dict[str, Any]
) -> web.StreamResponse:
    response = web.StreamResponse(
        headers={"Content-Type": "application/json", "Content-Length": "5000"}
    )
    await response.prepare(request)
    await response.write(b'{"choices": [{"message": {"content": "The user')
    assert request.transport is not None
    request.transport.close()
    return response


async def drips(
    server: ModelServer, request: web.Request, asked: dict[str, Any]
) -> web.StreamResponse:
    """A byte now and then: no single read is slow, the whole is."""
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    await response.prepare(request)
    while not server.stopping.is_set():
        await response.write(b" ")
        await asyncio.sleep(0.02)
    return response


async def makes_vectors(
    server: ModelServer, request: web.Request, asked: dict[str, Any]
) -> web.StreamResponse:
    """Vectors in another order than the texts': a text's length, 1, and zeros."""
    size = asked.get("dimensions", 8)
    data = [
        {"object": "embedding", "index": i, "embedding": [len(text), 1.0] + [0.0] * (size - 2)}
        for i, text in enumerate(asked["input"])
    ]
    return web.json_response(
        {"object": "list", "data": data[::-1], "usage": {"prompt_tokens": len(data)}}
    )
