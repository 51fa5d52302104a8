"""Tenants whose conversations are encrypted, tenants whose are not, and a gateway beside a worker."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import msgspec
import pytest

from streams.control.control_topic import Control
from streams.control.state import Generation
from streams.settings.settings import Settings
from tests.support.erasure import MASTER, SMALL
from tests.support.gateway import Client
from tests.support.worker import running_worker, until
from threadfold.cli.common import CONFIG_FILE
from threadfold.cli.configuration import write_config
from threadfold.gateway import create_gateway


@pytest.fixture
async def made(settings: Settings) -> AsyncIterator[Settings]:
    """The module's topics, with a master key and snapshots taken soon; tenants `sealed` and
    `plain`.
    """
    made = msgspec.structs.replace(settings, master_keys=MASTER, snapshot_events=20)
    control = await Control(made).start()
    if control.state.live is None:
        await control.write(
            {"generation/1": Generation(1, made.partitions, SMALL), "generation/live": 1}
        )
    await control.ensure_tenant("sealed", {"encryption": True})
    await control.ensure_tenant("plain")
    await control.stop()
    yield made


@pytest.fixture(scope="module")
async def call(settings: Settings) -> AsyncIterator[Client]:
    control = await Control(settings).start()
    await control.write(
        {
            "generation/1": Generation(1, settings.partitions, {"max_result_bytes": 1_000_000}),
            "generation/live": 1,
        }
    )
    keys = {}
    for tenant, policy in (("acme", None), ("rival", None), ("silent", {"renders": False})):
        await control.ensure_tenant(tenant, policy)
        keys[tenant] = await control.add_key(tenant)
    await control.stop()
    app = create_gateway(settings)
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with (
        running_worker(settings),
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://gateway") as http,
    ):

        async def ready() -> bool:
            return (await http.get("/readyz")).status_code == 200

        await until(ready)
        yield Client(http, keys, app.state.connection.backend)


@pytest.fixture(scope="module")
def data(settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stack")
    write_config(folder / CONFIG_FILE, settings)
    return folder
