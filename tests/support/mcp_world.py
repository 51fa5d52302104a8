"""The memory's MCP servers beside a served gateway, and official clients of them."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
from mcp import Client, StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

from streams.control.control_topic import Control
from streams.control.state import Generation
from streams.settings.quotas import DEFAULT_SCOPES
from streams.settings.settings import Settings
from tests.support.commands import COMMAND, clean_env
from tests.support.serving import serving
from tests.support.worker import running_worker, until
from threadfold.gateway import create_gateway
from threadfold.mcp.callers import Callers
from threadfold.mcp.tools import mcp_server

VERBS = ["read", "append"]
PAGE = Path(__file__).resolve().parents[2] / "docs" / "mcp.md"


def configured(having: str) -> dict[str, Any]:
    """The configuration of a client on the page on MCP that has a field."""
    blocks = re.findall(r"```json\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    found = [json.loads(block)["mcpServers"]["memory"] for block in blocks]
    (one,) = [config for config in found if having in config]
    return dict(one)


class World:
    """A served gateway with two tenants, and its MCP servers."""

    def __init__(self, url: str, keys: dict[str, str]) -> None:
        self.url, self.keys, self.http = url, keys, ""

    async def token(self, user: str) -> str:
        """An end user's token of tenant acme."""
        async with httpx2.AsyncClient() as http:
            found = await http.post(
                f"{self.url}/v1/tokens",
                headers={"Authorization": f"Bearer {self.keys['acme']}"},
                json={"user": user, "verbs": VERBS, "expires_in": 600},
            )
        token: str = found.json()["token"]
        return token

    @asynccontextmanager
    async def stdio(self, key: str) -> AsyncIterator[Client]:
        """A client that runs the server as its own process, as the page on MCP has it."""
        config = configured("command")
        assert config["command"] == "threadfold"
        args = [self.url if one.startswith("http") else one for one in config["args"]]
        started = StdioServerParameters(
            command=COMMAND[0],
            args=[*COMMAND[1:], *args],
            env={**clean_env(), **dict.fromkeys(config["env"], key)},
        )
        async with Client(stdio_client(started)) as client:
            yield client

    @asynccontextmanager
    async def within(
        self, key: str, user: str | None = None, url: str | None = None
    ) -> AsyncIterator[Client]:
        """A client of a server in this process, as stdio's is started: with a key of its own."""
        callers = Callers(url or self.url, key)
        async with Client(mcp_server(callers, user)) as client:
            yield client
        await callers.close()

    @asynccontextmanager
    async def over_http(self, key: str | None) -> AsyncIterator[Client]:
        """A client of the one server over HTTP, with a credential of its own, as the page has it."""
        config = configured("url")
        assert self.http.endswith(config["url"].removeprefix("http://127.0.0.1:8090"))
        shown = config["headers"].items()
        headers = {} if key is None else {name: said.replace("tf_…", key) for name, said in shown}
        async with (
            httpx2.AsyncClient(headers=headers, timeout=30) as http,
            Client(streamable_http_client(self.http, http_client=http)) as client,
        ):
            yield client

    def client(self, transport: str, key: str) -> Any:
        return self.stdio(key) if transport == "stdio" else self.over_http(key)


@asynccontextmanager
async def serving_mcp(settings: Settings) -> AsyncIterator[World]:
    """A gateway, a worker, and the command `threadfold mcp --http` as a process of its own."""
    control = await Control(settings).start()
    await control.write(
        {"generation/1": Generation(1, settings.partitions, {}), "generation/live": 1}
    )
    keys = {}
    for name in ("acme", "rival"):
        await control.ensure_tenant(name)
        keys[name] = await control.add_key(name, [*DEFAULT_SCOPES, "tokens"])
    await control.stop()
    async with running_worker(settings), serving(create_gateway(settings)) as url:
        made = World(url, keys)

        async def ready() -> bool:
            async with httpx2.AsyncClient() as http:
                return (await http.get(f"{url}/readyz")).status_code == 200

        await until(ready)
        server = await asyncio.create_subprocess_exec(
            *COMMAND, "mcp", "--http", "--port", "0", "--url", url,
            env=clean_env(), stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        assert server.stdout is not None
        made.http = (await server.stdout.readline()).decode().removeprefix("ready: ").strip()
        yield made
        server.terminate()
        assert await asyncio.wait_for(server.wait(), 20) == 0
