"""The synchronous client, derived from the asynchronous one: each method runs the other's in an
event loop of its own thread, with its arguments, types and documentation.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import CancelledError, Future
from contextlib import AbstractAsyncContextManager, suppress
from functools import wraps
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar

from threadfold_client.aio import TIMEOUT, AsyncClient
from threadfold_client.calls import Retries
from threadfold_client.errors import ClientClosed
from threadfold_client.models import StreamEvent
from threadfold_client.partial import PartialWriter
from threadfold_client.subscription import Subscription
from threadfold_client.turn import LEAVE_WITHIN, Turn

A = TypeVar("A")
B = TypeVar("B")
M = TypeVar("M", bound=AbstractAsyncContextManager[Any])
T = TypeVar("T")
P = ParamSpec("P")

_SETTLE = LEAVE_WITHIN + 1.0
"""Seconds that an interrupted call is waited for: a queued turn leaves the queue in them."""


class LoopThread:
    """An event loop in a thread of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._closing = threading.Lock()
        self.closed = False
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="threadfold-client", daemon=True
        )
        self._thread.start()

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Run a coroutine in the loop; raises :class:`ClientClosed` after :meth:`close`."""
        if self.closed:
            work.close()
            raise ClientClosed("the client is closed: make another one")
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the loop and wait for its result; Ctrl-C cancels it, and waits for
        what it does at its end.
        """
        future = self.submit(work)
        try:
            return future.result()
        except CancelledError:
            raise ClientClosed("the client was closed during the call") from None
        except BaseException:
            if not future.done():
                self._cancel(work)
            raise

    def _cancel(self, work: Coroutine[Any, Any, Any]) -> None:
        """Cancel the task that runs ``work``, and wait for it a while."""
        with suppress(TimeoutError, CancelledError, RuntimeError):  # or the loop ended meanwhile
            ending = asyncio.run_coroutine_threadsafe(_cancelled(work), self._loop)
            ending.result(_SETTLE)

    def close(self, client: AsyncClient) -> None:
        """Close the client and end the thread; a second call does nothing."""
        with self._closing:
            if self.closed:
                return
            self.closed = True
            asyncio.run_coroutine_threadsafe(_end(client), self._loop).result()
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()


class Face(Generic[A]):
    """A synchronous face of ``asynchronous``, whose coroutines run in ``thread``."""

    def __init__(self, asynchronous: A, thread: LoopThread) -> None:
        self.asynchronous = asynchronous
        self.thread = thread


