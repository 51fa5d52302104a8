"""The examples as a reader runs them, in processes of their own against a real gateway."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from aiohttp import web

from streams.settings.settings import Settings
from tests.support.node import node
from tests.support.platform import SUMMARIZING, Platform, running_platform
from tests.support.worker import until
from threadfold_client import AsyncClient

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
async def platform(settings: Settings) -> AsyncIterator[Platform]:
    async with running_platform(settings, SUMMARIZING) as running:
        yield running


def command(kind: str) -> list[str]:
    if kind == "node":
        return [node(), str(ROOT / "examples" / "subscriber.mjs")]
    return [sys.executable, str(ROOT / "examples" / "subscriber.py")]


async def run(command: list[str], platform: Platform, **more: str) -> asyncio.subprocess.Process:
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "clients" / "python"))),
        "THREADFOLD_URL": platform.url,
        "THREADFOLD_KEY": platform.key,
        **more,
    }
    pipe = asyncio.subprocess.PIPE
    return await asyncio.create_subprocess_exec(
        *command, stdout=pipe, stderr=pipe, env=env, limit=1 << 24
    )


async def heard(process: asyncio.subprocess.Process, count: int, name: str) -> list[dict[str, Any]]:
    """The next so many lines of the process about a conversation."""
    found: list[dict[str, Any]] = []
    assert process.stdout is not None
    async with asyncio.timeout(30):
        while len(found) < count:
            line = await process.stdout.readline()
            assert line, await process.stderr.read() if process.stderr else ""
            if name in line.decode():
                found.append(json.loads(line))
    return found


async def talk(client: AsyncClient, name: str, part: int) -> None:
    text = (
        f"In part {part} the harvest of the northern field was good, and the barns were full before"
        " the rain. "
    )
    flats = [{"type": "message", "role": "user", "content": f"{i}: {text * 3}"} for i in range(12)]
    await client.append(name, flats, wait="applied")


@pytest.mark.parametrize("kind", ["python", "node"])
async def test_a_subscriber_prints_summaries_and_goes_on_where_it_was(
    platform: Platform, kind: str, tmp_path: Path
) -> None:
    name = f"ex-{uuid4().hex[:12]}"
    line = [*command(kind), str(tmp_path / "cursor")]
    async with AsyncClient(platform.url, platform.key) as client:
        await talk(client, name, 0)
        process = await run(line, platform)
        (first,) = await heard(process, 1, name)
        assert (first["event"], bool(first["text"])) == ("summary", True)
        process.send_signal(signal.SIGINT)
        await process.communicate()
        process = await run(line, platform)
        await talk(client, name, 1)
        (second,) = await heard(process, 1, name)
        assert second["summary_id"] != first["summary_id"]
        process.send_signal(signal.SIGINT)
        await process.communicate()
        assert process.returncode == 0


@pytest.mark.parametrize("kind", ["python", "node"])
async def test_a_subscriber_with_a_wrong_key_says_so_and_ends(
    platform: Platform, kind: str
) -> None:
    process = await run(command(kind), platform, THREADFOLD_KEY="wrong")
    async with asyncio.timeout(30):
        _, errors = await process.communicate()
    assert process.returncode == 1
    assert b"key" in errors
    assert b"Traceback" not in errors


async def test_the_agent_answers_within_a_turn(platform: Platform) -> None:
    pytest.importorskip("openai", reason="openai is not installed (the extra openai)")
    asked: list[Any] = []

    async def handle(request: web.Request) -> web.StreamResponse:
        asked.append(json.loads(await request.text()))
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        base = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "small"}
        for text in ("We agreed ", "on Tuesday."):
            chunk = {
                **base,
                "choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None}],
            }
            await response.write(f"data: {json.dumps(chunk)}\n\n".encode())
        await response.write(b"data: [DONE]\n\n")
        return response

    app = web.Application()
    app.router.add_post("/v1/chat/completions", handle)
    runner = web.AppRunner(app, shutdown_timeout=0.2)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    name = f"ex-{uuid4().hex[:12]}"
    try:
        url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
        program = [
            sys.executable,
            str(ROOT / "examples" / "agent.py"),
            name,
            "What did we agree on?",
        ]
        process = await run(
            program, platform, OPENAI_API_KEY="k", OPENAI_BASE_URL=url, MODEL="small"
        )
        async with asyncio.timeout(60):
            out, errors = await process.communicate()
    finally:
        await runner.cleanup()
    assert (process.returncode, out.decode().strip()) == (
        0,
        "We agreed on Tuesday.",
    ), errors.decode()
    assert asked[0]["messages"] == [{"role": "user", "content": "What did we agree on?"}]
    async with AsyncClient(platform.url, platform.key) as client:

        async def whole() -> list[str]:
            # What was acknowledged a moment ago may not be in the history yet.
            kinds = [event["type"] async for event in client.iter_history(name)]
            return kinds if len(kinds) >= 4 else []

        assert await until(whole) == ["turn.ended", "message", "message", "turn.started"]


@pytest.mark.long
async def test_a_page_follows_its_users_conversation_and_renews_its_token(
    platform: Platform, tmp_path: Path
) -> None:
    name = f"ex-{uuid4().hex[:12]}"
    page = tmp_path / "page.mjs"
    page.write_text(
        f"""import {{ follow }} from "{(ROOT / "examples" / "browser.mjs").as_uri()}";
        const {{ THREADFOLD_URL: url, THREADFOLD_KEY: key }} = process.env;
        let tokens = 0;
        async function token() {{ // what the page's own server does, with the tenant's key
          const body = JSON.stringify({{ user: "ann", verbs: ["read", "stream", "append"], expires_in: 2 }});
          const headers = {{ Authorization: `Bearer ${{key}}`, "Content-Type": "application/json" }};
          const answer = await fetch(`${{url}}/v1/tokens`, {{ method: "POST", headers, body }});
          tokens += 1;
          return (await answer.json()).token;
        }}
        const show = (kind, data) => console.log(JSON.stringify({{ kind, name: "{name}", ...data, renewed: tokens }}));
        setInterval(() => {{}}, 1000); // a page stays open
        const chat = follow({{ url, conversation: "{name}", token, show }});
        await chat.say("Where is my order?");
        """
    )
    async with AsyncClient(platform.url, platform.key) as client:
        await client.append(name, {"type": "conversation.opened", "user": "ann"}, wait="applied")
        process = await run([node(), "--experimental-eventsource", str(page)], platform)
        await heard_of(process, lambda line: line.get("content") == "Where is my order?")
        await client.append(name, {"type": "message", "role": "assistant", "content": "Here."})
        before = await heard_of(process, lambda line: line.get("content") == "Here.")
        # The token expires, and the stream with it; another stream begins with the state.
        await heard_of(process, lambda line: line["renewed"] > before["renewed"])
        await client.append(name, {"type": "message", "role": "assistant", "content": "And there."})
        await heard_of(process, lambda line: line.get("content") == "And there.")
        process.send_signal(signal.SIGINT)
        _, errors = await process.communicate()
        assert b"Error" not in errors


async def heard_of(
    process: asyncio.subprocess.Process, wanted: Callable[[dict[str, Any]], bool]
) -> dict[str, Any]:
    """The first line of the process that is wanted."""
    async with asyncio.timeout(30):
        while True:
            (line,) = await heard(process, 1, "")
            if wanted(line):
                return line
