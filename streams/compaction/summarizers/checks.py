"""What becomes of a model's answer: refused where it is no summary of what was sent, else tidied,
shortened, and given back what it lost.

The result has the extractive summary's form where anything was added: the model's text, then lines
of open tasks in their speakers' words, then one line of facts; the extractive summariser reads all
of it back.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import islice
from typing import TypeVar

from projections.events.tokenizer import count
from streams.compaction.summarizers.base import SummaryInput
from streams.compaction.summarizers.extractive import FACTS_SHARE, FACTS_TOKENS, read_lines
from streams.compaction.summarizers.facts import Fact, find_facts
from streams.compaction.summarizers.failures import SummaryRejected
from streams.compaction.summarizers.lines import FACTS, Line, speaks, write_summary
from streams.compaction.summarizers.prompt import clean
from streams.compaction.summarizers.tasks import open_tasks, says
from streams.compaction.summarizers.terms import terms

T = TypeVar("T")

TOO_LONG = 3
"""An answer of more than so many times its budget did not follow the instructions; a shorter one is
cut at the end of a sentence.
"""

IMPORTANT = 1.5
"""Worth from which a fact is missed: a user's or assistant's ids, amounts, dates and names, a
tool's ids and amounts.
"""

CHECKED = 20
RICH = 6
KEPT = 0.1
"""Of the ``CHECKED`` facts of the span worth most (as many as the budget could hold, a fact a dozen
tokens), at least this share has to be in the answer, where there are ``RICH`` of them.
"""

TOKENS_OF_A_FACT = 12
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

    Pure; about as dear as finding the facts of the span (0.3 s for 100,000 tokens). Invented ids
    and e-mail addresses are refused, other invented content is not seen.

    Raises:
        SummaryRejected: empty, no text, an echo of the prompt, far too long, too little, almost
            none of the facts, or facts of its own.
    """
    text = _tidied(answer)
    _check_form(request, text, answer, mark)
    _, facts = read_lines(request)
    first = facts.first_said()
    words = {f: facts.words(f, int(first[i])) for i, f in enumerate(facts.known)}.__getitem__
    top = [facts.known[place] for place in facts.best() if facts.scores[place] >= IMPORTANT]
    stated = StatedFacts(text)
    _check_facts(request, text, stated, top)
    missing = [made for fact in top if fact not in stated and (made := words(fact))]
    tasks = [task for task in open_tasks(request) if not says(stated.terms, task)]
    return _fit(request, _whole(text) if cut else text, tasks, missing)


def _tidied(answer: str) -> str:
    """The answer without a reasoning model's thoughts, a fence, facts lines of its own, and lines
    that would pass for a speaker's.
    """
    text = _THOUGHTS.sub("", clean(answer.replace("\r\n", "\n")), count=1).strip()
    fenced = _FENCE.match(text)
    rows = [row.rstrip() for row in (fenced[1] if fenced else text).splitlines()]
    # Only users speak as users: a model's "user: I agree" must not be read back as one's words.
    kept = [
        f"- {row}" if speaks(row) else row
        for row in rows
        if row and not row.startswith(FACTS.rstrip())
    ]
    return "\n".join(kept).strip()


def _check_form(request: SummaryInput, text: str, answer: str, mark: str) -> None:
    if not text:
        raise SummaryRejected("the answer is empty")
    if _MARKUP.match(text):
        raise SummaryRejected("the answer is a web page")
    if mark in answer or any(part in answer for part in _ECHOED):
        raise SummaryRejected("the answer repeats the prompt")
    letters = sum(map(str.isalpha, text))
    if letters < 3 or letters < len(text) / 4:
        raise SummaryRejected("the answer is not text")
    words = terms(text)
    if len(words) >= 60 and len(set(words)) < len(words) / 12:
        raise SummaryRejected("the answer says the same again and again")
    tokens = count(text, request.encoding)
    if tokens > max(TOO_LONG * request.max_tokens, request.max_tokens + 64):
        raise SummaryRejected(
            f"the answer has {tokens} tokens where {request.max_tokens} were asked for"
        )
    if tokens < LEAST_TOKENS and tokens < request.max_tokens // 2 and _is_long(request):
        raise SummaryRejected(f"the answer has only {tokens} tokens")


def _is_long(request: SummaryInput) -> bool:
    tokens = 0
    for text in (request.previous or "", *(message.text for message in request.messages)):
        tokens += count(text[: INPUT_TOKENS * 8], request.encoding)
        if tokens > INPUT_TOKENS:
            return True
    return False


def _check_facts(request: SummaryInput, text: str, stated: StatedFacts, top: list[Fact]) -> None:
    # What only the earlier summary holds may fade; what was said since may not be passed over.
    span = "\n".join(message.text for message in request.messages)
    most = list(
        islice(
            (fact for fact in top if fact.text in span),
            max(1, min(CHECKED, request.max_tokens // TOKENS_OF_A_FACT)),
        )
    )
    kept = sum(fact in stated for fact in most)
    if len(most) >= RICH and kept < max(1, KEPT * len(most)):
        raise SummaryRejected(f"the answer has {kept} of the {len(most)} facts that matter most")
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
            raise SummaryRejected(f"the answer has {invented} ids or addresses that nobody gave")


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
            raise SummaryRejected(f"nothing of the answer fits in {request.max_tokens} tokens")


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
