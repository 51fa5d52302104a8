"""The rules' pass over a span of events: what it teaches, as typed candidates.

Pure: the same events give the same candidates, in however many parts they are fed. Each user's
message is read alone, calls with their results; nothing else is kept in between.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from projections.events import types as events
from projections.events.content import text_of
from projections.events.memories import MemoryTags
from projections.memory.extraction.assistant_deeds import deeds
from projections.memory.extraction.candidate import Candidate
from projections.memory.extraction.clauses import instructs, is_secret
from projections.memory.extraction.gist import gist
from projections.memory.extraction.statements import statements
from projections.memory.extraction.third_person import THE_USER
from projections.memory.extraction.tool_lessons import ToolLessons
from projections.memory.private_text import begin_without_private

MAX_SUSPENSIONS = 64
"""Approvals and questions that wait for their resolution."""


class Extractor:
    """Feed it the events of one span in the order of the log."""

    def __init__(self, *, gists: bool = False) -> None:
        """Args: ``gists``: a message of which no rule knows a statement leaves its gist as a fact:
        for windows in which messages leave one by one.
        """
        self._gists = gists
        self._tools = ToolLessons()
        self._asked: dict[str, events.Suspension] = {}

    def feed(self, offset: int, event: events.AnyEvent) -> list[Candidate]:
        """What this event teaches together with those before."""
        if isinstance(event, events.MessageEvent):
            return list(self._message(offset, event))
        if isinstance(event, events.ToolResultEvent):
            data = event.data
            text = begin_without_private(text_of(data.content))
            return list(
                self._tools.answered(
                    offset, event.time, data.tool_call_id, text, is_error=data.is_error
                )
            )
        if isinstance(event, events.SuspensionEvent):
            self._asked[event.data.suspension_id] = event.data
            if len(self._asked) > MAX_SUSPENSIONS:
                del self._asked[next(iter(self._asked))]
        elif isinstance(event, events.ResolutionEvent):
            return list(self._resolution(offset, event))
        return []

    def _message(self, offset: int, event: events.MessageEvent) -> Iterator[Candidate]:
        data = event.data
        if data.tool_calls:
            self._tools.called(offset, data.tool_calls)
        text = _said(data)
        if not text:
            return
        if data.role == "user":
            found = list(statements(text, offset, event.time, data.name))
        else:
            found = list(deeds(text, offset, event.time))
        yield from found
        if self._gists and not found:
            short = gist_of(offset, event)
            if short is not None:
                yield short

    def _resolution(self, offset: int, event: events.ResolutionEvent) -> Iterator[Candidate]:
        data = event.data
        asked = self._asked.pop(data.suspension_id, None)
        text = begin_without_private(text_of(data.content))
        if text and data.outcome == "answered":
            yield from statements(text, offset, event.time)
        if asked is None or data.outcome != "rejected":
            return
        wanted = " ".join(begin_without_private(asked.prompt or "").split())
        if not wanted or len(wanted) > 200 or instructs(wanted) or is_secret(wanted):
            return
        yield Candidate(
            memory_type="constraint",
            text=f'{THE_USER} rejected: "{wanted}".',
            offsets=(offset,),
            time=event.time,
            role="user",
            trust="user",
            confidence=0.7,
            tags=MemoryTags(task=["decision"], constraint=["approval"]),
        )


def extract(span: Iterable[tuple[int, events.AnyEvent]], *, gists: bool = False) -> list[Candidate]:
    """What the events of a span teach, in their order."""
    extractor = Extractor(gists=gists)
    return [found for offset, event in span for found in extractor.feed(offset, event)]


def gist_of(offset: int, event: events.AnyEvent) -> Candidate | None:
    """The gist of a message; None of other events, and where it says too little."""
    if not isinstance(event, events.MessageEvent):
        return None
    data, text = event.data, _said(event.data)
    return gist(text, offset, event.time, data.role, data.name) if text else None


def _said(data: events.Message) -> str:
    """What a user's or assistant's message says that may be kept; empty for others, and for one
    that was interrupted.
    """
    if data.role not in ("user", "assistant") or data.status == "interrupted":
        return ""
    return begin_without_private(text_of(data.content))
