"""Summaries that grow at their end: a new span is summarised by itself and put behind what stands, until the whole has to be written anew.

A summary stands at the front of what a model is sent, so a provider's cache keeps only as much of it as does not change. Written anew each
time, nothing of it would be kept; written on, all of it is. A first summary, and one that is written anew, takes half of the budget, a
segment behind it a fifth: so about one in four is written anew, and what was said early is weighed again only then.
"""

from __future__ import annotations

from projections.tokens import count
from streams.summarizers.base import Summarizer, SummaryInput, SummaryText

ANEW = 2
SEGMENT = 5
"""One part in so many of the budget: for a summary written anew, and for a segment."""
LEAST = 100
"""Tokens below which a segment says nothing: a smaller budget is written anew as a whole each time."""


async def summarize(summarizer: Summarizer, request: SummaryInput) -> SummaryText:
    """The summary that takes the place of ``request.previous`` and the span: it begins with the former, unchanged, where there is room.

    Raises:
        ThreadfoldError: the summariser failed.
    """
    segment = request.max_tokens // SEGMENT
    if segment < LEAST:
        return await summarizer.summarize(request)
    previous = request.previous
    if previous and count(previous, request.encoding) + segment < request.max_tokens:
        added = await summarizer.summarize(_replaced(request, None, segment))
        if not added.text:
            return SummaryText(previous, count(previous, request.encoding), added.summarizer, added.model, added.cost)
        text = f"{previous}\n{added.text}"
        tokens = count(text, request.encoding)
        if tokens <= request.max_tokens:
            return SummaryText(text, tokens, added.summarizer, added.model, added.cost)
    return await summarizer.summarize(_replaced(request, previous, request.max_tokens // ANEW))


def _replaced(request: SummaryInput, previous: str | None, max_tokens: int) -> SummaryInput:
    return SummaryInput(previous, request.messages, max_tokens, request.encoding, request.deadline)
