"""A served gateway with keys of a tenant, and what its end users do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

import httpx
import msgspec

from streams.control.control_topic import Control
from streams.control.state import Generation
from streams.settings.quotas import DEFAULT_SCOPES
from streams.settings.settings import Settings
from tests.support.gateway import POLICY, say
from tests.support.serving import serving
from tests.support.worker import until
from threadfold.gateway import create_gateway

PAGE = "https://shop.example"


class World:
    """A served gateway of the tenant acme with two users' conversations, and a rival tenant."""

    def __init__(self, url: str, keys: dict[str, str], control: Control) -> None:
        self.url, self.keys, self.control = url, keys, control
        self.http = httpx.AsyncClient(base_url=url, timeout=30)

    async def __call__(
        self, method: str, path: str, given: str = "acme", body: Any = None, **headers: str
    ) -> httpx.Response:
        """A request with a key by its name, or with a token."""
        return await self.http.request(
            method,
            f"/v1{path}",
            headers={"Authorization": f"Bearer {self.keys.get(given, given)}", **headers},
            **({} if body is None else {"json": body}),
        )

    async def ready(self) -> None:
        async def ready() -> bool:
            return (await self.http.get("/readyz")).status_code == 200

        await until(ready)

    async def token(self, user: str = "ann", key: str = "acme", **fields: Any) -> str:
        body = {"user": user, "verbs": ["read", "stream", "append"], "expires_in": 60, **fields}
        answer = await self("POST", "/tokens", key, body)
        assert answer.status_code == 200, answer.text
        assert set(answer.json()) == {"token", "expires_at"}
        return str(answer.json()["token"])

    async def begin(self, user: str | None, *texts: str, name: str = "") -> str:
        """A conversation that the tenant begins for a user."""
        name = name or f"c-{uuid4().hex[:12]}"
        opened = {"type": "conversation.opened", **({"user": user} if user else {})}
        events = [opened, *map(say, texts)]
        answer = await self("POST", f"/conversations/{name}/events?wait=applied", "acme", events)
        assert answer.status_code == 200, answer.text
        return name


@asynccontextmanager
async def serving_end_users(settings: Settings) -> AsyncIterator[World]:
    """A gateway without a worker; ready once :meth:`World.ready` returns."""
    control = await Control(settings).start()
    await control.write(
        {"generation/1": Generation(1, settings.partitions, POLICY), "generation/live": 1}
    )
    keys = {}
    for name, tenant, scopes in (
        ("acme", "acme", None),
        ("rival", "rival", [*DEFAULT_SCOPES, "tokens"]),
        ("reader", "acme", ["read"]),
        ("signing", "acme", ["tokens"]),
    ):
        await control.ensure_tenant(tenant)
        keys[name] = await control.add_key(tenant, scopes)
    app = create_gateway(
        msgspec.structs.replace(settings, cors_origins=PAGE, user_requests_per_second=0.0)
    )
    async with serving(app) as url:
        made = World(url, keys, control)
        yield made
        await made.http.aclose()
    await control.stop()


class Followed:
    """What came of a stream, until it ended."""

    def __init__(self) -> None:
        self.status = 0
        self.headers = httpx.Headers()
        self.text = ""
        self.ended = asyncio.Event()

    async def has(self, part: str) -> None:
        async def there() -> bool:
            return part in self.text

        await until(there)


async def follow(world: World, path: str, headers: dict[str, str], into: Followed) -> None:
    async with world.http.stream("GET", f"/v1{path}", headers=headers) as answer:
        into.status, into.headers = answer.status_code, answer.headers
        async for piece in answer.aiter_text():
            into.text += piece
    into.ended.set()
