"""What of an answer of recall is given out, and how the public interface shows it."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec
from msgspec import to_builtins

from projections.events.times import time_at
from projections.events.tokenizer import count
from projections.memory.background import Background, background
from projections.memory.recall import Recalled
from projections.memory.resolution import Record
from projections.memory.slots import still_missing
from threadfold.service.pages import PAGE_BYTES
from threadfold.service.recall import Answer, Sought

BACKGROUND_TOKENS = 800
"""Tokens of a background, where nobody says how many."""


class Given(NamedTuple):
    """What of an answer is given out: the first hits whose texts have so many tokens, and what of
    these is for a prompt.
    """

    found: list[Recalled]
    tokens: int
    for_prompt: Background | None


def given_out(answer: Answer, max_tokens: int | None) -> Given:
    """The first hits of an answer whose texts have at most so many tokens, up to the one that makes
    them 4 MiB; a composite that is too long is left to its sources.
    """
    tokens, size, kept = 0, 0, list[Recalled]()
    for one in answer.found:
        if size >= PAGE_BYTES:
            break
        more = count(one.found.text)
        if max_tokens is not None and tokens + more > max_tokens:
            if one.kind == "composite":
                continue  # its sources are shorter
            break
        tokens += more
        size += len(msgspec.json.encode(one.found))
        kept.append(one)
    for_prompt = background(kept, BACKGROUND_TOKENS if max_tokens is None else max_tokens)
    return Given(kept, tokens, for_prompt)


def answered(
    answer: Answer, max_tokens: int | None, *, explain: bool = False
) -> tuple[Given, bytes]:
    """What of an answer is given out, and its document as JSON. Texts' tokens are counted, and it
    may be large: not for an event loop.
    """
    given = given_out(answer, max_tokens)
    return given, msgspec.json.encode(search_document(answer, given, explain=explain))


def search_document(answer: Answer, given: Given, *, explain: bool = False) -> dict[str, Any]:
    """What is given out as the public interface has it."""
    document: dict[str, Any] = {
        "results": [hit_document(one, explain=explain) for one in given.found],
        "background_context": None if given.for_prompt is None else given.for_prompt.text,
        "tokens": given.tokens,
        "away": answer.away,
        "missing": still_missing(answer.sought.plan, given.found),
    }
    if explain:
        document["plan"] = _plan_document(answer.sought)
    return document


def _plan_document(sought: Sought) -> dict[str, Any]:
    asked = sought.plan.temporal_filter
    shown: dict[str, Any] = to_builtins(sought.plan)
    shown["made_by"] = sought.planned_by
    shown["imagined_skill"] = to_builtins(sought.imagined)
    shown["fell_back"] = sought.fell_back
    shown["temporal_filter"] = asked and {
        "since": None if asked.since is None else time_at(asked.since),
        "until": None if asked.until is None else time_at(asked.until),
    }
    return shown


def hit_document(one: Recalled, *, explain: bool) -> dict[str, Any]:
    """A hit as the public interface has it."""
    record = one.found if isinstance(one.found, Record) else None
    found: dict[str, Any] = {
        "kind": one.kind,
        "id": one.id,
        "text": one.found.text,
        "score": one.score,
        "channels": one.channels,
        "conversation": one.found.conversation,
        "position": one.position,
        "trust": one.found.trust,
    }
    if record is not None:
        found["record"] = record.document()
    if explain:
        found["scores"] = one.scores
    return found
