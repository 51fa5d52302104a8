"""Issue 5's promise: over every cut, budget, reducer combination, profile and format, no render is
invalid, too long or unexplained.

Generated conversations always; the airline runs of the shared data where they are. A sample;
``THREADFOLD_SWEEP=full`` takes all.
"""

from __future__ import annotations

import itertools
import json
import os
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from projections.fold.replay import replay
from projections.formats.anthropic import anthropic_document
from projections.formats.context_document import context_document, stored_context
from projections.policy.policy import Rules
from projections.render.fit_to_limit import DoesNotFit
from projections.render.render import render_openai
from projections.window.bodies import to_flat
from projections.window.window import Window
from tests.support import anthropic_checker
from tests.support.generated import Story
from tests.support.mirror import KEY
from tests.support.profiles import examples
from tests.support.renders import check_explained, check_kept, check_reasoning, checked
from threadfold.demo import openai_checker

FULL = os.environ.get("THREADFOLD_SWEEP") == "full"
SHARED = Path(os.environ.get("THREADFOLD_SHARED") or Path(__file__).resolve().parents[4] / "shared")
AIRLINE = SHARED / "data" / "airline.jsonl"

BUDGETS: dict[str, dict[str, Any]] = {
    "tiny": {
        "model_window": 3_000,
        "reserve_tokens": 300,
        "working_budget": 500,
        "keep_recent_tokens": 200,
        "summary_max_tokens": 120,
    },
    "small": {
        "model_window": 8_000,
        "reserve_tokens": 800,
        "working_budget": 1_500,
        "summary_max_tokens": 200,
    },
    "large": {
        "model_window": 40_000,
        "reserve_tokens": 4_000,
        "working_budget": 9_000,
        "summary_max_tokens": 400,
    },
}
REDUCERS: dict[str, dict[str, Any]] = {
    "turns": {"name": "keep_last_n_turns", "n": 3},
    "messages": {"name": "keep_last_n_messages", "n": 7},
    "no_messages": {"name": "keep_last_n_messages", "n": 0},
    "compact_gone": {"name": "compact_tool_results", "replacement": None, "keep_last_n": 1},
    "compact_template": {
        "name": "compact_tool_results",
        "replacement": "[{tool_name} {call_id}: {result_length} characters]",
        "keep_last_n": 2,
    },
    "heads": {"name": "summarize_tool_results", "top": 3},
    "summarize": {"name": "summarize"},
}


def _sets() -> Iterator[tuple[str, dict[str, Any]]]:
    """Every set of reducers, alone and in ordered pairs, under every way of cutting; then the
    profiles; then trimming on and off.
    """
    singles = [(name,) for name in REDUCERS]
    for names in [*singles, *itertools.permutations(REDUCERS, 2)]:
        for cuts in ("stable", "exact"):
            yield (
                f"{'+'.join(names)}/{cuts}",
                {
                    "reducers": [REDUCERS[name] for name in names],
                    "cuts": cuts,
                    "profile": "composed",
                },
            )
    for profile in ("bounded", "pruning", "composed", "sliding"):
        for cuts in ("stable", "exact"):
            yield f"{profile}/{cuts}", {"profile": profile, "cuts": cuts}
    trims = {
        "soft_trim_chars": 200,
        "hard_clear_chars": 900,
        "protect_recent": 1,
        "min_messages": 4,
    }
    for cuts, low in (("stable", 0.5), ("stable", 0.0), ("stable", 1.0), ("exact", 0.5)):
        yield f"trims/{cuts}/{low}", {**trims, "cuts": cuts, "low_water": low}
        yield (
            f"no_compaction/{cuts}/{low}",
            {**trims, "compaction": False, "cuts": cuts, "low_water": low},
        )
    yield "no_trims", {"trim_tool_results": False}
    yield "whenever", {"compaction_ratio": 0.0, "min_messages": 2}


SETS = dict(_sets())
SEEDS = 4 if FULL else 1
STEPS = 220 if FULL else 110


