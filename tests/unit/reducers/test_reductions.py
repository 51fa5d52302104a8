"""Cuts: when shortenings take effect, how far they go, and that between two of them a render only
grows at its end.
"""

from __future__ import annotations

import json
from collections import Counter
from itertools import pairwise
from typing import Any

import pytest

from projections.events import types as events
from projections.policy.thresholds import STUB_TOKENS
from projections.reducers.variants import Variants
from projections.window.entry import Entry, Kind, Omitted
from tests.support.stories import Story

TEXT = "0123456789" * 120
ROOMY: dict[str, Any] = {
    "model_window": 20_000,
    "reserve_tokens": 1_000,
    "working_budget": 1_000,
    "keep_recent_tokens": 300,
}
PRUNED: dict[str, Any] = {
    **ROOMY,
    "low_water": 0.7,
    "soft_trim_chars": 80,
    "protect_recent": 0,
    "compaction": False,
}


def turn(story: Story, i: int, tokens: int = 250) -> None:
    """A question, a call, a large result, an answer: 30 tokens beside the result's."""
    story.user(f"question {i}", 10)
    story.call(f"c{i}", tokens=10 if i < 10 else None)
    story.result(f"c{i}", TEXT, tokens=tokens)
    story.assistant(f"answer {i}", 10)


def cuts_of(story: Story) -> list[int]:
    return sorted({at for entry in story.window.tail for at, _, _ in entry.variants})


def test_below_the_mark_nothing_is_shortened() -> None:
    story = Story(PRUNED)
    while story.window.tail_tokens <= 1_000 - 280:
        turn(story, 0)
    assert not story.forms()


def test_at_the_mark_tool_results_are_shortened_where_that_reaches_the_low_water_mark() -> None:
    story = Story(PRUNED)
    i = 0
    while not story.forms():
        turn(story, i := i + 1)
    assert set(story.forms().values()) == {"soft:80"}
    assert story.window.tail_tokens <= 700 and story.window.meta.due is None
    (cut,) = cuts_of(story)
    assert story.entry(cut).kind == Kind.RESULT and not story.form(cut), (
        "the model has not seen this one yet"
    )
    story.assert_replays()


def test_free_shortenings_go_before_a_summary_and_a_summary_where_they_do_not_reach() -> None:
    free, paid = (
        Story({**PRUNED, "compaction": True}),
        Story({**PRUNED, "compaction": True, "trim_tool_results": False}),
    )
    for story in (free, paid):
        i = 0
        while not (story.forms() or story.window.meta.due):
            turn(story, i := i + 1)
    assert free.forms() and free.window.meta.due is None
    assert paid.window.meta.due is not None and not paid.forms()


def test_what_saves_little_is_not_worth_a_cut_while_a_summary_waits() -> None:
    story = Story({**PRUNED, "compaction": True})
    story.user("one", 10)
    story.call("c", tokens=10)
    story.result("c", TEXT, tokens=100)
    while story.window.meta.due is None:
        story.assistant("words " * 20, 50)
    assert not story.forms()


@pytest.mark.parametrize(("size", "made"), [(400, True), (150, False)])
def test_where_nothing_else_can_be_done_a_cut_is_made_for_an_eighth_of_the_mark(
    size: int, made: bool
) -> None:
    story = Story(PRUNED)
    story.call("c", tokens=10)
    story.result("c", TEXT, tokens=size)
    while story.window.tail_tokens <= 1_000 and not story.forms():
        story.assistant("words " * 30, 50)
    assert bool(story.forms()) == made


@pytest.mark.long
def test_no_cut_is_made_right_after_one() -> None:
    """Past the mark, where nobody summarises, each cut saves an eighth of it at least, and past
    twice that a part of the tail leaves.
    """
    story = Story({**PRUNED, "working_budget": 4_000})
    made: list[int] = []
    before: list[int] = []
    for i in range(200):
        turn(story, i)
        if cuts_of(story) != before:
            before = cuts_of(story)
            made.append(story.talks.next_offset)
    apart = [b - a for a, b in pairwise(made)]
    assert len(apart) > 5, made
    assert min(apart) >= 8, "each result saves less than 200 tokens, and 500 is the least"
    story.assert_replays()


