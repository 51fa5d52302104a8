"""A log folded under other rules than those that asked for its summaries: what they hold stays."""

from __future__ import annotations

import json
from typing import Any

import pytest

from projections.events.tokenizer import count
from projections.fold.replay import replay
from projections.fold.summary_length import fit_summary
from projections.policy.policy import Rules
from projections.render.render import render_openai
from projections.window.window import Window
from tests.support.compacted_talk import Talk
from tests.support.generated import Story
from tests.support.mirror import KEY

BOUNDED: dict[str, Any] = {
    "model_window": 16_000,
    "reserve_tokens": 1_600,
    "working_budget": 900,
    "keep_recent_tokens": 300,
    "min_messages": 4,
    "summary_max_tokens": 300,
}
OTHERS: dict[str, dict[str, Any]] = {
    "smaller": {
        **BOUNDED,
        "working_budget": 300,
        "keep_recent_tokens": 100,
        "summary_max_tokens": 100,
        "reducers": [{"name": "keep_last_n_messages", "n": 4}],
    },
    "sliding": {"profile": "sliding", "summary_max_tokens": 100, "close_summarizer": "extractive"},
    "composed": {"profile": "composed", "reducers": [{"name": "keep_last_n_turns", "n": 1}]},
    "unpaid": {
        "compaction": False,
        "working_budget": 200,
        "model_window": 2_500,
        "reserve_tokens": 200,
        "summary_max_tokens": 50,
    },
    "another_tokenizer": {**BOUNDED, "encoding": "cl100k_base"},
}


def under(policy: dict[str, Any], log: Any) -> Window:
    return replay(KEY, 0, Rules(policy), log)


@pytest.mark.parametrize("name", OTHERS)
def test_every_rule_takes_the_summaries_that_another_asked_for(name: str) -> None:
    taken = 0
    for seed in range(4):
        story = Story(seed, Rules(BOUNDED), awkward=0.5)
        try:
            story.play(200)
        finally:
            story.close()
        before, after = story.window.meta.summary, under(OTHERS[name], story.log).meta.summary
        assert (before and before.summary_id) == (after and after.summary_id), seed
        taken += before is not None
        if after is not None:
            most = Rules(OTHERS[name]).for_conversation("acme", None).summary_max_tokens
            assert after.tokens <= most + 16
    assert taken > 2


async def test_a_summary_of_a_larger_budget_is_cut_and_its_place_in_the_log_is_reported() -> None:
    talk = Talk(BOUNDED)
    while talk.window.meta.due is None:
        talk.chat(1)
    await talk.summarise()
    whole = talk.window.meta.summary
    assert whole is not None
    window = under({**BOUNDED, "summary_max_tokens": 60}, talk.log)
    summary = window.meta.summary
    assert summary is not None and summary.to == whole.to
    assert summary.tokens <= 76 and len(summary.text) < len(whole.text)
    assert f"[… the rest of this summary stands at position 0-{summary.offset} …]" in summary.text
    (first, *_) = render_openai(window).bodies
    assert json.loads(first)["content"].endswith(summary.text)


async def test_after_a_smaller_budget_and_a_limit_a_summary_or_a_line_stands_for_what_is_not_shown() -> (
    None
):
    talk = Talk(BOUNDED)
    while talk.window.meta.due is None:
        talk.chat(1)
    await talk.summarise()
    talk.chat(4)
    window = under(OTHERS["smaller"], talk.log)
    bodies = [body.decode() for body in render_openai(window).bodies]
    assert "[Summary of the earlier conversation]" in bodies[0]
    assert "earlier messages left out: 0-" in bodies[1]
    assert len(bodies) <= 2 + 4


LINES = "\n".join(f"User: the {i}th wish is {i * 37} apples" for i in range(60))


def test_the_first_and_the_last_lines_of_a_long_summary_stay() -> None:
    text, tokens = fit_summary(LINES, count(LINES) + 4, 120, "o200k_base", "0-9")
    lines = text.splitlines()
    assert lines[0] == LINES.splitlines()[0] and lines[-1] == LINES.splitlines()[-1]
    assert "[… the rest of this summary stands at position 0-9 …]" in lines
    assert tokens == count(text) + 4 <= 120
    kept = set(lines) & set(LINES.splitlines())
    assert len(kept) == len(lines) - 1 >= 6


@pytest.mark.parametrize(
    "text", ["word " * 4_000, "\n" * 9_000, "x" * 50_000, "語" * 9_000, LINES, "\ud800 " * 3_000]
)
@pytest.mark.parametrize("most", [1, 30, 200])
def test_a_summary_fits_whatever_it_is_of(text: str, most: int) -> None:
    made, tokens = fit_summary(text, 100_000, most, "o200k_base", "0-9")
    assert tokens <= most + 16 and (made != text or count(text) <= most + 16)


def test_a_summary_within_its_limit_stays_as_it_is() -> None:
    assert fit_summary("short", 66, 50, "o200k_base", "0-9") == ("short", 66)
