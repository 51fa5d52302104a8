"""One call of an OpenAI-compatible endpoint: a JSON body goes out, a JSON answer comes back.

Nothing is retried here; that is ``attempts.py``'s. Redirects are not followed, for the key would go
with them; proxies of the environment are not used.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Generic, TypeVar

import aiohttp
import msgspec

from projections.errors import RedisUnavailable
from projections.events.untrusted import Undecodable, json_decoder
from streams.compaction.summarizers.budgets import Budgets, Reserved, Spending
from streams.compaction.summarizers.failures import (
    AnswerUnreadable,
    AttemptFailed,
    CallNotAllowed,
    EndpointBusy,
    EndpointRefused,
    EndpointTimedOut,
    EndpointUnreachable,
    InputRefused,
)
from streams.settings.endpoints import ModelSettings

CHARACTERS = 4
"""Characters of a text for a token, where the endpoint has not said yet how many it counts."""
LONGEST_WAIT = 3600.0
"""Seconds of a Retry-After that are trusted."""

_BUSY = (408, 409, 425, 429)
_REFUSED = (401, 402, 403, 404, 405, 407, 410)
_json = json_decoder()
_PRINTABLE = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-")
Options = TypeVar("Options", bound=ModelSettings)


class HttpSession:
    """The HTTP session that endpoints of a process share, opened by the first call. Belongs to one
    event loop.
    """

    def __init__(self) -> None:
        self._http: aiohttp.ClientSession | None = None

    def get(self) -> aiohttp.ClientSession:
        """The session, a new one where there is none."""
        if self._http is None or self._http.closed:
            # Cookies of one conversation's call have no business in another's.
            self._http = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0),  # EndpointLimits are the limit
                cookie_jar=aiohttp.DummyCookieJar(),
                headers={"User-Agent": "threadfold"},
            )
        return self._http

    async def close(self) -> None:
        """End its connections; a call made later opens new ones."""
        if self._http is not None:
            await self._http.close()
            self._http = None


class ModelEndpoint(Generic[Options]):
    """Calls one endpoint. Any number of calls may run at once."""

    def __init__(
        self,
        name: str,
        options: Options,
        key: str,
        session: Callable[[], aiohttp.ClientSession],
    ) -> None:
        self.name = name
        self.options = options
        self.title = options.title(name)
        """What errors call it."""
        self._key = key
        self._session = session

    async def post(self, members: dict[str, Any], seconds: float) -> Any:
        """The JSON that the endpoint answers to a body of these members and its own, within
        ``seconds``.

        Raises:
            AttemptFailed: one of its kinds, by cause. It is not called where the time is up.
        """
        if seconds <= 0:  # this process was too busy to begin: that is not the endpoint's fault
            raise CallNotAllowed(f"{self.title} was not called: no time is left")
        body = {**self.options.extra, "model": self.options.model, **members}
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
            raise EndpointTimedOut(f"{self.title} did not answer within {seconds:.3g} s") from None
        except aiohttp.ClientPayloadError:
            raise EndpointUnreachable(
                f"{self.title}: the connection broke before the answer was complete"
            ) from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            # Its own text may quote headers or the address; the class says the cause.
            raise EndpointUnreachable(
                f"{self.title} cannot be reached ({type(error).__name__})"
            ) from None
        try:
            return _json(raw)
        except Undecodable:
            raise AnswerUnreadable(f"{self.title} did not answer JSON") from None

    async def _read(self, response: aiohttp.ClientResponse) -> bytes:
        most = self.options.max_response_bytes
        parts: list[bytes] = []
        size = 0
        async for part in response.content.iter_chunked(65_536):
            size += len(part)
            if size > most:
                raise AnswerUnreadable(
                    f"{self.title} answered more than {most} bytes (max_response_bytes)"
                )
            parts.append(part)
        return b"".join(parts)

    def _refusal(self, response: aiohttp.ClientResponse, raw: bytes) -> AttemptFailed:
        status = response.status
        said = f"{self.title} answered {status}{_error_name(raw, self._key)}"
        if status in _BUSY or status >= 500:
            return EndpointBusy(
                said,
                status,
                retry_after=retry_after(response.headers.get("Retry-After"), datetime.now(UTC)),
            )
        if status in _REFUSED or status < 400:
            return EndpointRefused(f"{said}: check its base_url, model and key")
        return InputRefused(said)


async def reserve_call(
    budgets: Budgets, options: ModelSettings, tenant: str, sent: int, asked: int = 0
) -> Reserved:
    """Charge the tenant's budget with what a call is likely to use.

    Raises:
        BudgetUsedUp: it may not begin.
        CallNotAllowed: unknown what is left of the budget.
    """
    estimate = Spending(sent + asked, cost_of(options, sent, asked) or 0.0)
    try:
        return await budgets.reserve(tenant, estimate)
    except RedisUnavailable as error:
        raise CallNotAllowed(
            f"what tenant {tenant} may spend on models is unknown now: {error}"
        ) from None


def cost_of(options: ModelSettings, sent: int, got: int = 0) -> float | None:
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


def tokens_used(answer: Any, name: str) -> int | None:
    """The tokens that an answer's ``usage`` says under a name; None where it does not."""
    usage = answer.get("usage") if isinstance(answer, dict) else None
    value = usage.get(name) if isinstance(usage, dict) else None
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
        error = _json(raw)["error"]
        name = error.get("code") or error.get("type")
    except (
        Undecodable,
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