@pytest.mark.parametrize(
    "policy",
    [
        PRUNED,
        {**ROOMY, "trim_tool_results": False, "compaction": False},
        {**PRUNED, "reducers": [{"name": "compact_tool_results", "keep_last_n": 2}]},
        {**ROOMY, "reducers": [{"name": "keep_last_n_messages", "n": 40}]},
        {**ROOMY, "reducers": [{"name": "keep_last_n_turns", "n": 10}], "profile": "composed"},
    ],
)
def test_between_cuts_a_render_only_grows_at_its_end(policy: dict[str, Any]) -> None:
    story = Story({**policy, "working_budget": 4_000})
    grown, made = 0, 0
    before: list[bytes] = []
    last = -1
    for i in range(80):
        turn(story, i)
        now, cut = story.render().bodies, max(cuts_of(story), default=-1)
        if cut == last:
            assert now[: len(before)] == before and len(now) > len(before), f"turn {i}"
            grown += 1
        else:
            made += 1
        before, last = now, cut
    assert made > 2 and grown > 2 * made, (grown, made)


def test_exact_cuts_show_the_last_messages_on_every_render_and_store_everything() -> None:
    story = Story(
        {**ROOMY, "cuts": "exact", "reducers": [{"name": "keep_last_n_messages", "n": 4}]}
    )
    for i in range(9):
        story.user(f"question {i}", 10)
        story.assistant(f"answer {i}", 10)
        assert sum(m["role"] != "system" for m in story.messages()) == min(4, 2 * i + 2)
    assert story.texts() == [
        "[14 earlier messages left out: 3-0 to 3-13]",
        "question 7",
        "answer 7",
        "question 8",
        "answer 8",
    ]
    assert not story.forms() and len(story.window.tail) == 18
    (step,) = story.render().trace
    assert (step.reducer, step.messages_before, step.messages_after) == (
        "keep_last_n_messages",
        18,
        5,
    )


@pytest.mark.parametrize("cuts", ["stable", "exact"])
@pytest.mark.parametrize(
    ("reducer", "asked"),
    [
        ({"name": "keep_last_n_messages", "n": 2}, True),
        ({"name": "keep_last_n_messages", "n": 2}, False),
        ({"name": "keep_last_n_turns", "n": 1}, True),
    ],
)
def test_the_line_names_what_is_hidden_of_a_call_whose_other_result_is_pinned(
    reducer: dict[str, Any], asked: bool, cuts: str
) -> None:
    story = Story({**ROOMY, "low_water": 1.0, "cuts": cuts, "reducers": [reducer]})
    if asked:
        story.user()
    hidden = [story.call("a", "b", text="I look both up"), story.result("a", "plain")]
    story.result("b", "in sight", pinned=True)
    if asked:
        hidden = [0, *hidden, story.assistant("done")]
    story.user("and now?")
    story.assistant("this")
    shown = json.dumps(story.messages())
    assert "in sight" in shown and "plain" not in shown and "both" not in shown
    assert story.render().omitted == Omitted(len(hidden), hidden[0], hidden[-1])


@pytest.mark.parametrize("limit", [None, 120])
def test_the_line_counts_no_stand_in_of_a_call_without_a_result(limit: int | None) -> None:
    reducer = {"name": "keep_last_n_messages", "n": 2}
    policy = {**ROOMY, "cuts": "exact", "reducers": [] if limit else [reducer]}
    story = Story({**policy, "compaction": False})
    story.call("a", "b", text="I look both up " * 9, tokens=80)
    story.result("a", "plain", tokens=40)
    story.user("and now?", 30)
    story.assistant("this", 30)
    assert story.render(limit).omitted == Omitted(2, 0, 1)


@pytest.mark.parametrize("low_water", [0.25, 0.5, 1.0])
def test_a_stable_cut_of_messages_goes_down_to_the_low_water_mark(low_water: float) -> None:
    story = Story(
        {**ROOMY, "low_water": low_water, "reducers": [{"name": "keep_last_n_messages", "n": 8}]}
    )
    for i in range(9):
        assert len(story.messages()) == i, "a limit is a maximum"
        story.assistant(f"{i}", 5)
    shown = int(8 * low_water) if low_water < 1 else 8
    assert len(story.messages()) == 1 + shown


