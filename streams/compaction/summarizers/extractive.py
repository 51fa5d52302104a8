"""The default summariser: picks sentences, invents nothing, needs no network, and gives equal
answers to equal requests.

The earlier summary's own lines compete with the new sentences, a little discounted, so a summary
made two hundred times over stays within its budget and what was said early fades slowly. Worth is
the centrality of a sentence (LexRank) times who said it (users' words weigh most and are kept as
they are), plus the facts it carries that are not yet kept. Facts whose sentences were not taken
stay in one line at the end. Cues for decisions and courtesies are English; other languages go
without them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence

import msgspec
import numpy as np

from projections.events.tokenizer import count, count_many
from streams.compaction.summarizers.base import SummaryInput, SummaryText
from streams.compaction.summarizers.facts import Fact, find_facts, in_words
from streams.compaction.summarizers.lexrank import (
    MAX_SENTENCES,
    Candidates,
    lexrank,
    select,
    similarities,
    terms,
)
from streams.compaction.summarizers.lines import Line, lines_of_message, read_summary, write_summary
from streams.runtime.processor import Processor, Threads

MAX_CANDIDATES = 20_000
"""Sentences looked at in one request; of more, the first quarter and the last three quarters of
them.
"""

MAX_FACTS = 1_500
FACTS_SHARE = 5
"""One part in so many of the budget is held for the facts line, where there are facts to put in it.
"""
FACTS_TOKENS = 240
EARLIER_DISCOUNT = 0.9

_ROLE_WORTH = {
    "user": 1.5,
    "summary": 1.25,
    "assistant": 1.0,
    "tool": 0.625,
    "system": 0.5,
    "developer": 0.5,
}
_ROLE_FACTS = {
    "user": 1.5,
    "summary": 1.25,
    "assistant": 1.25,
    "tool": 0.75,
    "system": 0.5,
    "developer": 0.5,
}
_USER_CUE = re.compile(
    r"\b(?:want|need|prefer|would like|i'd like|don't|do"
    r" not|never|always|must|only|instead|cancel|change|confirm"
    r"|agree|decided?|please|my|i am|i'm|i have|i live|yes|no|budget|allergic|deadline)\b"
)
_OUTCOME_CUE = re.compile(
    r"\b(?:has been|have been|successfully|is"
    r" now|booked|cancell?ed|confirmed|refund(?:ed)?|updated|completed|fixed"
    r"|failed|unable|cannot|not (?:possible|allowed|eligible)|error|total|transferred|decided)\b"
)
_COURTESY = re.compile(
    r"\b(?:anything else|how (?:can|may) i (?:help|assist)|thank you|thanks|you're welcome|have a"
    r" (?:great|nice|safe)"
    r"|feel free|let me know|glad|happy to help|i apologi[sz]e|sorry for|great day|one"
    r" moment|please wait"
    r"|would you like)\b"
)


class _Ranked(msgspec.Struct):
    """A line with its facts, its worth by role and cues, and its place in the conversation."""

    line: Line
    facts: list[Fact]
    worth: float
    order: int


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


def summarize_extractive(request: SummaryInput) -> SummaryText:
    """The summary of the earlier summary and the span, of at most ``max_tokens`` tokens; empty
    where nothing fits or was said.

    A request without messages gives the earlier summary back unchanged if it fits. Pure; equal
    requests give equal bytes. Raises ``InvalidPolicy`` for an unknown encoding.
    """
    previous = request.previous or ""
    if not any(message.text for message in request.messages):
        tokens = count(previous, request.encoding)
        if tokens <= request.max_tokens:
            return SummaryText(previous, tokens)
    earlier, kept_facts = read_summary(previous)
    ranked = _rank_lines(earlier, request)
    scores = _score_facts(ranked, kept_facts)
    pool = _pool(ranked, scores)
    chosen = _choose(pool, scores, request)
    return _fit(pool, chosen, scores, _Words(kept_facts, ranked), request)


def weigh_facts(request: SummaryInput) -> tuple[dict[Fact, float], Callable[[Fact], str]]:
    """The facts of a request, its earlier summary's included, and what each is worth (about 0.2 to
    8): kind, who said it, how often; and how each is written.
    """
    earlier, kept = read_summary(request.previous or "")
    ranked = _rank_lines(earlier, request)
    return _score_facts(ranked, kept), _Words(kept, ranked)


class _Words:
    """Facts with the few words that say what they are about; empty for a number without any."""

    def __init__(self, kept: Mapping[Fact, str], ranked: Sequence[_Ranked]) -> None:
        self._kept = kept
        self._said: dict[Fact, str] = {}
        for item in ranked:
            for fact in item.facts:
                self._said.setdefault(fact, item.line.text)

    def __call__(self, fact: Fact) -> str:
        said, kept = self._said.get(fact), self._kept.get(fact, "")
        words = in_words(said, fact) if said is not None else ""
        # Words that were found earlier stay, where there are no better ones.
        return words if len(words) > len(fact.text) or not kept else kept


def _rank_lines(earlier: list[Line], request: SummaryInput) -> list[_Ranked]:
    """All lines in conversation order, each (speaker, text) once: where it was last said."""
    lines = list(earlier)
    for source, message in enumerate(request.messages):
        lines.extend(lines_of_message(message, source))
    if len(lines) > MAX_CANDIDATES:
        lines = lines[: MAX_CANDIDATES // 4] + lines[-MAX_CANDIDATES * 3 // 4 :]
    last = {(line.speaker, line.text): order for order, line in enumerate(lines)}
    first_user = next((order for order, line in enumerate(lines) if line.role == "user"), -1)
    ranked: list[_Ranked] = []
    for order, line in enumerate(lines):
        if last[line.speaker, line.text] == order:
            worth = _worth(line) * (1.25 if order == first_user else 1.0)
            ranked.append(_Ranked(line, find_facts(line.text), worth, order))
    return ranked


def _worth(line: Line) -> float:
    """What a line is worth by who said it and by its cues, about 0.2 to 2.5; before centrality and
    facts.
    """
    lowered = line.text.lower()
    worth = _ROLE_WORTH.get(line.role, 1.0)
    if line.role == "user" and _USER_CUE.search(lowered):
        worth *= 1.25
    if line.role in ("assistant", "tool") and _OUTCOME_CUE.search(lowered):
        worth *= 1.375
    if _COURTESY.search(lowered):
        worth *= 0.5
    if line.role == "assistant" and line.text.endswith("?"):
        worth *= 0.75
    if line.speaker.endswith("(error)"):
        worth *= 1.5
    if len(line.text) < 12 and len(terms(line.text)) < 3:
        worth *= 0.375
    return worth * (EARLIER_DISCOUNT if line.earlier else 1.0)


def _score_facts(ranked: Sequence[_Ranked], kept: Collection[Fact]) -> dict[Fact, float]:
    """What each fact is worth: its kind, who said it, how often; facts carried over lose a little
    with each place they fall.
    """
    said: dict[Fact, tuple[float, int]] = {}
    for item in ranked:
        share = _ROLE_FACTS.get(item.line.role, 1.0)
        for fact in item.facts:
            best, times = said.get(fact, (0.0, 0))
            said[fact] = (max(best, share), times + 1)
    scores: dict[Fact, float] = {}
    for place, fact in enumerate(kept):
        scores.setdefault(fact, 4.5 * (1 - 0.5 * place / len(kept)))
    for fact, (share, times) in said.items():
        fresh = fact.weight * share * (1 + 0.125 * min(times - 1, 4))
        scores[fact] = max(fresh, scores.get(fact, 0.0))
    return scores


def _pool(ranked: list[_Ranked], scores: dict[Fact, float]) -> list[_Ranked]:
    """At most ``MAX_SENTENCES`` lines, in order: two thirds the best at first sight, the rest
    spread evenly over the others.

    The spread keeps a long span's quiet parts in the graph that centrality is computed on.
    """
    if len(ranked) <= MAX_SENTENCES:
        return ranked

    def first_sight(item: _Ranked) -> float:
        return item.worth + min(6.0, sum(scores[fact] for fact in item.facts)) / 4

    best_first = sorted(range(len(ranked)), key=lambda i: (-round(first_sight(ranked[i]), 9), i))
    best = best_first[: MAX_SENTENCES * 2 // 3]
    others = sorted(best_first[len(best) :])
    free = MAX_SENTENCES - len(best)
    spread = [others[i * len(others) // free] for i in range(free)]
    return [ranked[i] for i in sorted({*best, *spread})]


def _choose(pool: list[_Ranked], scores: dict[Fact, float], request: SummaryInput) -> list[int]:
    """Indexes into the pool of the lines to take, best first, leaving room for a line of facts."""
    if not pool:
        return []
    texts = [item.line.text for item in pool]
    similarity = similarities(texts)
    relevance = np.array([item.worth for item in pool]) * (0.4 + 0.6 * lexrank(similarity))
    here = sorted(
        {fact for item in pool for fact in item.facts},
        key=lambda fact: (-scores[fact], fact.text, fact.kind),
    )
    column = {fact: i for i, fact in enumerate(here[:MAX_FACTS])}
    held = np.zeros((len(pool), max(1, len(column))))
    for row, item in enumerate(pool):
        for fact in item.facts:
            if fact in column:
                held[row, column[fact]] = 1.0
    weights = np.zeros(held.shape[1])
    weights[: len(column)] = [round(scores[fact] * 64) / 64 for fact in here[:MAX_FACTS]]
    costs = [
        cost.count
        for cost in count_many([item.line.render() + "\n" for item in pool], request.encoding)
    ]
    candidates = Candidates(relevance, similarity, np.array(costs, dtype=np.int64), held, weights)
    return select(candidates, request.max_tokens - _facts_room(scores, request))


def _facts_room(scores: dict[Fact, float], request: SummaryInput) -> int:
    """Tokens to hold for the facts line: none in a tiny budget, and no more than all the facts
    could use.
    """
    room = min(request.max_tokens // FACTS_SHARE, FACTS_TOKENS)
    return min(room, 3 + sum(2 + len(fact.text) for fact in scores)) if room >= 6 else 0


def _fit(
    pool: list[_Ranked],
    chosen: list[int],
    scores: dict[Fact, float],
    words: _Words,
    request: SummaryInput,
) -> SummaryText:
    """The text of the chosen lines with the facts they lack; least worth goes first until it fits,
    counted as a whole.
    """
    chosen = list(chosen)
    if pool and not chosen:
        return _shortened(pool, request)
    facts = _lost_facts(pool, chosen, scores, words, request)
    while True:
        text = write_summary([pool[i].line for i in sorted(chosen)], facts)
        tokens = count(text, request.encoding)
        if tokens <= request.max_tokens and text:
            return SummaryText(text, tokens)
        if facts:
            facts.pop()
        elif chosen:
            chosen.pop()
        else:
            return _shortened(pool, request)


def _lost_facts(
    pool: list[_Ranked],
    chosen: list[int],
    scores: dict[Fact, float],
    words: _Words,
    request: SummaryInput,
) -> list[str]:
    """Facts that no chosen line holds, best first, in their words, as many as the room left by the
    lines takes.
    """
    said = "\n".join(pool[i].line.text for i in chosen)
    left = (
        request.max_tokens
        - count(write_summary([pool[i].line for i in sorted(chosen)], []), request.encoding)
        - 4
    )
    most = min(left, max(FACTS_TOKENS, request.max_tokens // FACTS_SHARE))
    facts: list[str] = []
    for fact in sorted(scores, key=lambda fact: -round(scores[fact], 9))[:MAX_FACTS]:
        if fact.text in said:
            continue
        stated = words(fact)
        cost = count("; " + stated, request.encoding)
        if cost > most:
            break
        if stated:
            most -= cost
            facts.append(stated)
    return facts


def _shortened(pool: list[_Ranked], request: SummaryInput) -> SummaryText:
    """The start of the line of most worth that has one within the budget, with an ellipsis; else an
    empty text.
    """
    if not pool or request.max_tokens < 1:
        return SummaryText("", 0)
    best = max(pool, key=lambda item: (item.worth, -item.order)).line
    for size in range(min(len(best.text), request.max_tokens * 4), 0, -1):
        text = f"{best.speaker}: {best.text[:size].rstrip()}…"
        tokens = count(text, request.encoding)
        if tokens <= request.max_tokens:
            return SummaryText(text, tokens)
    return SummaryText("", 0)
