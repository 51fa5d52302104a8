"""Which summary is accepted that was under way at a rollback."""

from __future__ import annotations

from projections.events import types as events
from projections.fold.apply import Status
from projections.fold.replay import replay
from projections.fold.summary_acceptance import why_not
from projections.policy.policy import Rules
from tests.support.histories import KEY, PARTITION, RULES
from tests.support.talks import Talks
from tests.unit.fold.test_summary_acceptance import due_talk, span, summary, user


def rolled_back(talks: Talks, to: int) -> None:
    assert talks.say(KEY, events.Rollback(f"{PARTITION}-{to}")) is Status.APPLIED


def test_a_summary_under_way_at_a_rollback_is_taken_where_the_window_holds_its_events() -> None:
    talks = due_talk()
    request, due = talks.requests[KEY][-1], talks.windows[KEY].meta.due
    assert due is not None
    user(talks)
    rolled_back(talks, due.at)
    assert talks.windows[KEY].meta.due == due
    assert talks.requests[KEY][-1].rollback != request.rollback
    # Answers of earlier releases are refused, as they were when they came.
    assert talks.summarise(KEY, request, "earlier ") is Status.REJECTED
    assert talks.summarise(KEY, request) is Status.APPLIED
    assert talks.summarise(KEY) is Status.REJECTED, "what was asked again covers the same"
    window = talks.windows[KEY]
    assert window.meta.summary is not None and window.meta.due is None
    assert replay(KEY, PARTITION, RULES, talks.logs[KEY]).image() == window.image()


def test_whether_a_window_asks_for_a_summary_under_way_does_not_count() -> None:
    """Other rules ask for other spans, and have to accept the same summaries."""
    talks = due_talk()
    request, due = talks.requests[KEY][-1], talks.windows[KEY].meta.due
    assert due is not None
    rolled_back(talks, due.at - 1)
    assert talks.windows[KEY].meta.due is None
    assert talks.summarise(KEY, request) is Status.APPLIED
    for budget in (100, 5_000):
        rules = Rules({"working_budget": budget, "keep_recent_tokens": budget // 3})
        other_rules = replay(KEY, PARTITION, rules, talks.logs[KEY])
        assert other_rules.meta.summary is not None


def test_a_summary_under_way_at_a_rollback_stays_where_a_later_one_needs_the_log() -> None:
    talks = due_talk()
    request, due = talks.requests[KEY][-1], talks.windows[KEY].meta.due
    assert due is not None
    rolled_back(talks, due.at)
    first = talks.next_offset
    user(talks)
    user(talks)
    assert talks.summarise(KEY, request) is Status.APPLIED
    in_force = talks.windows[KEY].meta.summary
    assert in_force is not None
    rolled_back(talks, first)
    # What was abandoned is not in the tail.
    rolled_back(talks, first + 1)
    window = talks.windows[KEY]
    assert window.meta.summary == in_force
    assert {first, first + 1} <= {entry.offset for entry in window.tail}
    assert replay(KEY, PARTITION, RULES, talks.logs[KEY]).image() == window.image()


def test_a_summary_under_way_has_to_name_its_events() -> None:
    talks = due_talk()
    good, due = summary(talks), talks.windows[KEY].meta.due
    assert due is not None
    rolled_back(talks, due.at)
    window = talks.windows[KEY]
    assert why_not(window, good) is None
    reason = why_not(window, span(positions=[])(good))
    assert reason is not None and "nor name all events" in reason
    wrong = why_not(window, span(positions=[0, 1, 1])(good))
    assert wrong is not None and "positions" in wrong


def test_a_summary_under_way_is_refused_where_a_rollback_took_out_what_it_covers() -> None:
    talks = due_talk()
    request = talks.requests[KEY][-1]
    rolled_back(talks, request.last - 1)
    while talks.windows[KEY].meta.due is None:
        user(talks)
    assert talks.summarise(KEY, request) is Status.REJECTED
    assert talks.summarise(KEY) is Status.APPLIED
