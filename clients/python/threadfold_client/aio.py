"""The asynchronous client: every call of the contract as a method, over any transport."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Self
from urllib.parse import quote

from threadfold_client.caller import Caller, conditions, conversation_path, fencing, query_of
from threadfold_client.calls import Call, CallName, Retries, Transport
from threadfold_client.http import HttpTransport
from threadfold_client.ids import new_id, with_id
from threadfold_client.memories import MemoryCalls
from threadfold_client.models import (
    Appended,
    Context,
    ContextFormat,
    HistoryPage,
    MessageFormat,
    TurnPolicy,
    Turns,
    context_of,
)
from threadfold_client.partial import INTERVAL, PartialWriter
from threadfold_client.subscription import Subscription, conversation_identity, summary_identity
from threadfold_client.turn import Turn, open_turn, turns_of
from threadfold_client.users import UserCalls
from threadfold_client.values import items_of

TIMEOUT = 20.0
"""Seconds one attempt may take. A call that waits for the window takes up to 10 of them."""


class AsyncClient(MemoryCalls, UserCalls):
    """A tenant's conversations over HTTP.

    A call that fails for a while (503, 429, a broken connection, no answer that can be used) is
    repeated as ``retries`` says. That is safe: every event has its id before it is first sent. Use
    a client in one event loop; ``async with`` closes it. Nothing connects before the first call.

    Args:
        url: the gateway's address.
        key: the tenant's key, or a token of an end user.
        timeout: seconds one attempt may take.
        retries: how often to repeat; a number is that many attempts in all.

    Raises (every method):
        ClientError: one of the classes in ``threadfold_client.errors``, by kind of problem.
    """

    def __init__(
        self, url: str, key: str, *, timeout: float = TIMEOUT, retries: Retries | int = Retries()
    ) -> None:
        self._begin(HttpTransport(url, key, timeout=timeout), retries)

    @classmethod
    def over(cls, transport: Transport, *, retries: Retries | int = Retries()) -> Self:
        """A client over a transport of your own."""
        made = cls.__new__(cls)
        made._begin(transport, retries)
        return made

    def _begin(self, transport: Transport, retries: Retries | int) -> None:
        self._caller = Caller(
            transport, Retries(attempts=retries) if isinstance(retries, int) else retries
        )

    async def close(self) -> None:
        """Close all connections; calls under way fail."""
        await self._caller.transport.close()

    async def __aenter__(self) -> Self:
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
        only_if_new: bool = False,
        fence: int | None = None,
        idempotency_key: str | None = None,
    ) -> Appended:
        """Append one flat event, or a list of at most 500 in its order; all are checked before any
        is appended.

        Args:
            wait: ``applied`` answers once the window holds them, each with a status.
            expect: a position; Conflict if anything was appended after it.
            only_if_new: Conflict if the conversation has an event already.
            fence: a turn's fencing token; the append is refused when that turn is over.
            idempotency_key: the ids of events that have none are derived from it, so that calls of
                several processes are one. Without it the client gives each event a new id.
        """
        path = f"{conversation_path(conversation)}/events"
        headers = conditions(expect, only_if_new, fence)
        return await self._append(
            path, conversation, events, query_of(wait=wait), headers, idempotency_key
        )

    async def append_messages(
        self,
        conversation: str,
        messages: Mapping[str, Any] | Sequence[Mapping[str, Any]],
        format: MessageFormat = "openai",  # noqa: A002 (the contract's name)
        *,
        wait: str | None = None,
        expect: str | None = None,
        only_if_new: bool = False,
        fence: int | None = None,
        idempotency_key: str | None = None,
    ) -> Appended:
        """Append messages in OpenAI's chat format or Anthropic's; one may become several events.

        The other arguments are those of :meth:`append`.
        """
        path = f"{conversation_path(conversation)}/messages"
        query = query_of(format=format, wait=wait)
        headers = conditions(expect, only_if_new, fence)
        return await self._append(path, "", messages, query, headers, idempotency_key)

    async def append_many(
        self,
        events: Sequence[Mapping[str, Any]],
        *,
        wait: str | None = None,
        idempotency_key: str | None = None,
    ) -> Appended:
        """Append events of several conversations, each with ``conversation``; in order within each.

        ``positions`` has the last position of each conversation.
        """
        return await self._append("/events", "", events, query_of(wait=wait), {}, idempotency_key)

    async def rollback(
        self, conversation: str, to: str, *, expect: str | None = None, fence: int | None = None
    ) -> Appended:
        """Go back to a position, or to the id of one of the last 1,024 events: the last that stays.

        Answers once it is applied.
        """
        return await self.append(
            conversation, {"type": "rollback", "to": to}, wait="applied", expect=expect, fence=fence
        )

    async def close_session(self, conversation: str) -> Appended:
        """Close the conversation's session; the next message or tool result opens it again."""
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
        recall: int = 0,
    ) -> Context:
        """What a model is sent. ``max_tokens`` is a limit of this reader's own, ``after`` a
        position that the window must include, ``recall`` what recalled memories have at most.
        """
        path = f"{conversation_path(conversation)}/context"
        recalled = query_of(recall="on", recall_tokens=recall) if recall else {}
        query = {**query_of(format=format, max_tokens=max_tokens, after=after), **recalled}
        call = Call("GET", path, "context", conversation, query)
        return await self._caller.read(call, lambda body: context_of(body, format, max_tokens))

    async def history(
        self,
        conversation: str,
        *,
        before: str | None = None,
        limit: int = 50,
        types: str | Sequence[str] | None = None,
        after: str | None = None,
        wait: str | None = None,
    ) -> HistoryPage:
        """A page of events from the log, newest first.

        Args:
            types: of this type or these types alone; a page may then be short and still have a
                next one. An empty list is no filter.
            after: a position; answers once the page can show it.
            wait: ``applied`` answers once the page can show all that is in the log.
        """
        path = f"{conversation_path(conversation)}/history"
        of_types = types if isinstance(types, str) else ",".join(types or ())
        query = query_of(before=before, limit=limit, after=after, wait=wait, type=of_types or None)
        return await self._caller.decoded(
            Call("GET", path, "history", conversation, query), HistoryPage
        )

    async def iter_history(
        self,
        conversation: str,
        *,
        before: str | None = None,
        page: int = 100,
        types: str | Sequence[str] | None = None,
    ) -> AsyncIterator[dict[str, Any]]:
        """All events, newest first; pages are read as they are needed."""
        while True:
            found = await self.history(conversation, before=before, limit=page, types=types)
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
        path = f"{conversation_path(conversation)}/events/{quote(position, safe='')}"
        query = query_of(offset=offset, limit=limit)
        return await self._caller.decoded(
            Call("GET", path, "event", conversation, query), dict[str, Any]
        )

    def conversations(self, /, **filters: str | int) -> AsyncIterator[dict[str, Any]]:
        """The tenant's conversations, page by page, last active first.

        The filters ``user``, ``channel``, ``state``, ``since`` and ``until`` leave those that have
        all of it.
        """
        return self._caller.pages("/conversations", filters)

    def suspensions(self, /, **filters: str | int) -> AsyncIterator[dict[str, Any]]:
        """The tenant's open suspensions, page by page."""
        return self._caller.pages("/suspensions", filters)

    def summaries_of(
        self, /, conversation: str, **filters: str | int
    ) -> AsyncIterator[dict[str, Any]]:
        """The summaries of one conversation, page by page."""
        return self._caller.pages(f"{conversation_path(conversation)}/summaries", filters)

    # -- streams
    # ------------------------------------------------------------------------------------------

    def subscribe(self, conversation: str, after: str | None = None) -> Subscription:
        """Events, summaries, text in progress and states of a conversation as they come; from now
        on, or after a position.

        It connects again by itself, and neither skips nor repeats events. Of ``partial`` and
        ``state`` it gives what is new.
        """
        path = f"{conversation_path(conversation)}/stream"

        def make(last: str | None) -> Call:
            return Call("GET", path, "stream", conversation, headers=_resume(last))

        return Subscription(self._caller, make, conversation_identity, after)

    def summaries(self, cursor: str | None = None, *, from_beginning: bool = False) -> Subscription:
        """The tenant's accepted summaries, voidings and erasures as they come, each once. An event
        ``missing`` says that earlier ones are lost.

        It begins now, after a cursor (the id of an event of this stream), or with the first there
        ever was.
        """

        def make(last: str | None) -> Call:
            query = {"from": "beginning"} if from_beginning and last is None else {}
            path = "/summaries/stream"
            return Call("GET", path, "summaries", query=query, headers=_resume(last))

        return Subscription(self._caller, make, summary_identity, cursor)

    def partial(
        self,
        conversation: str,
        turn_id: str | None = None,
        *,
        fence: int | None = None,
        interval: float = INTERVAL,
    ) -> PartialWriter:
        """A writer of text in progress, which its message ends; see :class:`PartialWriter`.

        ``interval`` are the seconds between two requests; what is written meanwhile goes together.
        Raises :class:`Invalid` if it is no number of seconds.
        """
        path = f"{conversation_path(conversation)}/partial"

        def make(body: Any) -> Call:
            return Call("POST", path, "partial", conversation, body=body, headers=fencing(fence))

        async def append(flat: dict[str, Any]) -> Appended:
            return await self.append(conversation, flat, fence=fence)

        return PartialWriter(self._caller.document, append, make, turn_id or new_id(), interval)

    # -- turns
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
        """A turn on the conversation, leased for ``seconds``; enter it with ``async with``.

        Args:
            policy: what happens while another turn holds the conversation: ``reject``, ``queue``,
                or ``interrupt`` it.
            wait: seconds to wait in the queue.
        """
        return open_turn(self._caller, conversation, policy, seconds, model, turn_id, wait)

    async def turns(self, conversation: str) -> Turns:
        """The active turn of the conversation, and those that wait for it."""
        return await turns_of(self._caller, conversation)

    async def compact(self, conversation: str, *, fence: int | None = None) -> Appended:
        """Ask for a compaction now; a summary follows as an event."""
        headers = {"Idempotency-Key": new_id(), **fencing(fence)}
        path = f"{conversation_path(conversation)}/compact"
        return await self._caller.decoded(Call("POST", path, headers=headers), Appended)

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

        It is repeated only where nothing can have been recorded, as a record has no id of the
        caller's.
        """
        fields = {
            "model": model,
            "render_digest": context.render_digest,
            "position": context.position,
            "format": context.format,
            "tokens": context.tokens,
            "summary_id": context.summary.get("summary_id") if context.summary else None,
            "policy": policy,
            "max_tokens": context.max_tokens,
            "reported_usage": None if reported_usage is None else dict(reported_usage),
            "latency_ms": latency_ms,
        }
        body = {name: value for name, value in fields.items() if value is not None}
        path = f"{conversation_path(conversation)}/renders"
        found = await self._caller.document(Call("POST", path, body=body, repeat="refused"))
        return None if found.get("id") is None else str(found["id"])

    async def _append(
        self,
        path: str,
        conversation: str,
        items: Mapping[str, Any] | Sequence[Mapping[str, Any]],
        query: Mapping[str, str | int],
        headers: dict[str, str],
        idempotency_key: str | None,
    ) -> Appended:
        listed = items_of(items, "message" if path.endswith("/messages") else "event")
        if idempotency_key is not None:
            headers["Idempotency-Key"] = idempotency_key
            body = [dict(item) if isinstance(item, Mapping) else item for item in listed]
        else:
            body = [with_id(item) for item in listed]
        name: CallName = "append" if conversation else "other"
        call = Call("POST", path, name, conversation, query, body, headers)
        return await self._caller.decoded(call, Appended)


def _resume(last: str | None) -> dict[str, str]:
    return {} if last is None else {"Last-Event-ID": last}
