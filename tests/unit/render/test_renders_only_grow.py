"""Between cuts a render only grows at its end, byte for byte; a cut is something that the window
shows, and cuts are few.
"""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from projections.policy.policy import Rules
from projections.render.parts import Render
from projections.render.render import render_openai
from projections.window.window import Window
from tests.support import sayings
from tests.support.generated import Story

BUDGET = 2_000
BASE: dict[str, Any] = {
    "model_window": 16_000,
    "reserve_tokens": 1_600,
    "working_budget": BUDGET,
    "keep_recent_tokens": BUDGET,
    "summary_max_tokens": 200,
    "min_messages": 4,
}
TRIMS = {"soft_trim_chars": 200, "hard_clear_chars": 900, "protect_recent": 2}
POLICIES: dict[str, dict[str, Any]] = {
    "bounded": {},
    "trims": TRIMS,
    "pruning": {**TRIMS, "profile": "pruning"},
    "without_summaries": {**TRIMS, "compaction": False},
    "turns": {"profile": "composed", "reducers": [{"name": "keep_last_n_turns", "n": 8}]},
    "messages": {"profile": "composed", "reducers": [{"name": "keep_last_n_messages", "n": 30}]},
    "compact": {
        "profile": "composed",
        "reducers": [{"name": "compact_tool_results", "replacement": "template", "keep_last_n": 6}],
    },
    "heads": {
        "profile": "composed",
        "reducers": [{"name": "summarize_tool_results", "top": 3}, {"name": "summarize"}],
    },
}
TURNS = 80


Call = tuple[Render, str]


def spoken(seed: int, policy: dict[str, Any]) -> tuple[Story, list[Call]]:
    """A conversation without surprises, its summaries a few events late; the renders of all its
    model calls, each with its mark.
    """
    story = Story(seed, Rules({**BASE, **policy}), awkward=0.0)
    try:
        return story, speak(story, random.Random(seed))
    finally:
        story.close()


def speak(story: Story, rng: random.Random) -> list[Call]:
    """Say it all, see :func:`spoken`."""
    calls: list[Call] = []
    late = 0

    def say(flat: dict[str, Any]) -> None:
        nonlocal late
        if flat.get("role") == "assistant":
            render = render_openai(story.window)
            calls.append((render, mark_of(story.window, render)))
        story.say(flat)
        late = late + 1 if story.window.meta.due is not None else 0
        if late > 3:
            story.summarise()

    for turn in range(TURNS):
        say(
            {
                "type": "message",
                "role": "user",
                "content": sayings.text(rng, rng.choice([5, 30, 60])),
            }
        )
        for step in range(rng.choice([0, 1, 1, 2])):
            ids = [f"call_{i}" for i in range(rng.choice([1, 1, 3]))]
            say(sayings.calls(rng, ids, ("gpt-a", "openai")))
            for id_ in ids:
                rows = [
                    {"id": i, "note": sayings.text(rng, 8)} for i in range(rng.choice([2, 4, 12]))
                ]
                say(
                    {
                        "type": "tool.result",
                        "tool_call_id": id_,
                        "name": "look",
                        "content": json.dumps([turn, step, *rows]),
                    }
                )
        say(
            {
                "type": "message",
                "role": "assistant",
                "content": sayings.text(rng, rng.choice([10, 60])),
            }
        )
    return calls


def mark_of(window: Window, render: Render) -> str:
    """What tells one cut from another: the active summary, what each step of the trace saved, and
    the cut the window may note.
    """
    summary = window.meta.summary
    steps = [
        (s.reducer, s.messages_before - s.messages_after, s.tokens_before - s.tokens_after)
        for s in render.trace
    ]
    return repr(
        (
            summary and summary.summary_id,
            steps,
            getattr(window.meta, "cut", None),
            [e.offset for e in window.tail if e.first >= 0],
        )
    )


def breaks(calls: list[Call]) -> list[int]:
    """The calls that do not begin with the whole of the one before, byte for byte but for the
    closing bracket.
    """
    renders = [render.messages for render, _ in calls]
    return [i for i in range(1, len(renders)) if not renders[i].startswith(renders[i - 1][:-1])]


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in (1, 2))]
)
@pytest.mark.parametrize("name", sorted(POLICIES))
def test_between_cuts_a_render_only_grows_and_cuts_are_few(name: str, seed: int) -> None:
    story, calls = spoken(seed, POLICIES[name])
    broken, most = breaks(calls), most_cuts(POLICIES[name], story)
    assert len(broken) <= most, (
        f"{len(broken)} of {len(calls)} calls broke the prefix, where cuts alone explain"
        f" {most:.0f}: {broken}"
    )
    unseen = [i for i in broken if calls[i - 1][1] == calls[i][1]]
    assert not unseen, f"breaks that neither a summary nor a trace nor a cut explains: {unseen}"


def most_cuts(policy: dict[str, Any], story: Story) -> float:
    """How many cuts the marks explain: each leaves the tail at half its mark at most, so as much
    has to come before the next.

    A result that was whole while it was protected costs less after a cut, so counting all tokens as
    they were said is generous.
    """
    said = sum(
        event.tokens.count
        for _, event in story.log
        if getattr(event, "tokens", None) and not hasattr(event.data, "span")
    )
    # A summary and the shortenings that held out until it came may each be a cut.
    most = 2 + 2 * said / (BUDGET / 2)
    for reducer in policy.get("reducers", ()):
        n = reducer.get("n", reducer.get("keep_last_n"))
        if n is not None:
            units = {"keep_last_n_turns": TURNS, "keep_last_n_messages": len(story.log)}.get(
                reducer["name"], len(story.log) / 2
            )
            most += units / max(1, n / 2)
    return most


def test_the_conversations_reach_their_cuts() -> None:
    story, calls = spoken(0, {})
    assert story.seen["summary:applied"] > 5 and len(breaks(calls)) > 5 and len(calls) > 120
