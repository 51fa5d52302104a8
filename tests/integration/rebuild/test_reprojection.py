"""An operator re-projects by HTTP: compares policies, builds a generation, watches it, switches and
drops. A switch that would lose something is refused until that is accepted.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from projections.names import Key, partition_of
from tests.integration.log.test_truncated_log import eaten
from tests.support.console_traffic import append, await_summary, talk
from tests.support.gateway_process import serving
from threadfold.embedded.stack import EmbeddedStack

pytestmark = pytest.mark.long
OVERRIDES = {"working_budget": 800, "keep_recent_tokens": 300}
GONE = "the log has lost its events before offset 3"


def generation(http: httpx.Client, number: int) -> dict[str, Any]:
    listed = http.get("/v1/generations").json()["generations"]
    return next((one for one in listed if one["number"] == number), {})


def done(http: httpx.Client, number: int, doing: str, limit: float = 90.0) -> dict[str, Any]:
    """The generation once its task has ended."""
    deadline = time.monotonic() + limit
    while time.monotonic() < deadline:
        found = generation(http, number)
        if not found or (found["task"]["doing"] == doing and found["task"]["ended"]):
            return found
        time.sleep(0.1)
    raise AssertionError(f"{doing} goes on after {limit:g} s: {generation(http, number)}")


def check_window(http: httpx.Client, wanted: dict[str, Any]) -> None:
    """An operator sees both windows; their text only where the key is of the tenant, and reads."""
    path = "/v1/generations/compare/window"
    found = http.post(path, json=wanted)
    assert found.status_code == 200, found.text
    assert found.json()["text"] and "You book journeys." in found.text
    keys = [
        http.post(f"/v1/tenants/{tenant}/keys", json={"scopes": scopes}).json()["key"]
        for tenant, scopes in (("acme", ["admin"]), ("platform", ["admin", "read"]))
    ]
    for key in keys:
        other = http.post(path, json=wanted, headers={"Authorization": f"Bearer {key}"})
        assert other.status_code == 200 and not other.json()["text"], other.text
        assert "journeys" not in other.text and "flight" not in other.text
        assert len(other.json()["rows"]) == len(found.json()["rows"])
    assert http.post(path, json={**wanted, "conversation": "none"}).status_code == 404
    assert http.post(path, json={**wanted, "policy": {"model_windw": 1}}).status_code == 422
    assert http.post(path, json={**wanted, "generation": 1}).status_code == 422


def test_a_policy_is_compared_built_watched_and_switched_to(
    stack: EmbeddedStack, tmp_path: Path
) -> None:
    with (
        serving(stack, tmp_path, "acme", accept_truncated_log=True) as served,
        httpx.Client(
            base_url=served.url, headers=served.headers, timeout=60, trust_env=False
        ) as http,
    ):
        http.post("/v1/tenants", json={"name": "platform"}).raise_for_status()
        append(http, "journey", talk(12))
        await_summary(http, "journey")
        wanted = {"policy": {"model_window": 64_000, "hard_ceiling": 0.5}, "tenant": "acme"}
        found = http.post("/v1/generations/compare", json=wanted)
        assert found.status_code == 200, found.text
        (window,) = found.json()["windows"]
        assert window["conversation"] == "journey" and window["lost"] is None
        assert window["events"] == found.json()["events"] > 0
        refused = http.post("/v1/generations/compare", json={"policy": {"model_windw": 1}})
        assert refused.status_code == 422 and "model_windw" in refused.text
        assert http.post("/v1/generations/compare", json={"generation": 9}).status_code == 404

        check_window(http, {**wanted, "conversation": "journey"})
        partition = partition_of(Key("acme", "journey"), served.settings.partitions)
        asyncio.run(eaten(served.settings, {partition: 3}))
        found = http.post("/v1/generations/compare", json={"policy": OVERRIDES}).json()
        assert found["lost"] == 1 and found["windows"][0]["lost"] == GONE

        begun = http.post("/v1/generations", json={"policy": OVERRIDES})
        assert (begun.status_code, begun.json()) == (202, {"generation": 2, "resumed": False})
        built = done(http, 2, "build")
        assert (built["stage"], built["left"], built["task"]["error"]) == ("ready", 0, None)
        assert http.post("/v1/generations/2/switch").status_code == 202
        refused_switch = done(http, 2, "switch")
        assert refused_switch["stage"] == "ready" and refused_switch["task"]["would_lose"]
        assert "acme/journey" in refused_switch["task"]["error"]
        lost = [{"conversation": "acme/journey", "because": GONE}]
        assert (refused_switch["task"]["lost"], refused_switch["task"]["losses"]) == (1, lost)
        http.post("/v1/generations/2/switch", json={"accept_loss": True})
        switched = done(http, 2, "switch")
        assert switched["stage"] == "live" and not switched["task"]["would_lose"]
        assert (switched["task"]["lost"], switched["task"]["losses"]) == (1, lost)
        assert http.post("/v1/generations/2/switch").status_code == 409
        assert http.delete("/v1/generations/2").status_code == 409
        assert http.delete("/v1/generations/none").status_code == 404
        assert http.delete("/v1/generations/1").json() == {"generation": 1, "doing": "drop"}
        assert done(http, 1, "drop") == {}
