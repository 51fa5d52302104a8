"""The OpenAI and Anthropic SDKs, their real clients against a scripted server, with a real gateway
on the other side.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

import pytest
from aiohttp import web

from projections.events.validation import make_record
from projections.names import make_key
from streams.settings.settings import Settings
from tests.support.platform import Platform, running_platform
from tests.support.worker import until
from threadfold_client import AsyncClient
from threadfold_client.adapters import anthropic as anthropic_adapter
from threadfold_client.adapters import openai as openai_adapter

USAGE = {"prompt_tokens": 21, "completion_tokens": 7, "total_tokens": 28}


@pytest.fixture(scope="module", autouse=True)
def sdks() -> None:
    """Import them here: that takes seconds, and every process of a run collects this file."""
    global AsyncAnthropic, AsyncOpenAI, ChatCompletion, Message
    pytest.importorskip("openai", reason="openai is not installed (the extra openai)")
    pytest.importorskip("anthropic", reason="anthropic is not installed (the extra anthropic)")
    from anthropic import AsyncAnthropic
    from anthropic.types import Message
    from openai import AsyncOpenAI
    from openai.types.chat import ChatCompletion


@pytest.fixture(scope="module")
async def platform(settings: Settings) -> AsyncIterator[Platform]:
    async with running_platform(settings) as running:
        yield running


@pytest.fixture
async def client(platform: Platform) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(platform.url, platform.key) as made:
        yield made


@asynccontextmanager
async def model(
    path: str, events: list[tuple[str | None, Any]], *, breaks: bool = False
) -> AsyncIterator[tuple[str, list[Any]]]:
    """A model's endpoint that streams these events and keeps what it was asked."""
    asked: list[Any] = []

    async def handle(request: web.Request) -> web.StreamResponse:
        asked.append(json.loads(await request.text()))
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for name, data in events:
            line = f"event: {name}\n" if name else ""
            await response.write(
                f"{line}data: {data if isinstance(data, str) else json.dumps(data)}\n\n".encode()
            )
            await asyncio.sleep(0.005)
        if breaks:
            assert request.transport is not None
            # Not abort(): a reset may discard bytes that the client has not read yet.
            request.transport.close()
        return response

    app = web.Application()
    app.router.add_post(path, handle)
    runner = web.AppRunner(app, shutdown_timeout=0.2)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}", asked
    await runner.cleanup()


def chunk(delta: dict[str, Any] | None, **more: Any) -> dict[str, Any]:
    choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": None}]
    return {
        "id": "c1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "small-2026",
        "choices": choices,
        **more,
    }


def call_part(index: int, id_: str | None, name: str | None, arguments: str) -> dict[str, Any]:
    return {
        "tool_calls": [
            {
                "index": index,
                "id": id_,
                "type": "function",
                "function": {"name": name, "arguments": arguments},
            }
        ]
    }


OPENAI = [
    chunk({"role": "assistant", "content": ""}),
    chunk({"content": "Grü"}),
    chunk({"content": "ße."}),
    chunk(call_part(0, "c1", "look", "")),
    chunk(call_part(0, None, None, '{"q":')),
    chunk(call_part(1, "c2", "look", "{}")),
    chunk(call_part(0, None, None, ' "x"}')),
    chunk(None, usage=USAGE),
]
ANTHROPIC: list[tuple[str, Any]] = [
    (
        "message_start",
        {
            "message": {
                "id": "msg_1",
                "type": "message",
                "role": "assistant",
                "model": "claude-x",
                "content": [],
                "stop_reason": None,
                "stop_sequence": None,
                "usage": {"input_tokens": 30, "output_tokens": 1, "cache_read_input_tokens": 12},
            }
        },
    ),
    (
        "content_block_start",
        {"index": 0, "content_block": {"type": "thinking", "thinking": "", "signature": ""}},
    ),
    (
        "content_block_delta",
        {"index": 0, "delta": {"type": "thinking_delta", "thinking": "Let me see."}},
    ),
    (
        "content_block_delta",
        {"index": 0, "delta": {"type": "signature_delta", "signature": "c2ln"}},
    ),
    ("content_block_stop", {"index": 0}),
    ("content_block_start", {"index": 1, "content_block": {"type": "text", "text": ""}}),
    ("content_block_delta", {"index": 1, "delta": {"type": "text_delta", "text": "I look"}}),
    ("content_block_delta", {"index": 1, "delta": {"type": "text_delta", "text": " it up."}}),
    ("content_block_stop", {"index": 1}),
    (
        "content_block_start",
        {
            "index": 2,
            "content_block": {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {}},
        },
    ),
    (
        "content_block_delta",
        {"index": 2, "delta": {"type": "input_json_delta", "partial_json": '{"q": "x"}'}},
    ),
    ("content_block_stop", {"index": 2}),
    (
        "message_delta",
        {
            "delta": {"stop_reason": "tool_use", "stop_sequence": None},
            "usage": {"output_tokens": 9},
        },
    ),
    ("message_stop", {}),
]


async def ask(client: AsyncClient, name: str) -> str:
    flats = [
        {"type": "message", "role": "system", "content": "You help."},
        {"type": "message", "role": "user", "content": "hi"},
    ]
    position = (await client.append(name, flats)).position
    assert position is not None
    return position


