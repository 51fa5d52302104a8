"""Summaries that grow at their end: a new span is summarised by itself and put behind what stands,
until the whole has to be written anew.

A summary stands at the front of what a model is sent, so a provider's cache keeps only as much of
it as does not change. Written anew each time, nothing of it would be kept; written on, all of it
is. A first summary, and one that is written anew, takes half of the budget. A segment behind it
takes a twelfth of the span's own tokens, but no more than a fifth of the budget: a short span needs
few words, and the smaller they are, the longer what stands is neither changed nor weighed again. At
the default budget of 1,500 tokens one summary in five is written anew where spans are of 2,000
tokens, one in three where they are long.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, runtime_checkable

import msgspec

from projections.events.tokenizer import count_all
from streams.compaction.summarizers.base import Summarizer, SummaryInput, SummaryText
from streams.runtime.processor import Here, Processor

ANEW = 2
SEGMENT = 5
"""One part in so many of the budget: for a summary written anew, and for the longest segment."""
SPAN = 12
"""One part in so many of a span's tokens: for the segment that stands for it. Measured by figure
`prefix` at 4,000 tokens: against segments of a fifth each the share of tokens lost falls by 4 %,
and by no more where segments are smaller still.
"""
LEAST = 100
"""Tokens below which a segment says nothing: no segment is held to less, and a budget too small for
it is written anew as a whole.
"""


@runtime_checkable
class Grows(Protocol):
    """A summariser that grows summaries by itself, where its own work is done."""

    async def grow(self, request: SummaryInput) -> SummaryText:
        """As :func:`summarize`."""
        ...


async def summarize(summarizer: Summarizer, request: SummaryInput) -> SummaryText:
    """The summary that takes the place of ``request.previous`` and the span: it begins with the
    former, unchanged, where there is room.

    Never more than ``request.max_tokens``, as long as the summariser keeps to what it is asked for.

    Raises:
        ThreadfoldError: the summariser failed.
    """
    if isinstance(summarizer, Grows):
        return await summarizer.grow(request)
    return await grow(summarizer, request, Here())


async def grow(summarizer: Summarizer, request: SummaryInput, processor: Processor) -> SummaryText:
    """:func:`summarize`; ``processor`` is where texts are counted."""
    tenant = request.tenant
    plan = await processor.run(tenant, plan_of, request)
    if plan.segment:
        added = await summarizer.summarize(plan.segment_of(request))
        made = await processor.run(tenant, plan.put_behind, request, added)
        if made is not None:
            return made
        return _with_cost_of(added, await summarizer.summarize(plan.anew(request)))
    return await summarizer.summarize(plan.anew(request))


def grow_at_once(make: Callable[[SummaryInput], SummaryText], request: SummaryInput) -> SummaryText:
    """:func:`grow` with a summariser that is a function: one call for a process of its own."""
    plan = plan_of(request)
    if plan.segment:
        made = plan.put_behind(request, make(plan.segment_of(request)))
        if made is not None:
            return made
    return make(plan.anew(request))


def _with_cost_of(before: SummaryText, made: SummaryText) -> SummaryText:
    """A summary with what was paid for the one before, which is thrown away."""
    costs = [one.cost for one in (before, made) if one.cost is not None]
    return msgspec.structs.replace(
        made,
        cost=round(sum(costs), 9) if costs else None,
        refused=(*before.refused, *made.refused),
    )


class Plan(msgspec.Struct, frozen=True):
    """How a summary is to be made: with a segment of so many tokens behind what ``stands`` (its
    tokens), or anew (``segment`` is 0) within ``most``.
    """

    segment: int
    stands: int
    most: int

    def segment_of(self, request: SummaryInput) -> SummaryInput:
        """What is asked for the segment."""
        return msgspec.structs.replace(request, previous=None, max_tokens=self.segment)

    def anew(self, request: SummaryInput) -> SummaryInput:
        """What is asked for a summary that is written anew."""
        return msgspec.structs.replace(request, max_tokens=self.most)

    def put_behind(self, request: SummaryInput, added: SummaryText) -> SummaryText | None:
        """The summary with the segment behind it, None where it is over its budget."""
        previous = request.previous or ""
        if not added.text:
            return msgspec.structs.replace(added, text=previous, tokens=self.stands)
        text = f"{previous}\n{added.text}"
        tokens = _tokens([text], request)
        if tokens > request.max_tokens:
            return None
        return msgspec.structs.replace(added, text=text, tokens=tokens)


def plan_of(request: SummaryInput) -> Plan:
    """How the summary of a request is to be made. Counts its texts: a millisecond for 10,000 tokens
    of prose, seconds where they are pathological.
    """
    most = request.max_tokens // SEGMENT
    if most < LEAST:
        return Plan(0, 0, request.max_tokens)
    anew = request.max_tokens // ANEW
    if not request.previous:
        return Plan(0, 0, anew)
    size = _tokens([message.text for message in request.messages], request)
    segment = min(most, max(LEAST, size // SPAN))
    stands = _tokens([request.previous], request)
    return Plan(segment if stands + segment < request.max_tokens else 0, stands, anew)


def _tokens(texts: list[str], request: SummaryInput) -> int:
    return sum(count_all(texts, request.encoding)[0])
