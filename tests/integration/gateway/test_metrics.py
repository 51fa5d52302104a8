"""What a gateway shows of itself to Prometheus, after requests of every kind."""

from __future__ import annotations

import time
from pathlib import Path

import httpx
import msgspec
import pytest

from streams.settings.endpoints import EndpointSettings
from streams.settings.settings import Settings
from tests.support.certificates import Authority
from tests.support.metrics import read
from tests.support.model_server import fails, model_server
from tests.support.platform import requests_to, running_platform
from tests.support.worker import until

pytestmark = pytest.mark.long
Samples = dict[str, dict[tuple[str, ...], float]]
ROUTE = "/v1/conversations/{conversation}"
SAID = {"type": "message", "role": "user", "content": "Where is order 4711?"}


async def page(http: httpx.AsyncClient, url: str) -> Samples:
    return read((await http.get(f"{url}/metrics")).raise_for_status().content)


async def test_a_gateway_counts_requests_its_cache_prefixes_and_what_it_depends_on(
    settings: Settings, tmp_path: Path
) -> None:
    certificate, key = Authority(tmp_path).issue("gateway", days=30)
    made = msgspec.structs.replace(
        settings, gateway_certificate=str(certificate), gateway_private_key=str(key)
    )
    async with running_platform(made) as platform, requests_to(platform) as http:
        positions = []
        for _ in range(2):
            sent = await http.post("/conversations/c1/events?wait=applied", json=SAID)
            positions.append(sent.json()["position"])
            for _ in range(2):
                assert (await http.get("/conversations/c1/context")).status_code == 200
        before = await page(http, platform.url)
        back = {"to": positions[0]}
        await http.post("/conversations/c1/rollback?wait=applied", json=back)
        assert (await http.get("/conversations/c1/context")).status_code == 200
        assert (await http.get("/no/such/route")).status_code == 404
        assert (await http.post("/memories/search", json={"query": "order"})).status_code == 200

        async def fed() -> Samples:
            found = await page(http, platform.url)
            there = found["threadfold_memory_behind"] == {("records",): 0, ("turns",): 0}
            return found if there else {}

        found = await until(fed, 30, "both indexes have all")
    requests = found["threadfold_http_requests_total"]
    assert requests["GET", f"{ROUTE}/context", "200"] == 5
    assert requests["POST", f"{ROUTE}/events", "200"] == 2
    assert requests["any", "none", "404"] == 1
    assert found["threadfold_http_seconds_count"]["GET", f"{ROUTE}/context"] == 5
    assert found["threadfold_http_seconds_sum"]["GET", f"{ROUTE}/context"] > 0
    assert found["threadfold_http_under_way"] == {(): 1}, "the one that asks"
    partitions = {(str(number),): 0 for number in range(made.partitions)}
    assert found["threadfold_partition_behind"] == partitions
    reads = found["threadfold_window_cache_reads_total"]
    assert reads["hit",] >= 2 and reads["miss",] >= 1 and reads["hit",] + reads["miss",] == 5
    assert found["threadfold_window_cache_bytes"][()] > 0
    assert found["threadfold_memory_fed"] == {("records",): 1, ("turns",): 1}
    assert found["threadfold_redis_up"] == {(): 1}
    assert found["threadfold_redis_used_bytes"][()] > 100_000
    (end,) = found["threadfold_certificate_expiry_timestamp_seconds"].items()
    assert end[0] == ("gateway_certificate",)
    assert end[1] - time.time() == pytest.approx(30 * 86_400, abs=3_600)
    prefixes = [one["threadfold_context_prefix_bytes_total"] for one in (before, found)]
    assert prefixes[0]["kept",] > 0 and prefixes[0]["changed",] == 0
    assert prefixes[1]["changed",] > 0, "the rollback took a message back"


async def test_questions_of_searches_to_a_model_are_counted_by_kind_and_outcome(
    settings: Settings,
) -> None:
    async with model_server(fails(401)) as server:
        summarizers = {"cheap": EndpointSettings(base_url=server.url, model="small")}
        made = msgspec.structs.replace(settings, summarizers=summarizers, memory_planner="cheap")
        async with running_platform(made) as platform, requests_to(platform) as http:
            before = await page(http, platform.url)
            sent = await http.post("/memories/search", json={"query": "Where is the order?"})
            assert sent.status_code == 200 and server.calls
            found = await page(http, platform.url)
    assert "threadfold_memory_model_questions_total" not in before
    questions = found["threadfold_memory_model_questions_total"]
    # Endpoint, kind, outcome: it was done without the model.
    assert questions == {("cheap", "plan", "refused"): 1}