def rules_of(name: str, budget: str) -> Rules:
    return Rules({**BUDGETS[budget], "min_messages": 4, **SETS[name]})


def cases() -> list[Any]:
    """Which set at which budget with which seed; by default each set has one budget, all budgets
    come equally often. One of ten is tried with every run of the tests.
    """
    if FULL:
        return [
            (name, budget, seed) for name in SETS for budget in BUDGETS for seed in range(SEEDS)
        ]
    some = [(name, list(BUDGETS)[i % len(BUDGETS)], i) for i, name in enumerate(SETS)]
    return [pytest.param(*case, marks=[pytest.mark.long] * (case[2] % 10 > 0)) for case in some]


def limits_of(window: Window, rng: random.Random) -> list[int | None]:
    """The policy's own ceiling, and a limit that is lower."""
    return [None, rng.choice([window.policy.ceiling // 2, 1_500, window.policy.ceiling - 1])]


@pytest.mark.parametrize(("name", "budget", "seed"), cases())
def test_every_cut_of_a_generated_conversation_renders_validly_and_within_its_ceiling(
    name: str, budget: str, seed: int
) -> None:
    """After every event, in every format, live; the window goes on from its stored fields now and
    then, and replay gives the same.
    """
    rules, rng = rules_of(name, budget), random.Random(seed)
    story = Story(seed, rules, huge=0.03 if budget == "large" else 0.01)
    lives: list[tuple[int, bytes]] = []
    try:
        for _ in range(STEPS):
            story.step()
            if rng.random() < 0.2:
                story.reload()
            for limit in limits_of(story.window, rng):
                render = checked(story.window, limit, story.call_ids)
                if render is not None and limit is None:
                    check_explained(story.window, render, story.in_force())
                    check_kept(story.window, render, story.in_force())
                    check_reasoning(story.window, render, story.signatures("anthropic"))
                    joined = stored_context(0, story.mirror.fields) if story.mirror.fields else None
                    assert joined in (
                        None,
                        context_document(story.window, render),
                    ), "the stored window reads as another one"
            if rng.random() < 0.05:
                lives.append((len(story.log), bytes_of(story.window)))
    finally:
        story.close()
    lives.append((len(story.log), bytes_of(story.window)))
    for n, live in lives[-4:]:
        again = replay(KEY, 0, rules, story.log[:n])
        assert bytes_of(again) == live, (
            f"live and replay differ after {n} events of {name}, {budget}, seed {seed}"
        )


def bytes_of(window: Window) -> bytes:
    """The window and its documents in every format, as bytes."""
    try:
        render = render_openai(window)
    except DoesNotFit as error:
        return window.image() + str(error).encode()
    return b"\n".join(
        (window.image(), context_document(window, render), anthropic_document(window, render))
    )


@given(
    st.integers(0, 2**32),
    st.sampled_from(sorted(SETS)),
    st.sampled_from(sorted(BUDGETS)),
    st.integers(1, 60),
)
@settings(max_examples=examples(300) if FULL else 25, deadline=None)
def test_any_cut_of_any_story_renders_validly(
    seed: int, name: str, budget: str, steps: int
) -> None:
    story = Story(seed, rules_of(name, budget))
    try:
        story.play(steps)
    finally:
        story.close()
    render = checked(story.window, None, story.call_ids)
    if render is not None:
        check_explained(story.window, render, story.in_force())
        check_kept(story.window, render, story.in_force())


def test_documents_hold_the_messages_that_were_checked() -> None:
    story = Story(5, rules_of("bounded/stable", "small")).play(60)
    story.close()
    render = render_openai(story.window)
    document = json.loads(context_document(story.window, render))
    assert openai_checker.problems(document["messages"]) == []
    assert (document["tokens"], document["trace"]) == (
        render.tokens,
        [step.to_dict() for step in render.trace],
    )
    document = json.loads(anthropic_document(story.window, render))
    assert anthropic_checker.problems(document.get("system"), document["messages"]) == []


@pytest.mark.long
def test_the_stories_reach_what_they_are_for() -> None:
    """Without this, all of the above could hold over conversations in which nothing happens."""
    seen: Counter[str] = Counter()
    for seed in range(20):
        story = Story(seed, rules_of("bounded/stable", "tiny")).play(150)
        story.close()
        seen.update(story.seen)
        seen["in force"] += story.window.meta.summary is not None
        seen["orphan or late"] += sum(
            1 for entry in story.window.tail if entry.kind == 3 and entry.link is None
        )
        # A render does not count as refused with every long lane: most fit.
        seen["fits"] += checked(story.window) is not None
    for what in (
        "summary:applied",
        "summary:rejected",
        "rollback:applied",
        "suspension:applied",
        "resolution:applied",
        "repeat:duplicate",
    ):
        assert seen[what] > 10, (what, seen)
    assert (
        seen["event.dropped:applied"] > 3
        and seen["in force"] > 8
        and seen["orphan or late"] > 3
        and seen["fits"] > 8
    ), seen


# -- the airline runs
# ------------------------------------------------------------------------------------------


def airline() -> list[tuple[str, list[dict[str, Any]]]]:
    rows = [json.loads(line) for line in AIRLINE.read_text().splitlines()]
    return [(row["conversation"], row["messages"]) for row in rows]


AIRLINE_BUDGETS: dict[str, dict[str, Any]] = {
    "2600": {
        "model_window": 8_000,
        "reserve_tokens": 800,
        "working_budget": 1_000,
        "summary_max_tokens": 200,
        "min_messages": 6,
    },
    "4000": {"working_budget": 4_000},
    "default": {},
}


here = pytest.mark.skipif(
    not AIRLINE.is_file(),
    reason=(
        "the shared data is not here (THREADFOLD_SHARED): generated conversations were taken alone"
    ),
)


@here
@pytest.mark.long
@pytest.mark.parametrize("name", sorted(SETS))
def test_every_cut_of_the_airline_runs_renders_validly_and_within_its_ceiling(name: str) -> None:
    """Summaries come a few events after they are asked for; every render is checked as those of
    generated conversations are.
    """
    runs = airline()
    at = sorted(SETS).index(name)
    budgets = list(AIRLINE_BUDGETS) if FULL else [list(AIRLINE_BUDGETS)[at % len(AIRLINE_BUDGETS)]]
    # By default two runs for each set: together they are all of the file.
    for run, messages in runs if FULL else [runs[(2 * at + i) % len(runs)] for i in range(2)]:
        for budget in budgets:
            rules = Rules({**AIRLINE_BUDGETS[budget], **SETS[name]})
            story = Story(at, rules, awkward=0.0)
            try:
                say_airline(story, run, messages)
            finally:
                story.close()
            assert bytes_of(replay(KEY, 0, rules, story.log)) == bytes_of(story.window), (
                run,
                budget,
            )


def say_airline(story: Story, run: str, messages: list[dict[str, Any]]) -> None:
    """Append a run's messages, checking the render after each."""
    late = 0
    for message in messages:
        story.say(to_flat(message, run))
        late = late + 1 if story.window.meta.due is not None else 0
        if late > 2:
            story.summarise()
        render = checked(story.window)
        assert render is not None, (run, len(story.log))
        check_explained(story.window, render, story.in_force())
        check_kept(story.window, render, story.in_force())


@here
def test_airline_runs_reuse_ids_and_reach_summaries() -> None:
    """Without this, the runs could be too short for what is asked of them."""
    reused = summaries = 0
    for run, messages in airline()[:30]:
        ids = [call["id"] for message in messages for call in message.get("tool_calls") or ()]
        reused += len(ids) != len(set(ids))
        story = Story(
            0, Rules({**AIRLINE_BUDGETS["2600"], **SETS["trims/stable/0.5"]}), awkward=0.0
        )
        try:
            say_airline(story, run, messages)
        finally:
            story.close()
        summaries += story.seen.get("summary:applied", 0)
    assert reused > 3 and summaries > 15, (reused, summaries)
