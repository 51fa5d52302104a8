"""A gateway on real Kafka and Redis, a worker running beside it, and short ways to ask it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx

from streams.control.control_topic import Control
from streams.control.state import Generation
from streams.settings.settings import Settings
from tests.support.worker import running_worker, until
from threadfold.gateway import create_gateway
from threadfold.service.conversations import ConversationService

POLICY = {
    "model_window": 4000,
    "reserve_tokens": 500,
    "working_budget": 400,
    "keep_recent_tokens": 150,
    "min_messages": 4,
    "summary_max_tokens": 120,
}
PROBLEM = "application/problem+json"
CALL = {
    "type": "message",
    "role": "assistant",
    "content": None,
    "tool_calls": [{"id": "c", "name": "fetch", "arguments": "{}"}],
}


class Client:
    """Requests as one tenant; ``anon`` has no key."""

    def __init__(
        self, http: httpx.AsyncClient, keys: dict[str, str], backend: ConversationService
    ) -> None:
        self.http = http
        self.keys = keys
        self.backend = backend

    async def __call__(
        self, method: str, path: str, body: Any = None, *, tenant: str = "acme", **kwargs: Any
    ) -> httpx.Response:
        headers = {
            **({"Authorization": f"Bearer {self.keys[tenant]}"} if tenant != "anon" else {}),
            **kwargs.pop("headers", {}),
        }
        content = (
            body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
        )
        return await self.http.request(method, path, content=content, headers=headers, **kwargs)


async def add_tenants(control: Control) -> dict[str, str]:
    """Make the tenants acme and rival; returns a key of each by its name, and ``reader``: a key of
    acme that may only read.
    """
    keys = {}
    for name, tenant, scopes in (
        ("acme", "acme", None),
        ("rival", "rival", None),
        ("reader", "acme", ["read"]),
    ):
        await control.ensure_tenant(tenant)
        keys[name] = await control.add_key(tenant, scopes)
    return keys


@asynccontextmanager
async def serving(
    settings: Settings, worker: Settings | None = None, policy: dict[str, Any] = POLICY
) -> AsyncIterator[Client]:
    """A gateway with the tenants acme, rival, and a key of acme that may only read; ``worker`` are
    the worker's settings where they are others.
    """
    worker = worker or settings
    control = await Control(worker).start()
    await control.write(
        {"generation/1": Generation(1, settings.partitions, policy), "generation/live": 1}
    )
    keys = await add_tenants(control)
    await control.stop()
    app = create_gateway(settings)
    async with running_worker(worker), app.router.lifespan_context(app):
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://gateway") as http:

            async def ready() -> bool:
                return (await http.get("/readyz")).status_code == 200

            await until(ready)
            yield Client(http, keys, app.state.connection.backend)


def is_problem(response: httpx.Response, status: int, *parts: str) -> None:
    """The response is a problem document of that status whose detail holds all the parts."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == PROBLEM
    document = response.json()
    assert set(document) == {"type", "title", "status", "detail"}
    assert document["status"] == status
    for part in parts:
        assert part in document["detail"], document["detail"]
    assert "Traceback" not in response.text
    assert ("retry-after" in response.headers) == (status == 503)


def is_problem_401(answer: httpx.Response, *parts: str) -> None:
    is_problem(answer, 401, *parts)
    assert "www-authenticate" in answer.headers


def say(text: str, role: str = "user") -> dict[str, str]:
    return {"type": "message", "role": role, "content": text}


def result(content: Any, **fields: Any) -> dict[str, Any]:
    return {"type": "tool.result", "tool_call_id": "c", "content": content, **fields}
