"""Pinned tool results: they stay through cuts and summaries, beside the tail where their place in
it is gone, up to the lane's limit.
"""

from __future__ import annotations

from typing import Any

from projections.events import types as events
from tests.support.stories import Story

PIN = "the contract says so: " + "word " * 20


def fill(story: Story, times: int = 100) -> None:
    for _ in range(times):
        story.assistant("words " * 30, 40)


def pinned_story(policy: dict[str, Any] | None = None) -> Story:
    """A message with two calls, the second's result pinned, and a word of the user's."""
    story = Story(policy)
    story.user("first")
    story.call("a", "b", text="I look", tokens=40)
    story.result("a", "nothing " * 10, tokens=20)
    story.result("b", PIN, pinned=True, tokens=40)
    return story


def pairs(story: Story) -> list[tuple[str, str]]:
    """Each shown call's id with the text that answers it, in order."""
    messages, found = story.messages(), []
    for i, message in enumerate(messages):
        for n, call in enumerate(message.get("tool_calls", [])):
            answer = messages[i + 1 + n]
            assert (answer["role"], answer["tool_call_id"]) == ("tool", call["id"])
            found.append((call["id"], answer["content"]))
    return found


def test_a_pinned_result_stays_when_its_message_is_left_out() -> None:
    story = pinned_story({"compaction": False})
    fill(story, 20)
    assert story.form(1) == "pair:1:leave_out_oldest" and story.entry(2).out and not story.form(3)
    assert pairs(story) == [("b", PIN)]
    assert all(message["content"] != "I look" for message in story.messages())
    assert "leave_out_oldest" in [step.reducer for step in story.render().trace]
    story.assert_replays()


def test_a_summary_moves_it_beside_the_tail_with_its_call_alone() -> None:
    story = pinned_story()
    while story.window.meta.due is None:
        story.assistant("words " * 30, 40)
    assert story.window.meta.due.last >= 3
    story.summarise()
    (pin,) = story.window.state.pins
    assert pin.offset == 3 and story.window.state.pinned_tokens == pin.tokens > 40
    assert pairs(story) == [("b", PIN)]
    messages = story.messages()
    assert (
        messages[0]["content"].startswith("[Summary")
        and messages[1]["content"] is None
        and messages[2]["role"] == "tool"
    )
    story.assert_replays()


def test_it_stays_through_cut_and_summary_and_the_summaries_after() -> None:
    story = pinned_story()
    fill(story, 20)
    assert story.form(1).startswith("pair:1:")
    for _ in range(3):
        story.summarise()
        assert pairs(story) == [("b", PIN)]
        story.assert_replays()
        fill(story, 12)


def test_it_stays_when_its_place_becomes_a_range_of_the_log() -> None:
    story = pinned_story()
    story.result("x", "an orphan")
    fill(story, 900)
    assert pairs(story) == [("b", PIN)]
    story.assert_replays()


def test_a_rollback_into_the_summarised_span_puts_it_back_into_its_place() -> None:
    story = pinned_story()
    while story.window.meta.due is None:
        story.assistant("words " * 30, 40)
    story.summarise()
    story.back(4)
    assert not story.window.state.pins and story.entry(3).pinned
    assert pairs(story)[1] == ("b", PIN) and len(pairs(story)) == 2
    story.assert_replays()


def test_past_the_lanes_limit_the_oldest_lose_their_pin_and_the_trace_says_so() -> None:
    story = Story({"pinned_max_tokens": 200})
    for i in range(6):
        story.call(f"c{i}")
        story.result(f"c{i}", f"{i} {PIN}", pinned=True, tokens=40)
        story.user(f"question {i}")
    fill(story, 12)
    while story.window.meta.due is not None:
        story.summarise()
    assert not any(entry.pinned for entry in story.window.tail)
    state = story.window.state
    assert state.pinned_tokens <= 200 and state.pins_lost[0] >= 1
    assert [pin.offset for pin in state.pins] == sorted(pin.offset for pin in state.pins)
    kept = [int(text.split()[0]) for _, text in pairs(story)]
    assert kept == list(range(6))[-len(kept) :] and len(kept) == len(state.pins) < 6, "the newest"
    (lost,) = [step for step in story.render().trace if step.reducer == "lose_pin"]
    assert lost.tokens_before - lost.tokens_after == state.pins_lost[1]
    story.assert_replays()


def test_system_text_goes_after_all_pinned_results() -> None:
    story = pinned_story({"pinned_max_tokens": 150})
    while story.window.meta.due is None:
        story.assistant("words " * 30, 40)
    story.summarise()
    assert story.window.state.pins
    story.say(events.Message("system", "rules " * 130), 140)
    assert not story.window.state.pins and len(story.window.state.pinned) == 1
    assert story.window.state.pinned[0].tokens == 140


def test_what_an_operator_takes_out_is_no_longer_pinned() -> None:
    story = pinned_story()
    while story.window.meta.due is None:
        story.assistant("words " * 30, 40)
    story.summarise()
    story.say(events.EventDropped("3-3"))
    assert not story.window.state.pins and pairs(story) == []
    assert PIN not in str(story.messages())
    story.assert_replays()


def test_a_smaller_request_gives_pinned_results_up_after_all_others() -> None:
    story = pinned_story()
    while story.window.meta.due is None:
        story.assistant("words " * 30, 40)
    story.summarise()
    fill(story, 5)
    whole = story.render().tokens

    def given_up(fewer: int) -> list[str]:
        return [step.reducer for step in story.render(whole - fewer).trace]

    assert given_up(100) == ["leave_out_oldest"] and pairs(story) == [("b", PIN)]
    assert PIN in str(story.messages(whole - 100))
    assert given_up(220)[:2] == ["leave_out_oldest", "drop_pinned_results"]
    assert PIN not in str(story.messages(whole - 220))
