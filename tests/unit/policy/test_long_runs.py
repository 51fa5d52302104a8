"""Each profile over one long run of an agent: what it promises, and the figures that
``docs/policy.md`` gives of it.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from projections.fold.replay import replay
from projections.names import parse_position
from projections.policy.policy import Rules
from projections.render.read_header import state_of
from projections.render.render import render_openai
from projections.window.entry import RENDERED
from streams.compaction.requests import request_for
from tests.support.agent_run import (
    COMPOSED,
    KEY,
    PROFILES,
    Run,
    agent_run,
    fold,
    folded,
    policy_of,
    row,
)
from tests.unit.policy.test_documentation import TEXT, table
from threadfold.demo import openai_checker

FREE = {"soft_trim", "hard_clear", "compact_tool_results"}
LATE_TOKENS = 10_000
"""More than the events have that come while a summary is under way."""


async def steps_of(run: Run) -> AsyncIterator[dict[str, Any]]:
    """Each event of the run, right after it was folded."""
    for flat in agent_run():
        await run.say(flat)
        yield flat


@pytest.mark.long
@pytest.mark.parametrize("profile", PROFILES)
def test_the_docs_give_the_figures_of_this_run(profile: str) -> None:
    (written,) = [line for line in table(TEXT, "### One run under each")[1:] if line[0] == profile]
    _, mean, most, messages, summaries, prefix, named = row(profile)
    assert float(written[1]) == pytest.approx(mean, rel=0.1)
    assert float(written[2]) == pytest.approx(most, rel=0.1)
    assert float(written[3]) == pytest.approx(messages, rel=0.1)
    assert float(written[4]) == pytest.approx(summaries, rel=0.15, abs=1)
    assert float(written[5]) == pytest.approx(prefix, abs=0.04)
    assert written[6] == named


def test_the_run_is_as_long_as_the_docs_say() -> None:
    run = folded("bounded")
    assert (
        f"{len(agent_run())} events, {run.said:,} tokens unshortened, {len(run.calls)} model"
        " calls" in TEXT
    )


@pytest.mark.parametrize("profile", PROFILES)
def test_every_call_is_valid_under_its_ceiling_and_replay_gives_the_same_window(
    profile: str,
) -> None:
    run = folded(profile)
    for render in run.calls:
        assert openai_checker.problems(json.loads(render.messages)) == []
        assert render.tokens <= run.window.policy.ceiling
    assert replay(KEY, 0, Rules(policy_of(profile)), run.log).image() == run.window.image()


async def test_bounded_stays_within_its_budget_and_what_left_is_in_a_summary() -> None:
    run = Run(policy_of("bounded"))
    async for _ in steps_of(run):
        window = run.window
        budget = window.limits.budget
        assert window.tail_tokens <= budget + LATE_TOKENS
        assert window.meta.due is not None or window.tail_tokens <= budget
        assert window.left_out == 0
        # All that was said is in the tail, or in the span of a summary.
        spoken = {
            at
            for at, event in run.log
            if type(event).__name__ in ("MessageEvent", "ToolResultEvent")
        } - {0}
        assert {at for at in spoken if at > window.covered_to} <= {
            entry.offset for entry in window.tail
        }
    assert len(run.summaries) >= 3
    assert run.window.meta.summary is not None and run.window.meta.summary.to > len(run.log) // 2
    assert set(run.steps) <= FREE
    assert all(
        request.reason == "budget" and request.summarizer == "extractive" for request in run.asked
    )


def test_pruning_compacts_old_results_by_template_and_asks_for_fewer_summaries() -> None:
    run, bounded = folded("pruning"), folded("bounded")
    assert len(run.summaries) < len(bounded.summaries) / 2
    assert sum(len(c.bodies) for c in run.calls) > 1.8 * sum(len(c.bodies) for c in bounded.calls)
    most = 0
    for render in run.calls:
        results = [
            message for message in map(json.loads, render.bodies) if message["role"] == "tool"
        ]
        lines = [f"[{m['name']} {m['tool_call_id']}: " for m in results]
        old = [
            m["content"].startswith(line) and m["content"].endswith(" characters]")
            for m, line in zip(results, lines, strict=True)
        ]
        assert not any(old[-3:])
        # All from the first on: nothing old stays whole behind something younger.
        assert old == sorted(old, reverse=True)
        most = max(most, sum(old))
    assert most > 50
    assert run.steps["compact_tool_results"] > len(run.calls) / 2


async def test_composed_uses_only_the_reducers_listed_and_never_a_summary_unless_it_is_listed() -> (
    None
):
    run = await fold(policy_of("composed"))
    assert set(run.steps) == {reducer["name"] for reducer in COMPOSED["reducers"]}
    assert run.asked == [] and run.window.meta.summary is None
    turns = [
        sum(json.loads(body)["role"] == "user" for body in render.bodies) for render in run.calls
    ]
    assert max(turns) == 12
    paid = await fold(
        {**policy_of("composed"), "reducers": [*COMPOSED["reducers"], {"name": "summarize"}]}
    )
    assert 1 <= len(paid.summaries) <= 6
    assert set(paid.steps) == set(run.steps)
    bare = await fold({"profile": "composed"})
    assert bare.asked == [] and set(bare.steps) == {"leave_out_oldest"}
    assert (
        max(render.tokens for render in bare.calls) <= 2 * bare.window.policy.working_budget + 200
    )


async def test_sliding_shows_ten_messages_at_most_and_what_left_is_due() -> None:
    run, left_ever = Run(policy_of("sliding")), False
    async for _ in steps_of(run):
        window = run.window
        bodies = render_openai(window).bodies
        assert len(bodies) <= 10 + 1 + (window.meta.summary is not None)
        assert window.shown_messages <= 10
        left = [entry.offset for entry in window.tail if entry.kind in RENDERED and entry.out]
        left_ever |= bool(left)
        assert not left or window.meta.due is not None
    assert left_ever and len(run.summaries) > 20


async def test_exact_cuts_show_ten_messages_wherever_groups_allow() -> None:
    run = Run({**policy_of("sliding"), "cuts": "exact"})
    counts = set()
    async for flat in steps_of(run):
        if flat.get("role") == "user" and len(run.log) > 40:
            counts.add(
                sum(
                    json.loads(body)["role"] != "system"
                    for body in render_openai(run.window).bodies[2:]
                )
            )
    assert max(counts) == 10 and min(counts) >= 6


async def test_an_idle_close_empties_a_sliding_tail_is_due_for_the_close_summariser_and_the_next_message_goes_on() -> (
    None
):
    run = await fold(policy_of("sliding"))
    while run.window.meta.due is not None:
        await run.summarise()
    assert 0 < run.window.shown_messages <= 10
    last_said = run.log[run.window.state.last_message][0]
    await run.say({"type": "session.closed", "reason": "idle", "after": f"0-{last_said}"})
    window = run.window
    request = request_for(window, 1)
    assert request is not None and (request.reason, request.summarizer) == ("idle", "cheap")
    assert request.last >= last_said and request.kept == []
    render = render_openai(window)
    assert window.shown_messages == 0 and len(render.bodies) == 3
    assert b"earlier messages left out" in render.bodies[2]
    assert render.trace[-1].reducer == "session_closed"
    assert state_of(window.state) == "idle"
    outcome = await run.summarise()
    assert len(outcome.accepted) == 1 and window.meta.due is None
    event = next(event for at, event in run.log if at == outcome.accepted[0].offset)
    assert event.data.reason == "idle" and parse_position(event.data.span.to).offset >= last_said
    await run.say({"type": "message", "role": "user", "content": "Are you there?"})
    system, summary, user = map(json.loads, render_openai(run.window).bodies)
    assert (system["role"], summary["role"], user["content"]) == (
        "system",
        "assistant",
        "Are you there?",
    )
    assert state_of(run.window.state) == "active"


async def test_a_close_while_a_summary_is_under_way_is_due_right_after_it() -> None:
    run = Run(policy_of("sliding"))
    for flat in agent_run():
        await run.say(flat)
        if (
            run.window.meta.due is not None
            and flat["type"] == "message"
            and flat["role"] == "assistant"
            and not flat.get("tool_calls")
        ):
            break
    await run.say({"type": "session.closed", "reason": "explicit"})
    assert run.window.meta.due is not None and run.window.meta.due.reason == "budget"
    while run.window.meta.due is not None and run.window.meta.due.reason == "budget":
        await run.summarise()
    assert run.window.meta.due is not None and run.window.meta.due.reason == "explicit"
    assert run.window.shown_messages == 0


async def test_a_closed_session_of_another_profile_keeps_its_tail() -> None:
    run = await fold(policy_of("bounded"))
    while run.window.meta.due is not None:
        await run.summarise()
    shown = render_openai(run.window).messages
    await run.say({"type": "session.closed", "reason": "idle"})
    assert run.window.meta.due is None and render_openai(run.window).messages == shown


@pytest.mark.parametrize(
    ("policy", "summaries", "prefix", "told"),
    [
        (
            {**policy_of("composed"), "cuts": "exact"},
            0,
            0.66,
            "a prefix of 0.66 with `exact`, and 0.92 with `stable`",
        ),
        (
            {**policy_of("composed"), "reducers": [*COMPOSED["reducers"], {"name": "summarize"}]},
            3,
            0.93,
            "has 3 summaries, and a prefix of 0.93",
        ),
        (
            {"profile": "sliding", "reducers": [{"name": "keep_last_n_messages", "n": 30}]},
            21,
            0.79,
            "`n` 30 in its reducer the run has 21 summaries, and a prefix of 0.79",
        ),
    ],
)
@pytest.mark.long
async def test_the_figures_in_the_docs_text_are_those_of_the_run(
    policy: dict[str, Any], summaries: int, prefix: float, told: str
) -> None:
    assert " ".join(told.split()) in " ".join(TEXT.split())
    run = await fold(policy)
    assert len(run.summaries) == pytest.approx(summaries, abs=2)
    assert run.kept() == pytest.approx(prefix, abs=0.04)
