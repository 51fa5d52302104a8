"""The client beside gateways: a direct one speaks and erases, one over HTTP refuses what cannot be
sent.
"""

from __future__ import annotations

import asyncio

import pytest

from tests.integration.streaming.conftest import pair
from tests.support.stream_pair import Pair, say
from tests.support.streaming import subscribed
from threadfold import AsyncClient
from threadfold_client import Conflict, Gone, Invalid, Retries

__all__ = ["pair"]
QUICK = Retries(attempts=2, total=1.0)


async def test_a_direct_client_speaks_with_its_turns_token_and_erases(pair: Pair) -> None:
    async with AsyncClient.direct(pair.settings, "acme", retries=QUICK) as client:
        async with (
            client.turn("direct-turn", policy="queue") as turn,
            client.partial("direct-turn", turn.turn_id, fence=turn.fencing_token) as writer,
        ):
            async with subscribed(
                pair.a, "/v1/conversations/direct-turn/stream", pair.keys["acme"]
            ) as one:
                await writer.write("said ")
                await writer.flush()
                assert writer.trouble is None
                await one.until(lambda: one.of("partial"))
            await writer.finish()
        stale = client.partial("direct-turn", "z", fence=turn.fencing_token)
        await stale.write("zombie")
        with pytest.raises(Conflict, match="not active"):
            await stale.flush()
        receipt = await client.erase("direct-turn")
        assert receipt["conversation"] == "direct-turn"
        with pytest.raises(Gone):
            await client.append("direct-turn", say("anyone?"))


async def test_a_header_that_cannot_be_sent_is_refused_at_once_and_not_tried_again(
    pair: Pair,
) -> None:
    async with AsyncClient(
        pair.a.url, pair.keys["acme"], retries=Retries(attempts=1000, total=600.0)
    ) as client:
        async with asyncio.timeout(5):
            with pytest.raises(Invalid, match="cannot be sent"):
                await client.append("c", say("x"), expect="0-1\r\nX-More: y")
            with pytest.raises(Invalid, match="cannot be sent"):
                await anext(aiter(client.subscribe("c", after="0-1\nx")))
