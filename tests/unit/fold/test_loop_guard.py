"""The loop guard: identical calls in a row, counted in the log whatever their results, told once
when there are too many.
"""

from __future__ import annotations

import pytest

from projections.events import types as events
from projections.fold.apply import Outcome, apply
from projections.render.read_header import guard_of
from projections.window.tool_calls import call_hash
from projections.window.window import Window
from tests.support.histories import KEY, PARTITION, RULES, make_event
from tests.support.stories import Story


def told(*steps: object, guard: int = 3) -> tuple[Window, list[Outcome]]:
    """Fold steps (a text is a call's arguments); returns the window and each outcome."""
    window = Window(KEY, PARTITION, type(RULES)({**RULES.deployment, "loop_guard": guard}))
    found = []
    for i, step in enumerate(steps):
        data = (
            events.Message("assistant", None, tool_calls=[events.ToolCall(f"c{i}", "look", step)])
            if isinstance(step, str)
            else step
        )
        found.append(apply(window, i, make_event(data, f"e{i}")))
    return window, found


def loops(outcomes: list[Outcome]) -> list[tuple[int, int]]:
    return [
        (i, outcome.loop.count) for i, outcome in enumerate(outcomes) if outcome.loop is not None
    ]


def test_the_third_identical_call_in_a_row_is_a_loop_whatever_came_back() -> None:
    window, outcomes = told(
        '{"a":1,"b":2}',
        events.ToolResult("c0", "one"),
        '{"b":2, "a":1}',
        events.ToolResult("c2", "two"),
        '{"a":1,"b":2}',
    )
    assert loops(outcomes) == [(4, 3)]
    loop = outcomes[-1].loop
    assert loop == events.LoopDetected("look", call_hash("look", '{"a":1,"b":2}').hex(), 3)
    assert guard_of(window) == {
        "tool": "look",
        "arguments_sha256": loop.arguments_sha256,
        "count": 3,
    }


@pytest.mark.parametrize(
    "between",
    [
        '{"n":2}',
        events.Message("user", "stop that"),
        events.Message("assistant", None, tool_calls=[events.ToolCall("x", "other", '{"n":1}')]),
    ],
)
def test_another_call_or_the_users_word_ends_the_run(between: object) -> None:
    window, outcomes = told('{"n":1}', '{"n":1}', between, '{"n":1}')
    assert loops(outcomes) == [] and guard_of(window) is None


def test_the_models_own_words_do_not_end_the_run() -> None:
    assert loops(
        told(
            "{}", events.Message("assistant", "let me try again"), "{}", events.TurnEnded("t"), "{}"
        )[1]
    ) == [(4, 3)]


def test_it_is_reported_again_at_every_multiple_and_stands_in_the_context_meanwhile() -> None:
    window, outcomes = told(*["{}"] * 7)
    assert loops(outcomes) == [(2, 3), (5, 6)]
    guard = guard_of(window)
    assert guard is not None and guard["count"] == 7


def test_parallel_identical_calls_count_one_by_one() -> None:
    message = events.Message(
        "assistant", None, tool_calls=[events.ToolCall(f"p{i}", "look", "{}") for i in range(4)]
    )
    _, outcomes = told(message)
    assert loops(outcomes) == [(0, 3)]


@pytest.mark.parametrize(
    ("guard", "calls", "found"), [(0, 9, []), (1, 2, [(0, 1), (1, 2)]), (5, 5, [(4, 5)])]
)
def test_the_policy_says_how_many(guard: int, calls: int, found: list[tuple[int, int]]) -> None:
    window, outcomes = told(*["{}"] * calls, guard=guard)
    assert loops(outcomes) == found and (guard_of(window) is None) == (not found)


def test_a_repeated_event_counts_once() -> None:
    window, _ = told("{}", "{}")
    data = events.Message("assistant", None, tool_calls=[events.ToolCall("c1", "look", "{}")])
    assert apply(window, 9, make_event(data, "e1")).loop is None and guard_of(window) is None


def test_a_detected_loop_stays_in_the_context_until_something_else_happens() -> None:
    window, _ = told("{}", "{}", "{}", events.LoopDetected("look", "ab" * 32, 3))
    assert guard_of(window) is not None
    apply(window, 9, make_event(events.Message("user", "stop"), "e9"))
    assert guard_of(window) is None


def test_a_rollback_counts_from_where_it_went_back_to() -> None:
    story = Story()
    for i in range(2):
        story.call(f"c{i}")
    story.back(0)
    story.call("again")
    assert guard_of(story.window) is None
    story.call("and again")
    assert guard_of(story.window) is not None


def test_the_run_goes_on_when_its_first_calls_were_summarised() -> None:
    story = Story({"loop_guard": 20})
    story.user("try it", 10)
    for i in range(20):
        story.call(f"c{i}", tokens=30)
        story.result(f"c{i}", "no " * 10, tokens=15)
        if story.window.meta.due is not None:
            story.summarise()
    assert story.window.meta.summary is not None
    guard = guard_of(story.window)
    assert guard is not None and guard["count"] == 20
    story.assert_replays()
