"""The Anthropic SDK: its messages as events, a context as its arguments, and an answer streamed to
readers while the model gives it.

from threadfold.adapters.anthropic import respond

answer = await respond(threadfold, "conversation-1", AsyncAnthropic(), model="claude-sonnet-5",
answer_tokens=2000)
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from projections.formats.anthropic_input import from_anthropic
from threadfold.adapters.answers import Answer, recorded
from threadfold.adapters.extras import needs_asynchronous, require

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic
    from anthropic.types import Message

    from threadfold.client import AsyncClient, Context

_KEPT = frozenset({"text", "thinking", "redacted_thinking", "tool_use"})


def request_of(context: Context) -> dict[str, Any]:
    """The arguments of ``messages.create`` that a context gives; raises ValueError where it is in
    another format.
    """
    if context.format != "anthropic":
        raise ValueError(
            f"the context is in the format {context.format!r}: ask for format='anthropic'"
        )
    return {"messages": context.messages, **({"system": context.system} if context.system else {})}


def event_of(message: Message) -> dict[str, Any]:
    """A message as a flat event: text, thinking with its signature, calls, the model's name and the
    usage it reported.

    Its id is the event's. Blocks of hosted tools, for which an event has no field, are left out.
    """
    document = message.model_dump(mode="json", exclude_none=True)
    document["content"] = [_bare(block) for block in document["content"] if block["type"] in _KEPT]
    (event,) = from_anthropic(document, "the model's answer")
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
        after: a position the context shall include, as the append of the user's message answered.
        max_tokens: a limit for the context.
        turn_id, fence: of the turn this is part of, if any.
        options: further arguments of ``messages.stream`` (tools, thinking, …).

    Where the stream breaks off, what was said so far is kept as an interrupted message, and the
    SDK's own error is raised.
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
    render_id = await recorded(client, conversation, context, event, model, latency_ms)
    return Answer(event, appended, context, render_id)


def _bare(block: dict[str, Any]) -> dict[str, Any]:
    """A block with an empty signature left out: a model that does not sign its thinking says so by
    one.
    """
    return {name: value for name, value in block.items() if not (name == "signature" and not value)}
