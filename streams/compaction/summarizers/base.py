"""What goes into a summariser and what comes out of it.

A summariser sees one span of one conversation, with the summary before it, and answers with one
text within a token budget. It is never called inside the projector: its answer enters the log as an
event.
"""

from __future__ import annotations

from typing import Protocol

import msgspec


class SpanMessage(msgspec.Struct, frozen=True):
    """One message of the span: who said what. ``role`` is system, developer, user, assistant or
    tool.

    ``name`` is the author in a group chat, or the tool; ``position`` is the event's, opaque here.
    """

    position: str
    role: str
    text: str
    name: str | None = None
    is_error: bool = False


class SummaryInput(msgspec.Struct, frozen=True):
    """The active summary (or None), the messages after it in the log's order, and the budget in
    tokens of ``encoding``.

    ``tenant`` and ``conversation``: whose it is, for fairness, budgets and the log.
    """

    previous: str | None
    messages: tuple[SpanMessage, ...]
    max_tokens: int
    encoding: str
    tenant: str = ""
    conversation: str = ""


class SummaryText(msgspec.Struct, frozen=True):
    """A summary and its tokens in the request's encoding; never more than the request's
    ``max_tokens``.

    ``summarizer``: who made it in the end, empty for the one that was asked. ``model``: the model,
    where one made it. ``cost``: what the request cost, failed attempts included, in the currency of
    the prices configured; None where no price is known. ``refused``: why answers of a model were
    thrown away before, each reason as "name: reason".
    """

    text: str
    tokens: int
    summarizer: str = ""
    model: str | None = None
    cost: float | None = None
    refused: tuple[str, ...] = ()


class Summarizer(Protocol):
    """Makes summaries; ``name`` is the one that policies use.

    The text stands alone: it replaces both the earlier summary and the span. Implementations hold
    to ``max_tokens`` or raise a ``ThreadfoldError``. Equal answers to equal requests are promised
    by the extractive one only.
    """

    name: str

    async def summarize(self, request: SummaryInput) -> SummaryText:
        """The summary that takes the place of the earlier one and the span."""
        ...
