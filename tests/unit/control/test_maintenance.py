"""Appends that an operator has stopped, and copies of a log: what the control topic says of them."""

from __future__ import annotations

import msgspec
import pytest

from projections.errors import TopicMismatch, UnderMaintenance
from streams.control.state import Copy, Generation, Maintenance, State
from threadfold.gateway.problems import problem_of


def said(**records: msgspec.Struct) -> State:
    state = State()
    for name, record in records.items():
        kind, _, whose = name.partition("_")
        state.put(f"{kind}/{whose}".encode(), msgspec.json.encode(record))
    return state


def test_appends_are_refused_of_all_or_of_one_tenant() -> None:
    State().check_appends("acme")
    one = said(maintenance_acme=Maintenance("2026-01-31T12:00:00Z", "it moves"))
    one.check_appends("rival")
    with pytest.raises(UnderMaintenance, match=r"tenant acme .* since 2026-01-31.* \(it moves\)"):
        one.check_appends("acme")
    with pytest.raises(UnderMaintenance, match="this deployment"):
        said(maintenance_=Maintenance("2026-01-31T12:00:00Z")).check_appends("rival")
    one.put(b"maintenance/acme", None)
    one.check_appends("acme")


def test_a_refused_append_says_when_to_come_again() -> None:
    answer = problem_of(UnderMaintenance("this deployment is under maintenance", "later"))
    assert answer.status_code == 503 and answer.headers["Retry-After"] == "30"
    assert b'"urn:threadfold:problem:under-maintenance"' in answer.body


def test_nobody_serves_a_log_that_is_not_wholly_copied() -> None:
    state = said(copy_=Copy("old", [0, 0]), generation_1=Generation(1, 2))
    state.put(b"generation/live", b"1")
    with pytest.raises(TopicMismatch, match="the log of old is not completely copied"):
        _ = state.live_generation
    state.put(b"copy/", msgspec.json.encode(Copy("old", [0, 0], [7, 9])))
    assert state.live_generation.partitions == 2


def test_what_came_with_a_copy_is_known_by_its_place() -> None:
    whole = said(copy_=Copy("old", [0, 0], [7, 9]))
    assert whole.was_copied("acme", 1, 8) and not whole.was_copied("acme", 1, 9)
    moved = said(copy_acme=Copy("digest", [5, 5], [7, 9]))
    assert [moved.was_copied("acme", 1, offset) for offset in (4, 5, 8, 9)] == [0, 1, 1, 0]
    assert not moved.was_copied("rival", 1, 6)
    both = said(copy_=Copy("old", [0, 0], [3, 3]), copy_acme=Copy("digest", [5, 5], [7, 9]))
    assert [both.was_copied("acme", 0, offset) for offset in (2, 4, 6)] == [1, 0, 1]
