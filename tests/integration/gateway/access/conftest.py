"""Two gateways of one deployment that trust keys and a signer's tokens, and a worker."""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec
import pytest

from streams.control.control_topic import Control
from streams.control.state import Generation
from streams.settings.settings import Settings
from tests.support.access import World
from tests.support.gateway import POLICY
from tests.support.serving import serving
from tests.support.tokens import AUDIENCE, ISSUER, Signer, key_set
from tests.support.worker import running_worker, until
from threadfold.gateway import create_gateway


@pytest.fixture(scope="module")
def signer() -> Signer:
    return Signer("k1")


@pytest.fixture(scope="module")
async def world(
    settings: Settings, signer: Signer, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[World]:
    source = tmp_path_factory.mktemp("keys") / "set.json"
    source.write_bytes(key_set(signer))
    told = msgspec.structs.replace(
        settings, jwt_issuer=ISSUER, jwt_audience=AUDIENCE, jwt_keys=str(source)
    )
    control = await Control(settings).start()
    await control.write(
        {"generation/1": Generation(1, settings.partitions, POLICY), "generation/live": 1}
    )
    keys = {}
    for tenant, scopes in (
        ("acme", None),
        ("beta", None),
        ("reader", ["read"]),
        ("root", ["admin"]),
    ):
        await control.ensure_tenant(tenant)
        keys[tenant] = await control.add_key(tenant, scopes)
    async with (
        running_worker(settings),
        serving(create_gateway(told)) as one,
        serving(create_gateway(told)) as two,
    ):
        made = World(one, two, keys, control, settings)

        async def ready() -> bool:
            return all(
                [(await made("GET", "/readyz", gateway=i)).status_code == 200 for i in (0, 1)]
            )

        await until(ready)
        yield made
        await made.http.aclose()
    await control.stop()
