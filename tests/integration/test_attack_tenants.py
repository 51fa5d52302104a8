"""What an attack on tenants, quotas and erasure found: each of these was otherwise once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import msgspec
import pytest

from projections.errors import TenantExists
from streams.control.follower import Control, State
from streams.encryption.master_keys import new_master
from streams.settings.quotas import NO_QUOTA, Quota, Tenant, read_quota
from streams.settings.settings import Settings
from tests.support.grep import raw_records, redis_keys_with, topics_with
from tests.support.serving import serving
from tests.support.worker import running_worker, until
from threadfold.gateway import create_gateway

SEALED = {"encryption": True}
MASTER = new_master()


async def _both(settings: Settings) -> tuple[Control, Control]:
    one, two = await asyncio.gather(Control(settings).start(), Control(settings).start())
    await one.ensure_generation(settings.partitions)
    return one, two


async def _told_anew(settings: Settings, name: str) -> tuple[Tenant, Tenant]:
    """A tenant's record as a process reads it that starts now, and as one does that finds each
    key's last record only (compaction).
    """
    control = await Control(settings).start()
    try:
        whole = control.state.tenants[name]
        last = State()
        for key, value in dict(await raw_records(settings, "control")).items():
            last.put(key, value)
        return whole, last.tenants[name]
    finally:
        await control.stop()


async def test_a_tenant_made_in_two_places_at_once_keeps_the_policy_of_whoever_was_told_that_it_was_made(
    settings: Settings,
) -> None:
    one, two = await _both(settings)
    made = 0
    try:
        for i in range(12):
            name = f"made-twice-{i}"
            first, second = await asyncio.gather(
                one.new_tenant(name, SEALED, NO_QUOTA),
                two.new_tenant(name, {}, NO_QUOTA),
                return_exceptions=True,
            )
            assert sorted(isinstance(each, TenantExists) for each in (first, second)) == [
                False,
                True,
            ]
            expected = {} if isinstance(first, TenantExists) else SEALED
            made += expected == SEALED
            assert [(await each.sync()).tenants[name].policy for each in (one, two)] == [
                expected,
                expected,
            ]
            assert [each.policy for each in await _told_anew(settings, name)] == [
                expected,
                expected,
            ]
    finally:
        await one.stop()
        await two.stop()


async def test_a_first_event_does_not_take_encryption_from_a_tenant_that_is_made_at_that_moment(
    settings: Settings,
) -> None:
    one, two = await _both(settings)
    try:
        for i in range(12):
            name = f"made-while-speaking-{i}"
            made, spoken = await asyncio.gather(
                one.new_tenant(name, SEALED, NO_QUOTA),
                two.ensure_tenant(name),
                return_exceptions=True,
            )
            assert isinstance(spoken, Tenant)
            expected = {} if isinstance(made, TenantExists) else SEALED
            assert spoken.policy == expected
            assert [each.policy for each in await _told_anew(settings, name)] == [
                expected,
                expected,
            ]
    finally:
        await one.stop()
        await two.stop()


@pytest.mark.parametrize("apart", [True, False], ids=["in two gateways", "in one gateway"])
async def test_changes_of_a_tenant_at_the_same_moment_are_all_kept(
    settings: Settings, apart: bool
) -> None:
    one, two = await _both(settings)
    other = two if apart else one
    name = f"changed-{apart}"
    try:
        await one.new_tenant(name, {}, NO_QUOTA)
        for i in range(1, 6):
            await asyncio.gather(
                one.change_tenant(
                    name, None, lambda old, i=i: read_quota({"requests_per_second": i}, old)
                ),  # type: ignore[misc]
                other.change_tenant(name, {"min_messages": 30 + i}, None),
                other.change_tenant(name, None, lambda old, i=i: read_quota({"streams": i}, old)),  # type: ignore[misc]
            )
            for told in await _told_anew(settings, name):
                assert told.next_policy == {"min_messages": 30 + i}
                assert told.quota == Quota(requests_per_second=float(i), streams=i)
    finally:
        await one.stop()
        await two.stop()


def _with_master(settings: Settings, **changes: Any) -> Settings:
    return msgspec.structs.replace(settings, master_keys=MASTER, **changes)


@asynccontextmanager
async def _gateway(
    settings: Settings, tenant: str, policy: dict[str, Any], quota: Quota = NO_QUOTA
) -> AsyncIterator[httpx.AsyncClient]:
    """A gateway with a worker, and a client with a key of a new tenant that may do everything."""
    control = await Control(settings).start()
    await control.ensure_generation(settings.partitions)
    await control.new_tenant(tenant, policy, quota)
    key = await control.add_key(tenant, ["append", "read", "erase"])
    await control.stop()
    async with (
        running_worker(settings),
        serving(create_gateway(settings)) as url,
        httpx.AsyncClient(base_url=url, timeout=30) as client,
    ):

        async def ready() -> bool:
            return (await client.get("/readyz")).status_code == 200

        await until(ready)
        client.headers["Authorization"] = f"Bearer {key}"
        client.base_url = httpx.URL(f"{url}/v1")
        yield client


async def test_texts_in_progress_that_are_kept_as_messages_are_charged_to_the_quotas(
    settings: Settings,
) -> None:
    async with _gateway(
        _with_master(settings),
        "speaks-in-pieces",
        {},
        Quota(events_per_second=1.0, tokens_per_minute=60.0),
    ) as client:
        answers = [
            await client.post(
                "/conversations/c/partial",
                json={"turn_id": f"turn-{i}", "delta": "words upon words " * 2_000},
            )
            for i in range(20)
        ]
        refused = [answer for answer in answers if answer.status_code == 429]
        assert refused, "each turn keeps the one before it as a message"
        assert int(refused[0].headers["Retry-After"]) >= 1
        assert (
            "tokens_per_minute" in refused[0].json()["detail"]
            or "events_per_second" in refused[0].json()["detail"]
        )
        assert len(refused) >= 15


async def test_erasing_a_conversation_of_which_there_is_only_text_in_progress_deletes_that_text(
    settings: Settings,
) -> None:
    sealed = _with_master(settings, partial_timeout=0.3)
    async with _gateway(sealed, "only-began", SEALED) as client:
        said = await client.post(
            "/conversations/c/partial", json={"turn_id": "turn", "delta": "a-word-too-many"}
        )
        assert said.status_code == 202
        assert (await client.delete("/conversations/c")).status_code == 404
        assert await redis_keys_with(sealed, b"a-word-too-many") == []
        # Another text, which is kept when nothing more comes: by then the first one would have
        # been, too.
        await client.post(
            "/conversations/d/partial", json={"turn_id": "turn", "delta": "a-word-that-stays"}
        )

        async def kept() -> bool:
            return (await client.get("/conversations/d/context")).status_code == 200

        await until(kept)
        assert (await client.get("/conversations/c/context")).status_code == 404


async def test_an_event_that_looks_sealed_is_refused_so_that_nothing_readable_stays_in_an_encrypted_log(
    settings: Settings,
) -> None:
    sealed = _with_master(settings)
    looks = {"type": "acme.note.v1", "kid": "A" * 16, "nonce": "n", "ciphertext": "as-plain-as-day"}
    async with _gateway(sealed, "looks-sealed", SEALED) as client:
        refused = await client.post("/conversations/c/events", json=looks)
        assert refused.status_code == 422
        assert "event 1: fields kid, nonce, ciphertext" in refused.json()["detail"]
        taken = await client.post(
            "/conversations/c/events?wait=applied",
            json=[{**looks, "more": 1}, {**looks, "nonce": 5, "x": None}],
        )
        assert taken.status_code == 200
        history = (await client.get("/conversations/c/history")).json()["events"]
        assert [event["ciphertext"] for event in history] == ["as-plain-as-day"] * 2
        assert await topics_with(sealed, b"as-plain-as-day") == set()
        assert (await client.delete("/conversations/c")).json()["log"] == "opaque"
