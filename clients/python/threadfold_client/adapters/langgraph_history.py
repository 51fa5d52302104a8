"""A conversation's events from its newest back, for a graph: which of them rollbacks abandoned, and
which are others' to keep.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any

from threadfold_client import AsyncClient, NotFound

PREFIX = "langgraph-"
"""What the ids of a graph's events begin with."""
PAGE = 100
RECENT = 1_024
"""A rollback finds an id among so many events before it."""
_UNDONE = frozenset(
    {"message", "tool.result", "suspension", "resolution", "conversation.opened", "event.dropped"}
)
"""Types of events that a rollback must not take from others."""
_POSITION = re.compile(r"[0-9]+-[0-9]+")
_Place = tuple[int, int]


class Backwards:
    """A log's events, newest first, but for its rollbacks.

    History shows a rollback that was rejected like others. One did not happen if it names no event
    before it, or if the window still has a message behind the one that it names.

    Args:
        after: a position that the log must have, else all that is in it now.
    """

    def __init__(self, client: AsyncClient, conversation: str, after: str | None) -> None:
        self.newest: str | None = None
        self._client = client
        self._conversation = conversation
        self._source = _events(client, conversation, after)
        self._ahead: deque[dict[str, Any]] = deque()
        self._shown: set[_Place] | None = None

    async def events(self) -> AsyncIterator[tuple[dict[str, Any], str | None]]:
        """Each event with the id of the rollback that abandoned it, None if it stands."""
        while (event := await self._at(0)) is not None:
            self.newest = self.newest or event["position"]
            is_rollback = event["type"] == "rollback"
            abandoned = await self._abandoned(event) if is_rollback else 0
            self._ahead.popleft()
            if not is_rollback:
                yield event, None
            for gone, by in _by_whom(event, [self._ahead.popleft() for _ in range(abandoned)]):
                yield gone, by

    async def _at(self, number: int) -> dict[str, Any] | None:
        while len(self._ahead) <= number:
            event = await anext(self._source, None)
            if event is None:
                return None
            self._ahead.append(event)
        return self._ahead[number]

    async def _abandoned(self, rollback: Mapping[str, Any]) -> int:
        """How many events before it a rollback abandoned, 0 if it did not happen."""
        to = rollback["to"]
        target = _place(to) if _POSITION.fullmatch(to) else None
        behind: set[_Place] = set()
        pieces: set[str] = set()
        named = False
        while not named and (event := await self._at(len(behind) + 1)) is not None:
            place = _place(event["position"])
            named = event["id"] == to if target is None else place == target
            if len(behind) == RECENT if target is None else place < target:
                named = False
                break
            if not named:
                behind.add(place)
                pieces.update((event.get("spill") or {}).get("chunks") or ())
        # A long result's pieces are no events of the history, but a rollback may go to one.
        if not behind or not (named or to in pieces):
            return 0
        return len(behind) if behind.isdisjoint(await self._in_window()) else 0

    async def _in_window(self) -> set[_Place]:
        if self._shown is None:
            window = await self._client.context(
                self._conversation, format="events", after=self.newest
            )
            self._shown = {
                _place(event["position"])
                for event in window.messages
                if event["type"] in ("message", "tool.result")
            }
        return self._shown


def _by_whom(
    rollback: dict[str, Any], abandoned: Sequence[dict[str, Any]]
) -> Iterator[tuple[dict[str, Any], str]]:
    """What a rollback abandoned, newest first, each with the first rollback that did: an earlier
    one may be among them.
    """
    rollbacks = [rollback]
    for event in abandoned:
        while len(rollbacks) > 1 and rollbacks[-1]["to"] in (event["id"], event["position"]):
            rollbacks.pop()
        if event["type"] == "rollback":
            rollbacks.append(event)
        else:
            yield event, rollbacks[-1]["id"]


async def since(
    client: AsyncClient, conversation: str, position: str | None, *, after: str
) -> list[dict[str, Any]]:
    """What came after a position (None: all), newest first, at least up to position ``after``."""
    found: list[dict[str, Any]] = []
    begin = None if position is None else _place(position)
    async for event in _events(client, conversation, after, first=10):
        if begin is not None and _place(event["position"]) <= begin:
            break
        found.append(event)
    return found


def is_ours(event: Mapping[str, Any]) -> bool:
    """Whether it changes what the log has of a graph's state."""
    return event["type"] == "rollback" or str(event["id"]).startswith(PREFIX)


def is_lost(event: Mapping[str, Any]) -> bool:
    """Whether it is others' and a rollback would take it away: also what somebody saved in the
    memory, but not what threadfold learnt, and learns again.
    """
    kind = event["type"]
    is_saved = kind.startswith(("memory.", "skill.")) and kind != "memory.retrieved"
    if is_saved and event.get("origin", "explicit") == "explicit":
        return True
    return kind in _UNDONE and not event["id"].startswith(PREFIX)


async def _events(
    client: AsyncClient, conversation: str, after: str | None, first: int = PAGE
) -> AsyncIterator[dict[str, Any]]:
    limit = first
    place: dict[str, str] = {"after": after} if after else {"wait": "applied"}
    while True:
        try:
            found = await client.history(conversation, limit=limit, **place)
        except NotFound:  # nothing was said in it yet
            return
        for event in found.events:
            yield event
        if found.next_before is None:
            return
        place, limit = {"before": found.next_before}, PAGE


def _place(position: str) -> _Place:
    partition, _, offset = position.partition("-")
    return int(partition), int(offset)
