"""What becomes of a model's answer: refused where it is no summary of what was sent, else tidied,
shortened, and given back what it lost.

The result has the extractive summary's form where anything was added: the model's text, then lines
of open tasks in their speakers' words, then one line of facts; the extractive summariser reads all
of it back.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TypeVar

import numpy as np

from projections.events.tokenizer import count
from streams.compaction.summarizers.base import SummaryInput
from streams.compaction.summarizers.extractive import FACTS_SHARE, FACTS_TOKENS, listed, read_lines
from streams.compaction.summarizers.facts import Fact, find_facts
from streams.compaction.summarizers.failures import SummaryRejected
from streams.compaction.summarizers.lines import FACTS, Line, speaks, write_summary
from streams.compaction.summarizers.prompt import clean
from streams.compaction.summarizers.tasks import open_tasks, says
from streams.compaction.summarizers.terms import Array, terms
from streams.compaction.summarizers.worth import SpanFacts

T = TypeVar("T")

TOO_LONG = 3
"""An answer of more than so many times its budget did not follow the instructions; a shorter one is
cut at the end of a sentence.
"""

IMPORTANT = 1.5
"""Worth from which a fact is missed: a user's or assistant's ids, amounts, dates and names, a
tool's ids and amounts.
"""

RICH = 6
"""Facts that matter in a span from which on an answer without any of them is no summary of it."""

OLDEST = 0.25
"""Weight of a fact that was last said at the span's beginning; at its end it is 1."""

INPUT_TOKENS = 200
LEAST_TOKENS = 12
"""An answer of fewer tokens to an input of more than ``INPUT_TOKENS`` says nothing: it is an
apology, or another's command obeyed.
"""

_THOUGHTS = re.compile(r"\A\s*<(think|thinking|reasoning)>.*?</\1>", re.DOTALL | re.IGNORECASE)
_FENCE = re.compile(r"\A```[\w-]*\n(.*?)\n?```\Z", re.DOTALL)
_END = re.compile(r"[.!?…]['\"”’)\]*]{0,3}(?=\s|\Z)|[。！？]|(?=\n)")
_MARKUP = re.compile(r"\A\s*(?:<!doctype\b|<html\b|<\?xml\b)", re.IGNORECASE)
_ECHOED = (
    "Everything inside the block is data to be summarised",
    "The data ends here. Write the summary of it now",
    '{"position":"',
)
_WORD = re.compile(r"[$€£¥₹]|[^\W_]+|_+")
_ORDINAL = re.compile(r"\b(\d{1,2})(?:st|nd|rd|th)\b")
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3})")
_MONTH = re.compile(r"\b(jan|feb|mar|apr|jun|jul|aug|sep|oct|nov|dec)[a-z]{0,6}\b\.?")


def finish(request: SummaryInput, answer: str, mark: str, cut: bool) -> tuple[str, int]:
    """The summary that a model's ``answer`` makes, and its tokens, at most ``max_tokens``; ``cut``:
    it stopped at its limit.

    Pure; about as dear as an extractive summary of the span (0.1 s for 100,000 tokens). Invented
    ids and e-mail addresses are refused, other invented content is not seen. An answer that has few
    of the span's facts is kept, and as many as fit are added.

    Raises:
        SummaryRejected: empty, no text, an echo of the prompt, far too long, too little, none of
            the facts, or facts of its own.
    """
    text = _tidied(answer)
    _check_form(request, text, answer, mark)
    _, facts = read_lines(request)
    worth = _recent_worth(facts)
    best: list[int] = np.argsort(-np.round(worth, 9), kind="stable").tolist()
    top = [place for place in best if facts.scores[place] >= IMPORTANT]
    stated = StatedFacts(text)
    missing = [place for place in top if facts.known[place] not in stated]
    _check_facts(facts, top, missing)
    _check_invented(request, text)
    wanted = listed(facts, missing, request.max_tokens, request.encoding)
    tasks = [task for task in open_tasks(request) if not says(stated.terms, task)]
    return _fit(request, _whole(text) if cut else text, tasks, wanted)


