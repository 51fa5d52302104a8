"""The default summariser: picks sentences, invents nothing, needs no network, and gives equal
answers to equal requests.

The earlier summary's own lines compete with the new sentences, a little discounted, so a summary
made two hundred times over stays within its budget and what was said early fades slowly. Worth is
the centrality of a sentence times who said it (users' words weigh most and are kept as they are),
plus the facts it carries that are not yet kept. Facts whose sentences were not taken stay in one
line at the end.

The work is one pass over all text for sentences, facts and cues; only the ``MAX_SENTENCES`` best
lines at first sight are compared with each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice

import numpy as np

from projections.events.tokenizer import count_all
from streams.compaction.summarizers.base import SummaryInput, SummaryText
from streams.compaction.summarizers.facts import label_of
from streams.compaction.summarizers.lines import (
    AND,
    Line,
    lines_of_messages,
    read_summary,
    write_summary,
)
from streams.compaction.summarizers.ranking import MOST_FACTS, Candidates, lexrank, select
from streams.compaction.summarizers.segments import grow_at_once
from streams.compaction.summarizers.terms import Array, Places, similarities
from streams.compaction.summarizers.worth import SpanFacts, facts_of, worth_of
from streams.runtime.processor import Processor, Threads

MAX_CANDIDATES = 20_000
"""Sentences looked at in one request; of more, the first quarter and the last three quarters of
them.
"""

MAX_SENTENCES = 300
"""Sentences compared with each other: the best at first sight of all candidates."""

FACTS_SHARE = 5
"""One part in so many of the budget is held for the facts line, where there are facts to put in it.
"""
FACTS_TOKENS = 240
LEAST_TOKENS = 2
"""Tokens of the shortest facts in a facts line: how many are considered for its room."""


class ExtractiveSummarizer:
    """Deterministic, offline summaries; see :func:`summarize_extractive`."""

    name = "extractive"

    def __init__(self, processor: Processor | None = None) -> None:
        """Args: ``processor`` is where summaries are made: up to a second of CPU would hold up
        every other task of the loop. None: in threads.
        """
        self._processor = processor or Threads()

    async def summarize(self, request: SummaryInput) -> SummaryText:
        """The summary."""
        return await self._processor.run(request.tenant, summarize_extractive, request)

    async def grow(self, request: SummaryInput) -> SummaryText:
        """As :func:`streams.compaction.summarizers.segments.summarize`, in one call."""
        return await self._processor.run(
            request.tenant, grow_at_once, summarize_extractive, request
        )


def summarize_extractive(request: SummaryInput) -> SummaryText:
    """The summary of the earlier summary and the span, of at most ``max_tokens`` tokens; empty
    where nothing fits or was said.

    A request without messages gives the earlier summary back unchanged if it fits. Pure; equal
    requests give equal bytes. Raises ``InvalidPolicy`` for an unknown encoding.
    """
    previous = request.previous or ""
    if not any(message.text for message in request.messages):
        tokens = _tokens(previous, request)
        if tokens <= request.max_tokens:
            return SummaryText(previous, tokens)
    lines, facts = read_lines(request)
    worth = worth_of(lines)
    first_user = next((i for i, line in enumerate(lines) if line.role == "user"), None)
    if first_user is not None:
        worth[first_user] *= 1.25
    rows = _pool(worth, facts)
    chosen = _choose(rows, worth, facts, request)
    made = _fit([int(rows[i]) for i in chosen], facts, request) if chosen or not lines else None
    return made or _shortened([lines[row] for row in rows], worth[rows], request)


def read_lines(request: SummaryInput) -> tuple[list[Line], SpanFacts]:
    """The lines of a request's earlier summary and messages in their order, each (speaker, text)
    once, where it was last said; and their facts.
    """
    lines, kept = read_summary(request.previous or "")
    lines += lines_of_messages(request.messages)
    if len(lines) > MAX_CANDIDATES:
        lines = lines[: MAX_CANDIDATES // 4] + lines[-MAX_CANDIDATES * 3 // 4 :]
    last = {(line.speaker, line.text): order for order, line in enumerate(lines)}
    if len(last) < len(lines):
        lines = [lines[order] for order in sorted(last.values())]
    return lines, facts_of(lines, kept)


def _pool(worth: Array, facts: SpanFacts) -> Places:
    """At most ``MAX_SENTENCES`` lines, in order: two thirds the best at first sight, the rest
    spread evenly over the others.

    The spread keeps a long span's quiet parts among those that centrality is computed on.
    """
    n = len(worth)
    if n <= MAX_SENTENCES:
        return np.arange(n)
    held = np.bincount(facts.holders, facts.scores[facts.places], n)
    first_sight = worth + np.minimum(MOST_FACTS, held) / 4
    best_first = np.argsort(-np.round(first_sight, 9), kind="stable")
    best, others = np.split(best_first, [MAX_SENTENCES * 2 // 3])
    free = MAX_SENTENCES - len(best)
    spread = np.sort(others)[np.arange(free) * len(others) // free]
    return np.sort(np.concatenate((best, spread)))


def _choose(rows: Places, worth: Array, facts: SpanFacts, request: SummaryInput) -> list[int]:
    """Indexes into ``rows`` of the lines to take, best first, leaving room for a line of facts."""
    pool = [facts.lines[row] for row in rows]
    similarity = similarities([line.text for line in pool])
    at = np.searchsorted(rows, facts.holders)
    inside = np.isin(facts.holders, rows)
    costs = count_all([line.render() + "\n" for line in pool], request.encoding)[0]
    candidates = Candidates(
        worth[rows] * (0.4 + 0.6 * lexrank(similarity)),
        similarity,
        np.array(costs, dtype=np.int64),
        at[inside],
        facts.places[inside],
        np.round(facts.scores * 64) / 64,
    )
    return select(candidates, request.max_tokens - _facts_room(facts, request))


def _facts_room(facts: SpanFacts, request: SummaryInput) -> int:
    """Tokens to hold for the facts line: none in a tiny budget, and no more than all the facts
    could use.
    """
    room = min(request.max_tokens // FACTS_SHARE, FACTS_TOKENS)
    return min(room, 3 + sum(2 + len(fact.text) for fact in facts.known)) if room >= 6 else 0


def _fit(chosen: list[int], facts: SpanFacts, request: SummaryInput) -> SummaryText | None:
    """The text of the chosen lines (the best first) with the facts they lack; least worth goes
    first until it fits, counted as a whole. None where nothing fits.
    """
    stated = _lost_facts(chosen, facts, request)
    while True:
        text = write_summary([facts.lines[row] for row in sorted(chosen)], stated)
        tokens = _tokens(text, request)
        if tokens <= request.max_tokens and text:
            return SummaryText(text, tokens)
        if stated:
            stated.pop()
        elif chosen:
            chosen.pop()
        else:
            return None


def _lost_facts(chosen: list[int], facts: SpanFacts, request: SummaryInput) -> list[str]:
    """Facts that no chosen line holds, best first, in their words, as many as the room left by the
    lines takes.
    """
    lines = [facts.lines[row] for row in sorted(chosen)]
    said = "\n".join(line.text for line in lines)
    left = request.max_tokens - _tokens(write_summary(lines, []), request) - 4
    most = min(left, max(FACTS_TOKENS, request.max_tokens // FACTS_SHARE))
    lost = (place for place in facts.best() if facts.known[place].text not in said)
    return listed(facts, islice(lost, max(0, most) // LEAST_TOKENS), most, request.encoding)


def listed(facts: SpanFacts, places: Iterable[int], room: int, encoding: str) -> list[str]:
    """Those of some facts that fit in ``room`` tokens together, in their words, in the order
    given.
    """
    first = facts.first_said()
    stated = [text for i in places if (text := facts.words(facts.known[i], int(first[i])))]
    labels = list(map(label_of, stated))
    alone = count_all(["; " + text for text in stated], encoding)[0]
    behind = [AND + text[len(label) + 1 :] for text, label in zip(stated, labels, strict=True)]
    taken: dict[str, str] = {}
    for text, label, cost, less in zip(
        stated, labels, alone, count_all(behind, encoding)[0], strict=True
    ):
        needed = less if label and label in taken.values() else cost
        if needed <= room:
            room -= needed
            taken[text] = label
    return list(taken)


def _shortened(lines: Sequence[Line], worth: Array, request: SummaryInput) -> SummaryText:
    """The start of the line of most worth that has one within the budget, with an ellipsis; else an
    empty text.
    """
    if not lines or request.max_tokens < 1:
        return SummaryText("", 0)
    best = lines[int(worth.argmax())]
    for size in range(min(len(best.text), request.max_tokens * 4), 0, -1):
        text = f"{best.speaker}: {best.text[:size].rstrip()}…"
        tokens = _tokens(text, request)
        if tokens <= request.max_tokens:
            return SummaryText(text, tokens)
    return SummaryText("", 0)


def _tokens(text: str, request: SummaryInput) -> int:
    return count_all([text], request.encoding)[0][0]
