"""A turn on a conversation as a context manager: begun with a lease, ended on exit."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import quote

from threadfold_client.caller import Caller, conversation_path, fencing
from threadfold_client.calls import Call
from threadfold_client.errors import ClientError, Conflict
from threadfold_client.ids import new_id
from threadfold_client.models import TurnInfo, TurnPolicy, Turns, TurnStatus

MOST_WAIT = 10.0
"""Seconds that one request waits for a queued turn to begin."""
LEAVE_WITHIN = 5.0
"""Seconds that the request to end a turn may take whose entering failed or was cancelled."""

_leaving: set[asyncio.Task[None]] = set()
"""Requests to end such turns. They go on if their caller is cancelled again, and the event loop
alone does not keep them.
"""

Begin = Callable[[float, str], Awaitable[TurnInfo]]
Renew = Callable[[int, int | None], Awaitable[TurnInfo]]
End = Callable[[int | None, str | None], Awaitable[None]]


class Turn:
    """A turn; ``fencing_token`` and ``status`` are set once it is entered. Give the token to
    appends and partial text.

    The lease ends after its seconds: ``renew`` it for a longer run. With the policy ``queue``,
    entering waits until the turns before it are over, at most ``wait`` seconds. If entering fails
    or is cancelled, the turn leaves the queue.

    Raises:
        Conflict: another turn holds the conversation (policy ``reject``, or queued for longer than
            ``wait``).
    """

    def __init__(
        self,
        begin: Begin,
        renew: Renew,
        end: End,
        turns: Callable[[], Awaitable[Turns]],
        turn_id: str,
        wait: float,
    ) -> None:
        self.turn_id = turn_id
        self.info: TurnInfo | None = None
        self._begin = begin
        self._renew = renew
        self._end = end
        self._turns = turns
        self._wait = wait
        self._once: str | None = None

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
        """Begin it; wait if it is queued. If that fails or is cancelled, it leaves the queue, also
        if the gateway gets the request to begin it later.
        """
        self.info, self._once = None, new_id()
        try:
            await self._wait_to_begin(self._once)
        except (Exception, asyncio.CancelledError) as error:
            refused = isinstance(error, ClientError) and not error.unknown
            if self.info is not None or not refused:
                await self._leave(error)
            raise
        return self

    async def _wait_to_begin(self, once: str) -> None:
        deadline = time.monotonic() + self._wait
        self.info = await self._begin(min(self._wait, MOST_WAIT), once)
        while self.info.status == "queued":
            if time.monotonic() > deadline:
                raise Conflict(
                    f"turn {self.turn_id} was queued for {self._wait:g} s: another turn still"
                    " holds the conversation",
                    status=409,
                )
            left = max(0.05, min(deadline - time.monotonic(), MOST_WAIT))
            self.info = await self._begin(left, once)

    async def _leave(self, error: BaseException) -> None:
        """Leave the queue because of ``error``: nobody runs a turn that was not entered."""
        ending = asyncio.create_task(self._end_in_time(error), name=f"leave-{self.turn_id}")
        _leaving.add(ending)
        ending.add_done_callback(_leaving.discard)
        await asyncio.shield(ending)

    async def _end_in_time(self, error: BaseException) -> None:
        """End it within seconds; a failure becomes a note of ``error``, which is what matters."""
        try:
            async with asyncio.timeout(LEAVE_WITHIN):
                await self.end()
        except Conflict:
            return  # it is not in the queue any more
        except Exception as failed:  # noqa: BLE001 (it must not hide the error)
            error.add_note(
                f"turn {self.turn_id} could not be ended: it may stay in the queue, or hold the"
                f" conversation until its lease ends ({str(failed) or 'no answer in time'})"
            )

    async def renew(self, seconds: int | None = None) -> None:
        """Let the lease run on: for ``seconds`` from now, or as many as it began with; raises
        Conflict when the turn is over.
        """
        self.info = await self._renew(self.fencing_token, seconds)

    async def check(self) -> TurnStatus:
        """Ask how it stands now: ``active``, ``queued`` or ``over`` (ended, interrupted, or its
        lease ran out).
        """
        return (await self._turns()).status_of(self.turn_id)

    async def end(self) -> None:
        """End it; calls it left open are dead."""
        token = self.info.fencing_token if self.info else None
        # Without a token, a request to begin it may be under way, and come after this one.
        await self._end(token, self._once if token is None else None)

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


async def turns_of(caller: Caller, conversation: str) -> Turns:
    """The turns of a conversation; raises a :class:`ClientError`."""
    return await caller.decoded(Call("GET", f"{conversation_path(conversation)}/turns"), Turns)


def open_turn(
    caller: Caller,
    conversation: str,
    policy: TurnPolicy,
    seconds: int,
    model: str | None,
    turn_id: str | None,
    wait: float,
) -> Turn:
    """A turn that has not begun; the arguments are those of ``AsyncClient.turn``."""
    name = turn_id or new_id()
    path = f"{conversation_path(conversation)}/turns"
    own = f"{path}/{quote(name, safe='')}"
    body = {"turn_id": name, "policy": policy, "seconds": seconds}
    if model:
        body["model"] = model

    async def begin(queued: float, once: str) -> TurnInfo:
        waiting = {"wait": round(queued, 3)} if policy == "queue" else {}
        call = Call("POST", path, body={**body, **waiting}, headers=_key(once))
        return await caller.decoded(call, TurnInfo)

    async def renew(token: int, more: int | None) -> TurnInfo:
        lease = {"seconds": more or seconds}
        call = Call("POST", f"{own}/renew", body=lease, headers=fencing(token))
        return await caller.decoded(call, TurnInfo)

    async def end(token: int | None, once: str | None) -> None:
        headers = {**fencing(token), **_key(once)}
        await caller.document(Call("POST", f"{own}/end", headers=headers))

    return Turn(begin, renew, end, lambda: turns_of(caller, conversation), name, wait)


def _key(once: str | None) -> dict[str, str]:
    """The header that has requests with the same value begin the turn once, and not after it was
    ended with it.
    """
    return {} if once is None else {"Idempotency-Key": once}
