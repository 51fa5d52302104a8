"""Two gateways of one deployment, asked with keys by name, and how they refuse."""

from __future__ import annotations

import json
from typing import Any

import httpx

from streams.control.control_topic import Control
from streams.settings.settings import Settings
from tests.support.gateway import PROBLEM

CONTEXT = "/v1/conversations/never/context"


class World:
    """Two gateways of one deployment, and keys by name."""

    def __init__(
        self, one: str, two: str, keys: dict[str, str], control: Control, settings: Settings
    ) -> None:
        self.urls = (one, two)
        self.keys = keys
        self.control = control
        self.settings = settings
        self.http = httpx.AsyncClient(timeout=30)

    async def __call__(
        self, method: str, path: str, key: str | None = "acme", body: Any = None, gateway: int = 0
    ) -> httpx.Response:
        headers = {} if key is None else {"Authorization": f"Bearer {self.keys.get(key, key)}"}
        content = None if body is None else json.dumps(body).encode()
        return await self.http.request(
            method, self.urls[gateway] + path, content=content, headers=headers
        )


def refused(answer: httpx.Response, status: int, *parts: str) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == PROBLEM
    document: dict[str, Any] = answer.json()
    for part in parts:
        assert part in document["detail"], document["detail"]
    assert ("www-authenticate" in answer.headers) == (status == 401)
    return document