def blocking(
    method: Callable[Concatenate[A, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Face[A], P], T]:
    """A method of a face that runs a coroutine method and waits for its result."""

    @wraps(method)
    def call(face: Face[A], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return face.thread.run(method(face.asynchronous, *args, **kwargs))

    return call


def wrapping(
    method: Callable[Concatenate[A, P], B], wrap: Callable[[B, LoopThread], T]
) -> Callable[Concatenate[Face[A], P], T]:
    """A method of a face that gives ``wrap`` of what the method returns."""

    @wraps(method)
    def call(face: Face[A], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return wrap(method(face.asynchronous, *args, **kwargs), face.thread)

    return call


def _each(source: AsyncIterator[T], thread: LoopThread) -> Iterator[T]:
    try:
        while True:
            try:
                yield thread.run(_next(source))
            except StopAsyncIteration:
                return
    finally:
        if not thread.closed:
            thread.run(_close(source))


class _Entered(Face[M]):
    """A face for ``with``."""

    def __enter__(self) -> Self:
        self.thread.run(_enter(self.asynchronous))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: Any
    ) -> None:
        self.thread.run(_exit(self.asynchronous, kind, error, trace))


class SyncSubscription(Face[Subscription]):
    """A :class:`Subscription` as an iterator; ``close``, from any thread, ends a ``next`` that
    waits.
    """

    _waiting: Future[StreamEvent] | None = None
    _ended = False

    @property
    def last_id(self) -> str | None:
        """The id that another subscription may resume after."""
        return self.asynchronous.last_id

    def __iter__(self) -> SyncSubscription:
        return self

    def __next__(self) -> StreamEvent:
        if self._ended:
            raise StopIteration
        self._waiting = self.thread.submit(_next(self.asynchronous))
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
        if not self.thread.closed:
            self.thread.run(_close(self.asynchronous))

    def __enter__(self) -> SyncSubscription:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class SyncWriter(_Entered[PartialWriter]):
    """A :class:`PartialWriter` for ``with``."""

    write = blocking(PartialWriter.write)
    flush = blocking(PartialWriter.flush)
    finish = blocking(PartialWriter.finish)
    interrupt = blocking(PartialWriter.interrupt)

    @property
    def turn_id(self) -> str:
        """The id of the message in progress."""
        return self.asynchronous.turn_id

    @property
    def text(self) -> str:
        """All that was written."""
        return self.asynchronous.text


class SyncTurn(_Entered[Turn]):
    """A :class:`Turn` for ``with``."""

    renew = blocking(Turn.renew)
    check = blocking(Turn.check)

    @property
    def turn_id(self) -> str:
        """The turn's id."""
        return self.asynchronous.turn_id

    @property
    def fencing_token(self) -> int:
        """As :attr:`Turn.fencing_token`."""
        return self.asynchronous.fencing_token

    @property
    def status(self) -> str:
        """As :attr:`Turn.status`."""
        return self.asynchronous.status


class Client(Face[AsyncClient]):
    """:class:`AsyncClient` for code without an event loop: the same methods, arguments and errors,
    from any thread.

    Use an iterator or a writer from one thread at a time. A client blocks an event loop it is used
    in. ``close`` (or ``with``) ends its thread; a forgotten one ends with the process.
    """

    append = blocking(AsyncClient.append)
    append_messages = blocking(AsyncClient.append_messages)
    append_many = blocking(AsyncClient.append_many)
    rollback = blocking(AsyncClient.rollback)
    close_session = blocking(AsyncClient.close_session)
    context = blocking(AsyncClient.context)
    history = blocking(AsyncClient.history)
    iter_history = wrapping(AsyncClient.iter_history, _each)
    event = blocking(AsyncClient.event)
    conversations = wrapping(AsyncClient.conversations, _each)
    suspensions = wrapping(AsyncClient.suspensions, _each)
    summaries_of = wrapping(AsyncClient.summaries_of, _each)
    subscribe = wrapping(AsyncClient.subscribe, SyncSubscription)
    summaries = wrapping(AsyncClient.summaries, SyncSubscription)
    partial = wrapping(AsyncClient.partial, SyncWriter)
    turn = wrapping(AsyncClient.turn, SyncTurn)
    turns = blocking(AsyncClient.turns)
    compact = blocking(AsyncClient.compact)
    record_call = blocking(AsyncClient.record_call)
    mint_token = blocking(AsyncClient.mint_token)
    erase = blocking(AsyncClient.erase)
    erase_user = blocking(AsyncClient.erase_user)
    save_memories = blocking(AsyncClient.save_memories)
    save_skill = blocking(AsyncClient.save_skill)
    search_memories = blocking(AsyncClient.search_memories)
    memory = blocking(AsyncClient.memory)
    memory_timeline = blocking(AsyncClient.memory_timeline)
    memories = wrapping(AsyncClient.memories, _each)
    skills = wrapping(AsyncClient.skills, _each)
    delete_memory = blocking(AsyncClient.delete_memory)
    report_outcome = blocking(AsyncClient.report_outcome)
    memory_stats = blocking(AsyncClient.memory_stats)
    working_memory = blocking(AsyncClient.working_memory)

    def __init__(
        self, url: str, key: str, *, timeout: float = TIMEOUT, retries: Retries | int = Retries()
    ) -> None:
        super().__init__(AsyncClient(url, key, timeout=timeout, retries=retries), LoopThread())

    @classmethod
    def of(cls, client: AsyncClient) -> Self:
        """A synchronous face of an asynchronous client that no other loop uses."""
        made = cls.__new__(cls)
        Face.__init__(made, client, LoopThread())
        return made

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Run a coroutine in the client's loop; raises :class:`ClientClosed` after
        :meth:`close`.
        """
        return self.thread.submit(work)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the client's loop and wait for its result; Ctrl-C cancels it."""
        return self.thread.run(work)

    def close(self) -> None:
        """Close all connections and end the thread; calls under way fail, and a second call does
        nothing.
        """
        self.thread.close(self.asynchronous)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


async def _next(source: AsyncIterator[T]) -> T:
    return await anext(source)


async def _close(source: object) -> None:
    close = getattr(source, "aclose", None)
    if close is not None:
        await close()


async def _enter(manager: AbstractAsyncContextManager[Any]) -> None:
    await manager.__aenter__()


async def _exit(
    manager: AbstractAsyncContextManager[Any],
    kind: type[BaseException] | None,
    error: BaseException | None,
    trace: Any,
) -> None:
    await manager.__aexit__(kind, error, trace)


async def _cancelled(work: Coroutine[Any, Any, Any]) -> None:
    """Cancel the task of this loop that runs ``work``, and wait for its end."""
    tasks = [task for task in asyncio.all_tasks() if task.get_coro() is work]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _end(client: AsyncClient) -> None:
    """Close the client, then cancel what still runs in its loop, and wait for it."""
    await client.close()
    rest = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in rest:
        task.cancel()
    await asyncio.gather(*rest, return_exceptions=True)
    await asyncio.get_running_loop().shutdown_asyncgens()
