"""Assistant text in progress: deltas are sent as the model gives them, and the whole becomes a
message at the end.
"""

from __future__ import annotations

import asyncio
import math
import re
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from threadfold_client.calls import Call
from threadfold_client.errors import (
    ClientError,
    Conflict,
    Invalid,
    RateLimited,
    TooLarge,
    Unavailable,
)
from threadfold_client.ids import new_id
from threadfold_client.models import Appended

MAX_DELTA = 64_000
"""Characters in one request."""
INTERVAL = 0.25
"""Seconds between the beginnings of two requests."""

_SURROGATE = re.compile("[\ud800-\udfff]")
_LONE = "\ufffd"
"""What stands for half of a character whose other half never came."""

Send = Callable[[Call], Awaitable[dict[str, Any]]]
Append = Callable[[dict[str, Any]], Awaitable[Appended]]


class PartialWriter:
    """Writes one message in progress. Made by ``AsyncClient.partial``; best used with ``async
    with``.

    ``write`` does not wait for the network. The first text goes at once. Then one request is under
    way at a time, and one begins every ``interval`` seconds at most; text written meanwhile goes
    out with the next one. Each request names its first character, so it may be
    repeated. While the service is away, ``trouble`` holds the error and the text waits for the next
    request. Only a refusal of this writer raises: its turn is over, or the conversation was erased.

    Leaving the ``async with`` without :meth:`finish` keeps the text as an interrupted message.
    """

    def __init__(
        self,
        send: Send,
        append: Append,
        call: Callable[[Any], Call],
        turn_id: str,
        interval: float = INTERVAL,
    ) -> None:
        if type(interval) not in (int, float) or not 0 <= interval < math.inf:
            raise Invalid(f"interval is {interval!r}: expected seconds, 0 or more")
        self.turn_id = turn_id
        self.trouble: ClientError | None = None
        self.appended: Appended | None = None
        # One id for its message: a repeated end cannot be a second one.
        self._id = new_id()
        self._send = send
        self._append = append
        self._call = call
        self._text: list[str] = []
        self._half = ""
        self._length = 0
        self._sent = 0
        self._refused: ClientError | None = None
        self._sending: asyncio.Task[None] | None = None
        self._ending = False
        self._restarted = False
        self._interval = interval
        self._next = 0.0
        self._hurry = asyncio.Event()

    @property
    def text(self) -> str:
        """All that was written; half of a character (a surrogate) without its other half is
        U+FFFD.
        """
        return self._whole + (_LONE if self._half else "")

    @property
    def _whole(self) -> str:
        """What can be sent."""
        if len(self._text) > 1:
            self._text = ["".join(self._text)]
        return self._text[0] if self._text else ""

    async def write(self, delta: str) -> None:
        """Add text.

        Raises:
            Invalid: it is no text, or its message was ended before.
            ClientError: an earlier part was refused for good: the turn is over, or the
                conversation was erased.
        """
        if self._refused is not None:
            raise self._refused
        if not isinstance(delta, str):
            raise Invalid(f"delta: expected text, got {type(delta).__name__}")
        if self._ending:
            raise Invalid(
                f"the message of turn {self.turn_id} is ended: no text can be added to it; make"
                " another writer"
            )
        whole, self._half = _joined(self._half + delta)
        if not whole:
            return
        self._text.append(whole)
        self._length += len(whole)
        if self._sending is None or self._sending.done():
            self._sending = asyncio.create_task(self._send_unsent(), name=f"partial-{self.turn_id}")
        # A model that answers at once must not keep the sending task from running.
        await asyncio.sleep(0)

    async def flush(self) -> None:
        """Wait until all text is sent, or ``trouble`` says why it cannot be sent now; raises like
        :meth:`write`.
        """
        self._hurry.set()
        while self._sent < self._length and self._refused is None and not self._ending:
            if self._sending is None or self._sending.done():
                self._sending = asyncio.create_task(
                    self._send_unsent(), name=f"partial-{self.turn_id}"
                )
            await asyncio.wait([self._sending])
            if self.trouble is not None:
                break
        self._hurry.clear()
        if self._refused is not None:
            raise self._refused

    async def finish(self, /, message: dict[str, Any] | None = None, **fields: Any) -> Appended:
        """End it with its message: the text written, with ``fields`` (model, usage, tool_calls), or
        a whole ``message`` event in its place.

        Raises:
            ClientError: the append failed; repeat it, which changes nothing if it landed.
        """
        if self.appended is None:
            await self._settle()
            flat = message or {
                "type": "message",
                "role": "assistant",
                "content": self.text,
                **fields,
            }
            if not flat.get("content") and flat.get("tool_calls") and "content" in flat:
                flat = {**flat, "content": None}
            # A repeat, and the interruption after a failure, are of the id that it may have landed
            # under.
            self._id = flat.get("id") or self._id
            self.appended = await self._append({**flat, "id": self._id})
        return self.appended

    async def interrupt(self) -> Appended | None:
        """End it as an interrupted message of the text so far; None without any."""
        await self._settle()
        if not self.text or self.appended is not None:
            return self.appended
        self.appended = await self._append(
            {
                "id": self._id,
                "type": "message",
                "role": "assistant",
                "content": self.text,
                "status": "interrupted",
            }
        )
        return self.appended

    async def __aenter__(self) -> PartialWriter:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: object
    ) -> None:
        if self.appended is None:
            try:
                await asyncio.shield(self.interrupt())
            except ClientError as failed:
                if error is None:
                    raise
                error.add_note(f"the text so far could not be kept: {failed}")
        else:
            await self._settle()

    async def _settle(self) -> None:
        """Let a request under way end; unsent text is in the message that follows."""
        self._ending = True  # whether the append lands is not known: its text must not change
        self._hurry.set()
        if self._sending is not None and not self._sending.done():
            await asyncio.wait([self._sending])

    async def _pause(self) -> None:
        """Wait until the next request may begin, or somebody waits for it."""
        left = self._next - time.monotonic()
        if left > 0:
            with suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._hurry.wait()
        self._next = time.monotonic() + self._interval

    async def _send_unsent(self) -> None:
        while self._sent < self._length:
            await self._pause()
            if self._ending:
                return
            delta = self._whole[self._sent : self._sent + MAX_DELTA]
            body = {"turn_id": self.turn_id, "delta": delta, "offset": self._sent}
            try:
                known = (await self._send(self._call(body))).get("offset")
            except (Unavailable, RateLimited, TooLarge) as error:
                self.trouble = error
                return
            except Conflict as error:
                if not self._sent or self._restarted:
                    self._refused = error
                    return
                # The service may have lost the text: send it from the beginning, it ignores what
                # it has.
                self._sent, self._restarted = 0, True
                continue
            except ClientError as error:
                self._refused = error
                return
            self.trouble, self._restarted = None, False
            # The service answers how much it has: less after a restart, and then it gets the rest
            # again.
            self._sent = (
                min(known, self._length)
                if isinstance(known, int) and 0 <= known != self._sent
                else self._sent + len(delta)
            )


def _joined(text: str) -> tuple[str, str]:
    """The text with halves of characters joined, and a first half at its end, which waits for the
    second: a model may cut a character in two.
    """
    if not _SURROGATE.search(text):
        return text, ""
    half = text[-1] if "\ud800" <= text[-1] <= "\udbff" else ""
    units = text.removesuffix(half).encode("utf-16-le", "surrogatepass")
    return units.decode("utf-16-le", "replace"), half
