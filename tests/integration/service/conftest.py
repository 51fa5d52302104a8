"""Tenants whose conversations are encrypted, and tenants whose are not."""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec
import pytest

from streams.control.control_topic import Control
from streams.control.state import Generation
from streams.settings.settings import Settings
from tests.support.erasure import MASTER, SMALL


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
