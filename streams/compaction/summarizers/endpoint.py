"""One call of an OpenAI-compatible chat-completions endpoint, and the summary that one such call
makes.

Nothing is retried here; that is ``guarded.py``'s. Redirects are not followed, for the key would go
with them; proxies of the environment are not used.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import aiohttp
import msgspec

from projections.errors import RedisUnavailable
from projections.events.tokenizer import count
from streams.compaction.summarizers.base import SummaryInput, SummaryText
from streams.compaction.summarizers.budgets import NOTHING, Budgets, Reserved, Spending
from streams.compaction.summarizers.checks import finish
from streams.compaction.summarizers.endpoint_limits import EndpointLimits
from streams.compaction.summarizers.failures import (
    AnswerUnreadable,
    CallNotAllowed,
    EndpointBusy,
    EndpointRefused,
    EndpointTimedOut,
    EndpointUnreachable,
    InputRefused,
    SummaryAttemptFailed,
    SummaryRejected,
)
from streams.compaction.summarizers.prompt import Prompt, make_prompt
from streams.metrics.declared import COST, TOKENS
from streams.metrics.metrics import Metrics
from streams.runtime.processor import Processor
from streams.settings.endpoints import EndpointSettings

CHARACTERS = 4
"""Characters of a prompt for a token, where the endpoint has not said yet how many it counts."""
LONGEST_WAIT = 3600.0
"""Seconds of a Retry-After that are trusted."""

_BUSY = (408, 409, 425, 429)
_REFUSED = (401, 402, 403, 404, 405, 407, 410)
_PRINTABLE = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-")


class Completion(msgspec.Struct, frozen=True):
    """What came back: the text, whether it stopped at its limit, and the tokens the endpoint says
    it used (None where it does not).
    """

    text: str
    cut: bool
    input_tokens: int | None
    output_tokens: int | None


class ChatEndpoint:
    """Calls ``POST {base_url}/chat/completions``. Any number of calls may run at once."""

    def __init__(
        self,
        name: str,
        options: EndpointSettings,
        key: str,
        session: Callable[[], aiohttp.ClientSession],
    ) -> None:
        self.name = name
        self.options = options
        self._key = key
        self._session = session

    async def complete(
        self, messages: list[dict[str, str]], max_tokens: int, seconds: float
    ) -> Completion:
        """The answer to chat messages, of at most ``max_tokens`` of the endpoint's own tokens,
        within ``seconds``.

        Raises:
            SummaryAttemptFailed: one of its kinds, by cause.
        """
        body = {
            **self.options.extra,
            "model": self.options.model,
            "messages": messages,
            self.options.max_tokens_field: max_tokens,
        }
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        try:
            call = self._session().post(
                self.options.url,
                data=msgspec.json.encode(body),
                headers=headers,
                allow_redirects=False,
                timeout=aiohttp.ClientTimeout(),
            )
            async with asyncio.timeout(seconds), call as response:
                raw = await self._read(response)
                if response.status != 200:
                    raise self._refusal(response, raw)
        except TimeoutError:
            raise EndpointTimedOut(
                f"summarizer {self.name!r} did not answer within {seconds:.3g} s"
            ) from None
        except aiohttp.ClientPayloadError:
            raise EndpointUnreachable(
                f"summarizer {self.name!r}: the connection broke before the answer was whole"
            ) from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            # Its own text may quote headers or the address; the class says the cause.
            raise EndpointUnreachable(
                f"summarizer {self.name!r} cannot be reached ({type(error).__name__})"
            ) from None
        return self._parse(raw)

    async def _read(self, response: aiohttp.ClientResponse) -> bytes:
        most = self.options.max_response_bytes
        parts: list[bytes] = []
        size = 0
        async for part in response.content.iter_chunked(65_536):
            size += len(part)
            if size > most:
                raise AnswerUnreadable(
                    f"summarizer {self.name!r} answered more than {most} bytes (max_response_bytes)"
                )
            parts.append(part)
        return b"".join(parts)

    def _refusal(self, response: aiohttp.ClientResponse, raw: bytes) -> SummaryAttemptFailed:
        status = response.status
        said = f"summarizer {self.name!r} answered {status}{_error_name(raw, self._key)}"
        if status in _BUSY or status >= 500:
            return EndpointBusy(
                said,
                retry_after=retry_after(response.headers.get("Retry-After"), datetime.now(UTC)),
            )
        if status in _REFUSED or status < 400:
            return EndpointRefused(f"{said}: check its base_url, model and key")
        return InputRefused(said)

    def _parse(self, raw: bytes) -> Completion:
        try:
            answer = msgspec.json.decode(raw)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise AnswerUnreadable(f"summarizer {self.name!r} did not answer JSON") from None
        choices = answer.get("choices") if isinstance(answer, dict) else None
        first = choices[0] if isinstance(choices, list) and choices else None
        message = first.get("message") if isinstance(first, dict) else None
        text = _text_of(message.get("content")) if isinstance(message, dict) else None
        if text is None or not isinstance(first, dict):
            raise AnswerUnreadable(
                f"summarizer {self.name!r} answered JSON that holds no chat message"
            )
        usage = answer.get("usage")
        usage = usage if isinstance(usage, dict) else {}
        sent, got = _tokens(usage.get("prompt_tokens")), _tokens(usage.get("completion_tokens"))
        return Completion(text, first.get("finish_reason") == "length", sent, got)


class EndpointSummarizer:
    """Summaries by one endpoint; see ``guarded.py`` for what makes them dependable."""

    def __init__(
        self,
        endpoint: ChatEndpoint,
        limits: EndpointLimits,
        budgets: Budgets,
        processor: Processor,
        input_tokens: int,
        output_tokens: int,
        metrics: Metrics,
    ) -> None:
        self.name = endpoint.name
        self._metrics = metrics
        self.limits = limits
        self._budgets = budgets
        self._endpoint = endpoint
        self.processor = processor
        self._input_tokens = input_tokens
        self._output_tokens = output_tokens

    async def prepare(self, request: SummaryInput) -> Prompt:
        """The prompt that every attempt at a request sends."""
        return await self.processor.run(request.tenant, make_prompt, request, self._input_tokens)

    async def attempt(self, request: SummaryInput, prompt: Prompt, until: float) -> SummaryText:
        """One call, one summary, by the loop's time ``until``. Twice the budget is asked for at
        most: tokenizers differ, and what is over is cut at a sentence's end.

        Raises:
            SummaryAttemptFailed: no summary, and why; with the cost, where there was an answer to
                pay for.
        """
        options = self._endpoint.options
        asked = max(16, min(2 * request.max_tokens, self._output_tokens))
        sent = sum(len(message["content"]) for message in prompt.messages) // CHARACTERS
        reserved = await self._reserve(request.tenant, sent, asked)
        try:
            answer = await self._call(prompt, asked, sent + asked, until)
        except SummaryAttemptFailed as error:
            # One that timed out may be billed.
            if not isinstance(error, EndpointTimedOut):
                await self._budgets.settle(reserved, NOTHING)
            raise
        tokens, cost, made = await self.processor.run(
            request.tenant, _judge, options, request, prompt, answer
        )
        self._metrics.add_of_tenant(request.tenant, {TOKENS: tokens, COST: cost or 0.0})
        await self._budgets.settle(reserved, Spending(tokens, cost or 0.0))
        if isinstance(made, SummaryRejected):
            raise SummaryRejected(
                f"summarizer {self.name!r}: {made}", reason=made.reason, cost=cost
            )
        text, tokens = made
        return SummaryText(text, tokens, self.name, options.model, cost)

    async def _reserve(self, tenant: str, sent: int, asked: int) -> Reserved:
        """Charge the tenant's budget with what a call is likely to use."""
        estimate = Spending(sent + asked, cost_of(self._endpoint.options, sent, asked) or 0.0)
        try:
            return await self._budgets.reserve(tenant, estimate)
        except RedisUnavailable as error:
            raise CallNotAllowed(
                f"what tenant {tenant} may spend on summaries is unknown now: {error}"
            ) from None

    async def _call(self, prompt: Prompt, asked: int, guessed: int, until: float) -> Completion:
        """One call, within the endpoint's limits."""
        try:
            async with self.limits.call(until):
                seconds = until - asyncio.get_running_loop().time()
                await self.limits.charge(guessed)
                answer = await self._endpoint.complete(
                    prompt.messages, asked, min(seconds, self._endpoint.options.timeout)
                )
        except RedisUnavailable as error:
            raise CallNotAllowed(f"summarizer {self.name!r} may not be called: {error}") from None
        except EndpointBusy as error:
            if error.retry_after:
                await self.limits.pause(error.retry_after)
            raise
        if answer.input_tokens is not None and answer.output_tokens is not None:
            await self.limits.charge(answer.input_tokens + answer.output_tokens - guessed)
        return answer


