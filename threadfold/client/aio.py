"""The asynchronous client: every call of the contract as a method, over either transport."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

import msgspec

from projections.errors import InvalidName
from projections.names import make_key
from threadfold.client.calls import Call, Retries, Transport, may_repeat
from threadfold.client.errors import ClientError, Conflict, Fault, Invalid
from threadfold.client.ids import new_id, with_id
from threadfold.client.models import (
    Appended,
    Context,
    ContextFormat,
    HistoryPage,
    MessageFormat,
    TurnInfo,
    TurnPolicy,
    context_of,
)
from threadfold.client.partial import PartialWriter
from threadfold.client.subscription import Subscription, conversation_identity, summary_identity
from threadfold.client.turn import Turn

if TYPE_CHECKING:
    from streams.settings.settings import Settings

TIMEOUT = 20.0
"""Seconds one attempt may take: a call that waits for the fold may take 10 of them by itself."""
T = TypeVar("T")


class AsyncClient:
    """A tenant's conversations, over HTTP or (:meth:`direct`) straight from Kafka and Redis, with
    the same methods and errors.

    Calls that fail for a while (503, 429, a broken connection, no answer) are repeated as
    ``retries`` says; that is safe, because every event has its id before it is first sent. Use it
    in one event loop; ``async with`` closes it. Nothing connects before the first call.

    Args:
        url: the gateway's address.
        key: the tenant's key.
        timeout: seconds one attempt may take.
        retries: how often to repeat; a number is that many attempts in all.

    Raises (every method):
        ClientError: one of the classes in ``threadfold.client.errors``, by kind of problem.
    """

    def __init__(
        self, url: str, key: str, *, timeout: float = TIMEOUT, retries: Retries | int = Retries()
    ) -> None:
        from threadfold.client.http import HttpTransport

        self._begin(HttpTransport(url, key, timeout=timeout), retries)

    @classmethod
    def direct(
        cls,
        settings: Settings,
        tenant: str,
        *,
        timeout: float = TIMEOUT,
        retries: Retries | int = Retries(),
    ) -> AsyncClient:
        """A client without a gateway in between, for services that may reach Kafka and Redis
        themselves: it acts for any tenant named.
        """
        from threadfold.client.direct import DirectTransport

        return cls.over(DirectTransport(settings, tenant, timeout=timeout), retries=retries)

    @classmethod
    def over(cls, transport: Transport, *, retries: Retries | int = Retries()) -> AsyncClient:
        """A client over a transport of one's own."""
        made = cls.__new__(cls)
        made._begin(transport, retries)
        return made

    def _begin(self, transport: Transport, retries: Retries | int) -> None:
        self._transport = transport
        self._retries = Retries(attempts=retries) if isinstance(retries, int) else retries

    async def close(self) -> None:
        """Close all connections; calls under way fail."""
        await self._transport.close()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # -- appending
    # ------------------------------------------------------------------------------------------

    async def append(
        self,
        conversation: str,
        events: Mapping[str, Any] | Sequence[Mapping[str, Any]],
        *,
        wait: str | None = None,
        expect: str | None = None,
        fence: int | None = None,
        idempotency_key: str | None = None,
    ) -> Appended:
        """Append one flat event or a list of at most 500, which lands in order; all are checked
        before any is appended.

        Args:
            wait: ``applied`` to answer once the window holds them, each with a status. expect: a
            position: Conflict when anything else came after it. fence: a turn's fencing token:
            refused when that turn is over. idempotency_key: derives the ids of events that have
            none, so that calls of different processes are one; without it the client
                gives each event an id of its own.
        """
        call = self._appending(
            f"{_path(conversation)}/events",
            conversation,
            events,
            wait,
            expect,
            fence,
            idempotency_key,
        )
        return await self._appended(call)

    async def append_messages(
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
        """The same for messages in OpenAI's chat format or Anthropic's, of which one may become
        several events.
        """
        call = self._appending(
            f"{_path(conversation)}/messages",
            conversation,
            messages,
            wait,
            expect,
            fence,
            idempotency_key,
            {"format": format},
        )
        return await self._appended(call)

    async def append_many(
        self,
        events: Sequence[Mapping[str, Any]],
        *,
        wait: str | None = None,
        idempotency_key: str | None = None,
    ) -> Appended:
        """Events of several conversations, each with ``conversation``; in order within each.
        ``positions`` has the last of each.
        """
        return await self._appended(
            self._appending("/events", "", events, wait, None, None, idempotency_key)
        )

    async def rollback(
        self, conversation: str, to: str, *, expect: str | None = None, fence: int | None = None
    ) -> Appended:
        """Go back to a position, or to one of the last 1,024 events by its id: the last that stays.
        Answers once it is applied.
        """
        return await self.append(
            conversation, {"type": "rollback", "to": to}, wait="applied", expect=expect, fence=fence
        )

    async def close_session(self, conversation: str) -> Appended:
        """Close the conversation's session; the next message opens it again."""
        return await self.append(conversation, {"type": "session.closed", "reason": "explicit"})

    # -- reading
    # ------------------------------------------------------------------------------------------

    async def context(
        self,
        conversation: str,
        *,
        format: ContextFormat = "openai",  # noqa: A002 (the contract's name)
        max_tokens: int | None = None,
        after: str | None = None,
    ) -> Context:
        """What a model is sent; with ``after`` once the window includes that position."""
        query = _query(format=format, max_tokens=max_tokens, after=after)
        body = await self._call(
            Call("GET", f"{_path(conversation)}/context", "context", conversation, query)
        )
        try:
            return context_of(body, format, max_tokens)
        except msgspec.DecodeError as error:
            raise Fault(f"the service answered something that is no context: {error}") from None

    async def history(
        self, conversation: str, *, before: str | None = None, limit: int = 50
    ) -> HistoryPage:
        """A page of events from the log, newest first."""
        call = Call(
            "GET",
            f"{_path(conversation)}/history",
            "history",
            conversation,
            _query(before=before, limit=limit),
        )
        return _decoded(await self._call(call), HistoryPage)

    async def iter_history(
        self, conversation: str, *, before: str | None = None, page: int = 100
    ) -> AsyncIterator[dict[str, Any]]:
        """All events, newest first, read page by page as they are asked for."""
        while True:
            found = await self.history(conversation, before=before, limit=page)
            for event in found.events:
                yield event
            before = found.next_before
            if before is None:
                return

    async def event(
        self, conversation: str, position: str, offset: int | None = None, limit: int | None = None
    ) -> dict[str, Any]:
        """One event whole; with ``offset`` or ``limit`` (characters) that page of its text as
        ``content``.
        """
        path = f"{_path(conversation)}/events/{quote(position, safe='')}"
        return _decoded(
            await self._call(
                Call("GET", path, "event", conversation, _query(offset=offset, limit=limit))
            ),
            dict[str, Any],
        )

    def conversations(self, **filters: str | int) -> AsyncIterator[dict[str, Any]]:
        """The tenant's active and recent conversations, page by page."""
        return self._paged("/conversations", filters)

    def suspensions(self, **filters: str | int) -> AsyncIterator[dict[str, Any]]:
        """The tenant's open suspensions, page by page."""
        return self._paged("/suspensions", filters)

    def summaries_of(
        self, conversation: str, **filters: str | int
    ) -> AsyncIterator[dict[str, Any]]:
        """The summaries of one conversation, page by page."""
        return self._paged(f"{_path(conversation)}/summaries", filters)

    # -- streams
    # ------------------------------------------------------------------------------------------

    def subscribe(self, conversation: str, after: str | None = None) -> Subscription:
        """Events, summaries, text in progress and states of a conversation as they come; from now
        on, or after a position.

        It connects again by itself and neither skips nor repeats events; ``partial`` and ``state``
        are told as far as they are new.
        """
        path = f"{_path(conversation)}/stream"

        def make(last: str | None) -> Call:
            return Call(
                "GET",
                path,
                "stream",
                conversation,
                headers={} if last is None else {"Last-Event-ID": last},
            )

        return Subscription(self._transport, make, conversation_identity, after, self._retries)

    def summaries(self, cursor: str | None = None, *, from_beginning: bool = False) -> Subscription:
        """The tenant's accepted summaries, voidings and erasures as they come, each once.

        From now on, after a cursor (the id of an event of this stream), or all there ever were.
        """

        def make(last: str | None) -> Call:
            if last is not None:
                return Call(
                    "GET", "/summaries/stream", "summaries", headers={"Last-Event-ID": last}
                )
            return Call(
                "GET",
                "/summaries/stream",
                "summaries",
                query={"from": "beginning"} if from_beginning else {},
            )

        return Subscription(self._transport, make, summary_identity, cursor, self._retries)

    def partial(
        self, conversation: str, turn_id: str | None = None, *, fence: int | None = None
    ) -> PartialWriter:
        """A writer of text in progress, which its message ends; see :class:`PartialWriter`."""
        path = f"{_path(conversation)}/partial"
        turn = turn_id or new_id()

        def make(body: Any) -> Call:
            return Call("POST", path, "partial", conversation, body=body, headers=_fencing(fence))

        async def append(flat: dict[str, Any]) -> Appended:
            return await self.append(conversation, flat, fence=fence)

        return PartialWriter(self._call, append, make, turn)

    # -- runs
    # ------------------------------------------------------------------------------------------

    def turn(
        self,
        conversation: str,
        *,
        policy: TurnPolicy = "reject",
        seconds: int = 60,
        model: str | None = None,
        turn_id: str | None = None,
        wait: float = 60.0,
    ) -> Turn:
        """A run on the conversation, leased for ``seconds``: ``async with client.turn(c) as turn: …
        turn.fencing_token``.
        """
        name = turn_id or new_id()
        path = f"{_path(conversation)}/turns"
        body = {
            "turn_id": name,
            "policy": policy,
            "seconds": seconds,
            **({"model": model} if model else {}),
        }
        own = f"{path}/{quote(name, safe='')}"

        async def begin(queued: float) -> TurnInfo:
            waiting = {"wait": round(queued, 3)} if policy == "queue" else {}
            return _decoded(
                await self._call(Call("POST", path, body={**body, **waiting})), TurnInfo
            )

        async def renew(token: int, more: int | None) -> TurnInfo:
            return _decoded(
                await self._call(
                    Call(
                        "POST",
                        f"{own}/renew",
                        body={"seconds": more or seconds},
                        headers=_fencing(token),
                    )
                ),
                TurnInfo,
            )

        async def end(token: int | None) -> None:
            await self._call(Call("POST", f"{own}/end", headers=_fencing(token)))

        return Turn(begin, renew, end, name, wait)

    async def compact(self, conversation: str, *, fence: int | None = None) -> Appended:
        """Ask for a compaction now; a summary follows as an event."""
        headers = {"Idempotency-Key": new_id(), **_fencing(fence)}
        return await self._appended(Call("POST", f"{_path(conversation)}/compact", headers=headers))

    async def record_call(
        self,
        conversation: str,
        context: Context,
        model: str,
        *,
        reported_usage: Mapping[str, Any] | None = None,
        latency_ms: float | None = None,
        policy: str | None = None,
    ) -> str | None:
        """Record in the ledger that a model was sent this context; returns the record's id, None
        where the tenant keeps no ledger.

        Repeated only where it is certain that nothing was recorded: a record has no id of the
        caller's.
        """
        summary = context.summary
        fields = {
            "model": model,
            "render_digest": context.render_digest,
            "position": context.position,
            "format": context.format,
            "tokens": context.tokens,
            "summary_id": summary.get("summary_id") if summary else None,
            "policy": policy,
            "max_tokens": context.max_tokens,
            "reported_usage": None if reported_usage is None else dict(reported_usage),
            "latency_ms": latency_ms,
        }
        body = {name: value for name, value in fields.items() if value is not None}
        answer = _document(
            await self._call(
                Call("POST", f"{_path(conversation)}/renders", body=body, repeat="refused")
            )
        )
        found = answer.get("id")
        return None if found is None else str(found)

    async def erase(self, conversation: str) -> dict[str, Any]:
        """Erase the conversation, for good; answers the receipt: each store with its deadline."""
        return _document(await self._call(Call("DELETE", _path(conversation))))

    # -- parts
    # ------------------------------------------------------------------------------------------

    def _appending(
        self,
        path: str,
        conversation: str,
        items: Mapping[str, Any] | Sequence[Mapping[str, Any]],
        wait: str | None,
        expect: str | None,
        fence: int | None,
        idempotency_key: str | None,
        query: Mapping[str, str] | None = None,
    ) -> Call:
        listed: Iterable[Any] = [items] if isinstance(items, Mapping) else items
        headers = _fencing(fence)
        if expect is not None:
            headers["If-Match"] = f'"{expect}"'
        if idempotency_key is not None:
            headers["Idempotency-Key"] = idempotency_key
            body = [dict(item) if isinstance(item, Mapping) else item for item in listed]
        else:
            body = [with_id(item) for item in listed]
        name = "append" if conversation and query is None else "other"
        return Call(
            "POST",
            path,
            name,  # type: ignore[arg-type]
            conversation,
            {**(query or {}), **({"wait": wait} if wait else {})},
            body,
            headers,
        )

    async def _appended(self, call: Call) -> Appended:
        return _decoded(await self._call(call), Appended)

    async def _call(self, call: Call) -> bytes:
        """One call, repeated while that is safe and there is time."""
        begun = time.monotonic()
        failures, lost = 0, False
        while True:
            try:
                return await self._transport.request(call)
            except ClientError as error:
                failures += 1
                if isinstance(error, Conflict) and lost:
                    error.unknown = True
                lost = lost or error.unknown
                delay = self._retries.delay(failures, error.retry_after)
                late = time.monotonic() - begun + delay > self._retries.total
                if late or failures >= self._retries.attempts or not may_repeat(call, error):
                    raise
            await asyncio.sleep(delay)

    async def _paged(
        self, path: str, filters: Mapping[str, str | int]
    ) -> AsyncIterator[dict[str, Any]]:
        """The items of all pages: a page is an object of one list, and ``next_NAME`` to be given as
        ``NAME`` for the next.
        """
        query = dict(filters)
        while True:
            page = _document(await self._call(Call("GET", path, query=query)))
            for listed in page.values():
                if isinstance(listed, list):
                    for item in listed:
                        yield item
            cursors = {
                name.removeprefix("next_"): value
                for name, value in page.items()
                if name.startswith("next_")
            }
            if not any(cursors.values()):
                return
            query.update({name: value for name, value in cursors.items() if value})


def _path(conversation: str) -> str:
    """The path of a conversation; a name that is none is refused here, before a URL is made of
    it.
    """
    try:
        make_key("-", conversation)
    except InvalidName as error:
        raise Invalid(str(error), status=422, type="invalid-name", title="Invalid name") from None
    if conversation in (".", ".."):
        raise Invalid(
            f"conversation {conversation} cannot be named in a URL: over HTTP it means another one",
            status=422,
            type="invalid-name",
        )
    return f"/conversations/{conversation}"


def _query(**given: str | int | None) -> dict[str, str | int]:
    return {name: value for name, value in given.items() if value is not None}


def _fencing(fence: int | None) -> dict[str, str]:
    return {} if fence is None else {"Fencing-Token": str(fence)}


def _decoded(body: bytes, form: type[T]) -> T:
    try:
        return msgspec.json.decode(body, type=form)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Fault(f"the service answered something else than expected: {error}") from None


def _document(body: bytes) -> dict[str, Any]:
    return _decoded(body, dict[str, Any]) if body else {}
