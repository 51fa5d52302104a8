"""Reducers: what each shortens, and what it spares."""

from __future__ import annotations

from typing import Any

import pytest

from projections.events import types as events
from projections.reducers.reduction import Reduction
from projections.reducers.variants import Variants
from projections.window.entry import Kind
from projections.window.groups import group_tail
from tests.support.compacted_talk import Talk
from tests.support.stories import Story

TEXT = "0123456789" * 20
OPEN = {"working_budget": 100_000, "model_window": 128_000, "summary_max_tokens": 200}
"""A policy under which the fold itself cuts nothing: reducers are run by hand."""


def told(**policy: Any) -> Story:
    return Story({**OPEN, "low_water": 0.5, "protect_recent": 0, **policy})


def cut(story: Story, *, exact: bool = False) -> Reduction:
    window = story.window
    variants, at = Variants.of(window), window.meta.position
    return Reduction(
        group_tail(window.tail), window.policy, variants, at, window.state.waiting(), exact
    )


def reduce(story: Story, reducer: dict[str, Any], *, exact: bool = False) -> Reduction:
    """Run one reducer over a story's tail; returns the run."""
    story.say(events.Opened(policy={"reducers": [reducer], "cuts": "exact"}))
    made = cut(story, exact=exact)
    made.run(story.window.policy.reducers[0])
    return made


def asked(story: Story, *texts: str) -> list[int]:
    """One turn for each text: a question, a call, its result, an answer. Returns the results'
    offsets.
    """
    found = []
    for i, text in enumerate(texts):
        story.user(f"question {i}")
        story.call(f"c{i}")
        found.append(story.result(f"c{i}", text))
        story.assistant(f"answer {i}")
    return found


TEMPLATE = {"name": "compact_tool_results", "replacement": "template"}
DROP = {"name": "compact_tool_results", "replacement": None}


# -- trimming
# ------------------------------------------------------------------------------------------


def test_results_are_trimmed_by_their_length_in_characters_and_short_ones_stay() -> None:
    story = told(soft_trim_chars=100, hard_clear_chars=300)
    short, long, longest, wide = asked(story, "x" * 100, "x" * 101, "x" * 301, "é" * 100)
    cut(story).trim()
    assert story.forms() == {long: "soft:100", longest: "clear"}
    assert not story.form(short) and not story.form(wide), "bytes are not characters"
    assert story.entry(longest).full > story.entry(longest).tokens > 0


def test_trimming_happens_once() -> None:
    story = told(soft_trim_chars=100, hard_clear_chars=300)
    asked(story, "x" * 250)
    cut(story).trim()
    again = cut(story)
    again.trim()
    assert not again.changed


@pytest.mark.parametrize(("protect", "trimmed"), [(0, 4), (1, 3), (3, 1), (9, 0)])
def test_the_last_results_are_protected(protect: int, trimmed: int) -> None:
    story = told(soft_trim_chars=100, protect_recent=protect)
    results = asked(story, *[TEXT] * 4)
    cut(story).trim()
    assert list(story.forms()) == results[:trimmed]


def test_a_result_that_the_model_has_not_answered_is_spared() -> None:
    story = told(soft_trim_chars=100)
    (read,) = asked(story, TEXT)
    story.call("a")
    unread = story.result("a", TEXT)
    cut(story).trim()
    assert list(story.forms()) == [read]
    story.assistant("I see")
    cut(story).trim()
    assert list(story.forms()) == [read, unread]


def test_pinned_results_are_spared_by_every_reducer_of_results() -> None:
    for reducer in (TEMPLATE, DROP, {"name": "summarize_tool_results", "top": 1}):
        story = told(soft_trim_chars=100)
        story.call("a", text="I look")
        pinned = story.result("a", "[" + "1, " * 200 + "1]", pinned=True)
        story.assistant()
        cut(story).trim()
        made = reduce(story, reducer)
        assert not made.changed and not story.form(pinned), reducer


# -- compact_tool_results
# ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("keep", "replaced"), [(0, 3), (1, 2), (3, 0), (5, 0)])
def test_all_but_the_last_results_are_replaced(keep: int, replaced: int) -> None:
    story = told()
    results = asked(story, *[TEXT] * 3)
    reduce(story, {**TEMPLATE, "keep_last_n": keep})
    assert list(story.forms()) == results[:replaced]
    for i, offset in enumerate(results[:replaced]):
        assert story.text(offset) == f"[look c{i}: 200 characters]"
        assert story.entry(offset).tokens <= 20