def test_what_a_limit_left_out_is_reported_in_one_line_and_stands_in_the_trace() -> None:
    story = Story({**ROOMY, "reducers": [{"name": "keep_last_n_messages", "n": 8}]})
    for i in range(9):
        story.assistant(f"{i}", 5)
    assert story.texts() == ["[5 earlier messages left out: 3-0 to 3-4]", "5", "6", "7", "8"]
    (step,) = story.render().trace
    assert (step.reducer, step.messages_before, step.messages_after) == (
        "keep_last_n_messages",
        9,
        5,
    )
    assert (step.tokens_before, step.tokens_after) == (45, 20 + STUB_TOKENS)


def test_what_was_left_out_for_room_is_spoken_of_with_its_positions() -> None:
    story = Story({"compaction": False})
    for i in range(20):
        story.assistant(f"{i}", None)
        story.assistant("words " * 30, 40)
    out = [e.offset for e in story.window.tail if e.out]
    assert out
    assert story.texts()[0] == f"[{len(out)} earlier messages left out: 3-{out[0]} to 3-{out[-1]}]"
    (step,) = story.render().trace
    assert step.reducer == "leave_out_oldest" and step.messages_before - step.messages_after == len(
        out
    )


def test_with_everything_off_only_the_room_under_the_ceiling_cuts() -> None:
    story = Story({"working_budget": 600, "compaction": False, "trim_tool_results": False})
    assert story.window.limits.hold == 1_200
    while not story.forms():
        story.assistant("words " * 30, 40)
    assert story.talks.next_offset == 31 and story.window.tail_tokens <= 600


def test_a_ratio_of_the_models_window_is_a_mark_beside_the_budget() -> None:
    share = {**ROOMY, "working_budget": 5_000, "compaction_ratio": 0.1, "trim_tool_results": False}
    story = Story(share)
    while story.window.meta.due is None:
        story.assistant("words " * 30, 100)
    assert 1_900 < story.window.tail_tokens <= 2_000, "a tenth of 19,000"


def test_pinned_text_and_the_summary_count_towards_the_ratio_and_not_towards_the_budget() -> None:
    share = {**ROOMY, "working_budget": 5_000, "compaction_ratio": 0.1, "trim_tool_results": False}
    story = Story(share)
    story.say(events.Message("system", "rules " * 500), 900)
    while story.window.meta.due is None:
        story.assistant("words " * 30, 100)
    assert 1_000 < story.window.tail_tokens <= 1_100


def test_a_ratio_of_zero_asks_for_a_summary_whenever_there_are_enough_messages() -> None:
    story = Story({**ROOMY, "compaction_ratio": 0.0, "min_messages": 6})
    for _ in range(5):
        story.assistant("x", 5)
    assert story.window.meta.due is None
    story.assistant("x", 5)
    assert story.window.meta.due is not None


def test_a_render_for_less_room_gives_up_more_and_changes_nothing_stored() -> None:
    story = Story(PRUNED)
    for i in range(4):
        turn(story, i)
    image = story.window.image()
    render = story.render(250)
    assert render.tokens <= 250 and [step.reducer for step in render.trace] == [
        "soft_trim",
        "leave_out_oldest",
    ]
    assert story.window.image() == image
    assert json.loads(render.messages)[-1]["content"] == "answer 3"


@pytest.mark.parametrize(
    ("reducer", "most"),
    [
        ({"name": "summarize_tool_results", "top": 50}, 0),
        ({"name": "compact_tool_results", "replacement": "longer than the result " * 9}, 1),
    ],
)
def test_a_shortening_that_saves_nothing_is_not_made_again_while_a_window_stays_over_its_mark(
    reducer: dict[str, Any], most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, make = Counter[tuple[int, str]](), Variants.make

    def counted(self: Variants, body: bytes, variant: str, entry: Entry, *args: Any) -> Any:
        made[entry.offset, variant] += 1
        return make(self, body, variant, entry, *args)

    monkeypatch.setattr(Variants, "make", counted)
    story = Story(
        {**ROOMY, "compaction": False, "reducers": [reducer] * 16, "trim_tool_results": False}
    )
    for i in range(40):
        story.call(f"c{i}")
        story.result(f"c{i}", json.dumps([i, i, i]), tokens=60)
        story.assistant(f"answer {i}", 10)
    assert story.window.tail_tokens > 1_000 and not story.forms()
    assert max(made.values(), default=0) == most
