"""Encrypted conversations with a secret in everything they hold."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import redis.asyncio as aredis

from streams.encryption.master_keys import new_master
from streams.settings.settings import Settings
from streams.worker_parts import Runtime
from tests.support.worker import running_worker, until
from threadfold.service.conversations import ConversationService

SMALL = {
    "model_window": 6000,
    "reserve_tokens": 500,
    "working_budget": 500,
    "keep_recent_tokens": 150,
    "min_messages": 4,
    "summary_max_tokens": 200,
    "spill_chars": 3000,
    "soft_trim_chars": 200,
    "hard_clear_chars": 2000,
}


SECRET = "marmalade-in-the-attic"


PARTIAL = "behind-the-clock"


MASTER = new_master("first")


async def no_text(*_: object) -> None:
    """Nothing was in progress."""


@asynccontextmanager
async def stack(settings: Settings) -> AsyncIterator[tuple[Runtime, ConversationService]]:
    """A worker and a backend beside it, its partitions readable."""
    async with running_worker(settings) as runtime, ConversationService(settings) as backend:
        await until(lambda: healed(runtime, settings))
        yield runtime, backend


async def healed(runtime: Runtime, settings: Settings) -> bool:
    projector = runtime.projector
    assert projector is not None
    return len(projector.partitions) == settings.partitions and not any(
        p.checkpoint.healing for p in projector.partitions.values()
    )


def talk(n: int, secret: str = SECRET) -> list[dict[str, Any]]:
    """A conversation with the secret in everything it can be in, and enough of it for a summary."""
    flats: list[dict[str, Any]] = [
        {"type": "conversation.opened", "user": "ann", "metadata": {"note": secret}},
        {"type": "message", "role": "system", "content": f"You keep {secret} to yourself."},
    ]
    for i in range(n):
        call = {"id": f"c{i}", "name": "look", "arguments": json.dumps({"where": secret, "i": i})}
        flats += [
            {
                "type": "message",
                "role": "user",
                "content": f"{i}. Where is the {secret}? " + "Tell me of it again. " * 4,
            },
            {
                "type": "message",
                "role": "assistant",
                "content": f"Looking for {secret}",
                "tool_calls": [call],
            },
            {
                "type": "tool.result",
                "tool_call_id": f"c{i}",
                "content": f"The {secret} is there. " * 3,
                "pinned": i == 0,
            },
            {
                "type": "message",
                "role": "assistant",
                "content": f"The {secret} number {i} is where it was. " * 2,
            },
        ]
    spilled = f"{secret} line\n" * 400
    call = {"id": "big", "name": "look", "arguments": "{}"}
    flats += [
        {"type": "message", "role": "assistant", "content": None, "tool_calls": [call]},
        {"type": "tool.result", "tool_call_id": "big", "content": spilled},
        {
            "type": "suspension",
            "suspension_id": "s",
            "kind": "approval",
            "prompt": f"May I tell of {secret}?",
        },
    ]
    return flats


async def say(
    backend: ConversationService, tenant: str, conversation: str, flats: list[dict[str, Any]]
) -> str:
    """Append in turns, so that summaries can come between; returns the last position."""
    position = ""
    for i in range(0, len(flats), 8):
        appended = await backend.append(tenant, [(conversation, flat) for flat in flats[i : i + 8]])
        position = str(appended[-1].position)
        await backend.wait_applied(tenant, conversation, appended)
    return position


async def summarised(backend: ConversationService, tenant: str, conversation: str) -> Any:
    async def there() -> Any:
        return (await backend.window(tenant, conversation)).meta.summary

    return await until(there)


async def flush(settings: Settings) -> None:
    client = aredis.Redis.from_url(settings.redis)
    await client.flushdb()
    await client.aclose()


def renders_body(position: str) -> dict[str, Any]:
    return {
        "model": SECRET,
        "render_digest": "0" * 64,
        "position": position,
        "format": "openai",
        "tokens": 3,
    }