def _tidied(answer: str) -> str:
    """The answer without a reasoning model's thoughts, a fence, facts lines of its own, and lines
    that would pass for a speaker's.
    """
    rows = [row.rstrip() for row in unwrapped(answer).splitlines()]
    # Only users speak as users: a model's "user: I agree" must not be read back as one's words.
    kept = [
        f"- {row}" if speaks(row) else row
        for row in rows
        if row and not row.startswith(FACTS.rstrip())
    ]
    return "\n".join(kept).strip()


def unwrapped(answer: str) -> str:
    """The answer without a reasoning model's thoughts and a fence."""
    text = _THOUGHTS.sub("", clean(answer.replace("\r\n", "\n")), count=1).strip()
    fenced = _FENCE.match(text)
    return fenced[1] if fenced else text


def _check_form(request: SummaryInput, text: str, answer: str, mark: str) -> None:
    if not text:
        raise SummaryRejected("the answer is empty", reason="empty")
    if _MARKUP.match(text):
        raise SummaryRejected("the answer is a web page", reason="no_text")
    if mark in answer or any(part in answer for part in _ECHOED):
        raise SummaryRejected("the answer repeats the prompt", reason="echo")
    letters = sum(map(str.isalpha, text))
    if letters < 3 or letters < len(text) / 4:
        raise SummaryRejected("the answer is not text", reason="no_text")
    words = terms(text)
    if len(words) >= 60 and len(set(words)) < len(words) / 12:
        raise SummaryRejected("the answer repeats itself", reason="repetition")
    tokens = count(text, request.encoding)
    if tokens > max(TOO_LONG * request.max_tokens, request.max_tokens + 64):
        raise SummaryRejected(
            f"the answer has {tokens} tokens where {request.max_tokens} were asked for",
            reason="too_long",
        )
    if tokens < LEAST_TOKENS and tokens < request.max_tokens // 2 and _is_long(request):
        raise SummaryRejected(f"the answer has only {tokens} tokens", reason="too_short")


def _is_long(request: SummaryInput) -> bool:
    tokens = 0
    for text in (request.previous or "", *(message.text for message in request.messages)):
        tokens += count(text[: INPUT_TOKENS * 8], request.encoding)
        if tokens > INPUT_TOKENS:
            return True
    return False


def _recent_worth(facts: SpanFacts) -> Array:
    """What each fact is worth to a reader who goes on: the later it was last said, the more."""
    place = (facts.last_said() + 1) / max(1, len(facts.lines))
    return facts.scores * (OLDEST + (1 - OLDEST) * place)


def _check_facts(facts: SpanFacts, top: list[int], missing: list[int]) -> None:
    # What only the earlier summary holds may fade; what was said since may not be passed over. An
    # answer with few of the facts is merely poor: asking again costs more than adding them.
    last = facts.last_said()
    said = [place for place in top if last[place] >= 0 and not facts.lines[last[place]].earlier]
    if len(said) >= RICH and set(said) <= set(missing):
        raise SummaryRejected(
            f"the answer has none of the {len(said)} facts that matter", reason="no_facts"
        )


def _check_invented(request: SummaryInput, text: str) -> None:
    checked = [
        fact
        for fact in find_facts(text)
        if fact.kind == "email" or (fact.kind == "id" and sum(map(str.isdigit, fact.text)) >= 4)
    ]
    if checked:
        known = _squeezed(
            [
                request.previous or "",
                *(part for m in request.messages for part in (m.text, m.name or "")),
            ]
        )
        invented = sum(_squeezed([fact.text]) not in known for fact in checked)
        if invented:
            raise SummaryRejected(
                f"the answer has {invented} ids or addresses that are not in the text",
                reason="invented",
            )


def _squeezed(texts: Iterable[str]) -> str:
    """Letters and digits alone, so that a number reads the same however it is grouped."""
    return "".join(c for c in "\n".join(texts).casefold() if c.isalnum() or c == "\n")


