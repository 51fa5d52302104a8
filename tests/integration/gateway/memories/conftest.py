"""A served gateway with a worker and the tenants acme, rival, terse and slow, and a user of one
test alone.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from uuid import uuid4

import pytest

from streams.control.control_topic import Control
from streams.control.state import Generation
from streams.settings.quotas import DEFAULT_SCOPES, Quota
from streams.settings.settings import Settings
from tests.support.memory_routes import World
from tests.support.serving import serving
from tests.support.worker import running_worker, until
from threadfold.gateway import create_gateway

SHORT_FIRST = {"semantic": 0, "action": 0, "temporal": 0, "recency": 0, "evidence": 0}


@pytest.fixture(scope="module")
async def world(settings: Settings) -> AsyncIterator[World]:
    control = await Control(settings).start()
    await control.write(
        {"generation/1": Generation(1, settings.partitions, {}), "generation/live": 1}
    )
    keys = {}
    for name, scopes in (("acme", [*DEFAULT_SCOPES, "tokens", "erase"]), ("rival", None)):
        await control.ensure_tenant(name)
        keys[name] = await control.add_key(name, scopes)
    await control.ensure_tenant("terse", {"recall_weights": SHORT_FIRST})
    keys["terse"] = await control.add_key("terse")
    await control.new_tenant("slow", None, Quota(events_per_second=0.1, events_burst=20))
    keys["slow"] = await control.add_key("slow")
    await control.stop()
    async with running_worker(settings), serving(create_gateway(settings)) as url:
        made = World(url, keys, settings)

        async def ready() -> bool:
            return (await made.http.get("/readyz")).status_code == 200

        await until(ready)
        yield made
        await made.http.aclose()


@pytest.fixture
def user() -> str:
    return f"u-{uuid4().hex[:8]}"
