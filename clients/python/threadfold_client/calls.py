"""A call as data, the transports that carry it, and when a failed one may be repeated."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from threadfold_client.errors import ClientError, RateLimited, Unavailable
from threadfold_client.sse import ServerSent

CallName = Literal[
    "append", "context", "history", "event", "partial", "stream", "summaries", "other"
]


@dataclass(frozen=True, slots=True)
class Call:
    """One call, as the HTTP contract has it: path and query under ``/v1``, ``body`` as JSON values.

    ``name`` is for transports that need no HTTP for some calls; those use ``conversation``,
    ``body`` and ``query``. ``repeat`` is when a failed attempt may be repeated: ``always`` if a
    repeat changes nothing, ``refused`` (only after a refusal) if it would act twice.
    """

    method: str
    path: str
    name: CallName = "other"
    conversation: str = ""
    query: Mapping[str, str | int] = field(default_factory=dict)
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)
    repeat: Literal["always", "refused"] = "always"


class Transport(Protocol):
    """How calls reach threadfold: over HTTP, or another way. It makes one attempt a call; the
    client repeats.
    """

    async def request(self, call: Call) -> bytes:
        """The body of the answer; raises a :class:`ClientError`."""
        ...

    def stream(self, call: Call) -> AsyncIterator[ServerSent]:
        """The events of one connection, until it ends; raises a :class:`ClientError`."""
        ...

    async def close(self) -> None:
        """Release all connections; calls under way fail."""
        ...


@dataclass(frozen=True, slots=True)
class Retries:
    """How often a call is repeated: at most ``attempts`` in all, none begun later than ``total``
    seconds after the first.

    Between two, a random time up to ``base`` × 2ⁿ seconds, ``most`` at most ("full jitter", AWS
    Architecture Blog, 2015), and never less than what the service asked for with ``Retry-After``.
    """

    attempts: int = 6
    total: float = 30.0
    base: float = 0.1
    most: float = 5.0

    def delay(self, failures: int, asked: float | None = None) -> float:
        """Seconds to wait after the n-th failure in a row (from 1)."""
        jitter = random.uniform(0, min(self.most, self.base * 2.0 ** min(failures, 32)))
        return jitter if asked is None else asked + min(jitter, 0.25 * asked + self.base)


def may_repeat(call: Call, error: ClientError) -> bool:
    """Whether another attempt may succeed and can do no harm; of the 4xx only 429 is repeated."""
    if isinstance(error, RateLimited):
        return True
    return isinstance(error, Unavailable) and (call.repeat == "always" or not error.unknown)