async def test_an_openai_answer_is_streamed_appended_and_recorded(client: AsyncClient) -> None:
    name = f"o-{uuid4().hex[:12]}"
    after = await ask(client, name)
    events: list[tuple[str | None, Any]] = [*((None, c) for c in OPENAI), (None, "[DONE]")]
    async with (
        model("/v1/chat/completions", events) as (url, asked),
        AsyncOpenAI(api_key="k", base_url=f"{url}/v1") as openai,
    ):
        answer = await openai_adapter.respond(
            client, name, openai, model="small", after=after, temperature=0
        )
    assert [m["role"] for m in asked[0]["messages"]] == ["system", "user"]
    assert (asked[0]["stream"], asked[0]["temperature"]) == (True, 0)
    assert answer.text == "Grüße."
    assert answer.tool_calls == [
        {"id": "c1", "name": "look", "arguments": '{"q": "x"}'},
        {"id": "c2", "name": "look", "arguments": "{}"},
    ]
    assert (answer.event["model"], answer.event["usage"]) == ("small-2026", USAGE)
    assert answer.render_id
    stored = await client.event(name, answer.appended.position or "")
    assert stored["content"] == "Grüße."
    assert stored["usage"] == USAGE


async def test_an_anthropic_answer_is_streamed_appended_and_recorded(client: AsyncClient) -> None:
    name = f"a-{uuid4().hex[:12]}"
    after = await ask(client, name)
    events: list[tuple[str | None, Any]] = [
        (kind, {"type": kind, **data}) for kind, data in ANTHROPIC
    ]
    async with (
        model("/v1/messages", events) as (url, asked),
        AsyncAnthropic(api_key="k", base_url=url) as anthropic,
    ):
        answer = await anthropic_adapter.respond(
            client, name, anthropic, model="claude-x", answer_tokens=100, after=after
        )
    assert (asked[0]["system"], asked[0]["max_tokens"]) == ("You help.", 100)
    assert [m["role"] for m in asked[0]["messages"]] == ["user"]
    assert answer.text == "I look it up."
    assert answer.tool_calls == [{"id": "toolu_1", "name": "look", "arguments": '{"q":"x"}'}]
    assert answer.event["usage"] == {"input_tokens": 42, "output_tokens": 9}
    assert answer.render_id
    result = {"type": "tool.result", "tool_call_id": "toolu_1", "content": "found"}
    context = await client.context(
        name, format="anthropic", after=(await client.append(name, result)).position
    )
    assert context.messages[1]["content"][0] == {
        "type": "thinking",
        "thinking": "Let me see.",
        "signature": "c2ln",
    }


async def test_an_answer_that_breaks_off_is_kept_as_interrupted(client: AsyncClient) -> None:
    name = f"b-{uuid4().hex[:12]}"
    after = await ask(client, name)
    events: list[tuple[str | None, Any]] = [(None, c) for c in OPENAI[:3]]
    async with (
        model("/v1/chat/completions", events, breaks=True) as (url, _),
        AsyncOpenAI(api_key="k", base_url=f"{url}/v1", max_retries=0) as openai,
    ):
        with pytest.raises(Exception, match=r"(?i)connection|closed|peer|read"):
            await openai_adapter.respond(client, name, openai, model="small", after=after)

    async def answer() -> dict[str, Any] | None:
        """A page of the history ends where the window ends, which may be a moment behind."""
        newest = (await client.history(name, limit=1)).events[0]
        return newest if newest["role"] == "assistant" else None

    newest = await until(answer, what="the assistant's message in the history")
    assert (newest["content"], newest["status"]) == ("Grüße.", "interrupted")


def test_a_whole_completion_is_the_event_its_stream_gives() -> None:
    calls = [
        {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"q": "x"}'}}
    ]
    message = {"role": "assistant", "content": None, "tool_calls": calls}
    completion = ChatCompletion.model_validate(
        {
            "id": "x",
            "object": "chat.completion",
            "created": 1,
            "model": "small",
            "choices": [{"index": 0, "finish_reason": "tool_calls", "message": message}],
            "usage": USAGE,
        }
    )
    event = openai_adapter.event_of(completion)
    assert event["content"] is None
    make_record(make_key("t", "c"), event, where="event", now="2026-01-01T00:00:00Z", new_id="x")


def test_blocks_of_hosted_tools_are_left_out_of_an_anthropic_message() -> None:
    content = [
        {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}},
        {"type": "text", "text": "Found."},
    ]
    usage = {"input_tokens": 1, "output_tokens": 2}
    base = {
        "id": "msg_2",
        "type": "message",
        "role": "assistant",
        "model": "claude-x",
        "stop_reason": "end_turn",
        "usage": usage,
    }
    event = anthropic_adapter.event_of(Message.model_validate({**base, "content": content}))
    assert (event["content"], event["id"]) == ("Found.", "msg_2")


async def test_a_context_of_the_wrong_format_is_refused(client: AsyncClient) -> None:
    name = f"w-{uuid4().hex[:12]}"
    context = await client.context(name, after=await ask(client, name))
    assert openai_adapter.request_of(context)["messages"][1]["content"] == "hi"
    with pytest.raises(ValueError, match="anthropic"):
        anthropic_adapter.request_of(context)
