"""A deployment's first generation, as ``threadfold topics create`` and ``tenants add`` leave it, for tests
that run the parts themselves.
"""

from __future__ import annotations

from typing import Any

from streams.control.control_topic import Control
from streams.control.state import Generation
from streams.settings.settings import Settings


async def open_generation(
    settings: Settings, policy: dict[str, Any], **tenants: dict[str, Any] | None
) -> None:
    """Make generation 1 with ``policy`` the live one, and each of ``tenants`` with its own policy;
    the topics must be there.
    """
    control = await Control(settings).start()
    try:
        await control.write(
            {"generation/1": Generation(1, settings.partitions, policy), "generation/live": 1}
        )
        for name, own in tenants.items():
            await control.ensure_tenant(name, own)
    finally:
        await control.stop()
