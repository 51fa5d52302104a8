"""Assistant text in progress: deltas go out as the model says them, and the whole becomes a message
at the end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from threadfold.client.calls import Call
from threadfold.client.errors import ClientError, Conflict, RateLimited, TooLarge, Unavailable
from threadfold.client.models import Appended

MAX_DELTA = 64_000
"""Characters sent at once; while a request is under way, what is written joins into the next."""

Send = Callable[[Call], Awaitable[bytes]]
Append = Callable[[dict[str, Any]], Awaitable[Appended]]


class PartialWriter:
    """Writes one message in progress. Made by ``AsyncClient.partial``; best used with ``async
    with``.

    ``write`` does not wait for the network: one request is under way at a time, and what is written
    meanwhile goes out together with the next, so a fast model is not slowed down. Each says from
    which character on it is, so that it may be sent again. Readers who miss text in progress miss
    nothing that lasts: where the service is away for a while, ``trouble`` holds the error and the
    text is sent with what comes next; only what refuses this writer (a turn that is over, an erased
    conversation) raises.

    Leaving the ``async with`` without :meth:`finish` keeps what was said as an interrupted message.
    """

    def __init__(
        self, send: Send, append: Append, call: Callable[[Any], Call], turn_id: str
    ) -> None:
        self.turn_id = turn_id
        self.trouble: ClientError | None = None
        self.appended: Appended | None = None
        self._send = send
        self._append = append
        self._call = call
        self._text: list[str] = []
        self._length = 0
        self._sent = 0
        self._refused: ClientError | None = None
        self._sending: asyncio.Task[None] | None = None
        self._ending = False
        self._told_again = False

    @property
    def text(self) -> str:
        """All that was written."""
        if len(self._text) > 1:
            self._text = ["".join(self._text)]
        return self._text[0] if self._text else ""

    async def write(self, delta: str) -> None:
        """Add text.

        Raises:
            ClientError: an earlier part was refused for good: by a turn that is over, or a
                conversation that was erased.
        """
        if self._refused is not None:
            raise self._refused
        if not delta:
            return
        self._text.append(delta)
        self._length += len(delta)
        if self._sending is None or self._sending.done():
            self._sending = asyncio.create_task(
                self._send_what_is_there(), name=f"partial-{self.turn_id}"
            )
        await asyncio.sleep(
            0
        )  # a model that answers at once must not keep the sending task from running

    async def flush(self) -> None:
        """Wait until all that was written is sent, or found not to be sendable now; raises like
        :meth:`write`.
        """
        while self._sent < self._length and self._refused is None:
            if self._sending is None or self._sending.done():
                self._sending = asyncio.create_task(
                    self._send_what_is_there(), name=f"partial-{self.turn_id}"
                )
            await asyncio.wait([self._sending])
            if self.trouble is not None:
                return
        if self._refused is not None:
            raise self._refused

    async def finish(self, message: dict[str, Any] | None = None, **fields: Any) -> Appended:
        """End it with its message: the text written, with ``fields`` (model, usage, tool_calls), or
        a whole ``message`` event in its place.

        Raises:
            ClientError: the append failed; it may be repeated, and changes nothing where it landed.
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
            self.appended = await self._append(flat)
        return self.appended

    async def interrupt(self) -> Appended | None:
        """End it as an interrupted message of what was said so far; None where nothing was."""
        await self._settle()
        if not self._length or self.appended is not None:
            return self.appended
        self.appended = await self._append(
            {"type": "message", "role": "assistant", "content": self.text, "status": "interrupted"}
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
                error.add_note(f"what was said so far could not be kept: {failed}")
        else:
            await self._settle()

    async def _settle(self) -> None:
        """Let a request under way end; what is still unsent is in the message that comes."""
        self._ending = True
        if self._sending is not None and not self._sending.done():
            await asyncio.wait([self._sending])

    async def _send_what_is_there(self) -> None:
        while self._sent < self._length and not self._ending:
            delta = self.text[self._sent : self._sent + MAX_DELTA]
            body = {"turn_id": self.turn_id, "delta": delta, "offset": self._sent}
            try:
                answer = msgspec.json.decode(await self._send(self._call(body)))
            except (Unavailable, RateLimited, TooLarge) as error:
                self.trouble = error
                return
            except Conflict as error:
                if not self._sent or self._told_again:
                    self._refused = error
                    return
                # The service may have lost what it held: told from the beginning, what it has is
                # passed over.
                self._sent, self._told_again = 0, True
                continue
            except ClientError as error:
                self._refused = error
                return
            self.trouble, self._told_again = None, False
            held = answer.get("offset") if isinstance(answer, dict) else None
            # The service tells how much it holds: less where it was started anew meanwhile, and
            # then it gets the rest again.
            self._sent = (
                min(held, self._length)
                if isinstance(held, int) and 0 <= held != self._sent
                else self._sent + len(delta)
            )
