"""A conversation as a framework's session: it begins with an event to go back to; rollbacks clear
it and pop from it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from threadfold_client import (
    Appended,
    AsyncClient,
    ClientError,
    Conflict,
    NotFound,
    Unavailable,
)

OPENED = "session-opened"
"""The id of the event that a session's conversation begins with; clearing goes back to it."""
MAX_ITEMS = 500
LEFT_OUT = re.compile(r"\[\d+ earlier messages left out: \S+ to (\S+)\]")
"""The line for messages that a window leaves out."""
_NUMBER = re.compile(r"event (\d+)\b")


class SessionLog:
    """One conversation's events as a session; several may share a conversation, in any process."""

    def __init__(
        self, client: AsyncClient, conversation: str, channel: str, fence: int | None = None
    ) -> None:
        self.client = client
        self.conversation = conversation
        self._channel = channel
        self._fence = fence
        self._known = False
        self._beginning: str | None = None

    async def add(self, flats: Sequence[dict[str, Any]], names: Sequence[str] = ()) -> None:
        """Append events and wait until the window holds them.

        At most 500 go in one list, with the event that a session begins with. Nothing of others
        comes in between those of one list, and of a refused list nothing is appended; the lists
        before it stay.

        Args:
            names: how an error names each event, like ``message 3``.

        Raises:
            Conflict: the fold rejected one (a turn that is over).
            Unavailable: the conversation is parked; what was appended waits in the log.
            ClientError: as the client says.
        """
        events = list(flats)
        if not self._known and not await self._exists():
            events.insert(
                0, {"type": "conversation.opened", "id": OPENED, "channel": self._channel}
            )
        own = len(events) - len(flats)
        for begin in range(0, len(events), MAX_ITEMS):
            try:
                answer = await self.client.append(
                    self.conversation,
                    events[begin : begin + MAX_ITEMS],
                    wait="applied",
                    fence=self._fence,
                )
            except ClientError as error:
                _rename(error, names, begin - own)
                raise
            check_applied(answer)
            if answer.events[0].id == OPENED:
                self._beginning = answer.events[0].position
        self._known = True

    async def clear(self) -> None:
        """Go back to the beginning. A conversation that did not begin as a session keeps its first
        event.

        The log keeps everything, as with every rollback. ``AsyncClient.erase`` erases.
        """
        if self._beginning is None:
            try:
                async for event in self.client.iter_history(self.conversation, page=MAX_ITEMS):
                    self._beginning = event["position"]
            except NotFound:
                return
        if self._beginning is not None:
            check_applied(
                await self.client.rollback(self.conversation, self._beginning, fence=self._fence)
            )

    async def last(self) -> tuple[dict[str, Any], str | None, str | None] | None:
        """The newest message or result, the position of the event before it (None without one), and
        the window's position.
        """
        try:
            window = await self.client.context(self.conversation, format="events")
        except NotFound:
            return None
        before: str | None = None
        found: tuple[dict[str, Any], str | None] | None = None
        # Pinned text comes first, and the summary in place of its span: sort by the log's order.
        for event in sorted(window.messages, key=lambda event: _order(_place(event))):
            if event["type"] in ("message", "tool.result"):
                found = (event, before)
            before = _place(event)
        if found is None:
            return None
        last, before = found
        left_out = await self._left_out_to()
        if left_out is not None and _order(left_out) < _order(_place(last)):
            before = max(before or left_out, left_out, key=_order)
        return last, before, window.position

    async def _left_out_to(self) -> str | None:
        """The position of the last message that the window has no room for: it stands as a line in
        the place of it and of those before it.
        """
        window = await self.client.context(self.conversation, format="rendered")
        lines = (
            LEFT_OUT.fullmatch(message["content"])
            for message in window.messages
            if message.get("position") is None and isinstance(message.get("content"), str)
        )
        return max((line[1] for line in lines if line), key=_order, default=None)

    async def replace_last(
        self, before: str, rest: Sequence[dict[str, Any]], expect: str | None
    ) -> None:
        """Go back to ``before``, and append the rest of what stood behind it.

        Raises:
            Conflict: something else was appended since position ``expect``.
        """
        events = [{"type": "rollback", "to": before}, *rest]
        check_applied(
            await self.client.append(
                self.conversation, events, wait="applied", expect=expect, fence=self._fence
            )
        )

    async def _exists(self) -> bool:
        try:
            await self.client.context(self.conversation)
        except NotFound:
            return False
        return True


def _place(event: dict[str, Any]) -> str:
    """Where an event of the window stands: a summary where its span ends."""
    return str(event["to"] if event["type"] == "summary" else event["position"])


def _order(position: str) -> int:
    """The order of a position among those of its conversation."""
    return int(position.rpartition("-")[2])


def _rename(error: ClientError, names: Sequence[str], before: int) -> None:
    """Let an error about an event of a list name it as the caller knows it; ``before`` of the
    caller's were in earlier lists.
    """
    number = _NUMBER.match(error.detail)
    place = before + int(number[1]) - 1 if number else -1
    if number and 0 <= place < len(names):
        error.detail = names[place] + error.detail[number.end() :]
        error.args = (error.detail,)


def check_applied(answer: Appended) -> None:
    """Check that the window holds what was appended.

    Raises:
        Conflict: the fold rejected one of the events.
        Unavailable: the conversation is parked: they are in the log, and wait there.
    """
    for event in answer.events:
        if event.status == "parked":
            raise Unavailable(
                f"event {event.id} waits at {event.position}: the conversation is parked, and goes"
                " on once an operator retries or drops the event at which it is",
                status=503,
                type="conversation-parked",
                unknown=True,
            )
        if event.status == "rejected":
            raise Conflict(
                f"event {event.id} was rejected: its turn is over, or what it names is missing",
                status=409,
            )
