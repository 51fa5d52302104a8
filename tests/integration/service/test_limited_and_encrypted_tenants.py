"""Text in progress of tenants with a quota or with encryption is charged and erased, and an event that
looks sealed is refused.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import msgspec
import pytest

from streams.control.control_topic import Control
from streams.encryption.master_keys import new_master
from streams.settings.quotas import NO_QUOTA, Quota
from streams.settings.settings import Settings
from tests.support.grep import redis_keys_with, topics_with
from tests.support.serving import serving
from tests.support.worker import running_worker, until
from threadfold.gateway import create_gateway

SEALED = {"encryption": True}
MASTER = new_master()


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


@pytest.mark.long
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