def test_what_is_no_longer_than_its_replacement_stays() -> None:
    story = told()
    asked(story, "ok")
    assert not reduce(story, TEMPLATE).changed


def test_a_result_is_replaced_once_and_a_trimmed_one_can_be() -> None:
    story = told(soft_trim_chars=100)
    (result,) = asked(story, TEXT * 5)
    cut(story).trim()
    reduce(story, TEMPLATE)
    assert [form.split(":")[0] for _, form, _ in story.entry(result).variants] == ["soft", "text"]
    assert story.text(result) == "[look c0: 1000 characters]", "the length is the whole one's"
    again = cut(story)
    again.run(story.window.policy.reducers[0])
    again.trim()
    assert not again.changed


def test_dropping_takes_a_call_with_its_result_and_a_message_left_empty_goes() -> None:
    story = told()
    bare = story.call("a")
    first = story.result("a", TEXT)
    spoken = story.call("b", text="I look again")
    second = story.result("b", TEXT)
    story.assistant()
    reduce(story, DROP)
    assert story.forms() == {
        bare: "out:compact_tool_results", first: "out:compact_tool_results", spoken: "only:", second: "out:compact_tool_results",
    }  # fmt: skip
    assert [m for m in story.messages() if m["content"] == "I look again"] == [
        {"role": "assistant", "content": "I look again"}
    ]
    assert all(m["role"] != "tool" for m in story.messages())


@pytest.mark.parametrize("blank", ["", " \n\t"])
def test_blank_text_is_empty(blank: str) -> None:
    story = told()
    message = story.call("a", text=blank)
    story.result("a", TEXT)
    story.assistant()
    reduce(story, DROP)
    assert story.entry(message).out


def test_parallel_calls_are_dropped_together_or_not_at_all() -> None:
    story = told()
    message = story.call("a", "b")
    story.result("a", TEXT)
    story.result("b", TEXT)
    story.assistant()
    made = reduce(story, {**DROP, "keep_last_n": 1})
    assert not made.changed, "one of the two is among those that stay"
    made = reduce(story, DROP)
    assert made.changed and story.entry(message).out


def test_parallel_calls_of_which_one_is_not_answered_yet_stay_whole() -> None:
    story = told()
    message = story.call("a", "b")
    story.result("a", TEXT)
    story.assistant()
    assert not reduce(story, DROP).changed
    story.user("never mind")
    assert reduce(story, DROP).changed and story.entry(message).out, (
        "the call is dead: it goes with the other"
    )


def test_a_suspended_call_is_not_dropped() -> None:
    story = told()
    story.call("a", "b")
    story.result("a", TEXT)
    story.say(events.Suspension("s", "approval", tool_call_id="b"))
    story.user("and?")
    story.assistant()
    assert not reduce(story, DROP).changed


def test_of_parallel_calls_the_pinned_one_stays_with_its_result() -> None:
    story = told()
    message = story.call("a", "b", "c", text="I look")
    story.result("a", TEXT)
    story.result("b", TEXT, pinned=True)
    story.result("c", TEXT)
    story.assistant()
    reduce(story, DROP)
    assert story.form(message) == "only:1"
    shown = story.messages()
    assert [call["id"] for call in shown[0]["tool_calls"]] == ["b"] and shown[0][
        "content"
    ] == "I look"
    assert (shown[1]["role"], shown[1]["tool_call_id"]) == ("tool", "b")
    assert [m["role"] for m in shown] == ["assistant", "tool", "assistant"]


def test_dropped_calls_are_not_dropped_again_and_never_come_back_as_unanswered() -> None:
    story = told()
    asked(story, TEXT, TEXT)
    reduce(story, DROP)
    again = cut(story)
    again.run(story.window.policy.reducers[0])
    assert not again.changed
    assert "pairing" not in [step.reducer for step in story.render().trace]


# -- summarize_tool_results
# ------------------------------------------------------------------------------------------


def test_lists_keep_their_head_and_texts_stay() -> None:
    story = told()
    listed, text = asked(story, "[" + "1234567, " * 50 + "1]", TEXT)
    reduce(story, {"name": "summarize_tool_results", "top": 2})
    assert story.forms() == {listed: "head:2"} and text
    assert story.text(listed).startswith("[1234567,1234567]\n[the first 2 of 51 items")


