"""What ends a text in progress: an assistant's message in the log, a rollback to before it began,
or an erasure.
"""

from __future__ import annotations

import re
from hashlib import sha256
from typing import NamedTuple

from projections.errors import InvalidPosition
from projections.events.types import AnyEvent, ErasedEvent, MessageEvent
from projections.fold.apply import id_hash_of
from projections.names import Key, parse_position
from projections.window.recent_ids import RecentIds
from threadfold.streaming.partial_store import Text

_KEPT = re.compile(r"partial-[0-9a-f]{32}")


def kept_id(key: Key, turn: str, since: int) -> str:
    """The id of the message that an interrupted text becomes; every gateway derives the same."""
    return "partial-" + sha256("\n".join((str(key), turn, str(since))).encode()).hexdigest()[:32]


def ends_text(id: str, key: Key, turn: str, since: int) -> bool:  # noqa: A002
    """Whether an assistant's message of that id ends this text.

    A message that another text has become does not. If two gateways ended that text, its second
    message may come after the next text has begun.
    """
    return _KEPT.fullmatch(id) is None or id == kept_id(key, turn, since)


def is_end(event: AnyEvent, key: Key, text: Text) -> bool:
    """Whether an event of the conversation that came after the text began ends it, be it that it is
    a message or an erasure.
    """
    if type(event) is MessageEvent:
        return event.data.role == "assistant" and ends_text(event.id, key, text.turn, text.since)
    return type(event) is ErasedEvent


class Ending(NamedTuple):
    """What ended a text: a message (or an erasure); or ``rollback``: one to before its beginning;
    or ``unknown``: so much came since that it is not known any more, and it passes for ended.
    """

    offset: int
    rollback: bool = False
    unknown: bool = False


class Rollback(NamedTuple):
    """A rollback in the log; ``to`` is what it names as its target."""

    offset: int
    id: str
    to: str

    def goes_before(self, since: int, ids: RecentIds) -> bool:
        """Whether it was accepted and goes to before an offset, by the last ids that the window
        has; what those do not know passes for accepted, and old.
        """
        itself = ids.find(id_hash_of(self.id))
        if itself is not None and (itself.rejected or itself.offset != self.offset):
            return False
        try:
            return parse_position(self.to).offset < since
        except InvalidPosition:
            named = ids.find(id_hash_of(self.to))
            return named is None or named.offset < since
