"""What a worker process shows of itself, at its own port and by way of a gateway."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import msgspec
import pytest

from streams.control.control_topic import Control
from streams.log.topics import create_topics
from streams.metrics import reports
from tests.conftest import fresh_settings
from tests.support.certificates import Authority
from tests.support.generations import open_generation
from tests.support.metrics import read
from tests.support.model_server import model_server, says
from tests.support.pipeline import POLICY
from tests.support.ports import closed_port
from tests.support.raw_records import put_raw
from tests.support.serving import serving
from tests.support.summary_workers import SUMMARY, TALKS, World
from tests.support.worker import until
from threadfold.embedded.stack import EmbeddedStack
from threadfold.gateway import create_gateway

pytestmark = pytest.mark.long
SILENCE = 31.0
"""Seconds."""


@pytest.fixture
async def world(stack: EmbeddedStack, tmp_path: Path) -> AsyncIterator[World]:
    settings = fresh_settings(stack, session_timeout=6.0)
    await create_topics(settings)
    await open_generation(settings, {**POLICY, "summarizer": "cheap"}, acme={})
    async with World(settings, tmp_path) as made:
        yield made


async def test_a_worker_counts_events_batches_dead_letters_and_summaries_with_their_cost(
    world: World,
) -> None:
    port = closed_port()
    usage = {"prompt_tokens": 900, "completion_tokens": 100}
    prices = {"input_price": 2.0, "output_price": 12.0}
    async with model_server(says(SUMMARY, usage=usage)) as server, httpx.AsyncClient() as http:
        world.start(server.url, "--metrics-port", str(port), **prices)
        await world.append()
        await world.append()
        await put_raw(world.settings, "events", (0, b"acme", b"no event"))
        await world.all_summarised()

        async def accepted() -> dict[str, dict[tuple[str, ...], float]]:
            samples = read((await http.get(f"http://127.0.0.1:{port}/metrics")).content)
            done = samples.get("threadfold_summaries_total", {}).get(("accepted",), 0) >= TALKS
            return samples if done else {}

        found = await until(accepted, 60, "all summaries are accepted")
    assert "threadfold_http_requests_total" not in found
    applied = [n for labels, n in found["threadfold_events_total"].items() if "applied" in labels]
    assert sum(applied) >= TALKS * 13
    twice = [n for labels, n in found["threadfold_events_total"].items() if "duplicate" in labels]
    assert sum(twice) == TALKS * 12
    assert found["threadfold_compactions_total"]["made", "budget", "cheap"] == TALKS
    assert found["threadfold_summary_seconds_count"]["cheap",] == TALKS
    assert found["threadfold_model_calls_total"]["cheap", "ok"] == TALKS
    assert found["threadfold_summary_tokens_total"] == {("acme",): 1_000 * TALKS}
    cost = TALKS * (900 * 2 + 100 * 12) / 1e6
    assert found["threadfold_summary_cost_total"]["acme",] == pytest.approx(cost)
    assert found["threadfold_model_breaker_open"] == {("cheap",): 0}
    partitions = {(str(number),) for number in range(world.settings.partitions)}
    for name in ("lag", "seconds_behind", "healing"):
        assert found[f"threadfold_partition_{name}"].keys() == partitions
    batches = found["threadfold_batch_events_count"][()]
    assert batches > 0
    assert found["threadfold_batch_seconds_count"] == {("fold",): batches, ("write",): batches}
    assert found["threadfold_compaction_requests_total"][()] >= TALKS
    letters = found["threadfold_dead_letters_total"]
    assert letters == {("record",): 1, ("poison",): 0, ("waiting",): 0}
    assert found["threadfold_conversations_due"].keys() == partitions


async def test_a_worker_counts_its_snapshots_and_says_when_its_certificates_end(
    world: World, tmp_path: Path
) -> None:
    port = closed_port()
    certificate, key = Authority(tmp_path).issue("gateway", days=30)
    options = ("--metrics-port", str(port), "--only", "projector")
    env = {
        "THREADFOLD_SNAPSHOT_EVENTS": "50",
        "THREADFOLD_GATEWAY_CERTIFICATE": str(certificate),
        "THREADFOLD_GATEWAY_PRIVATE_KEY": str(key),
    }
    world.start("http://127.0.0.1:1", *options, env=env)
    async with httpx.AsyncClient() as http:

        async def page() -> dict[str, dict[tuple[str, ...], float]]:
            try:
                return read((await http.get(f"http://127.0.0.1:{port}/metrics")).content)
            except httpx.TransportError:  # it is starting, or slow
                return {}

        found = await until(page, 60, "the worker's page")
        assert found["threadfold_snapshots_total"] == {(): 0}
        ends = found["threadfold_certificate_expiry_timestamp_seconds"]
        assert ends.keys() == {("gateway_certificate",)}
        assert ends["gateway_certificate",] - time.time() == pytest.approx(30 * 86_400, abs=3_600)

        async def written() -> bool:
            # A round is due after 32 events for each window that changed: repeats count, too.
            await world.append()
            return (await page()).get("threadfold_snapshots_total", {(): 0})[()] > 0

        await until(written, 60, "snapshots are counted")


async def test_the_log_of_an_idle_worker_says_nothing(world: World) -> None:
    """Nothing that comes every 30 s, or more often: there are 31 s without a line. What a busy
    machine makes a client of Kafka say once does not count.
    """
    async with model_server(says(SUMMARY)) as server:
        log = world.start(server.url).log
        assert log is not None
        await world.append()
        await world.all_summarised()
        said, since = log.stat().st_size, time.monotonic()

        async def silent() -> bool:
            nonlocal said, since
            if log.stat().st_size != said:
                said, since = log.stat().st_size, time.monotonic()
            return time.monotonic() - since > SILENCE

        await until(silent, 6 * SILENCE, "31 s without a line")
        assert world.workers[0].poll() is None, "it runs"


async def test_a_gateway_shows_the_metrics_of_all_workers_to_an_admin_alone(world: World) -> None:
    control = await Control(world.settings).start()
    admin = await control.add_key("acme", ["admin"])
    reader = await control.add_key("acme", ["read"])
    await control.stop()
    logged = world.start("http://127.0.0.1:1", "--only", "projector", "--log-format", "json").log
    world.start("http://127.0.0.1:1", "--only", "compactor")
    async with serving(create_gateway(world.settings)) as url, httpx.AsyncClient() as http:

        async def page(key: str) -> httpx.Response:
            headers = {"Authorization": f"Bearer {key}"}
            return await http.get(f"{url}/v1/workers/metrics", headers=headers)

        async def both() -> dict[str, dict[tuple[str, ...], float]]:
            answer = await page(admin)
            if answer.status_code == 503:  # the gateway is starting
                return {}
            samples = read(answer.raise_for_status().content)
            return samples if len(samples.get("threadfold_healings_total", ())) == 2 else {}

        found = await until(both, 60, "both workers report")
        assert len(found["threadfold_fenced_total"]) == 2
        assert (await page(reader)).status_code == 403
        assert (await http.get(f"{url}/v1/workers/metrics")).status_code == 401
    assert logged is not None
    lines = [json.loads(line) for line in logged.read_text().splitlines()]
    assert lines and all({"time", "level", "logger", "message"} <= line.keys() for line in lines)


async def test_a_gateway_reports_tenants_events_and_use_of_quotas_and_its_own_page_does_not(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reports, "EVERY", 0.5)
    control = await Control(world.settings).start()
    admin = await control.add_key("acme", ["admin", "append"])
    await control.stop()
    headers = {"Authorization": f"Bearer {admin}"}
    settings = msgspec.structs.replace(world.settings, quota_requests_per_second=1_000.0)
    async with serving(create_gateway(settings)) as url, httpx.AsyncClient() as http:

        async def used() -> dict[str, dict[tuple[str, ...], float]]:
            body = {"type": "message", "role": "user", "content": "hello"}
            await http.post(f"{url}/v1/conversations/c/events", json=body, headers=headers)
            answer = await http.get(f"{url}/v1/workers/metrics", headers=headers)
            samples = read(answer.content) if answer.status_code == 200 else {}
            return samples if "threadfold_quota_used_ratio" in samples else {}

        found = await until(used, 30, "the gateway reports")
        (((_, quota, tenant), share),) = found["threadfold_quota_used_ratio"].items()
        assert (quota, tenant) == ("requests_per_second", "acme") and 0 < share < 1
        (((_, tenant), events),) = found["threadfold_tenant_events_total"].items()
        assert tenant == "acme" and events >= 1
        own = (await http.get(f"{url}/metrics")).text
        assert "acme" not in own and "threadfold_context_prefix_bytes_total" in own
