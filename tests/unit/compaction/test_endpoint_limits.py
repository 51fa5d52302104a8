"""How many summaries of one endpoint are begun at once."""

from __future__ import annotations

import asyncio

import pytest

from streams.compaction.summarizers.endpoint_limits import EndpointLimits
from streams.compaction.summarizers.failures import CallNotAllowed
from streams.settings.endpoints import EndpointSettings


@pytest.mark.parametrize(("calls", "begun"), [(1, 1), (7, 7), (64, 72)])
async def test_few_summaries_wait_for_a_call_within_their_own_time(calls: int, begun: int) -> None:
    options = EndpointSettings(base_url="http://model", model="m", max_concurrent=calls)
    limits = EndpointLimits("cheap", options)
    now = asyncio.get_running_loop().time
    held = [limits.place("acme", now() + 60) for _ in range(begun)]
    for place in held:
        await place.__aenter__()
    with pytest.raises(CallNotAllowed):
        async with limits.place("acme", now()):
            pass
    for place in held:
        await place.__aexit__(None, None, None)
    async with limits.place("acme", now() + 60):
        pass
