"""A context says who acts next, and never ends with an assistant's message while it is the
model's turn.
"""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from projections.events import types as events
from projections.policy.policy import Rules
from projections.render.fit_to_limit import DoesNotFit
from tests.support.generated import Story as Generated
from tests.support.profiles import examples
from tests.support.stories import WIDE, Story
from threadfold.service.documents import document

ASKS = events.Suspension("s", "approval", tool_call_id="a", prompt="May I?")


def context(story: Any, fmt: str = "openai") -> dict[str, Any]:
    found: dict[str, Any] = json.loads(document(story.window, fmt))
    return found


def waiting() -> Story:
    """A call that waits for an approval."""
    story = Story(WIDE)
    story.user("Refund it.")
    story.call("a", tool="refund")
    story.say(ASKS)
    return story


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


def test_calls_of_a_turn_that_ended_are_not_awaited() -> None:
    story = Story(WIDE)
    story.user("Look.")
    story.call("a")
    assert context(story)["awaits"] == "tool"
    story.say(events.TurnEnded("t"))
    assert context(story)["awaits"] == "user"


@given(seed=st.integers(0, 2**32), length=st.integers(1, 90))
@hypothesis_settings(max_examples=examples(25), deadline=None)
def test_a_context_that_awaits_the_model_ends_with_a_user_or_a_tool(seed: int, length: int) -> None:
    story = Generated(seed, Rules({"model_window": 16_000, "reserve_tokens": 1_600}))
    try:
        for _ in range(length):
            story.step()
            for fmt in ("openai", "anthropic"):
                try:
                    shown = context(story, fmt)
                except DoesNotFit:
                    continue
                said = [m for m in shown["messages"] if m["role"] not in ("system", "developer")]
                if shown["awaits"] == "model" and said:
                    assert said[-1]["role"] in ("user", "tool"), (fmt, said[-1])
    finally:
        story.close()
