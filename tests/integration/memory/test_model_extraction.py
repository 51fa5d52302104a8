"""A model extracts what a closed session teaches, on real Kafka and Redis: its records are found by
a search that a model planned.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from aiohttp import web

from streams.settings.endpoints import EndpointSettings
from streams.settings.settings import Settings
from tests.support.model_server import ModelServer, completion, model_server
from tests.support.platform import requests_to, running_platform
from tests.support.worker import until

BOAT = "The user would rather take the ferry than the plane."
PLAN = {
    "mode": "answer",
    "semantic_queries": ["prefers the ferry"],
    "pragmatic_queries": [],
    "tool_hints": [],
    "required_constraints": [],
    "required_affordances": [],
    "missing_slots": [],
    "reasoning": "It asks how the user travels.",
}


async def thinks(
    server: ModelServer, request: web.Request, asked: dict[str, Any]
) -> web.StreamResponse:
    """Finds the ferry in a span, and looks for it in a search."""
    rows = [
        json.loads(row)
        for row in asked["messages"][1]["content"].splitlines()
        if row.startswith("{")
    ]
    if "query" in rows[0]:
        return web.json_response(completion(json.dumps(PLAN)))
    records = [
        {"type": "preference", "text": BOAT, "positions": [row["position"]], "confidence": 0.8}
        for row in rows
        if "ferry" in row["text"]
    ]
    return web.json_response(completion(json.dumps({"records": records})))


@pytest.mark.long
async def test_what_a_model_found_in_a_session_is_found_by_a_planned_search(
    settings: Settings,
) -> None:
    async with model_server(thinks) as server:
        own = msgspec.structs.replace(
            settings,
            summarizers={"cheap": EndpointSettings(base_url=server.url, model="small-1")},
            memory_model="cheap",
            memory_planner="cheap",
            memory_hyde="cheap",
        )
        async with (
            running_platform(own, {"memory_auto": "sessions"}) as platform,
            requests_to(platform) as http,
        ):
            events = [
                {"type": "conversation.opened", "user": "ann"},
                {"type": "message", "role": "user", "content": "Planes? Give me a ferry."},
            ]
            appended = await http.post("/conversations/c1/events?wait=applied", json=events)
            appended.raise_for_status()
            (await http.post("/conversations/c1/close")).raise_for_status()

            async def found() -> dict[str, Any]:
                body = {
                    "query": "how to travel",
                    "user": "ann",
                    "kinds": ["record"],
                    "explain": True,
                }
                answer = (await http.post("/memories/search", json=body)).json()
                return answer if answer.get("results") else {}

            answer = await until(found, 60, "the session is learnt from")
            (hit,) = answer["results"]
            assert (hit["text"], hit["record"]["origin"], hit["trust"]) == (BOAT, "model", "user")
            assert hit["position"] == appended.json()["events"][1]["position"]
            assert (answer["plan"]["made_by"], answer["plan"]["fell_back"]) == ("cheap", {})
            assert answer["plan"]["semantic_queries"] == ["how to travel", "prefers the ferry"]
            # One for the span, one for all searches that were alike.
            assert len(server.calls) == 2
            # What is private in the newest message is sent to no model that a context asks.
            flat = {"type": "message", "role": "user"}
            said = {**flat, "content": "How to travel? <private>hidden</private>"}
            (await http.post("/conversations/c1/events?wait=applied", json=said)).raise_for_status()
            context = (await http.get("/conversations/c1/context?recall=on")).json()
            assert "hidden" in str(context["messages"]) and "memories" not in context["away"]
            assert len(server.calls) == 3 and "How to travel?" in str(server.calls[2])
            assert "hidden" not in str(server.calls)
            page = (await http.get(platform.url + "/metrics")).text
            assert 'questions_total{endpoint="cheap",kind="plan",outcome="ok"} 2.0' in page
