"""A rollback into what the log has lost takes nothing from its window."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from streams.log.topics import create_topics
from streams.settings.settings import Settings
from tests.conftest import fresh_settings
from tests.integration.log.test_truncated_log import but, eaten, environment
from tests.support.commands import cli
from tests.support.generations import open_generation
from tests.support.pipeline import POLICY
from tests.support.worker import running_worker, until
from threadfold.embedded.stack import EmbeddedStack
from threadfold.service.conversations import ConversationService

NUMBER = 0


@pytest.fixture
async def settings(stack: EmbeddedStack) -> AsyncIterator[Settings]:
    made = fresh_settings(stack, snapshot_events=0, partitions=1, max_poison_share=1.0)
    await create_topics(made)
    await open_generation(made, POLICY, acme=None)
    yield made


async def said(backend: ConversationService, name: str, count: int) -> list[str]:
    """A talk with a system message; the positions of its events, once a summary has taken its
    beginning.
    """
    flats = [{"type": "message", "role": "system", "content": "Never give refunds."}] + [
        {"type": "message", "role": ("user", "assistant")[i % 2], "content": f"Parcel {i} is at sea. " * 8}
        for i in range(count)
    ]  # fmt: skip
    appended = await backend.append("acme", [(name, flat) for flat in flats])
    await backend.wait_applied("acme", name, appended)

    async def summarised() -> bool:
        window = await backend.window("acme", name)
        return window.meta.summary is not None and window.meta.due is None

    await until(summarised)
    return [str(one.position) for one in appended]


async def messages(backend: ConversationService, name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(await backend.context("acme", name))["messages"]
    return found


async def rolled_back(backend: ConversationService, name: str, to: str) -> str:
    (appended,) = await backend.append("acme", [(name, {"type": "rollback", "to": to})])
    (done,) = await backend.wait_applied("acme", name, [appended])
    return done.status


async def test_a_rollback_that_needs_what_the_log_has_lost_is_parked_and_its_window_stays(
    settings: Settings,
) -> None:
    async with running_worker(settings), ConversationService(settings) as backend:
        places = await said(backend, "short", 12)
        later = await said(backend, "later", 12)
        before = await messages(backend, "short")
        await eaten(settings, {NUMBER: int(places[3].split("-")[1])})
        await rolled_back(backend, "short", places[5])
        window = await backend.window("acme", "short")
        assert window.meta.quarantine is not None
        assert (
            "begins at offset 3: a rollback of conversation short" in window.meta.quarantine.cause
        )
        assert await messages(backend, "short") == before
        # A conversation of which nothing is gone goes back as ever.
        assert await rolled_back(backend, "later", later[5]) == "applied"
        assert "Never give refunds." in str(await messages(backend, "later"))
    accepting = but(settings, accept_truncated_log=True)
    async with running_worker(accepting), ConversationService(accepting) as backend:
        env = {**environment(settings), "THREADFOLD_ACCEPT_TRUNCATED_LOG": "true"}
        retried = await cli("dead-letters", "retry", "acme/short", env=env)
        assert retried.code == 0 and "continues" in retried.out, retried.out + retried.err
        window = await backend.window("acme", "short")
        assert window.meta.quarantine is None
        assert "Parcel 4" in str(await messages(backend, "short"))