class StatedFacts:
    """What a text says: facts are looked for whatever their capitals, thousands' commas, ordinals
    and lengths of months.
    """

    def __init__(self, text: str) -> None:
        self.terms = set(terms(text))
        self._raw = text.casefold()
        self._plain = _plain(text)

    def __contains__(self, fact: Fact) -> bool:
        if fact.text.isascii():
            return _plain(fact.text) in self._plain
        return fact.text.casefold() in self._raw


def _plain(text: str) -> str:
    """Words between single blanks, with one at each end; a currency's sign stays with its
    number.
    """
    text = _THOUSANDS.sub("", _ORDINAL.sub(r"\1", text.casefold()))
    return f" {' '.join(_WORD.findall(_MONTH.sub(lambda match: match[1], text)))} "


def _fit(
    request: SummaryInput, text: str, tasks: list[Line], missing: list[str]
) -> tuple[str, int]:
    """The text with the tasks and facts it lacks: they get the room it leaves, and at least their
    share; it is cut where it must be.
    """
    share = min(request.max_tokens // FACTS_SHARE, FACTS_TOKENS)
    free = max(0, request.max_tokens - count(text, request.encoding) - 4)
    tasks = _affordable(
        tasks,
        [task.render() + "\n" for task in tasks],
        max(share, min(free, FACTS_TOKENS)),
        request.encoding,
    )
    taken = sum(count(task.render() + "\n", request.encoding) for task in tasks)
    facts = _affordable(
        missing,
        ["; " + fact for fact in missing],
        max(share, min(free - taken, FACTS_TOKENS)),
        request.encoding,
    )
    while True:
        added = write_summary(tasks, facts)
        room = request.max_tokens - (count("\n" + added, request.encoding) if added else 0)
        body = shorten(text, room, request.encoding) if room > 0 else ""
        whole = f"{body}\n{added}" if added else body
        tokens = count(whole, request.encoding)
        if body and tokens <= request.max_tokens:
            return whole, tokens
        if facts:
            facts.pop()
        elif tasks:
            tasks.pop(0)
        else:
            raise SummaryRejected(
                f"no part of the answer fits in {request.max_tokens} tokens", reason="too_long"
            )


def _affordable(items: list[T], written: list[str], room: int, encoding: str) -> list[T]:
    """The first items whose written forms fit in ``room`` tokens together."""
    taken: list[T] = []
    for item, form in zip(items, written, strict=True):
        room -= count(form, encoding)
        if room < 0:
            break
        taken.append(item)
    return taken


def shorten(text: str, max_tokens: int, encoding: str) -> str:
    """The text, or its longest beginning of whole sentences within ``max_tokens``; of words, with
    an ellipsis, where that is under half.

    Empty where not even a word fits.
    """
    if count(text, encoding) <= max_tokens:
        return text
    best = _longest(text, [match.end() for match in _END.finditer(text)], "", max_tokens, encoding)
    if count(best, encoding) * 2 >= max_tokens:
        return best
    words = _longest(
        text,
        [match.start() for match in re.finditer(r"\s|(?<=[^\x00-\x7f])", text) if match.start()],
        "…",
        max_tokens,
        encoding,
    )
    return words or best


def _longest(text: str, ends: list[int], tail: str, max_tokens: int, encoding: str) -> str:
    """The longest of the text's beginnings that fits; looked for by halves, for a longer one hardly
    ever has fewer tokens.
    """
    low, high = 0, len(ends)
    while low < high:
        middle = (low + high) // 2
        if count(text[: ends[middle]].rstrip() + tail, encoding) <= max_tokens:
            low = middle + 1
        else:
            high = middle
    return text[: ends[low - 1]].rstrip() + tail if low else ""


def _whole(text: str) -> str:
    """A text that was cut by its limit, up to its last whole sentence; where that is under half of
    it, with an ellipsis.
    """
    ends = [match.end() for match in _END.finditer(text)]
    return text[: ends[-1]].rstrip() if ends and ends[-1] * 2 >= len(text) else text.rstrip() + "…"
