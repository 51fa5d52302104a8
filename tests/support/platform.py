"""A worker, a gateway on a real port and a tenant's key: what clients and adapters are tried
against.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import httpx

from streams.control.control_topic import Control
from streams.control.state import Generation
from streams.settings.settings import Settings
from tests.support.serving import serving
from tests.support.worker import running_worker, until
from threadfold.gateway import create_gateway

SUMMARIZING = {
    "model_window": 4000,
    "reserve_tokens": 500,
    "working_budget": 400,
    "keep_recent_tokens": 150,
    "min_messages": 4,
    "summary_max_tokens": 120,
}
"""A policy under which a few messages are summarized."""


class Platform(NamedTuple):
    url: str
    key: str
    settings: Settings


def requests_to(platform: Platform) -> httpx.AsyncClient:
    """Sends requests as the tenant, to paths under ``/v1``."""
    headers = {"Authorization": f"Bearer {platform.key}"}
    return httpx.AsyncClient(base_url=f"{platform.url}/v1", headers=headers, timeout=60)


@asynccontextmanager
async def running_platform(
    settings: Settings, policy: dict[str, Any] | None = None
) -> AsyncIterator[Platform]:
    """All of it for the tenant ``acme``, ready to serve."""
    control = await Control(settings).start()
    await control.write(
        {"generation/1": Generation(1, settings.partitions, policy or {}), "generation/live": 1}
    )
    await control.ensure_tenant("acme")
    key = await control.add_key("acme", None)
    await control.stop()
    async with (
        running_worker(settings),
        serving(create_gateway(settings)) as url,
        httpx.AsyncClient(timeout=60) as http,
    ):

        async def ready() -> bool:
            return (await http.get(f"{url}/readyz")).status_code == 200

        await until(ready)
        yield Platform(url, key, settings)
