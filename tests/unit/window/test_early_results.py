"""Results that come before their calls, twice, late, or never."""

from __future__ import annotations

import pytest

from projections.events import types as events
from projections.fold.apply import Status
from projections.window import tail
from projections.window.bodies import result_call_id
from projections.window.entry import EARLY
from tests.support.histories import KEY
from tests.support.stories import Story


def roles(story: Story) -> list[tuple[str, str | None]]:
    return [(m["role"], m.get("tool_call_id")) for m in story.messages()]


def test_a_result_before_its_call_waits_unseen_and_pairs_with_it() -> None:
    story = Story()
    story.user()
    early = story.result("a", "found early")
    assert story.entry(early).link == EARLY
    assert roles(story) == [("user", None)]
    call = story.call("a")
    assert story.entry(early).link == (call, 0)
    assert not story.window.state.calls, "nothing is open"
    assert roles(story) == [("user", None), ("assistant", None), ("tool", "a")]
    assert story.texts()[-1] == "found early"
    story.assert_replays()


def test_early_results_pair_in_order_with_parallel_calls_also_of_one_id() -> None:
    story = Story()
    first, second = story.result("a", "one"), story.result("a", "two")
    other = story.result("b", "three")
    call = story.call("b", "a", "a")
    assert [story.entry(o).link for o in (first, second, other)] == [
        (call, 1),
        (call, 2),
        (call, 0),
    ]
    assert story.texts()[1:] == ["three", "one", "two"]
    story.assert_replays()


def test_only_some_of_the_results_came_early() -> None:
    story = Story()
    story.result("b", "early")
    story.call("a", "b")
    assert [call.id for call in story.window.state.calls] == ["a"]
    story.result("a", "late")
    assert story.texts()[1:] == ["late", "early"] and not story.window.state.calls


def test_a_repeated_result_does_not_wait_for_a_later_call_of_its_id() -> None:
    story = Story()
    story.call("a")
    story.result("a", "first")
    again = story.result("a", "again")
    assert story.entry(again).link is None
    story.call("a")
    assert [call.id for call in story.window.state.calls] == ["a"], "the call is still open"
    story.result("a", "second")
    assert [text for text in story.texts() if text] == ["first", "second"]
    assert "pairing" in [step.reducer for step in story.render().trace], "the repeat is told of"


def test_a_late_result_goes_to_the_dead_call_and_an_unanswered_one_has_a_stand_in() -> None:
    story = Story()
    story.call("a", "b")
    story.user("never mind")
    late = story.result("a", "late")
    assert story.entry(late).link == (0, 0)
    assert story.texts() == [None, "late", "[no result: the call was not answered]", "never mind"]


def test_a_rollback_between_a_result_and_its_call_makes_it_wait_again() -> None:
    story = Story()
    story.user()
    early = story.result("a", "found early")
    story.call("a")
    story.assistant("so it is")
    story.back(early)
    assert story.entry(early).link == EARLY and roles(story) == [("user", None)]
    call = story.call("a")
    assert story.entry(early).link == (call, 0)
    assert roles(story) == [("user", None), ("assistant", None), ("tool", "a")]
    story.assert_replays()


def test_a_rollback_parts_an_early_result_from_its_call_also_where_it_was_shortened_since() -> None:
    story = Story({"compaction": False, "soft_trim_chars": 100, "protect_recent": 0})
    early = story.result("a", "found early " * 100, tokens=200)
    story.user()
    story.call("a")
    while not story.entry(early).variants:
        story.assistant("words " * 30, 40)
    story.back(early + 1)
    assert not story.entry(early).variants and story.entry(early).link == EARLY
    call = story.call("a")
    assert story.entry(early).link == (call, 0)
    story.assert_replays()


def test_a_summary_takes_a_call_with_its_early_result_or_neither() -> None:
    for before in range(6):
        story = Story()
        for _ in range(before):
            story.assistant("words " * 30, 40)
        early = story.result("a", "found " * 30, tokens=40)
        story.assistant("in between", 20)
        call = story.call("a", tokens=30)
        while story.window.meta.due is None:
            story.assistant("words " * 30, 40)
        story.summarise()
        left = {entry.offset for entry in story.window.tail}
        assert (early in left) == (call in left)
        story.assert_replays()


def test_an_early_result_whose_call_never_comes_is_summarised_away() -> None:
    story = Story()
    early = story.result("a", "found " * 30, tokens=40)
    while story.window.meta.due is None:
        story.assistant("words " * 30, 40)
    story.summarise()
    assert early not in {entry.offset for entry in story.window.tail}
    story.call("a")
    assert [call.id for call in story.window.state.calls] == ["a"], (
        "what left cannot answer any more"
    )
    assert story.messages()[-1][
        "content"
    ] == "[no result: the call was not answered]" and story.say(events.TurnEnded("t"))
    story.assert_replays()


def test_a_call_whose_result_came_so_early_that_it_is_to_be_summarised_has_the_span_marked_anew() -> (
    None
):
    """Otherwise the summary is refused for parting the two, is asked for again the same, and the
    window is due for ever.
    """
    story = Story()
    story.result("a", "found " * 10, tokens=20)
    while story.window.meta.due is None:
        story.assistant("words " * 30, 40)
    stale = story.talks.requests[KEY][-1]
    story.call("a", tokens=20)
    assert story.talks.summarise(KEY, stale) is Status.REJECTED
    for _ in range(3):
        story.assistant("words " * 30, 40)
        if story.window.meta.due is not None:
            story.summarise()
    assert story.window.meta.summary is not None and story.window.tail_tokens <= 300
    story.assert_replays()


def test_calls_do_not_look_at_every_result_that_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    story, looked = Story({"working_budget": 100_000, "model_window": 200_000}), 0

    def call_id_of(body: bytes) -> str:
        nonlocal looked
        looked += 1
        return result_call_id(body)

    monkeypatch.setattr(tail, "result_call_id", call_id_of)
    early = [story.result(f"early{n}") for n in range(200)]
    for n in range(20):
        story.call(*(f"call{n}.{i}" for i in range(10)))
    call = story.call("early7", "early199")
    assert [story.entry(early[n]).link for n in (7, 199)] == [(call, 0), (call, 1)]
    assert looked == len(early)
