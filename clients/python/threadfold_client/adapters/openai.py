"""The OpenAI SDK: its responses as events, a context as its arguments, and an answer streamed to
readers as it comes.

from threadfold_client.adapters.openai import respond

answer = await respond(client, "conversation-1", AsyncOpenAI(), model="gpt-5")
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from threadfold_client.adapters.answers import Answer, record_answer
from threadfold_client.adapters.extras import needs_asynchronous, require

if TYPE_CHECKING:
    from openai import AsyncOpenAI
    from openai.types.chat import ChatCompletion, ChatCompletionChunk

    from threadfold_client import AsyncClient, Context

_USAGE = ("prompt_tokens", "completion_tokens", "total_tokens")


def request_of(context: Context) -> dict[str, Any]:
    """The arguments of ``chat.completions.create`` that a context gives; raises ValueError if it
    is in another format.
    """
    if context.format != "openai":
        raise ValueError(
            f"the context is in the format {context.format!r}: ask for format='openai'"
        )
    return {"messages": context.messages}


def event_of(completion: ChatCompletion) -> dict[str, Any]:
    """A completion's first choice as a flat event, with its calls, the model's name and the
    reported usage.

    A refusal becomes its text. Audio and other things without a field in an event are left out.
    """
    message = completion.choices[0].message
    calls = [
        (call.id, call.function.name, call.function.arguments)
        for call in message.tool_calls or ()
        if call.type == "function"
    ]
    return _event(
        message.content or message.refusal or "", calls, completion.model, completion.usage
    )


@dataclass
class Collector:
    """Joins a stream's chunks. ``add`` returns the text of each, ``event`` the whole as
    :func:`event_of` does.
    """

    model: str = ""
    usage: Any = None
    _texts: list[str] = field(default_factory=list)
    _calls: dict[int, list[str]] = field(default_factory=dict)

    def add(self, chunk: ChatCompletionChunk) -> str:
        """Add a chunk; returns its text, empty without any."""
        self.model = chunk.model or self.model
        self.usage = chunk.usage or self.usage
        for choice in chunk.choices:
            if choice.index == 0:
                return self._take(choice.delta)
        return ""

    def event(self) -> dict[str, Any]:
        """The chunks so far as one flat event."""
        calls = [
            (id_, name, arguments) for _, (id_, name, arguments) in sorted(self._calls.items())
        ]
        return _event("".join(self._texts), calls, self.model, self.usage)

    def _take(self, delta: Any) -> str:
        for part in delta.tool_calls or ():
            call = self._calls.setdefault(part.index, ["", "", ""])
            call[0] = part.id or call[0]
            if part.function is not None:
                call[1] += part.function.name or ""
                call[2] += part.function.arguments or ""
        text = delta.content or delta.refusal or ""
        if text:
            self._texts.append(text)
        return text


async def respond(
    client: AsyncClient,
    conversation: str,
    openai: AsyncOpenAI,
    *,
    model: str,
    after: str | None = None,
    max_tokens: int | None = None,
    turn_id: str | None = None,
    fence: int | None = None,
    **options: Any,
) -> Answer:
    """Ask the model with the conversation's context, show the answer as it comes, append it, and
    record the call in the ledger.

    Args:
        after: a position the context includes, as the append of the user's message answered.
        max_tokens: a limit for the context; the limit for the answer is one of ``options``.
        turn_id, fence: of the turn this is part of, if any.
        options: further arguments of ``chat.completions.create`` (tools, temperature, …).

    If the stream breaks off, the text so far is kept as an interrupted message, and the SDK's own
    error is raised.
    """
    require("openai", "openai")
    needs_asynchronous(client, "respond")
    context = await client.context(conversation, max_tokens=max_tokens, after=after)
    begun = time.perf_counter()
    collector = Collector()
    asked = {
        "stream_options": {"include_usage": True},
        **options,
        **request_of(context),
        "model": model,
        "stream": True,
    }
    async with client.partial(conversation, turn_id, fence=fence) as writer:
        async for chunk in _chunks(openai, asked):
            await writer.write(collector.add(chunk))
        latency_ms = (time.perf_counter() - begun) * 1000
        event = collector.event()
        appended = await writer.finish(event)
    render_id = await record_answer(client, conversation, context, event, model, latency_ms)
    return Answer(event, appended, context, render_id)


async def _chunks(openai: AsyncOpenAI, asked: dict[str, Any]) -> AsyncIterator[ChatCompletionChunk]:
    stream = await openai.chat.completions.create(**asked)
    async with stream:
        async for chunk in stream:
            yield chunk


def _event(text: str, calls: list[tuple[str, str, str]], model: str, usage: Any) -> dict[str, Any]:
    event: dict[str, Any] = {
        "type": "message",
        "role": "assistant",
        "content": text or (None if calls else ""),
    }
    if calls:
        event["tool_calls"] = [
            {"id": id_, "name": name, "arguments": arguments} for id_, name, arguments in calls
        ]
    if model:
        event["model"] = model
    counts = {name: getattr(usage, name, None) for name in _USAGE} if usage is not None else {}
    counts = {name: value for name, value in counts.items() if isinstance(value, int)}
    if counts:
        event["usage"] = counts
    return event
