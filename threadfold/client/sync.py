"""The synchronous client: the same calls, run on an event loop of its own in a thread of its
own.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from threadfold.client.aio import TIMEOUT, AsyncClient
from threadfold.client.calls import Retries
from threadfold.client.errors import ClientClosed
from threadfold.client.models import (
    Appended,
    Context,
    ContextFormat,
    HistoryPage,
    MessageFormat,
    StreamEvent,
    TurnPolicy,
)
from threadfold.client.partial import PartialWriter
from threadfold.client.subscription import Subscription
from threadfold.client.turn import Turn

if TYPE_CHECKING:
    from streams.settings.settings import Settings

T = TypeVar("T")


class Client:
    """:class:`AsyncClient` for code without an event loop: the same methods, arguments and errors,
    from any thread.

    Iterators and writers are used from one thread at a time. It may be used where an event loop
    runs, but blocks it. ``close`` (or ``with``) ends the thread; one that is forgotten ends with
    the process.
    """

    def __init__(
        self, url: str, key: str, *, timeout: float = TIMEOUT, retries: Retries | int = Retries()
    ) -> None:
        self._wrap(AsyncClient(url, key, timeout=timeout, retries=retries))

    @classmethod
    def direct(
        cls,
        settings: Settings,
        tenant: str,
        *,
        timeout: float = TIMEOUT,
        retries: Retries | int = Retries(),
    ) -> Client:
        """A client without a gateway in between; see :meth:`AsyncClient.direct`."""
        return cls.of(AsyncClient.direct(settings, tenant, timeout=timeout, retries=retries))

    @classmethod
    def of(cls, client: AsyncClient) -> Client:
        """A synchronous face of an asynchronous client that no other loop uses."""
        made = cls.__new__(cls)
        made._wrap(client)
        return made

    def _wrap(self, client: AsyncClient) -> None:
        self.asynchronous = client
        self._loop = asyncio.new_event_loop()
        self._closing = threading.Lock()
        self._closed = False
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="threadfold-client", daemon=True
        )
        self._thread.start()

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Run a coroutine in the client's loop; raises :class:`ClientClosed` after
        :meth:`close`.
        """
        if self._closed:
            work.close()
            raise ClientClosed("the client is closed: make another one")
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the client's loop and wait for its result; Ctrl-C cancels it."""
        future = self.submit(work)
        try:
            return future.result()
        except CancelledError:
            raise ClientClosed("the client was closed while the call was under way") from None
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        """Close all connections and end the thread; calls under way fail, and a second call does
        nothing.
        """
        with self._closing:
            if self._closed:
                return
            self._closed = True
            asyncio.run_coroutine_threadsafe(_end(self.asynchronous), self._loop).result()
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def append(
        self,
        conversation: str,
        events: Mapping[str, Any] | Sequence[Mapping[str, Any]],
        *,
        wait: str | None = None,
        expect: str | None = None,
        fence: int | None = None,
        idempotency_key: str | None = None,
    ) -> Appended:
        """As :meth:`AsyncClient.append`."""
        return self.run(
            self.asynchronous.append(
                conversation,
                events,
                wait=wait,
                expect=expect,
                fence=fence,
                idempotency_key=idempotency_key,
            )
        )

    def append_messages(
        self,
        conversation: str,
        messages: Mapping[str, Any] | Sequence[Mapping[str, Any]],
        format: MessageFormat = "openai",  # noqa: A002 (the contract's name)
        *,
        wait: str | None = None,
        expect: str | None = None,
        fence: int | None = None,
        idempotency_key: str | None = None,
    ) -> Appended:
        """As :meth:`AsyncClient.append_messages`."""
        return self.run(
            self.asynchronous.append_messages(
                conversation,
                messages,
                format,
                wait=wait,
                expect=expect,
                fence=fence,
                idempotency_key=idempotency_key,
            )
        )

    def append_many(
        self,
        events: Sequence[Mapping[str, Any]],
        *,
        wait: str | None = None,
        idempotency_key: str | None = None,
    ) -> Appended:
        """As :meth:`AsyncClient.append_many`."""
        return self.run(
            self.asynchronous.append_many(events, wait=wait, idempotency_key=idempotency_key)
        )

    def rollback(
        self, conversation: str, to: str, *, expect: str | None = None, fence: int | None = None
    ) -> Appended:
        """As :meth:`AsyncClient.rollback`."""
        return self.run(self.asynchronous.rollback(conversation, to, expect=expect, fence=fence))

    def close_session(self, conversation: str) -> Appended:
        """As :meth:`AsyncClient.close_session`."""
        return self.run(self.asynchronous.close_session(conversation))

    def context(
        self,
        conversation: str,
        *,
        format: ContextFormat = "openai",  # noqa: A002 (the contract's name)
        max_tokens: int | None = None,
        after: str | None = None,
    ) -> Context:
        """As :meth:`AsyncClient.context`."""
        return self.run(
            self.asynchronous.context(
                conversation, format=format, max_tokens=max_tokens, after=after
            )
        )

    def history(
        self, conversation: str, *, before: str | None = None, limit: int = 50
    ) -> HistoryPage:
        """As :meth:`AsyncClient.history`."""
        return self.run(self.asynchronous.history(conversation, before=before, limit=limit))

    def iter_history(
        self, conversation: str, *, before: str | None = None, page: int = 100
    ) -> Iterator[dict[str, Any]]:
        """As :meth:`AsyncClient.iter_history`."""
        return self._each(self.asynchronous.iter_history(conversation, before=before, page=page))

    def event(
        self, conversation: str, position: str, offset: int | None = None, limit: int | None = None
    ) -> dict[str, Any]:
        """As :meth:`AsyncClient.event`."""
        return self.run(self.asynchronous.event(conversation, position, offset, limit))

    def conversations(self, **filters: str | int) -> Iterator[dict[str, Any]]:
        """As :meth:`AsyncClient.conversations`."""
        return self._each(self.asynchronous.conversations(**filters))

    def suspensions(self, **filters: str | int) -> Iterator[dict[str, Any]]:
        """As :meth:`AsyncClient.suspensions`."""
        return self._each(self.asynchronous.suspensions(**filters))

    def summaries_of(self, conversation: str, **filters: str | int) -> Iterator[dict[str, Any]]:
        """As :meth:`AsyncClient.summaries_of`."""
        return self._each(self.asynchronous.summaries_of(conversation, **filters))

    def subscribe(self, conversation: str, after: str | None = None) -> SyncSubscription:
        """As :meth:`AsyncClient.subscribe`."""
        return SyncSubscription(self, self.asynchronous.subscribe(conversation, after))

    def summaries(
        self, cursor: str | None = None, *, from_beginning: bool = False
    ) -> SyncSubscription:
        """As :meth:`AsyncClient.summaries`."""
        return SyncSubscription(
            self, self.asynchronous.summaries(cursor, from_beginning=from_beginning)
        )

    def partial(
        self, conversation: str, turn_id: str | None = None, *, fence: int | None = None
    ) -> SyncWriter:
        """As :meth:`AsyncClient.partial`."""
        return SyncWriter(self, self.asynchronous.partial(conversation, turn_id, fence=fence))

    def turn(
        self,
        conversation: str,
        *,
        policy: TurnPolicy = "reject",
        seconds: int = 60,
        model: str | None = None,
        turn_id: str | None = None,
        wait: float = 60.0,
    ) -> SyncTurn:
        """As :meth:`AsyncClient.turn`, with ``with``."""
        made = self.asynchronous.turn(
            conversation, policy=policy, seconds=seconds, model=model, turn_id=turn_id, wait=wait
        )
        return SyncTurn(self, made)

    def compact(self, conversation: str, *, fence: int | None = None) -> Appended:
        """As :meth:`AsyncClient.compact`."""
        return self.run(self.asynchronous.compact(conversation, fence=fence))

    def record_call(
        self,
        conversation: str,
        context: Context,
        model: str,
        *,
        reported_usage: Mapping[str, Any] | None = None,
        latency_ms: float | None = None,
        policy: str | None = None,
    ) -> str | None:
        """As :meth:`AsyncClient.record_call`."""
        return self.run(
            self.asynchronous.record_call(
                conversation,
                context,
                model,
                reported_usage=reported_usage,
                latency_ms=latency_ms,
                policy=policy,
            )
        )

    def erase(self, conversation: str) -> dict[str, Any]:
        """As :meth:`AsyncClient.erase`."""
        return self.run(self.asynchronous.erase(conversation))

    def _each(self, source: AsyncIterator[T]) -> Iterator[T]:
        try:
            while True:
                try:
                    yield self.run(_next(source))
                except StopAsyncIteration:
                    return
        finally:
            if not self._closed:
                self.run(_close(source))


