"""One world for each file: a gateway and an MCP server over HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import pytest

from streams.settings.settings import Settings

if TYPE_CHECKING:
    from tests.support.mcp_world import World


@pytest.fixture(scope="module")
async def world(settings: Settings) -> AsyncIterator[World]:
    # Not above: without the SDK the files of this folder are skipped.
    from tests.support.mcp_world import serving_mcp

    async with serving_mcp(settings) as made:
        yield made
