"""One call of an OpenAI-compatible chat-completions endpoint, and the summary that one such call
makes.

Nothing is retried here; that is ``guarded.py``'s.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from projections.errors import RedisUnavailable
from projections.events.tokenizer import count
from streams.compaction.summarizers.base import SummaryInput, SummaryText
from streams.compaction.summarizers.budgets import NOTHING, Budgets, Spending
from streams.compaction.summarizers.checks import finish
from streams.compaction.summarizers.endpoint_call import (
    CHARACTERS,
    ModelEndpoint,
    cost_of,
    reserve_call,
    tokens_used,
)
from streams.compaction.summarizers.endpoint_limits import EndpointLimits
from streams.compaction.summarizers.failures import (
    AnswerUnreadable,
    AttemptFailed,
    CallNotAllowed,
    EndpointTimedOut,
    SummaryRejected,
)
from streams.compaction.summarizers.prompt import Prompt, make_prompt
from streams.runtime.processor import Processor
from streams.settings.endpoints import EndpointSettings

Answer = TypeVar("Answer")
Spent = Callable[[str, Spending], None]


class Completion(msgspec.Struct, frozen=True):
    """What came back: the text, whether it stopped at its limit, and the tokens the endpoint says
    it used (None where it does not).
    """

    text: str
    cut: bool
    input_tokens: int | None
    output_tokens: int | None


class Judged(NamedTuple, Generic[Answer]):
    """What an answer made, and the tokens and money it took; ``cost`` None: no price is known."""

    tokens: int
    cost: float | None
    made: Answer


class ChatEndpoint:
    """Calls ``POST {base_url}/chat/completions``. Any number of calls may run at once."""

    def __init__(self, endpoint: ModelEndpoint[EndpointSettings]) -> None:
        self.name = endpoint.name
        self.options = endpoint.options
        self._endpoint = endpoint

    async def complete(
        self, messages: list[dict[str, str]], max_tokens: int, seconds: float
    ) -> Completion:
        """The answer to chat messages, of at most ``max_tokens`` of the endpoint's own tokens,
        within ``seconds``.

        Raises:
            AttemptFailed: one of its kinds, by cause.
        """
        body = {"messages": messages, self.options.max_tokens_field: max_tokens}
        return self._parse(await self._endpoint.post(body, seconds))

    def _parse(self, answer: Any) -> Completion:
        choices = answer.get("choices") if isinstance(answer, dict) else None
        first = choices[0] if isinstance(choices, list) and choices else None
        message = first.get("message") if isinstance(first, dict) else None
        text = _text_of(message.get("content")) if isinstance(message, dict) else None
        if text is None or not isinstance(first, dict):
            raise AnswerUnreadable(
                f"{self._endpoint.title} answered JSON that holds no chat message"
            )
        sent, got = tokens_used(answer, "prompt_tokens"), tokens_used(answer, "completion_tokens")
        return Completion(text, first.get("finish_reason") == "length", sent, got)


class ChargedChat:
    """A chat endpoint within its limits. What a call uses is charged to the tenant's budget."""

    def __init__(
        self,
        endpoint: ChatEndpoint,
        limits: EndpointLimits,
        budgets: Budgets,
        spent: Spent = lambda tenant, spending: None,
    ) -> None:
        """Args: ``spent`` is called with what each answered call used."""
        self.name = endpoint.name
        self.options = endpoint.options
        self.limits = limits
        self._endpoint = endpoint
        self._budgets = budgets
        self._spent = spent

    async def check(self, tenant: str) -> None:
        """Raise CallNotAllowed where the tenant's budget is used up, or unknown."""
        try:
            await self._budgets.check(tenant)
        except RedisUnavailable as error:
            raise CallNotAllowed(str(error)) from None

    async def ask(
        self,
        tenant: str,
        messages: list[dict[str, str]],
        asked: int,
        until: float,
        judge: Callable[[Completion], Awaitable[Judged[Answer]]],
    ) -> Judged[Answer]:
        """One call, by the loop's time ``until``, and what ``judge`` says of its answer: it must
        not raise, so that every answer is charged.

        Raises:
            AttemptFailed: there was no answer, and why.
        """
        sent = sum(len(message["content"]) for message in messages) // CHARACTERS
        reserved = await reserve_call(self._budgets, self.options, tenant, sent, asked)
        try:
            answer = await self._call(messages, asked, sent + asked, until)
        except AttemptFailed as error:
            # One that timed out may be billed.
            if not isinstance(error, EndpointTimedOut):
                await self._budgets.settle(reserved, NOTHING)
            raise
        judged = await judge(answer)
        spending = Spending(judged.tokens, judged.cost or 0.0)
        self._spent(tenant, spending)
        await self._budgets.settle(reserved, spending)
        return judged

    async def _call(
        self, messages: list[dict[str, str]], asked: int, guessed: int, until: float
    ) -> Completion:
        """One call, within the endpoint's limits."""

        async def call(seconds: float) -> tuple[Completion, int | None]:
            answer = await self._endpoint.complete(messages, asked, seconds)
            if answer.input_tokens is None or answer.output_tokens is None:
                return answer, None
            return answer, answer.input_tokens + answer.output_tokens

        return await self.limits.run(call, guessed, until)


