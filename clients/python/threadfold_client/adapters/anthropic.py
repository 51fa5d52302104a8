"""The Anthropic SDK: its messages as events, a context as its arguments, and an answer streamed to
readers as it comes.

from threadfold_client.adapters.anthropic import respond

answer = await respond(client, "conversation-1", AsyncAnthropic(), model="claude-sonnet-5",
answer_tokens=2000)
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import msgspec

from threadfold_client.adapters.answers import Answer, record_answer
from threadfold_client.adapters.extras import needs_asynchronous, require

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic
    from anthropic.types import Message

    from threadfold_client import AsyncClient, Context

_PROVIDER = "anthropic"
_SENT = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")


def request_of(context: Context) -> dict[str, Any]:
    """The arguments of ``messages.create`` that a context gives; raises ValueError if it is in
    another format.
    """
    if context.format != "anthropic":
        raise ValueError(
            f"the context is in the format {context.format!r}: ask for format='anthropic'"
        )
    return {"messages": context.messages, **({"system": context.system} if context.system else {})}


def event_of(message: Message) -> dict[str, Any]:
    """A message as a flat event: text, thinking with its signature, calls, the model's name and the
    reported usage.

    The event's id is the message's. Blocks of hosted tools, which an event has no field for, are
    left out. Tokens that were read from or written into a cache count as sent.
    """
    document = message.model_dump(mode="json", exclude_none=True)
    parts = [part for block in document["content"] if (part := _part(block))]
    alone = len(parts) == 1 and parts[0]["type"] == "text"
    calls = [
        {
            "id": block["id"],
            "name": block["name"],
            "arguments": msgspec.json.encode(block["input"]).decode(),
        }
        for block in document["content"]
        if block["type"] == "tool_use"
    ]
    event: dict[str, Any] = {"type": "message", "role": "assistant"}
    event["content"] = parts[0]["text"] if alone else parts or (None if calls else "")
    if calls:
        event["tool_calls"] = calls
    event |= {name: document[name] for name in ("model", "id") if document.get(name) is not None}
    usage = document.get("usage")
    if isinstance(usage, dict):
        event["usage"] = {
            "input_tokens": sum(usage.get(name) or 0 for name in _SENT),
            "output_tokens": usage.get("output_tokens") or 0,
        }
    return event


async def respond(
    client: AsyncClient,
    conversation: str,
    anthropic: AsyncAnthropic,
    *,
    model: str,
    answer_tokens: int,
    after: str | None = None,
    max_tokens: int | None = None,
    turn_id: str | None = None,
    fence: int | None = None,
    **options: Any,
) -> Answer:
    """Ask the model with the conversation's context, show the answer as it comes, append it, and
    record the call in the ledger.

    Args:
        answer_tokens: the SDK's ``max_tokens``: of the answer.
        after: a position the context includes, as the append of the user's message answered.
        max_tokens: a limit for the context.
        turn_id, fence: of the turn this is part of, if any.
        options: further arguments of ``messages.stream`` (tools, thinking, …).

    If the stream breaks off, the text so far is kept as an interrupted message, and the SDK's own
    error is raised.
    """
    require("anthropic", "anthropic")
    needs_asynchronous(client, "respond")
    context = await client.context(
        conversation, format="anthropic", max_tokens=max_tokens, after=after
    )
    begun = time.perf_counter()
    asked = {**options, **request_of(context), "model": model, "max_tokens": answer_tokens}
    async with client.partial(conversation, turn_id, fence=fence) as writer:
        async with anthropic.messages.stream(**asked) as stream:
            async for text in stream.text_stream:
                await writer.write(text)
            message = await stream.get_final_message()
        latency_ms = (time.perf_counter() - begun) * 1000
        event = event_of(message)
        appended = await writer.finish(event)
    render_id = await record_answer(client, conversation, context, event, model, latency_ms)
    return Answer(event, appended, context, render_id)


def _part(block: dict[str, Any]) -> dict[str, Any] | None:
    """The part of a block of text or thinking, None of another kind. An empty signature is the
    sign of a model that does not sign.
    """
    if block["type"] == "text":
        return {"type": "text", "text": block["text"]}
    if block["type"] == "thinking":
        signed = {"signature": block["signature"]} if block.get("signature") else {}
        return {"type": "reasoning", "text": block["thinking"], "provider": _PROVIDER, **signed}
    if block["type"] == "redacted_thinking":
        return {"type": "reasoning", "signature": block["data"], "provider": _PROVIDER}
    return None