# -- limits of turns and messages
# ------------------------------------------------------------------------------------------


def shown_questions(story: Story) -> list[str]:
    return [str(e.offset) for e in story.window.tail if e.kind == Kind.USER and not e.out]


@pytest.mark.parametrize(
    ("n", "exact", "left"),
    [(4, True, 4), (4, False, 2), (1, False, 1), (0, True, 0), (0, False, 0), (9, False, 6)],
)
def test_the_last_turns_stay_whole(n: int, exact: bool, left: int) -> None:
    story = told()
    asked(story, *["found"] * 6)
    reduce(story, {"name": "keep_last_n_turns", "n": n}, exact=exact)
    assert len(shown_questions(story)) == left
    shown = [
        e
        for e in story.window.tail
        if e.kind in (Kind.USER, Kind.ASSISTANT, Kind.RESULT) and not e.out
    ]
    assert len(shown) == 4 * left and (not shown or shown[0].kind == Kind.USER)


@pytest.mark.parametrize(
    ("n", "left"), [(8, 8), (7, 7), (6, 5), (3, 3), (2, 1), (1, 1), (0, 0), (100, 24)]
)
def test_the_last_messages_stay_between_groups(n: int, left: int) -> None:
    """A turn is a question, a call with its result, and an answer: 1, 2 and 1 messages."""
    story = told()
    asked(story, *["found"] * 6)
    reduce(story, {"name": "keep_last_n_messages", "n": n}, exact=True)
    assert sum(group.messages() for group in group_tail(story.window.tail)) == left


def test_of_a_group_larger_than_the_limit_none_is_parted() -> None:
    story = told()
    story.user()
    message = story.call("a", "b", "c")
    for id_ in "abc":
        story.result(id_)
    reduce(story, {"name": "keep_last_n_messages", "n": 2}, exact=True)
    assert not story.entry(message).out and [m["role"] for m in story.messages()] == [
        "assistant",
        "tool",
        "tool",
        "tool",
    ]


def test_limits_spare_what_waits_and_what_is_pinned() -> None:
    story = told()
    pinning = story.call("p", "q", text="I look")
    story.result("p", TEXT, pinned=True)
    story.result("q", TEXT)
    suspended = story.call("s")
    story.say(events.Suspension("x", "approval", tool_call_id="s"))
    asked(story, "found")
    open_call = story.call("o")
    reduce(story, {"name": "keep_last_n_messages", "n": 0})
    assert story.form(pinning) == "pair:0:keep_last_n_messages"
    assert not story.form(suspended) and not story.form(open_call)
    assert [m.get("tool_call_id") for m in story.messages() if m["role"] == "tool"] == [
        "p",
        "s",
        "o",
    ]
    assert story.messages()[0]["content"] is None, "its text went"


# -- leaving out the oldest
# ------------------------------------------------------------------------------------------


def test_the_oldest_groups_go_until_the_rest_fits_and_the_newest_stay_whatever() -> None:
    story = told()
    asked(story, *["found"] * 4)
    made = cut(story)
    before = sum(group.tokens for group in made.groups)
    made.leave_out_oldest(before, before // 2)
    out = [e.offset for e in story.window.tail if e.out]
    assert (
        out == list(range(len(out))) and sum(group.tokens for group in made.groups) <= before // 2
    )
    made.leave_out_oldest(story.window.tail_tokens, 0)
    assert [e.kind for e in story.window.tail if not e.out] == [
        Kind.USER,
        Kind.ASSISTANT,
    ], "the newest question, and the last group"


def test_reasoning_leaves_with_its_message() -> None:
    story = told()
    story.say(
        events.Message("assistant", [events.ReasoningPart(text="hm"), events.TextPart("yes")])
    )
    asked(story, "found")
    assert story.entry(0).reasoning
    made = cut(story)
    made.leave_out_oldest(story.window.tail_tokens, 0)
    assert not story.entry(0).reasoning and story.entry(0).out


def test_a_callable_that_makes_half_a_character_does_not_stop_the_fold() -> None:
    policy = {
        "working_budget": 300,
        "reducers": [{"name": "compact_tool_results", "replacement": "callable:half"}],
    }
    talk = Talk(policy, callables={"half": lambda *_: "x\ud800"})
    for _ in range(20):
        talk.call("a")
        talk.say("tool.result", tool_call_id="a", content="blah " * 50)
        talk.chat(1)
    assert "[look a: 250 characters]" in talk.text()
