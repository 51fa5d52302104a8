"""A rollback into what the log has lost takes nothing from its window."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from projections.errors import Healing, UnknownConversation
from streams.log.topics import create_topics
from streams.settings.settings import Settings
from tests.conftest import fresh_settings
from tests.integration.log.test_truncated_log import but, eaten, environment
from tests.support.commands import cli, ok
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
    places = await appended(backend, name, flats)

    async def summarised() -> bool:
        window = await backend.window("acme", name)
        return window.meta.summary is not None and window.meta.due is None

    await until(summarised)
    return places


async def messages(backend: ConversationService, name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(await backend.context("acme", name))["messages"]
    return found


async def rolled_back(backend: ConversationService, name: str, to: str) -> str:
    (one,) = await backend.append("acme", [(name, {"type": "rollback", "to": to})])
    (done,) = await backend.wait_applied("acme", name, [one])
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


async def test_a_rollback_within_its_window_that_needs_the_text_of_what_is_lost_is_parked(
    settings: Settings,
) -> None:
    opened = {"type": "conversation.opened", "policy": TRIMMING}
    start = [opened, {"type": "message", "role": "user", "content": "go"}]
    async with running_worker(settings), ConversationService(settings) as backend:
        begun = await appended(backend, "trimmed", [*start, *called(0), *called(1)])
        whole = await messages(backend, "trimmed")
        later = [flat for i in range(2, 9) for flat in called(i)]
        await appended(backend, "trimmed", later)
        shown = await messages(backend, "trimmed")
        window = await backend.window("acme", "trimmed")
        target = int(begun[-1].split("-")[1])
        assert window.tail[0].offset <= target and whole[1:] != shown[1 : len(whole)]
        await eaten(settings, {NUMBER: target + 1})
        await rolled_back(backend, "trimmed", begun[-1])
        window = await backend.window("acme", "trimmed")
        assert window.meta.quarantine is not None
        assert "is gone" in window.meta.quarantine.cause
        assert await messages(backend, "trimmed") == shown
    accepting = but(settings, accept_truncated_log=True)
    async with running_worker(accepting), ConversationService(accepting) as backend:
        env = {**environment(settings), "THREADFOLD_ACCEPT_TRUNCATED_LOG": "true"}
        retried = await cli("dead-letters", "retry", "acme/trimmed", env=env)
        assert retried.code == 0 and "continues" in retried.out, retried.out + retried.err
        line, *_ = await messages(backend, "trimmed")
        assert line["content"] == f"[6 earlier messages left out: {begun[2]} to {begun[-1]}]"


@pytest.mark.long
async def test_a_switch_and_the_way_back_name_the_lost_beginning_and_no_rule(
    settings: Settings, tmp_path: Path
) -> None:
    async with running_worker(settings), ConversationService(settings) as backend:
        places = await said(backend, "short", 12)
        begin = int(places[3].split("-")[1])
        await eaten(settings, {NUMBER: begin})
        await rolled_back(backend, "short", places[5])
        # More events wait behind the parked one than the log has lost.
        await backend.append("acme", [("short", flat) for flat in called(0) + called(1)])
        await until(lambda: waiting(backend, "short", 6))
    accepting = but(settings, accept_truncated_log=True)
    env = {**environment(settings), "THREADFOLD_ACCEPT_TRUNCATED_LOG": "true"}
    (tmp_path / "again.json").write_text(json.dumps({**POLICY, "min_messages": 5}))
    switch = ("rebuild", "--policy", tmp_path / "again.json", "--switch", "--json")
    refused = await cli(*switch, env=env)
    behind = f"the log has lost its events before offset {begin}"
    assert refused.code == 1 and f"(acme/short: {behind})" in refused.err
    switched = json.loads((await ok(*switch, "--accept-loss", env=env)).out)
    assert switched["losses"] == [{"conversation": "acme/short", "because": behind}]
    async with running_worker(accepting), ConversationService(accepting) as backend:
        await until(lambda: waiting(backend, "short", 0))
        back = await cli("generations", "switch", "1", env=env)
    assert back.code == 1 and "rules" not in back.err
    assert f"acme/short: it would be parked at {NUMBER}-" in back.err
    assert f"the log begins at offset {begin}: a rollback" in back.err


@pytest.mark.long
async def test_a_switch_to_what_is_left_shows_again_what_a_rollback_to_a_lost_event_abandoned(
    settings: Settings, tmp_path: Path
) -> None:
    async with running_worker(settings), ConversationService(settings) as backend:
        await appended(backend, "gone", spoken("never", 2))
        first = await appended(backend, "back", spoken("begun", 2))
        await appended(backend, "back", spoken("regretted", 2))
        assert await rolled_back(backend, "back", first[1]) == "applied"
        await appended(backend, "back", spoken("after", 1))
        assert "regretted" not in str(await messages(backend, "back"))
        begin = int(first[1].split("-")[1]) + 1
        await eaten(settings, {NUMBER: begin})
    accepting = but(settings, accept_truncated_log=True)
    env = {**environment(settings), "THREADFOLD_ACCEPT_TRUNCATED_LOG": "true"}
    (tmp_path / "again.json").write_text(json.dumps({**POLICY, "min_messages": 5}))
    switch = ("rebuild", "--policy", tmp_path / "again.json", "--switch", "--accept-loss", "--json")
    switched = json.loads((await ok(*switch, env=env)).out)
    behind = f"the log has lost its events before offset {begin}"
    assert switched["losses"] == [
        {"conversation": f"acme/{name}", "because": behind} for name in ("back", "gone")
    ]
    async with running_worker(accepting), ConversationService(accepting) as backend:
        await until(lambda: waiting(backend, "back", 0))
        shown = [one["content"] for one in await messages(backend, "back")]
        assert shown == ["regretted 0", "regretted 1", "after 0"]
        with pytest.raises(UnknownConversation):
            await backend.window("acme", "gone")


def spoken(word: str, count: int) -> list[dict[str, Any]]:
    return [
        {"type": "message", "role": ("user", "assistant")[i % 2], "content": f"{word} {i}"}
        for i in range(count)
    ]


async def waiting(backend: ConversationService, name: str, count: int) -> bool:
    """Whether so many events wait behind a parked one; 0: it is not parked."""
    try:
        quarantine = (await backend.window("acme", name)).meta.quarantine
    except Healing:
        return False
    return (quarantine.count if quarantine else 0) == count


TRIMMING = {
    "working_budget": 300,
    "keep_recent_tokens": 100,
    "min_messages": 200,
    "soft_trim_chars": 60,
    "hard_clear_chars": 100_000,
    "protect_recent": 1,
    "compaction": False,
}


def called(i: int) -> list[dict[str, Any]]:
    """A tool's call, its long result, and the answer after it."""
    call = {"id": f"k{i}", "name": "f", "arguments": "{}"}
    return [
        {"type": "message", "role": "assistant", "content": None, "tool_calls": [call]},
        {"type": "tool.result", "tool_call_id": f"k{i}", "content": f"R{i} " + "word " * 60},
        {"type": "message", "role": "assistant", "content": f"answer {i}"},
    ]


async def appended(
    backend: ConversationService, name: str, flats: list[dict[str, Any]]
) -> list[str]:
    """The positions of these events, once the window has them."""
    done = await backend.append("acme", [(name, flat) for flat in flats])
    await backend.wait_applied("acme", name, done)
    return [str(one.position) for one in done]
