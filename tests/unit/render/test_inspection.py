"""A render message by message: the messages that a model is sent, with tokens that add up."""

from __future__ import annotations

import msgspec
import pytest

from projections.render.fit_to_limit import DoesNotFit
from projections.render.inspection import inspect
from projections.render.render import render_openai
from tests.support.histories import KEY
from tests.support.stories import WIDE, Story
from tests.support.talks import random_talks


@pytest.mark.parametrize("seed", range(20))
def test_it_shows_the_messages_of_the_render_and_their_tokens_add_up(seed: int) -> None:
    window = random_talks(seed, 120, 3, [KEY]).windows[KEY]
    try:
        render = render_openai(window)
    except DoesNotFit:
        with pytest.raises(DoesNotFit):
            inspect(window)
        return
    found = inspect(window)
    assert [item["message"] for item in found.items] == msgspec.json.decode(render.messages)
    total = window.state.tools_tokens + sum(item["tokens"] for item in found.items)
    assert total == render.tokens == found.render.tokens
    assert found.render.digest == render.digest


def test_each_message_says_what_shortened_it_and_where_its_event_is() -> None:
    story = Story({**WIDE, "soft_trim_chars": 200, "hard_clear_chars": 5000, "working_budget": 500})
    story.user("a question")
    call = story.call("c1")
    result = story.result("c1", "a long result " * 200, tokens=600)
    story.assistant("an answer")
    story.user("and then?")
    shown = {item["position"]: item for item in inspect(story.window).items}
    item = shown[f"3-{result}"]
    assert item["full_tokens"] == 600 > item["tokens"]
    assert [one["reducer"] for one in item["shortened"]] == ["soft_trim"]
    assert "shortened" not in shown[f"3-{call}"]


def test_a_call_without_a_result_waits() -> None:
    story = Story(WIDE)
    story.user()
    story.call("c1")
    head, answer = inspect(story.window).items[-2:]
    assert head["waiting"] and answer["waiting"]
    assert answer["position"] is None
    story.result("c1")
    assert not any(item["waiting"] for item in inspect(story.window).items)
