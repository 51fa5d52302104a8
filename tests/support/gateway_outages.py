"""A gateway whose services go away."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx

from streams.control.control_topic import Control
from streams.settings.settings import Settings
from tests.support.worker import until
from threadfold.gateway import create_gateway


@asynccontextmanager
async def gateway(settings: Settings) -> AsyncIterator[httpx.AsyncClient]:
    app = create_gateway(settings)
    async with app.router.lifespan_context(app):
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://gateway") as http:
            yield http


async def is_ready(http: httpx.AsyncClient, limit: float = 60) -> None:
    async def ready() -> bool:
        return (await http.get("/readyz")).status_code == 200

    await until(ready, limit)


async def make_key(settings: Settings) -> str:
    control = await Control(settings).start()
    await control.ensure_generation(settings.partitions)
    await control.ensure_tenant("acme")
    key = await control.add_key("acme")
    await control.stop()
    return key
