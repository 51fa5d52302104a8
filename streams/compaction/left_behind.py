"""Answers that a rollback left behind: the text of one that was made of the very same is taken
again, and not made once more.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from projections.events import types as events
from projections.events.types import absolute
from projections.names import Key, parse_position
from streams.compaction.requests import CompactionRequest
from streams.compaction.span import standing_of
from streams.compaction.summarizers.base import SummaryText
from streams.log.history import read_events
from streams.log.log import Log
from streams.log.said import said_at
from streams.settings.endpoints import EXTRACTIVE

KNOWN, MOST = 100, 4_096
"""Conversations whose offsets without a summary are remembered, and how many of each."""


def _may_stand_in(data: events.Summary, asked: str) -> bool:
    """Whether an earlier answer does for the summariser that is asked now. Others' do for the
    extractive one, and its own for a model whose answers were paid for and could not be used.
    """
    paid_for = data.summarizer == EXTRACTIVE and data.cost is not None
    return asked in (data.summarizer, EXTRACTIVE) or paid_for


class LeftBehind:
    """Finds them in the log. Of the conversations that it was asked for last it knows which events
    are no summaries: each span of one is asked for, and the events behind it may be large.
    """

    def __init__(self, log: Log) -> None:
        self._log = log
        self._others: OrderedDict[Key, set[int]] = OrderedDict()
        """By conversation, offsets that hold no summary."""

    async def text(
        self,
        request: CompactionRequest,
        key: Key,
        covers: dict[str, Any],
        previous: events.Summary | None,
        made_at: int | None,
    ) -> SummaryText | None:
        """An earlier answer's text, if it was made of exactly this by the summariser asked now."""
        others = self._others_of(key)
        offsets = absolute(request.left_behind) + ([] if made_at is None else [made_at])
        asked = [offset for offset in offsets if offset not in others]
        standing = standing_of(covers["positions"], covers["stands"])
        async for step in said_at(self._log, key, request.partition, asked):
            for offset, event in step:
                if not isinstance(event, events.SummaryEvent):
                    others.add(offset)
                elif (
                    (data := event.data).policy == request.policy
                    and _may_stand_in(data, request.summarizer)
                    # What an operator took out since does not stand any more.
                    and standing_of(data.span.positions, data.span.stands) == standing
                    and await self._stood_on(data, request, key, previous)
                ):
                    cost = None if data.cost is None else 0.0
                    return SummaryText(data.text, data.tokens, data.summarizer, data.model, cost)
        return None

    def _others_of(self, key: Key) -> set[int]:
        others = self._others.pop(key, None) or set()
        if len(others) > MOST:
            others = set()
        self._others[key] = others
        if len(self._others) > KNOWN:
            self._others.popitem(last=False)
        return others

    async def _stood_on(
        self,
        data: events.Summary,
        request: CompactionRequest,
        key: Key,
        previous: events.Summary | None,
    ) -> bool:
        """Whether the predecessor of an answer says what this one says: it may have been appended
        again, too.
        """
        if data.previous == request.previous:
            return True
        if data.previous_position is None or previous is None:
            return False
        offset = parse_position(data.previous_position).offset
        found = await read_events(self._log, key, request.partition, [offset])
        before = found[0][1] if found else None
        if not isinstance(before, events.SummaryEvent):
            return False
        return before.data.text == previous.text
