"""What models report of their calls sets the window's own counts right: the ratio is held against
it.
"""

from __future__ import annotations

from typing import Any

import pytest

from projections.events import types as events
from tests.support.stories import Story

SHARE: dict[str, Any] = {
    "model_window": 20_000, "reserve_tokens": 1_000, "working_budget": 9_000, "compaction_ratio": 0.1, "trim_tool_results": False,
}  # fmt: skip


def reported(story: Story, prompt: int, text: str = "words " * 30, **fields: int) -> int:
    usage = (
        events.Usage(**fields)
        if fields
        else events.Usage(prompt_tokens=prompt, completion_tokens=5)
    )
    return story.say(events.Message("assistant", text, usage=usage), 40)


def until_due(story: Story) -> int:
    """The tokens of the tail at which a summary is due."""
    while story.window.meta.due is None:
        story.user("words " * 30, 40)
    return story.window.tail_tokens


def test_without_usage_the_own_count_passes_the_ratio() -> None:
    assert until_due(Story(SHARE)) == 1_920, "the first over a tenth of 19,000"


@pytest.mark.parametrize(("excess", "due_at"), [(500, 1_440), (-300, 2_240)])
def test_a_call_that_took_more_or_less_than_counted_moves_the_mark_by_that_much(
    excess: int, due_at: int
) -> None:
    story = Story(SHARE)
    for _ in range(19):
        story.user("words " * 30, 40)
    at = reported(story, 760 + excess)
    assert story.entry(at).usage_excess == excess == story.window.usage_excess
    assert until_due(story) == due_at
    story.assert_replays()


def test_the_latest_report_counts() -> None:
    story = Story(SHARE)
    for _ in range(10):
        story.user("words " * 30, 40)
    reported(story, 900)
    assert story.window.usage_excess == 500
    reported(story, 440)
    assert story.window.usage_excess == 0


@pytest.mark.parametrize(
    "fields",
    [{"prompt_tokens": 700}, {"input_tokens": 700}, {"prompt_tokens": 700, "total_tokens": 9}],
)
def test_both_providers_names_are_understood(fields: dict[str, int]) -> None:
    story = Story(SHARE)
    for _ in range(10):
        story.user("words " * 30, 40)
    reported(story, 0, **fields)
    assert story.window.usage_excess == 300


@pytest.mark.parametrize(("claim", "believed"), [(10**12, 1_200), (1, -200), (0, 0), (-7, 0)])
def test_a_claim_far_off_moves_the_mark_only_so_far(claim: int, believed: int) -> None:
    story = Story(SHARE)
    for _ in range(10):
        story.user("words " * 30, 40)
    reported(story, claim)
    assert story.window.usage_excess == believed


def test_nobody_but_a_model_reports() -> None:
    story = Story(SHARE)
    story.user("words " * 30, 40)
    story.say(events.Message("user", "words " * 30, usage=events.Usage(prompt_tokens=90)), 40)
    assert story.window.usage_excess == 0


def test_a_report_counts_until_a_summary_changes_what_is_sent() -> None:
    story = Story(SHARE)
    for _ in range(19):
        story.user("words " * 30, 40)
    at = reported(story, 1_260)
    until_due(story)
    story.summarise()
    assert story.window.usage_excess == 0
    assert any(entry.offset == at for entry in story.window.tail) or story.window.covered_to >= at
    story.assert_replays()
    again = reported(story, story.render().tokens + 100)
    assert story.window.usage_excess > 0 and story.entry(again).usage_excess


def test_a_rollback_takes_a_report_back() -> None:
    story = Story(SHARE)
    for _ in range(10):
        story.user("words " * 30, 40)
    reported(story, 900)
    story.back(5)
    assert story.window.usage_excess == 0


def test_a_report_moves_nothing_but_the_ratio() -> None:
    story = Story({**SHARE, "working_budget": 600, "compaction_ratio": 1.0})
    for _ in range(10):
        story.user("words " * 30, 40)
    before = story.window.limits
    reported(story, 1_600)
    assert story.window.limits == before