class EndpointSummarizer:
    """Summaries by one endpoint; see ``guarded.py`` for what makes them dependable."""

    def __init__(
        self, chat: ChargedChat, processor: Processor, input_tokens: int, output_tokens: int
    ) -> None:
        self.name = chat.name
        self.processor = processor
        self._chat = chat
        self._input_tokens = input_tokens
        self._output_tokens = output_tokens

    async def prepare(self, request: SummaryInput) -> Prompt:
        """The prompt that every attempt at a request sends."""
        return await self.processor.run(request.tenant, make_prompt, request, self._input_tokens)

    async def attempt(self, request: SummaryInput, prompt: Prompt, until: float) -> SummaryText:
        """One call, one summary, by the loop's time ``until``. Twice the budget is asked for at
        most: tokenizers differ, and what is over is cut at a sentence's end.

        Raises:
            AttemptFailed: no summary, and why; with the cost, where there was an answer to
                pay for.
        """
        options = self._chat.options
        asked = max(16, min(2 * request.max_tokens, self._output_tokens))

        async def judge(answer: Completion) -> Judged[tuple[str, int] | SummaryRejected]:
            return await self.processor.run(
                request.tenant, _judge, options, request, prompt, answer
            )

        judged = await self._chat.ask(request.tenant, prompt.messages, asked, until, judge)
        cost, made = judged.cost, judged.made
        if isinstance(made, SummaryRejected):
            raise SummaryRejected(
                f"summarizer {self.name!r}: {made}", reason=made.reason, cost=cost
            )
        text, tokens = made
        return SummaryText(text, tokens, self.name, options.model, cost)


def _judge(
    options: EndpointSettings, request: SummaryInput, prompt: Prompt, answer: Completion
) -> Judged[tuple[str, int] | SummaryRejected]:
    """What a call took, and the summary its answer makes, or why it makes none. Tokens are our own
    count where the endpoint did not say its own.
    """
    sent, got = answer.input_tokens, answer.output_tokens
    if sent is None:
        sent = sum(count(message["content"], request.encoding) for message in prompt.messages)
    if got is None:
        got = count(answer.text, request.encoding)
    cost = cost_of(options, sent, got)
    try:
        return Judged(sent + got, cost, finish(request, answer.text, prompt.mark, answer.cut))
    except SummaryRejected as error:
        return Judged(sent + got, cost, error)


def _text_of(content: Any) -> str | None:
    """A message's text: a string, or the text parts of a list; empty for null (a refusal, or
    thoughts alone); None for anything else.
    """
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, list):
        return None
    parts = [
        part.get("text")
        for part in content
        if isinstance(part, dict) and part.get("type") in ("text", "output_text")
    ]
    return "".join(part for part in parts if isinstance(part, str))
