"""Two gateways over one log."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import httpx

from streams.settings.settings import Settings
from tests.support.streaming import Gateway


class Pair(NamedTuple):
    """Two gateways over one stack, with keys by name."""

    a: Gateway
    b: Gateway
    keys: dict[str, str]
    settings: Settings

    def auth(self, name: str = "acme") -> dict[str, str]:
        return {"Authorization": f"Bearer {self.keys[name]}"}

    async def append(
        self, conversation: str, *flats: Any, gateway: Gateway | None = None, wait: bool = False
    ) -> list[str]:
        """Append and return the positions."""
        path = f"/v1/conversations/{conversation}/events" + ("?wait=applied" if wait else "")
        answer = await (gateway or self.a).http.post(
            path, content=json.dumps(flats), headers=self.auth()
        )
        assert answer.status_code in (200, 202), answer.text
        return [event["position"] for event in answer.json()["events"]]


def say(text: str, role: str = "user", **more: Any) -> dict[str, Any]:
    return {"type": "message", "role": role, "content": text, **more}


async def post(at: Pair, path: str, body: Any = None, **headers: str) -> httpx.Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    content = None if body is None else json.dumps(body)
    return await at.a.http.post(
        f"/v1/conversations/{path}", content=content, headers={**at.auth(), **named}
    )


async def piece(
    pair: Pair,
    conversation: str,
    turn: str,
    delta: str,
    *,
    gateway: Gateway | None = None,
    **more: Any,
) -> httpx.Response:
    body = json.dumps({"turn_id": turn, "delta": delta, **more})
    return await (gateway or pair.a).http.post(
        f"/v1/conversations/{conversation}/partial", content=body, headers=pair.auth()
    )


async def history(pair: Pair, conversation: str) -> list[dict[str, Any]]:
    answer = await pair.a.http.get(f"/v1/conversations/{conversation}/history", headers=pair.auth())
    return [] if answer.status_code == 404 else answer.json()["events"]