class _Wrapped(Generic[T]):
    def __init__(self, client: Client, inner: T) -> None:
        self._client = client
        self._inner = inner


class SyncSubscription(_Wrapped[Subscription]):
    """A :class:`Subscription` as an iterator; ``close``, from any thread, ends a ``next`` that
    waits.
    """

    _waiting: Future[StreamEvent] | None = None
    _ended = False

    @property
    def last_id(self) -> str | None:
        """Where another may resume."""
        return self._inner.last_id

    def __iter__(self) -> SyncSubscription:
        return self

    def __next__(self) -> StreamEvent:
        if self._ended:
            raise StopIteration
        self._waiting = self._client.submit(_next(self._inner))
        try:
            return self._waiting.result()
        except (StopAsyncIteration, CancelledError):
            raise StopIteration from None
        except BaseException:
            self._waiting.cancel()
            raise

    def close(self) -> None:
        """End it and its connection."""
        self._ended = True
        if self._waiting is not None:
            self._waiting.cancel()
        if not self._client._closed:
            self._client.run(_close(self._inner))

    def __enter__(self) -> SyncSubscription:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class SyncWriter(_Wrapped[PartialWriter]):
    """A :class:`PartialWriter` for ``with``."""

    @property
    def turn_id(self) -> str:
        """The id of the message in progress."""
        return self._inner.turn_id

    @property
    def text(self) -> str:
        """All that was written."""
        return self._inner.text

    def write(self, delta: str) -> None:
        """As :meth:`PartialWriter.write`."""
        self._client.run(self._inner.write(delta))

    def flush(self) -> None:
        """As :meth:`PartialWriter.flush`."""
        self._client.run(self._inner.flush())

    def finish(self, message: dict[str, Any] | None = None, **fields: Any) -> Appended:
        """As :meth:`PartialWriter.finish`."""
        return self._client.run(self._inner.finish(message, **fields))

    def interrupt(self) -> Appended | None:
        """As :meth:`PartialWriter.interrupt`."""
        return self._client.run(self._inner.interrupt())

    def __enter__(self) -> SyncWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: object
    ) -> None:
        self._client.run(self._inner.__aexit__(kind, error, trace))


class SyncTurn(_Wrapped[Turn]):
    """A :class:`Turn` for ``with``."""

    @property
    def turn_id(self) -> str:
        """The turn's id."""
        return self._inner.turn_id

    @property
    def fencing_token(self) -> int:
        """As :attr:`Turn.fencing_token`."""
        return self._inner.fencing_token

    @property
    def status(self) -> str:
        """As :attr:`Turn.status`."""
        return self._inner.status

    def renew(self, seconds: int | None = None) -> None:
        """As :meth:`Turn.renew`."""
        self._client.run(self._inner.renew(seconds))

    def __enter__(self) -> SyncTurn:
        self._client.run(self._inner.begin())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: object
    ) -> None:
        self._client.run(self._inner.__aexit__(kind, error, trace))


async def _next(source: AsyncIterator[T]) -> T:
    return await anext(source)


async def _close(source: object) -> None:
    close = getattr(source, "aclose", None)
    if close is not None:
        await close()


async def _end(client: AsyncClient) -> None:
    """Close the client, then cancel what still runs in its loop, and wait for it."""
    await client.close()
    rest = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in rest:
        task.cancel()
    await asyncio.gather(*rest, return_exceptions=True)
    await asyncio.get_running_loop().shutdown_asyncgens()
