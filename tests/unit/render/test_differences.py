"""Comparing what two policies make of one conversation."""

from __future__ import annotations

import msgspec

from projections.events import types as events
from projections.fold.replay import replay
from projections.policy.policy import Rules
from projections.render.differences import Seen, diff_lines, difference, seen, spread
from tests.support.histories import KEY, PARTITION, make_event


def looked(policy: dict[str, object], texts: list[str], tokens: int = 20) -> Seen:
    log = [
        (
            i,
            make_event(
                events.Message("user" if i % 2 == 0 else "assistant", text), f"e{i}", tokens
            ),
        )
        for i, text in enumerate(texts)
    ]
    return seen(
        replay(
            KEY,
            PARTITION,
            Rules(
                {"model_window": 2000, "reserve_tokens": 200, "summary_max_tokens": 60, **policy}
            ),
            log,
        )
    )


TALK = [f"message number {i} says something" for i in range(40)]


def test_the_same_rules_make_no_difference() -> None:
    before, after = looked({}, TALK), looked({}, TALK)
    assert not difference(before, after).window
    assert not difference(before, after).render
    assert diff_lines(before, after) == []


def test_a_smaller_budget_makes_a_summary_due_and_leaves_less_to_be_sent() -> None:
    before = looked({"working_budget": 1500}, TALK)
    after = looked(
        {"working_budget": 200, "keep_recent_tokens": 100, "min_messages": 3, "hard_ceiling": 0.2},
        TALK,
    )
    assert (before.due, after.due) == (False, True)
    assert before.tokens is not None
    assert after.tokens is not None
    assert after.tokens < before.tokens
    found = difference(before, after)
    assert found.window
    assert found.render
    lines = diff_lines(before, after)
    assert "-user: message number 0 says something" in lines
    assert not any("number 39" in line for line in lines if line.startswith(("-", "+")))


def test_a_diff_is_shortened_in_lines_and_in_width() -> None:
    def of(texts: list[str]) -> Seen:
        return Seen(
            b"",
            1,
            tuple(msgspec.json.encode({"role": "user", "content": text}) for text in texts),
            False,
            None,
        )

    lines = diff_lines(of(["x" * 500]), of([f"y{i}" for i in range(50)]), width=40)
    assert lines == [
        "@@ -1 +1,50 @@",
        "-user: " + "x" * 33 + "…",
        *("+user: y0", "+user: y1", "+user: y2", "+  (45 more)", "+user: y48", "+user: y49"),
    ]
    assert diff_lines(of(["x" * 500]), of([f"y{i}" for i in range(50)]), most=3, width=40)[3:] == [
        "  (5 more lines)"
    ]
    assert diff_lines(of(["x" * 500 + "a"]), of(["x" * 500 + "b"])) == [
        "  (the messages differ beyond what is shown of them)"
    ]


def test_a_diff_shows_calls_and_the_parts_of_a_message() -> None:
    bodies = (
        msgspec.json.encode(
            {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "find"}}]}
        ),
        msgspec.json.encode(
            {"role": "user", "content": [{"type": "text", "text": "look"}, {"type": "image_url"}]}
        ),
    )
    lines = diff_lines(Seen(b"", 1, (), False, None), Seen(b"", 1, bodies, False, None))
    assert lines[1:] == ["+assistant:  [calls find]", "+user: look [image_url]"]


def test_what_cannot_be_rendered_differs_from_what_can() -> None:
    fits, not_ = Seen(b"", 5, (), False, None), Seen(b"", None, (), False, None)
    assert difference(fits, not_).render
    assert not difference(not_, not_).render


def test_a_spread_is_reported_by_nearest_ranks() -> None:
    assert spread([]) == {"sum": 0, "p50": 0, "p95": 0, "max": 0}
    assert spread(range(1, 101)) == {"sum": 5050, "p50": 50, "p95": 95, "max": 100}
    assert spread([7]) == {"sum": 7, "p50": 7, "p95": 7, "max": 7}
