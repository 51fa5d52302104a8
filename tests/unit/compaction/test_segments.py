"""Summaries grow at their end, stay within their budget, and are written anew when they are
full.
"""

from __future__ import annotations

import random
from itertools import pairwise

import msgspec
import pytest

from projections.errors import ThreadfoldError
from projections.events.tokenizer import count
from streams.compaction.summarizers.base import SpanMessage, SummaryInput, SummaryText
from streams.compaction.summarizers.extractive import ExtractiveSummarizer, summarize_extractive
from streams.compaction.summarizers.registry import Summarizers
from streams.compaction.summarizers.segments import ANEW, LEAST, SEGMENT, SPAN, summarize
from streams.settings.settings import Settings
from tests.support.processors import Reached, Refusing

ENCODING = "o200k_base"
WORDS = [
    "parcel",
    "address",
    "street",
    "refund",
    "delivery",
    "Oslo",
    "Lima",
    "morning",
    "signature",
    "invoice",
    "garden",
    "label",
]


def span(seed: int, messages: int = 30, words: int = 40) -> tuple[SpanMessage, ...]:
    """What a user and an assistant said, a number of its own in every message."""
    rng = random.Random(seed)
    roles = ("user", "assistant")
    return tuple(
        SpanMessage(
            f"0-{i}",
            roles[i % 2],
            f"Order {seed * 1000 + i}: I want " + " ".join(rng.choices(WORDS, k=words)) + ".",
        )
        for i in range(messages)
    )


def asked(
    previous: str | None, messages: tuple[SpanMessage, ...], max_tokens: int = 1_500
) -> SummaryInput:
    return SummaryInput(previous, messages, max_tokens, ENCODING)


async def chain(spans: int, max_tokens: int, messages: int = 30) -> list[SummaryText]:
    found: list[SummaryText] = []
    for seed in range(spans):
        previous = found[-1].text if found else None
        found.append(
            await summarize(
                ExtractiveSummarizer(), asked(previous, span(seed, messages), max_tokens)
            )
        )
    return found


def grows(before: SummaryText, after: SummaryText) -> bool:
    return after.text.startswith(before.text + "\n")


async def test_a_summary_begins_with_the_one_before_until_it_is_full_and_is_then_written_anew_at_half() -> (
    None
):
    found = await chain(16, 1_500)
    steps = [grows(before, after) for before, after in pairwise(found)]
    assert steps[:3] == [True, True, True]
    anew = [after for after, grew in zip(found[1:], steps, strict=True) if not grew]
    assert 2 <= len(anew) <= 5
    assert all(summary.tokens <= 1_500 // ANEW for summary in [found[0], *anew])


async def test_what_is_written_anew_keeps_lines_of_what_stood_before_it() -> None:
    found = await chain(24, 1_500, messages=8)
    pairs = [(before, after) for before, after in pairwise(found) if not grows(before, after)]
    assert pairs
    for before, after in pairs:
        kept = set(before.text.splitlines()) & set(after.text.splitlines())
        assert 0 < len(kept) < len(after.text.splitlines())


@pytest.mark.parametrize("max_tokens", [1, 7, 60, 300, 499, 500, 501, 700, 1_500])
async def test_no_summary_is_above_its_budget_and_its_tokens_are_those_of_its_text(
    max_tokens: int,
) -> None:
    for summary in await chain(8, max_tokens):
        assert summary.tokens == count(summary.text, ENCODING) <= max_tokens


async def test_a_segment_says_what_its_span_said_in_proportion_to_it() -> None:
    first = await summarize(ExtractiveSummarizer(), asked(None, span(0)))
    for messages, most in ((4, LEAST), (60, 1_500 // SEGMENT), (300, 1_500 // SEGMENT)):
        new = span(7, messages)
        size = sum(count(message.text, ENCODING) for message in new)
        after = await summarize(ExtractiveSummarizer(), asked(first.text, new))
        segment = after.text.removeprefix(first.text + "\n")
        assert "Order 7" in segment and "Order 0" not in segment
        assert LEAST // 2 < count(segment, ENCODING) <= min(most, max(LEAST, size // SPAN))


async def test_a_budget_too_small_for_segments_is_written_anew_as_a_whole() -> None:
    small = LEAST * SEGMENT - 1
    request = asked("user: I never fly before 11 AM.", span(1), small)
    assert await summarize(ExtractiveSummarizer(), request) == summarize_extractive(request)


async def test_a_span_that_says_nothing_leaves_the_summary_as_it_is() -> None:
    before = "user: I never fly before 11 AM."
    after = await summarize(
        ExtractiveSummarizer(), asked(before, (SpanMessage("0-1", "assistant", ""),))
    )
    assert (after.text, after.tokens) == (before, count(before, ENCODING))


async def test_an_earlier_summary_longer_than_the_budget_is_written_anew_within_it() -> None:
    before = (await chain(1, 3_000))[0]
    assert before.tokens > 800
    after = await summarize(ExtractiveSummarizer(), asked(before.text, span(3), 800))
    assert after.tokens <= 800 // ANEW and after.text


@pytest.mark.parametrize("name", ["extractive", "cheap"])
async def test_a_spans_texts_are_counted_where_its_summary_is_made(name: str) -> None:
    """An event loop that counted them would find that there is no such encoding."""
    options = {"cheap": {"base_url": "http://h:1/v1", "model": "small"}}
    settings = Settings.load(env={}, kafka="h:1", redis="redis://h:1/0", summarizers=options)
    summarizers = Summarizers(settings, processor=Refusing())
    request = msgspec.structs.replace(asked("user: hello", span(1)), encoding="unknown")
    with pytest.raises(Reached):
        await summarize(summarizers.get(name), request)


class Wordy:
    """Says so many tokens whatever it is asked for, and counts what it was asked."""

    name = "wordy"

    def __init__(self, tokens: int) -> None:
        self.tokens = tokens
        self.requests: list[SummaryInput] = []

    async def summarize(self, request: SummaryInput) -> SummaryText:
        self.requests.append(request)
        tokens = (
            min(self.tokens, request.max_tokens) if request.previous is not None else self.tokens
        )
        text = " ".join(["go"] * tokens)
        return SummaryText(text, count(text, ENCODING), "wordy", "model-1", 0.25)


async def test_a_segment_longer_than_it_was_asked_for_is_not_put_behind_a_full_summary() -> None:
    before = " ".join(["yes"] * 1_200)
    wordy = Wordy(400)
    after = await summarize(wordy, asked(before, span(2)))
    assert [request.previous for request in wordy.requests] == [None, before]
    assert after.tokens == 400 and "yes" not in after.text
    assert after.cost == 0.5, "both were paid for"


async def test_who_made_a_segment_and_what_it_cost_is_reported() -> None:
    after = await summarize(Wordy(20), asked("yes", span(2)))
    assert (after.summarizer, after.model, after.cost) == ("wordy", "model-1", 0.25)
    assert after.text.startswith("yes\ngo go")


class Failing:
    """Answers nobody."""

    name = "failing"

    async def summarize(self, request: SummaryInput) -> SummaryText:
        raise ThreadfoldError(f"no answer within {request.max_tokens} tokens")


@pytest.mark.parametrize("previous", [None, "user: I never fly before 11 AM.", "yes " * 1_400])
async def test_a_summariser_that_fails_fails_the_whole_and_changes_nothing(
    previous: str | None,
) -> None:
    request = asked(previous, span(1))
    copy = msgspec.structs.replace(request)
    with pytest.raises(ThreadfoldError, match="no answer"):
        await summarize(Failing(), request)
    assert request == copy
