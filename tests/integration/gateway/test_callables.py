"""A gateway without the callables that its worker has."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from streams.settings.settings import Settings
from tests.support.gateway import POLICY, Client, is_problem, say, serving

SHORTENED = "look: 1000 characters"


@pytest.fixture(scope="module")
async def call(settings: Settings) -> AsyncIterator[Client]:
    reducer = {"name": "compact_tool_results", "replacement": "callable:shorten"}
    with_it = msgspec.structs.replace(
        settings, callables={"shorten": "tests.support.fragile:mended"}
    )
    policy = {**POLICY, "compaction": False, "reducers": [reducer]}
    async with serving(settings, worker=with_it, policy=policy) as client:
        yield client


async def refusals(call: Client) -> float:
    page = (await call("GET", "/metrics", tenant="anon")).text
    name = 'threadfold_callable_refusals_total{reason="missing"} '
    return float(page.partition(name)[2].partition("\n")[0])


async def test_it_shows_the_workers_window_and_no_past_one_that_it_would_fold_otherwise(
    call: Client,
) -> None:
    asked = {"id": "a", "name": "look", "arguments": "{}"}
    events: list[dict[str, Any]] = [
        say("what is there?"),
        {**say("", "assistant"), "content": None, "tool_calls": [asked]},
        {"type": "tool.result", "tool_call_id": "a", "content": "the weather is fine " * 50},
        *(say("word " * 30, role) for role in ("assistant", "user") * 4),
    ]
    path = "/v1/conversations/c"
    answer = await call("POST", f"{path}/events?wait=applied", events)
    assert answer.status_code == 200, answer.text
    places = [event["position"] for event in answer.json()["events"]]
    context = (await call("GET", f"{path}/context")).json()
    assert SHORTENED in [message["content"] for message in context["messages"]]
    assert await refusals(call) == 0
    refused = await call("GET", f"{path}/window?at={places[-1]}")
    is_problem(refused, 503, "callable 'shorten' of its policy is not registered", "CALLABLES")
    assert refused.json()["type"] == "urn:threadfold:problem:callable-unavailable"
    assert await refusals(call) == 1
    first = await call("GET", f"{path}/window?at={places[0]}")
    assert first.status_code == 200, first.text
