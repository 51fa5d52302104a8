"""Two gateways over one log."""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec
import pytest

from streams.control.control_topic import Control
from streams.control.state import Generation
from streams.settings.settings import Settings
from tests.support.gateway import POLICY, add_tenants
from tests.support.stream_pair import Pair
from tests.support.streaming import serving
from tests.support.worker import running_worker


@pytest.fixture(scope="module")
async def pair(settings: Settings) -> AsyncIterator[Pair]:
    quick = msgspec.structs.replace(settings, stream_heartbeat=0.3, partial_timeout=1.5)
    control = await Control(quick).start()
    await control.write(
        {"generation/1": Generation(1, quick.partitions, POLICY), "generation/live": 1}
    )
    keys = await add_tenants(control)
    await control.stop()
    async with running_worker(quick), serving(quick) as a, serving(quick) as b:
        yield Pair(a, b, keys, quick)
