"""Profile ``sliding``: the last messages are shown, what left waits for a summary, and a closed
session empties the tail.
"""

from __future__ import annotations

from typing import Any

from projections.events import types as events
from projections.policy.policy import Rules
from streams.compaction.requests import request_for
from tests.support.histories import PARTITION, RULES
from tests.support.stories import Story

SLIDING: dict[str, Any] = {"profile": "sliding", "working_budget": 900}


def sliding(**policy: Any) -> Story:
    own = {**RULES.deployment, **SLIDING, **policy}
    return Story(rules=Rules(own))


def talk(story: Story, turns: int) -> None:
    for i in range(turns):
        story.user(f"question {i}", 10)
        story.assistant(f"answer {i}", 10)


def left_out(count: int, first: int, last: int) -> str:
    return f"[{count} earlier messages left out: {PARTITION}-{first} to {PARTITION}-{last}]"


def test_ten_messages_are_shown_and_the_eleventh_makes_the_oldest_leave() -> None:
    story = sliding()
    talk(story, 5)
    assert len(story.messages()) == 10 and story.window.meta.due is None
    story.user("one more")
    assert story.texts()[0] == left_out(6, 0, 5)
    assert len(story.messages()) == 1 + 5, "down to half of ten"
    due = story.window.meta.due
    assert due is not None and (due.first, due.last, due.reason, due.kept) == (0, 5, "budget", ())
    story.assert_replays()


def test_what_left_is_not_shown_before_its_summary_nor_after_it() -> None:
    story = sliding()
    talk(story, 5)
    story.user("one more")
    before = story.texts()
    story.summarise()
    assert before[0] == left_out(6, 0, 5)
    assert story.texts()[1:] == before[1:] and str(story.texts()[0]).startswith("[Summary")
    assert story.window.meta.due is None
    story.assert_replays()


def test_a_late_summary_gives_the_same_window_as_one_that_came_at_once() -> None:
    shown = []
    for late in (False, True):
        story = sliding()
        talk(story, 5)
        story.user("one more")
        if not late:
            story.summarise()
        for i in range(4):
            story.assistant(f"later {i}", 10)
        if late:
            story.summarise()
        shown.append(story.texts())
        story.assert_replays()
    assert shown[0] == shown[1]


def test_exact_cuts_ask_for_what_left_the_last_ten() -> None:
    story = sliding(cuts="exact")
    talk(story, 8)
    assert len(story.messages()) == 1 + 10 and story.texts()[0] == left_out(6, 0, 5)
    due = story.window.meta.due
    assert due is not None and due.first == 0
    story.summarise()
    assert story.texts()[1] == left_out(5, 1, 5), "it was asked for before these left"
    assert len(story.messages()) == 2 + 10
    story.assert_replays()


def test_a_waiting_call_is_neither_left_out_nor_summarised() -> None:
    story = sliding()
    call = story.call("a", text="may I?")
    story.say(events.Suspension("s", "approval", tool_call_id="a"))
    talk(story, 6)
    assert not story.form(call)
    due = story.window.meta.due
    assert due is not None and due.last > call and (call in due.kept or due.first > call)
    story.summarise()
    assert "may I?" in story.texts()
    story.assert_replays()


def test_a_closed_session_leaves_nothing_and_all_of_it_waits_for_a_summary_by_the_cheap_one() -> (
    None
):
    story = sliding()
    talk(story, 3)
    story.say(events.SessionClosed("idle"))
    assert story.texts() == [left_out(6, 0, 5)]
    due = story.window.meta.due
    assert due is not None and (due.first, due.reason) == (0, "idle")
    request = request_for(story.window, 1)
    assert request is not None and request.summarizer == "cheap" and request.reason == "idle"
    story.summarise()
    assert len(story.messages()) == 1 and story.window.meta.due is None
    story.user("back again")
    assert story.texts()[1:] == ["back again"]
    story.assert_replays()


def test_the_end_that_an_owner_speaks_is_explicit() -> None:
    story = sliding()
    talk(story, 2)
    story.say(events.SessionClosed("explicit"))
    assert (
        story.window.meta.due is not None
        and story.window.meta.due.reason == "explicit"
        and story.texts() == [left_out(4, 0, 3)]
    )


def test_in_other_profiles_a_closed_session_keeps_its_tail() -> None:
    story = Story()
    talk(story, 3)
    story.say(events.SessionClosed("idle"))
    assert len(story.messages()) == 6 and story.window.meta.due is None


def test_a_rollback_before_the_close_shows_the_messages_again() -> None:
    story = sliding()
    talk(story, 3)
    story.say(events.SessionClosed("idle"))
    assert story.texts() == [left_out(6, 0, 5)]
    story.back(5)
    assert story.texts() == [
        "question 0",
        "answer 0",
        "question 1",
        "answer 1",
        "question 2",
        "answer 2",
    ]
    assert story.window.meta.due is None
    story.assert_replays()


def test_with_compaction_off_what_left_is_reported_and_nothing_is_asked() -> None:
    story = sliding(compaction=False)
    talk(story, 8)
    assert len(story.messages()) <= 1 + 10 and story.window.meta.due is None
    story.say(events.SessionClosed("idle"))
    assert story.texts() == [left_out(16, 0, 15)] and story.window.meta.due is None


def test_what_sliding_left_is_summarised_in_a_chain_over_a_long_talk() -> None:
    story = sliding()
    summaries = 0
    for i in range(60):
        story.user(f"question {i}", 10)
        story.call(f"c{i}")
        story.result(f"c{i}", "found", tokens=10)
        story.assistant(f"answer {i}", 10)
        assert sum(m["role"] != "system" for m in story.messages()) <= 12
        if story.window.meta.due is not None:
            story.summarise()
            summaries += 1
    assert summaries > 10 and len(story.window.tail) < 60
    story.assert_replays()
