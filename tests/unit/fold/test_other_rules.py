"""A log folded under other rules than those that asked for its summaries: what they hold stays."""

from __future__ import annotations

import json
from typing import Any

import pytest

from projections.events import types as events
from projections.events.tokenizer import count
from projections.fold.apply import Status
from projections.fold.replay import Logged, apply_with_log, replay
from projections.fold.summary_length import fit_summary
from projections.policy.policy import Rules
from projections.render.render import render_openai
from projections.window.entry import Kind
from projections.window.window import Window
from streams.compaction.requests import request_for
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


LARGER: dict[str, Any] = {**BOUNDED, "working_budget": 5_000}


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


# -- results that came before their calls
# ------------------------------------------------------------------------------------------

STRAY, CALL = 0, 3


async def stray_talk(*later: str) -> Talk:
    """A result is too long for a small window and was left out when a call of its id came; the
    summary asked for before covers it. ``later`` results come before the summary.
    """
    talk = Talk(OTHERS["smaller"])
    assert talk.say("tool.result", tool_call_id="call_1", content="stray " * 700) == STRAY
    talk.chat(1)
    due = talk.window.meta.due
    assert due is not None and due.last == STRAY
    assert talk.call("call_1") == CALL and talk.window.state.waiting() == {(CALL, 0)}
    for content in later:
        talk.say("tool.result", tool_call_id="call_1", content=content)
    assert (await talk.summarise()).status is Status.APPLIED
    return talk


async def test_larger_rules_take_a_summary_of_a_result_that_was_left_out_before_its_call_came() -> (
    None
):
    talk = await stray_talk()
    window = under(LARGER, talk.log)
    assert window.meta.summary is not None
    assert window.state.waiting() == {(CALL, 0)} == talk.window.state.waiting()
    assert render_openai(window).messages.decode() == talk.text()
    assert "no result" in talk.text()
    talk.say("tool.result", tool_call_id="call_1", content="its own")
    window = under(LARGER, talk.log)
    assert not window.state.calls
    assert render_openai(window).messages.decode() == talk.text()
    assert "its own" in talk.text() and "no result" not in talk.text()


async def test_a_result_that_came_while_the_stray_one_stood_for_it_answers_the_call_after_the_summary() -> (
    None
):
    talk = await stray_talk("its own", "once more")
    before, window = under(LARGER, talk.log[:-1]), under(LARGER, talk.log)
    assert [entry.link for entry in before.tail if entry.kind == Kind.RESULT] == [
        (CALL, 0),
        None,
        None,
    ], "the stray one stands for it"
    assert [entry.link for entry in window.tail if entry.kind == Kind.RESULT] == [(CALL, 0), None]
    assert not window.state.calls
    assert render_openai(window).messages.decode() == talk.text()
    assert "its own" in talk.text()


async def test_after_a_rollback_larger_rules_take_the_summary_of_such_a_result_again() -> None:
    talk = await stray_talk()
    first = talk.window.meta.summary
    talk.say("tool.result", tool_call_id="call_1", content="its own")
    while talk.window.covered_to <= CALL:
        talk.say("message", role="user", content="word " * 200)
        if talk.window.meta.due is not None:
            assert (await talk.summarise()).status is Status.APPLIED
    talk.say("rollback", to=f"0-{CALL}")
    window = under(LARGER, talk.log)
    assert first is not None and talk.window.meta.summary == first
    assert window.meta.summary is not None
    assert window.meta.summary.summary_id == first.summary_id
    assert window.state.waiting() == {(CALL, 0)} == talk.window.state.waiting()
    assert render_openai(window).messages.decode() == talk.text()


PARTED = "its span separates a call from its result"


@pytest.mark.parametrize("policy", [BOUNDED, LARGER])
async def test_no_rules_take_a_summary_of_a_result_that_got_its_call_after_it_was_asked_for(
    policy: dict[str, Any],
) -> None:
    talk = Talk(policy)
    talk.say("tool.result", tool_call_id="call_1", content="early")
    while (request := request_for(talk.window, 1)) is None:
        talk.chat(1)
    talk.call("call_1")
    position = await talk.compactor.answer(request)
    raw = (await talk.messages.read([position]))[position]
    assert talk.fold(position.offset, raw.value or b"").reason == PARTED
    assert "early" in talk.text() and not talk.window.state.calls
    assert under(LARGER, talk.log).meta.summary is None


async def test_a_result_that_a_rollback_put_back_before_its_call_came_stays_with_the_call() -> None:
    """The summary was asked for while the result was left out, and names the same events."""
    talk = Talk({**BOUNDED, "working_budget": 300, "keep_recent_tokens": 100})
    talk.say("tool.result", tool_call_id="call_1", content="early " * 150)
    talk.chat(1)
    while talk.window.meta.due is None:
        talk.chat(1)
    last = talk.log[-1][0]
    talk.say("message", role="user", content="word " * 500)
    request = request_for(talk.window, 1)
    assert request is not None and request.apart == [0], "it is left out"
    talk.say("rollback", to=f"0-{last}")
    call = talk.call("call_1")
    assert talk.window.tail[0].link == (call, 0) and "early" in talk.text()
    position = await talk.compactor.answer(request)
    raw = (await talk.messages.read([position]))[position]
    assert talk.fold(position.offset, raw.value or b"").reason == PARTED
    assert "early" in talk.text()


@pytest.mark.parametrize("seed", [2, 5])
def test_larger_rules_take_all_summaries_of_conversations_with_stray_results(seed: int) -> None:
    story = Story(seed, Rules(OTHERS["smaller"]))
    try:
        story.play(200)
    finally:
        story.close()
    taken = taken_under(OTHERS["smaller"], story.log)
    assert len(taken) > 1
    for policy in (BOUNDED, LARGER, {}):
        assert taken_under(policy, story.log) == taken


def taken_under(policy: dict[str, Any], log: list[Logged]) -> list[int]:
    """Where the summaries stand that a fold of the log takes."""
    window, taken = Window(KEY, 0, Rules(policy)), []
    for i, (offset, event) in enumerate(log):
        outcome = apply_with_log(window, offset, event, log[:i])
        if isinstance(event, events.SummaryEvent) and outcome.status is Status.APPLIED:
            taken.append(offset)
    return taken
