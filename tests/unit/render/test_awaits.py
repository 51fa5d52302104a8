"""A context says who acts next, and never ends with an assistant's message while it is the
model's turn.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from projections.events import types as events
from projections.policy.policy import Rules
from projections.render.fit_to_limit import DoesNotFit
from tests.support.generated import Story as Generated
from tests.support.late_results import ASKS, HAS_COME, LIMITS, context, spoken, waiting
from tests.support.profiles import examples
from tests.support.stories import WIDE, Story


def test_each_step_of_an_approval_says_who_acts_next() -> None:
    story = Story(WIDE)
    seen = [context(story)["awaits"]]
    for step in (
        lambda: story.user("Refund it."),
        lambda: story.call("a", tool="refund"),
        lambda: story.say(ASKS),
        lambda: story.user("How long?"),
        lambda: story.assistant("A minute."),
        lambda: story.say(events.Resolution("s", "approved")),
        lambda: story.result("a"),
        lambda: story.assistant("Done."),
        lambda: story.say(events.SessionClosed("explicit")),
    ):
        step()
        seen.append(context(story)["awaits"])
    assert seen == [
        "user", "model", "tool", "approval", "model", "approval", "tool", "model", "user", "user",
    ]  # fmt: skip


def test_a_user_who_spoke_during_an_approval_is_answered_first_whatever_else_comes() -> None:
    story = Story(WIDE)
    story.user("Refund it, and look the order up.")
    story.call("a", "b", tool="refund")
    story.say(ASKS)
    assert context(story)["awaits"] == "approval"
    story.user("How long?")
    story.result("b", "found")
    found = context(story)
    assert found["awaits"] == "model" and found["messages"][-1]["content"] == "How long?"
    story.assistant("A minute.")
    assert context(story)["awaits"] == "approval"
    story.assert_replays()


@pytest.mark.parametrize("kind", ["approval", "input"])
@pytest.mark.parametrize("outcome", ["approved", "expired"])
def test_a_users_message_is_to_be_answered_also_if_a_resolution_without_a_call_comes_after_it(
    kind: str, outcome: str
) -> None:
    story = Story(WIDE)
    story.user("Refund it.")
    story.assistant("For which order?")
    story.say(events.Suspension("s", kind, prompt="Which?"))
    story.user("Order 4711.")
    story.say(events.Resolution("s", outcome))
    found = context(story)
    assert found["awaits"] == "model" and found["messages"][-1]["content"] == "Order 4711."
    story.assistant("Refunded.")
    assert context(story)["awaits"] == "user"
    story.assert_replays()


@pytest.mark.parametrize("suspended", ["c", None])
@pytest.mark.parametrize("kind", ["approval", "input", "external"])
def test_a_result_that_came_before_a_decision_and_was_not_read_is_to_be_answered_after_it(
    kind: str, suspended: str | None
) -> None:
    story = Story(WIDE)
    story.user("Look it up.")
    story.call("c", tool="refund")
    story.say(events.Suspension("s", kind, tool_call_id=suspended))
    story.user("How long?")
    story.assistant("A minute.")
    story.result("c", "found")
    story.say(events.Resolution("s", "approved"))
    found = context(story)
    assert found["awaits"] == "model" and HAS_COME in found["messages"][-1]["content"]
    story.assistant("Found.")
    assert context(story)["awaits"] == "user"
    story.assert_replays()


def test_a_call_whose_result_came_before_it_is_to_be_answered_by_the_model() -> None:
    story = Story(WIDE)
    story.user("Look it up.")
    story.result("a", "found")
    story.call("a")
    found = context(story)
    assert found["messages"][-1]["role"] == "tool" and found["awaits"] == "model"
    story.assistant("It is there.")
    assert context(story)["awaits"] == "user"
    story.assert_replays()


@pytest.mark.parametrize("early", [True, False], ids=["before-the-call", "before-the-decision"])
def test_a_result_that_came_before_the_decision_is_to_be_answered_by_the_model(early: bool) -> None:
    story = Story(WIDE)
    story.user("Refund it.")
    if early:
        story.result("a", "refunded")
    story.call("a", tool="refund")
    story.say(ASKS)
    if not early:
        story.result("a", "refunded")
    story.say(events.Resolution("s", "approved"))
    found = context(story)
    assert found["messages"][-1]["role"] == "tool" and found["awaits"] == "model"
    story.assert_replays()


def test_a_late_result_is_reported_at_the_end_in_every_format() -> None:
    story = waiting()
    story.user("How long?")
    story.assistant("A minute.")
    story.say(events.Resolution("s", "approved"))
    story.result("a", "refunded")
    text = "[The result of the call of refund has come: it stands with the call]"
    shown = context(story)
    assert [m["role"] for m in shown["messages"]] == [
        "user", "assistant", "tool", "user", "assistant", "user",
    ]  # fmt: skip
    assert shown["messages"][2]["content"] == "refunded"
    assert shown["messages"][-1]["content"] == text and shown["positions"][-1] is None
    last = context(story, "anthropic")["messages"][-1]
    assert last == {"role": "user", "content": [{"type": "text", "text": text}]}
    story.assistant("It is done.")
    assert context(story)["messages"][-1]["content"] == "It is done."
    story.assert_replays()


@pytest.mark.parametrize("name", LIMITS)
def test_a_late_result_stays_in_sight_until_the_model_has_read_it(name: str) -> None:
    story = waiting(LIMITS[name])
    spoken(story, 8)
    story.say(events.Resolution("s", "approved"))
    story.result("a", "refunded")
    assert len(story.texts()) < 16 and "refunded" in story.texts()
    assert story.texts()[-1] == HAS_COME
    story.assistant("It is done.")
    spoken(story, 8)
    assert "refunded" not in story.texts()
    story.assert_replays()


@pytest.mark.parametrize("name", LIMITS)
def test_a_resolved_call_stays_until_its_result_comes(name: str) -> None:
    story = waiting(LIMITS[name])
    spoken(story, 2)
    story.say(events.Resolution("s", "approved"))
    for i in range(10):
        story.assistant(f"Still refunding, step {i}.")
    assert context(story)["awaits"] == "tool"
    story.result("a", "refunded")
    assert "refunded" in story.texts() and story.texts()[-1] == HAS_COME
    story.assert_replays()


def test_no_summary_covers_a_resolved_call_before_its_result() -> None:
    story = waiting({"working_budget": 100, "keep_recent_tokens": 20, "min_messages": 2})
    spoken(story, 1)
    story.say(events.Resolution("s", "approved"))
    for i in range(4):
        story.assistant(f"step {i} " + "word " * 20)
        if story.window.meta.due is not None:
            story.summarise()
    assert story.window.meta.summary is not None
    story.result("a", "refunded")
    assert "refunded" in story.texts() and story.texts()[-1] == HAS_COME


@pytest.mark.parametrize("asks", [False, True])
def test_a_decision_awaits_no_call_that_was_given_up_before(asks: bool) -> None:
    story = Story(WIDE)
    story.user("Look it up.")
    story.call("a")
    story.user("Never mind.")
    story.assistant("Shall I close the order?")
    story.say(events.Suspension("s", "approval", prompt="Close it?"))
    if asks:
        story.user("Which order?")
    story.say(events.Resolution("s", "approved"))
    assert context(story)["awaits"] == ("model" if asks else "user")
    story.assert_replays()


def test_an_answered_user_and_other_waits_end_as_they_are() -> None:
    story = waiting()
    story.user("How long?")
    story.assistant("A minute.")
    assert context(story)["messages"][-1]["content"] == "A minute."
    external = Story(WIDE)
    external.assistant("I wait.")
    external.say(events.Suspension("x", "external"))
    assert context(external)["awaits"] == "tool"
    asked = Story(WIDE)
    asked.assistant("Which row?")
    asked.say(events.Suspension("x", "input"))
    assert context(asked)["awaits"] == "user"


@pytest.mark.parametrize(
    ("kind", "awaits"), [("approval", "approval"), ("external", "tool"), ("input", "user")]
)
def test_a_suspension_is_awaited_before_anybody_has_spoken(kind: str, awaits: str) -> None:
    story = Story(WIDE)
    story.say(events.Suspension("s", kind))
    assert context(story)["awaits"] == awaits


def test_calls_of_a_turn_that_ended_are_not_awaited() -> None:
    story = Story(WIDE)
    story.user("Look.")
    story.call("a")
    assert context(story)["awaits"] == "tool"
    story.say(events.TurnEnded("t"))
    assert context(story)["awaits"] == "user"


SMALL = {"model_window": 16_000, "reserve_tokens": 1_600}


@pytest.mark.parametrize(
    "policy",
    [
        SMALL,
        {**SMALL, "profile": "sliding", "compaction": False},
        {**SMALL, "reducers": [{"name": "keep_last_n_messages", "n": 0}]},
    ],
    ids=["summarised", "sliding", "nothing kept"],
)
@given(seed=st.integers(0, 2**32), length=st.integers(1, 90))
@hypothesis_settings(max_examples=examples(12), deadline=None)
def test_a_context_that_awaits_the_model_ends_with_a_user_or_a_tool(
    policy: dict[str, Any], seed: int, length: int
) -> None:
    story = Generated(seed, Rules(policy))
    try:
        for _ in range(length):
            story.step()
            for fmt in ("openai", "anthropic"):
                try:
                    shown = context(story, fmt)
                except DoesNotFit:
                    continue
                said = [m for m in shown["messages"] if m["role"] not in ("system", "developer")]
                if shown["awaits"] == "model":
                    assert said[-1]["role"] in ("user", "tool"), (fmt, said[-1])
    finally:
        story.close()
