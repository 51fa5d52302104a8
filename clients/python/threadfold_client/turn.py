"""A turn on a conversation as a context manager: begun with a lease, ended on exit."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

from threadfold_client.errors import ClientError, Conflict
from threadfold_client.models import TurnInfo

MOST_WAIT = 10.0
"""Seconds that one request waits for a queued turn to begin."""

Begin = Callable[[float], Awaitable[TurnInfo]]
Renew = Callable[[int, int | None], Awaitable[TurnInfo]]
End = Callable[[int | None], Awaitable[None]]


class Turn:
    """A turn; ``fencing_token`` and ``status`` are set once it is entered. Give the token to
    appends and partial text.

    The lease ends after its seconds: ``renew`` it for a longer run. With the policy ``queue``,
    entering waits until the turns before it are over, at most ``wait`` seconds.

    Raises:
        Conflict: another turn holds the conversation (policy ``reject``, or queued for longer than
            ``wait``).
    """

    def __init__(self, begin: Begin, renew: Renew, end: End, turn_id: str, wait: float) -> None:
        self.turn_id = turn_id
        self.info: TurnInfo | None = None
        self._begin = begin
        self._renew = renew
        self._end = end
        self._wait = wait

    @property
    def fencing_token(self) -> int:
        """The proof that this turn holds the conversation; raises RuntimeError before it began."""
        if self.info is None or self.info.fencing_token is None:
            raise RuntimeError("the turn has not begun: enter it with `async with`")
        return self.info.fencing_token

    @property
    def status(self) -> str:
        """``started`` or ``queued``; empty before it began."""
        return self.info.status if self.info else ""

    async def begin(self) -> Turn:
        """Begin it; wait if it is queued."""
        deadline = time.monotonic() + self._wait
        self.info = await self._begin(min(self._wait, MOST_WAIT))
        while self.info.status == "queued":
            if time.monotonic() > deadline:
                await self.end()
                raise Conflict(
                    f"turn {self.turn_id} was queued for {self._wait:g} s: another one still holds"
                    " the conversation",
                    status=409,
                )
            self.info = await self._begin(max(0.05, min(deadline - time.monotonic(), MOST_WAIT)))
        return self

    async def renew(self, seconds: int | None = None) -> None:
        """Let the lease run on: for ``seconds`` from now, or as many as it began with; raises
        Conflict when the turn is over.
        """
        self.info = await self._renew(self.fencing_token, seconds)

    async def end(self) -> None:
        """End it; calls it left open are dead."""
        await self._end(self.info.fencing_token if self.info else None)

    async def __aenter__(self) -> Turn:
        return await self.begin()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: Any
    ) -> None:
        try:
            await asyncio.shield(self.end())
        except Conflict:
            return  # it was interrupted, or its lease ended: later appends were refused
        except ClientError as failed:
            if error is None:
                raise
            error.add_note(f"the turn could not be ended and ends with its lease: {failed}")