def _judge(
    options: EndpointSettings, request: SummaryInput, prompt: Prompt, answer: Completion
) -> tuple[int, float | None, tuple[str, int] | SummaryRejected]:
    """The tokens of a call, what it cost, and the summary its answer makes, or why it makes
    none. Tokens are our own count where the endpoint did not say its own.
    """
    sent, got = answer.input_tokens, answer.output_tokens
    if sent is None:
        sent = sum(count(message["content"], request.encoding) for message in prompt.messages)
    if got is None:
        got = count(answer.text, request.encoding)
    cost = cost_of(options, sent, got)
    try:
        return sent + got, cost, finish(request, answer.text, prompt.mark, answer.cut)
    except SummaryRejected as error:
        return sent + got, cost, error


def cost_of(options: EndpointSettings, sent: int, got: int) -> float | None:
    """What a call costs at the prices configured, by its tokens; None without prices."""
    if options.input_price is None and options.output_price is None:
        return None
    return round(
        (sent * (options.input_price or 0.0) + got * (options.output_price or 0.0)) / 1e6, 9
    )


def retry_after(header: str | None, now: datetime) -> float | None:
    """Seconds that a Retry-After header asks for (a number, or a date), 0 to ``LONGEST_WAIT``; None
    for none, or nonsense.
    """
    if not header:
        return None
    try:
        seconds = float(header)
    except ValueError:
        try:
            at = parsedate_to_datetime(header)
        except (ValueError, IndexError, OverflowError):
            return None
        seconds = (at.replace(tzinfo=at.tzinfo or UTC) - now).total_seconds()
    return min(max(0.0, seconds), LONGEST_WAIT) if seconds == seconds else None


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


def _tokens(value: Any) -> int | None:
    return (
        value
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 40
        else None
    )


def _error_name(raw: bytes, key: str) -> str:
    """The short name an endpoint gives its error (``rate_limit_exceeded``), in brackets; not its
    message, which may quote what was sent.
    """
    try:
        error = msgspec.json.decode(raw)["error"]
        name = error.get("code") or error.get("type")
    except (
        msgspec.DecodeError,
        UnicodeDecodeError,
        RecursionError,
        KeyError,
        TypeError,
        AttributeError,
        IndexError,
    ):
        return ""  # no such error object: the status alone is reported
    if (
        not isinstance(name, str)
        or not 0 < len(name) <= 60
        or not set(name) <= _PRINTABLE
        or (key and (key in name or name in key))
    ):
        return ""
    return f" ({name})"
