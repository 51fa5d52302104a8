"""Policies that cannot be used are refused where they are given: at the start of a worker, or by the
command that reads them.
"""

from __future__ import annotations

import httpx
import msgspec
import pytest

from projections.errors import InvalidPolicy
from projections.events.validation import make_record
from projections.names import Key
from projections.redis.process_reports import ProcessReports
from streams.log.topics import create_topics
from streams.settings.quotas import Tenant
from streams.settings.settings import Settings
from streams.worker_parts import Runtime
from tests.conftest import fresh_settings
from tests.support.commands import cli, ok
from tests.support.gateway import is_problem, say, serving
from tests.support.generations import open_generation
from tests.support.pipeline import POLICY
from threadfold.embedded.stack import EmbeddedStack
from threadfold.service.generation_tasks import KIND


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        ('summarizer = "nowhere"', "'nowhere' is not one of this deployment's summarisers"),
        (
            'reducers = [{ name = "compact_tool_results", replacement = "callable:gone" }]',
            "no 'callable:gone' is registered",
        ),
    ],
)
async def test_a_deployments_policy_that_names_what_is_not_there_is_refused_at_the_start(  # type: ignore[no-untyped-def]
    stack: EmbeddedStack, tmp_path, policy: str, said: str
) -> None:
    """Taken, it was found out by each new tenant's first append, which then answered 422."""
    file = tmp_path / "policy.toml"
    file.write_text(policy)
    made = fresh_settings(stack, policy=str(file))
    await create_topics(made)
    runtime = Runtime(made)
    with pytest.raises(InvalidPolicy, match=said):
        await runtime.start()
    await runtime.stop()


async def test_a_tenants_policy_file_is_checked_over_the_deployments_and_not_alone(
    settings: Settings, tmp_path
) -> None:  # type: ignore[no-untyped-def]
    await open_generation(settings, POLICY)
    file = tmp_path / "tenant.toml"
    env = {
        "THREADFOLD_KAFKA": settings.kafka,
        "THREADFOLD_REDIS": settings.redis,
        "THREADFOLD_TOPIC_PREFIX": settings.topic_prefix,
    }
    file.write_text(
        "model_window = 9000"
    )  # less than the default reserve_tokens, more than this deployment's
    assert (await ok("tenants", "add", "narrow", "--policy", file, env=env)).out.startswith("tf_")
    file.write_text("model_window = 100")
    ran = await cli("tenants", "add", "other", "--policy", file, env=env)
    assert (ran.code, ran.out) == (2, "")
    assert "reserve_tokens" in ran.said


async def test_a_tenant_of_a_newer_release_is_refused_alone_and_its_events_wait(
    settings: Settings,
) -> None:
    async with serving(settings) as client:
        backend = client.backend
        record = Tenant("newer", {"min_messages": 5, "tomorrow": 1})
        await backend.control.write({"tenant/newer": record})
        client.keys["newer"] = await backend.control.add_key("newer")
        client.keys["root"] = await backend.control.add_key("acme", ["admin"])
        key = Key("newer", "c1")
        flat = {"type": "message", "role": "user", "content": "hello"}
        made = make_record(key, flat, where="event", now="2026-01-01T00:00:00Z", new_id="1")
        (at,) = await backend.log.append([made])
        await backend.wait_for(at)
        others = [f"/v1/conversations/c{n}/events?wait=applied" for n in range(8)]
        for path in others:
            taken = await client("POST", path, [say("hi")])
            assert taken.status_code == 200, taken.text
        for method, path, body in (
            ("GET", "/v1/conversations/c1/context", None),
            ("POST", "/v1/conversations/c1/events", [say("hi")]),
            ("POST", "/v1/memories", {"text": "They like tea."}),
        ):
            answer = await client(method, path, body, tenant="newer")
            is_problem(answer, 503, "tenant newer", "'tomorrow' is unknown", "upgrade")
        listed = (await client("GET", "/v1/tenants", tenant="root")).json()["tenants"]
        errors = {one["name"]: one["policy_error"] for one in listed}
        assert (errors["acme"], errors["rival"]) == (None, None)
        assert "'tomorrow' is unknown" in errors["newer"]
        env = {
            "THREADFOLD_KAFKA": settings.kafka,
            "THREADFOLD_REDIS": settings.redis,
            "THREADFOLD_TOPIC_PREFIX": settings.topic_prefix,
        }
        (line,) = [
            line for line in (await ok("tenants", "list", env=env)).lines if line[:5] == "newer"
        ]
        assert "cannot be used here: policy key 'tomorrow' is unknown" in line
        parked = (await ok("dead-letters", "list", "--tenant", "newer", env=env)).out
        assert f"{at}" in parked and "'tomorrow' is unknown" in parked
        found = await cli("doctor", env=env)
        assert "wrong policies: the policy of tenant newer cannot be used here" in found.out
        assert "ok    lag" in found.out


async def test_generations_are_listed_beside_reports_that_cannot_be_read(
    settings: Settings,
) -> None:
    reports = ProcessReports(settings.redis, settings.topic_prefix, KIND)
    for process, value in (("newer", b'[{"build": 1}]'), ("broken", b"\xff"), ("odd", b'{"\xff"')):
        await reports.put(process, value)
    await reports.close()
    async with serving(settings) as client:
        client.keys["root"] = await client.backend.control.add_key("acme", ["admin"])
        listed = await client("GET", "/v1/generations", tenant="root")
        assert listed.status_code == 200, listed.text
        assert [one["task"] for one in listed.json()["generations"]] == [None]


@pytest.mark.long
async def test_windows_of_others_are_compared_beside_a_tenant_of_a_newer_release(
    settings: Settings,
) -> None:
    async with serving(settings) as client:
        control = client.backend.control
        client.keys["root"] = await control.add_key("acme", ["admin"])
        client.keys["future"] = await control.add_key("future")
        for tenant in ("acme", "future"):
            path = "/v1/conversations/c1/events?wait=applied"
            taken = await client("POST", path, [say("hi")], tenant=tenant)
            assert taken.status_code == 200, taken.text
        known = control.state.tenants["future"]
        later = msgspec.structs.replace(known, policy={"tomorrow": 1}, version=known.version + 1)
        await control.write({"tenant/future": later})
        compare, one = "/v1/generations/compare", "/v1/generations/compare/window"
        rules = {"policy": {**POLICY, "keep_recent_tokens": 20}}

        async def asked(path: str, **wanted: object) -> httpx.Response:
            return await client("POST", path, {**rules, **wanted}, tenant="root")

        shown = await asked(one, tenant="acme", conversation="c1")
        assert shown.status_code == 200, shown.text
        sample = await asked(compare)
        assert sample.status_code == 200, sample.text
        assert {one["tenant"] for one in sample.json()["windows"]} == {"acme"}
        for refused in (
            await asked(one, tenant="future", conversation="c1"),
            await asked(compare, tenant="future"),
        ):
            is_problem(refused, 503, "tenant future", "'tomorrow' is unknown")
