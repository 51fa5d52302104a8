"""Short ways to ask a served gateway's routes of the long-term memory."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import httpx

from streams.settings.settings import Settings
from tests.support.gateway import say


class World:
    """A served gateway with the tenants acme and rival."""

    def __init__(self, url: str, keys: dict[str, str], settings: Settings) -> None:
        self.url, self.keys = url, keys
        self.settings = settings
        self.http = httpx.AsyncClient(base_url=url, timeout=60)

    async def __call__(
        self, method: str, path: str, body: Any = None, key: str = "acme", **headers: str
    ) -> httpx.Response:
        return await self.http.request(
            method,
            f"/v1{path}",
            headers={"Authorization": f"Bearer {self.keys.get(key, key)}", **headers},
            **({} if body is None else {"json": body}),
        )

    async def ok(self, method: str, path: str, body: Any = None, key: str = "acme") -> Any:
        found = await self(method, path, body, key)
        assert found.status_code in (200, 202), found.text
        return found.json()

    async def save(self, *memories: dict[str, Any], key: str = "acme") -> list[dict[str, Any]]:
        saved = await self.ok("POST", "/memories?wait=applied", list(memories), key)
        found: list[dict[str, Any]] = saved["memories"]
        return found

    async def search(self, query: str, key: str = "acme", **more: Any) -> list[str]:
        found = await self.ok("POST", "/memories/search", {"query": query, **more}, key)
        return [one["text"] for one in found["results"]]

    async def opened(self, user: str | None, channel: str | None = None) -> str:
        name = f"c-{uuid4().hex[:12]}"
        given = {"user": user, "channel": channel}
        event = {"type": "conversation.opened", **{k: v for k, v in given.items() if v}}
        await self.ok("POST", f"/conversations/{name}/events?wait=applied", [event, say("hello")])
        return name
