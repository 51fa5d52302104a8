"""A result whose call is not in sight is named by its position until the model has answered,
whoever spoke last.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from projections.events import types as events
from projections.window.window import MAX_ENTRIES
from tests.support.late_results import ASKS, HAS_COME, LIMITS, context, spoken, waiting
from tests.support.stories import WIDE, Story

STABLE = sorted(LIMITS.keys() - {"exact"})
"""Limits at which what has left stays away; with exact cuts a result brings its call back."""


def gone_at(*positions: str) -> str:
    if len(positions) == 1:
        return f"[A result has come at {positions[0]}: its call is not in sight any more]"
    where = ", ".join(positions)
    return f"[{len(positions)} results have come at {where}: their calls are not in sight any more]"


def test_a_result_whose_call_is_not_in_sight_is_named_by_its_position() -> None:
    story = waiting({"reducers": [{"name": "keep_last_n_messages", "n": 4}]})
    story.say(events.Resolution("s", "approved"))
    spoken(story, 4)
    at = story.window.position_of(story.result("a", "refunded"))
    gone = f"[A result has come at {at}: its call is not in sight any more]"
    assert "refunded" not in story.texts() and story.texts()[-1] == gone
    near = waiting()
    spoken(near, 8)
    near.say(events.Resolution("s", "approved"))
    at = near.window.position_of(near.result("a", "refunded"))
    found = near.render(200)
    last = json.loads(found.bodies[-1])["content"]
    assert last == f"[A result has come at {at}: its call is not in sight any more]"
    assert found.omitted is not None and found.tokens <= 200


@pytest.mark.parametrize("fmt", ["openai", "anthropic"])
def test_a_result_that_comes_after_all_was_summarised_is_named_behind_the_summary(fmt: str) -> None:
    story = Story({"profile": "sliding", "close_summarizer": "extractive"})
    story.user("Refund it.")
    story.call("a", tool="refund")
    story.say(ASKS)
    story.say(events.Resolution("s", "approved"))
    spoken(story, 1)
    story.say(events.SessionClosed("explicit"))
    while story.window.meta.due is not None:
        story.summarise()
    at = story.window.position_of(story.result("a", "refunded"))
    shown = context(story, fmt)
    assert shown["awaits"] == "model"
    assert shown["messages"][-1]["role"] == "user"
    assert f"[A result has come at {at}" in json.dumps(shown["messages"][-1]["content"])


def out_of_sight(policy: dict[str, Any]) -> Story:
    """A call whose approval was decided; the user spoke since, and it is not in sight any more."""
    story = waiting(policy)
    story.say(events.Resolution("s", "approved"))
    spoken(story, 8)
    assert "refund" not in json.dumps(story.messages())
    return story


def assert_named_until_answered(story: Story, said: str, *offsets: int) -> None:
    """Behind what was said last the context names results, until the model has answered."""
    text = gone_at(*map(story.window.position_of, offsets))
    shown = context(story)
    assert shown["awaits"] == "model" and shown["positions"][-1] is None
    assert [m["content"] for m in shown["messages"][-2:]] == [said, text]
    assert shown["messages"][-1]["role"] == "user"
    last = context(story, "anthropic")["messages"][-1]
    assert last["role"] == "user" and last["content"][-1] == {"type": "text", "text": text}
    story.assistant("It is paid.")
    assert "has come" not in json.dumps(context(story))
    story.assert_replays()


@pytest.mark.parametrize("first", ["user", "result"])
@pytest.mark.parametrize("name", STABLE)
def test_a_result_out_of_sight_is_named_behind_a_users_message(name: str, first: str) -> None:
    story = out_of_sight(LIMITS[name])
    if first == "user":
        story.user("is it paid?")
    at = story.result("a", "refunded")
    if first == "result":
        assert story.texts()[-1] == gone_at(story.window.position_of(at))
        story.user("is it paid?")
    assert_named_until_answered(story, "is it paid?", at)


def test_a_result_of_a_call_that_a_summary_covers_is_named_behind_a_users_message() -> None:
    story = waiting({"working_budget": 100, "keep_recent_tokens": 20, "min_messages": 2})
    story.say(events.Resolution("s", "approved"))
    while story.window.meta.due is None:
        spoken(story, 1)
    story.summarise()
    story.user("is it paid?")
    assert_named_until_answered(story, "is it paid?", story.result("a", "refunded"))


def test_a_result_of_a_covered_call_is_named_though_a_call_in_sight_has_its_id() -> None:
    story = Story({"working_budget": 100, "keep_recent_tokens": 20, "min_messages": 2})
    story.user("Refund both.")
    story.call("b", "k", tool="refund")
    story.say(events.Suspension("s", "approval", tool_call_id="k"))
    story.result("b", "first")
    story.user("And the other one.")
    story.call("b", tool="refund")
    story.user("Never mind.")
    while story.window.covered_to < 6:
        spoken(story, 1)
        if story.window.meta.due is not None:
            story.summarise()
    story.user("is it paid?")
    assert "first" in story.texts()
    assert_named_until_answered(story, "is it paid?", story.result("b", "refunded"))
    story.user("and now?")
    story.result("b", "first")
    assert context(story)["messages"][-1]["content"] == "and now?", "that repeats the one in sight"


@pytest.mark.parametrize("name", STABLE)
def test_a_result_is_named_whose_call_was_out_of_sight_before_its_approval(name: str) -> None:
    story = Story({**WIDE, **LIMITS[name]})
    story.user("Refund it.")
    story.call("a", tool="refund")
    spoken(story, 8)
    story.say(ASKS)
    story.user("is it paid?")
    story.say(events.Resolution("s", "approved"))
    assert_named_until_answered(story, "is it paid?", story.result("a", "refunded"))


def test_a_result_is_named_whose_call_waited_beside_more_entries_than_a_tail_has() -> None:
    story = waiting({"working_budget": 10**6, "model_window": 2 * 10**6, "compaction": False})
    for _ in range(MAX_ENTRIES):
        story.user("x", tokens=5)
    story.say(events.Resolution("s", "approved"))
    assert_named_until_answered(story, "x", story.result("a", "refunded"))


def test_a_result_out_of_sight_is_named_behind_the_result_of_a_newer_call() -> None:
    story = out_of_sight(LIMITS["messages"])
    story.user("And look the order up.")
    story.call("b")
    at = story.result("a", "refunded")
    assert context(story)["awaits"] == "tool" and "has come" not in json.dumps(context(story))
    story.result("b", "found")
    assert_named_until_answered(story, "found", at)


def test_all_results_out_of_sight_are_named_many_by_the_first_and_the_last() -> None:
    story = Story({**WIDE, **LIMITS["messages"]})
    ids = [f"a{i}" for i in range(9)]
    story.call(*ids)
    spoken(story, 8)
    story.user("is it paid?")
    found = [story.result(id_) for id_ in ids[:8]]
    assert story.texts()[-1] == gone_at(*map(story.window.position_of, found))
    last = story.window.position_of(story.result(ids[8]))
    first = story.window.position_of(found[0])
    assert f"[9 results have come at {first} to {last}:" in str(story.texts()[-1])


def test_an_old_result_out_of_sight_is_named_beside_a_late_one_in_sight() -> None:
    story = out_of_sight(LIMITS["messages"])
    story.call("b", tool="refund")
    story.say(events.Suspension("t", "approval", tool_call_id="b"))
    story.user("How long?")
    story.assistant("A minute.")
    at = story.window.position_of(story.result("a", "refunded"))
    story.say(events.Resolution("t", "approved"))
    story.result("b", "refunded")
    assert story.texts()[-1] == f"{HAS_COME}\n{gone_at(at)}"


def test_a_second_result_of_a_call_in_sight_is_not_named() -> None:
    story = Story(WIDE)
    story.user("Look it up.")
    story.call("a")
    story.result("a", "found")
    story.result("a", "found")
    assert story.texts()[-1] == "found"


def test_a_result_that_a_readers_limit_leaves_out_is_named_behind_a_users_message() -> None:
    story = Story(WIDE)
    story.user("Refund it.")
    story.call("a", tool="refund", arguments=json.dumps({"why": "word " * 60}))
    story.user("is it paid?")
    at = story.window.position_of(story.result("a", "refunded"))
    assert "refunded" in story.texts() and "has come" not in json.dumps(story.messages())
    found = story.render(260)
    assert [json.loads(body)["content"] for body in found.bodies[-2:]] == [
        "is it paid?",
        gone_at(at),
    ]
    assert found.omitted is not None and found.tokens <= 260
