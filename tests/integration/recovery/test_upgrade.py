"""A deployment of release 0.1.0 goes on under today's code: its log, its Redis (or none), its keys
and what its workers had committed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import redis.asyncio as aredis

from streams.log.topics import create_topics
from streams.maintenance.verify import verify
from streams.settings.settings import Settings
from streams.worker_parts import Runtime
from tests import upgrade
from tests.conftest import fresh_settings
from tests.support.serving import serving
from tests.support.worker import running_worker, until
from tests.upgrade.restore import Left, record_count
from threadfold.embedded.stack import EmbeddedStack
from threadfold.gateway import create_gateway

pytestmark = pytest.mark.long
LEFT = Left(Path(upgrade.__file__).parent / "0.1.0")
CHANGED = {"tools": {"state": "awaiting_approval"}}
"""What is answered otherwise since then (CHANGELOG): an open approval has a state of its own."""
TIMED = {"run"}
"""Its turn's lease has ended meanwhile."""


@asynccontextmanager
async def today(settings: Settings) -> AsyncIterator[tuple[Runtime, httpx.AsyncClient]]:
    """Today's worker and gateway."""
    async with (
        running_worker(settings) as runtime,
        serving(create_gateway(settings)) as url,
        httpx.AsyncClient(base_url=url, timeout=30) as http,
    ):

        async def ready() -> bool:
            return (await http.get("/readyz")).status_code == 200

        await until(ready, 60, "the gateway is ready")
        yield runtime, http


@pytest.fixture
async def settings(stack: EmbeddedStack) -> AsyncIterator[Settings]:
    made = fresh_settings(
        stack, master_keys=LEFT.about["master_keys"], snapshot_events=40, session_timeout=6.0
    )
    client = aredis.Redis.from_url(made.redis)
    await client.flushdb()
    await client.aclose()
    await create_topics(made)
    await LEFT.topics(made)
    yield made


def bearer(tenant: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {LEFT.about['keys'][tenant]}"}


async def get(http: httpx.AsyncClient, tenant: str, path: str) -> Any:
    answer = await http.get(f"/v1/conversations/{path}", headers=bearer(tenant))
    assert answer.status_code == 200, answer.text
    return answer.json()


async def post(http: httpx.AsyncClient, path: str, body: object) -> dict[str, Any]:
    answer = await http.post(f"/v1/conversations/{path}", json=body, headers=bearer("demo"))
    assert answer.status_code in (200, 202), answer.text
    return dict(answer.json())


@pytest.mark.parametrize("redis", ["kept", "lost"])
async def test_what_0_1_0_wrote_is_answered_as_it_was_and_goes_on(
    settings: Settings, redis: str
) -> None:
    if redis == "kept":
        await LEFT.redis(settings)
    async with today(settings) as (runtime, http):
        await as_it_was(http)
        announced = LEFT.count("summaries")
        assert await record_count(settings, "summaries") == announced, "none is announced again"
        await goes_on(http)
        record = runtime.control.state.live_generation
        rules = runtime.control.state.rules(record)
        report = await verify(runtime.log, runtime.store, record, rules, deep=True)
        assert report.verified >= 10 and report.differing == []
        assert await record_count(settings, "summaries") > announced


async def as_it_was(http: httpx.AsyncClient) -> None:
    """Every window, summary and turn is what the release answered; later releases add fields."""
    for tenant, answers in LEFT.about["answers"].items():
        for name, then in answers.items():
            now = await get(http, tenant, f"{name}/context")
            if name in TIMED:
                assert now["messages"] == then["context"]["messages"]
                continue
            wanted = then["context"] | CHANGED.get(name, {})
            assert {field: now[field] for field in wanted} == wanted, name
            summaries = (await get(http, tenant, f"{name}/summaries"))["summaries"]
            assert [
                {field: now[field] for field in was}
                for now, was in zip(summaries, then["summaries"]["summaries"], strict=True)
            ] == then["summaries"]["summaries"]
            assert await get(http, tenant, f"{name}/turns") == then["turns"]


async def goes_on(http: httpx.AsyncClient) -> None:
    """Repeats, rollbacks, approvals, turns and summaries work on what the release wrote."""
    history = await get(http, "demo", "talk-0/history?limit=20")
    old = next(event for event in history["events"] if event["type"] == "message")
    repeat = {"type": "message", "role": "user", "content": "again", "id": old["id"]}
    done = await post(http, "talk-0/events?wait=applied", repeat)
    assert done["events"][0] == {
        "id": old["id"],
        "position": old["position"],
        "status": "duplicate",
    }
    before = await get(http, "demo", "talk-0/context")
    target = history["events"][10]["position"]
    back = await post(http, "talk-0/rollback?wait=applied", {"to": target})
    assert back["events"][0]["status"] == "applied"
    after = await get(http, "demo", "talk-0/context")
    assert after["messages"][-1]["content"] == history["events"][10]["content"]
    assert after["count"] == before["count"] + 1
    resolution = {"type": "resolution", "suspension_id": "s1", "outcome": "approved"}
    await post(http, "tools/events?wait=applied", resolution)
    assert (await get(http, "demo", "tools/context"))["suspensions"] == []
    begun = await post(http, "run/turns", {"turn_id": "t2", "policy": "interrupt"})
    was = LEFT.about["answers"]["demo"]["run"]["turns"]["live"]["fencing_token"]
    assert begun["fencing_token"] > was
    summary = (await get(http, "demo", "talk-1/context"))["summary"]
    text = "the order of alice was shipped late because the harbour lost its papers again "
    for _ in range(4):
        said = [{"type": "message", "role": "user", "content": text * 2 + str(n)} for n in range(6)]
        await post(http, "talk-1/events?wait=applied", said)

    async def summarised() -> bool:
        now = (await get(http, "demo", "talk-1/context"))["summary"]
        return bool(now["summary_id"] != summary["summary_id"])

    await until(summarised, 60, "a summary follows the release's last one")
