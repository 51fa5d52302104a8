"""The client in all its forms behind one asynchronous face: over HTTP or direct, asynchronous or
synchronous (in threads).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

from tests.support.raw_server import answer
from threadfold import AsyncClient, Client
from threadfold_client import Retries

FORMS = ["http-async", "http-sync", "direct-async", "direct-sync"]


PATIENCE = 120.0
"""Seconds that an answer may take: on a busy machine the first large body waits long for the process
that reads it.
"""


_PLAIN = frozenset(
    {
        "iter_history",
        "conversations",
        "suspensions",
        "summaries_of",
        "subscribe",
        "summaries",
        "partial",
        "turn",
    }
)


class InThreads:
    """A synchronous client, each call made in a thread: what returns there is awaited here."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        value = getattr(self.inner, name)
        if not callable(value):
            return value
        if name in _PLAIN and isinstance(self.inner, Client):
            return lambda *args, **kwargs: InThreads(value(*args, **kwargs))

        async def call(*args: Any, **kwargs: Any) -> Any:
            return await asyncio.to_thread(value, *args, **kwargs)

        return call

    def __aiter__(self) -> AsyncIterator[Any]:
        return self._each()

    async def _each(self) -> AsyncIterator[Any]:
        iterator, end = iter(self.inner), object()
        while (item := await asyncio.to_thread(next, iterator, end)) is not end:
            yield item

    async def __aenter__(self) -> Any:
        await asyncio.to_thread(self.inner.__enter__)
        return self

    async def __aexit__(self, *error: Any) -> None:
        await asyncio.to_thread(self.inner.__exit__, *error)


def client_of(
    form: str, url: str, key: str, settings: Any, tenant: str, **kwargs: Any
) -> tuple[Any, Callable[[], Any]]:
    """A client in one of :data:`FORMS`, and what closes it."""
    kwargs.setdefault("timeout", PATIENCE)
    over, _, way = form.partition("-")
    if way == "async":
        made = (
            AsyncClient(url, key, **kwargs)
            if over == "http"
            else AsyncClient.direct(settings, tenant, **kwargs)
        )
        return made, made.close
    sync = (
        Client(url, key, **kwargs) if over == "http" else Client.direct(settings, tenant, **kwargs)
    )

    async def close() -> None:
        await asyncio.to_thread(sync.close)

    return InThreads(sync), close


QUICK = Retries(attempts=5, total=5.0, base=0.01, most=0.02)


DONE = answer(202, {"events": [{"id": "x", "position": "0-1"}], "position": "0-1"})
