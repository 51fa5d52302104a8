"""What goes wrong before the routes are reached is answered like what goes wrong in them."""

from __future__ import annotations

import httpx
import pytest
from starlette.types import Receive, Scope, Send

from tests.support.gateway import is_problem
from threadfold.gateway.metrics import GatewayMetrics, Measured


async def broken(scope: Scope, receive: Receive, send: Send) -> None:
    """An application that fails, after it began to answer where the path asks for that."""
    if scope["path"] == "/late":
        await send({"type": "http.response.start", "status": 200, "headers": []})
    raise OverflowError("the-inside-of-it")


async def test_an_error_before_the_routes_is_answered_with_a_problem_that_says_nothing_of_the_inside() -> (
    None
):
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(Measured(broken, GatewayMetrics())), base_url="http://x"
    ) as client:
        response = await client.get("/v1/conversations")
        is_problem(response, 500, "OverflowError", "the gateway's log has it")
        assert "the-inside-of-it" not in response.text
        with pytest.raises(OverflowError):
            await client.get("/late")
