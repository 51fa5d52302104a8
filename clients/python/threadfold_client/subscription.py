"""Subscriptions that outlive their connections: each resumes after the last id, skips nothing and
gives nothing twice.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Hashable
from contextlib import aclosing
from typing import Any

import msgspec

from threadfold_client.caller import Caller
from threadfold_client.calls import Call
from threadfold_client.errors import ClientClosed, ClientError, Fault, RateLimited, Unavailable
from threadfold_client.models import StreamEvent
from threadfold_client.sse import ServerSent

REMEMBERED = 4096
"""Events back within which a repeat is noticed."""
MAX_TURNS = 256
"""Messages in progress whose length is remembered; of one more, a new connection may give the
beginning again.
"""
STEADY = 5.0
"""Seconds after which a connection is steady: its failure counts as the first one."""


class Seen:
    """What came last of each of the last ``limit`` keys: notices repeats."""

    def __init__(self, limit: int = REMEMBERED) -> None:
        self._keys: OrderedDict[Hashable, str] = OrderedDict()
        self._limit = limit

    def add(self, key: Hashable, kind: str) -> bool:
        """Remember what came of a key; False if that came last, too."""
        if self._keys.get(key) == kind:
            return False
        self._keys[key] = kind
        self._keys.move_to_end(key)
        if len(self._keys) > self._limit:
            self._keys.popitem(last=False)
        return True


class PartialTexts:
    """Cuts repeated text from deltas: a new connection gets a message in progress from its
    beginning.
    """

    def __init__(self) -> None:
        self._lengths: OrderedDict[str, int] = OrderedDict()

    def new_part(self, data: dict[str, Any]) -> dict[str, Any] | None:
        """The part of the delta that is new, None where nothing is; a delta that begins beyond
        what is known comes as it is.
        """
        turn, offset = str(data.get("turn_id")), int(data.get("offset") or 0)
        if "ended" in data:
            self._lengths.pop(turn, None)
            return data
        delta = str(data.get("delta") or "")
        known = turn in self._lengths
        length = self._lengths.get(turn, 0)
        end = offset + len(delta)
        self._lengths[turn] = max(length, end)
        self._lengths.move_to_end(turn)
        if len(self._lengths) > MAX_TURNS:
            self._lengths.popitem(last=False)
        if not known or offset >= length:
            return data
        return (
            {**data, "offset": length, "delta": delta[length - offset :]} if end > length else None
        )


class Subscription:
    """One subscription as an async iterator of :class:`StreamEvent`; ``last_id`` is where another
    may resume.

    It connects again by itself when a connection ends, breaks or is refused for a while (429, 5xx).
    It goes on as long as it is iterated. ``make`` gives the call that resumes after an id,
    ``identity`` what an event is about: the second of two of a kind that come after each other of
    it is a repeat.

    Raises:
        ClientError: the subscription is refused for good.
    """

    def __init__(
        self,
        caller: Caller,
        make: Callable[[str | None], Call],
        identity: Callable[[StreamEvent], Hashable | None],
        after: str | None,
    ) -> None:
        self._caller = caller
        self._make = make
        self._identity = identity
        self.last_id = after
        self._seen = Seen()
        self._texts = PartialTexts()
        self._events = self._run()
        self._one = asyncio.Lock()

    def __aiter__(self) -> AsyncIterator[StreamEvent]:
        return self

    async def __anext__(self) -> StreamEvent:
        async with self._one:
            return await anext(self._events)

    async def aclose(self) -> None:
        """End it and its connection; where another task waits for the next event, once that has
        come or the task was cancelled.
        """
        async with self._one:
            await self._events.aclose()

    async def __aenter__(self) -> Subscription:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def _run(self) -> Any:
        failures = 0
        while True:
            begun = time.monotonic()
            asked: float | None = None
            try:
                source = self._caller.transport.stream(self._make(self.last_id))
                async with aclosing(source):  # type: ignore[type-var]
                    async for sent in source:
                        event = self._event(sent)
                        if event is not None:
                            yield event
                failures = 0 if time.monotonic() - begun > STEADY else failures + 1
            except ClientClosed:
                return
            except ClientError as error:
                if not isinstance(error, Unavailable | RateLimited) and error.status not in (
                    500,
                    502,
                ):
                    raise
                asked = error.retry_after
                failures = 1 if time.monotonic() - begun > STEADY else failures + 1
            await asyncio.sleep(self._caller.retries.delay(max(1, failures), asked))

    def _event(self, sent: ServerSent) -> StreamEvent | None:
        """The event to give for a sent one, None for a repeat; ``last_id`` moves on with every
        id.
        """
        if not sent.event:
            self.last_id = sent.id
            return None
        try:
            data = msgspec.json.decode(sent.data)
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise Fault(f"the stream sent an event {sent.event!r} whose data is not JSON") from None
        if not isinstance(data, dict):
            raise Fault(f"the stream sent an event {sent.event!r} whose data is no object")
        event = StreamEvent(sent.event, sent.id, data)
        if sent.id is not None:
            self.last_id = sent.id
        elif (
            sent.event == "state" and self.last_id is None and isinstance(data.get("position"), str)
        ):
            # Joined without a place: a break before the first event resumes here.
            self.last_id = data["position"]
        if sent.event == "partial":
            new = self._texts.new_part(data)
            return None if new is None else StreamEvent("partial", None, new)
        key = self._identity(event)
        return event if key is None or self._seen.add(key, event.event) else None


def conversation_identity(event: StreamEvent) -> Hashable | None:
    """Two events of a conversation are the same if their kind and position are; one without a
    position is always new.
    """
    return None if event.id is None else (event.event, event.id)


def summary_identity(event: StreamEvent) -> Hashable | None:
    """Summaries are delivered at least once: the same summary, voiding or erasure is given once.
    After its voiding a summary may come again: a rollback of the rollback put it in force.
    """
    name = event.data.get("summary_id") or event.data.get("id") or event.id
    return None if name is None else str(name)
