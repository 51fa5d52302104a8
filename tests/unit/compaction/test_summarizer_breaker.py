"""The breaker, by a clock of the test's own."""

from __future__ import annotations

from streams.compaction.summarizers.breaker import Breaker
from tests.support.clock import Clock


def opened(clock: Clock, failures: int = 3) -> Breaker:
    breaker = Breaker(failures, 60.0, clock)
    for i in range(failures):
        ticket = breaker.admit()
        assert ticket is not None and not ticket.trial
        assert breaker.settle(ticket, False) is (i == failures - 1)
    return breaker


def test_failures_in_a_row_open_it_and_a_success_between_them_does_not() -> None:
    clock = Clock()
    breaker = Breaker(3, 60.0, clock)
    for succeeded in (False, False, True, False, None, False):
        ticket = breaker.admit()
        assert ticket is not None
        assert breaker.settle(ticket, succeeded) is False
    assert not breaker.open
    ticket = breaker.admit()
    assert ticket is not None and breaker.settle(ticket, False) is True
    assert breaker.open and breaker.admit() is None


def test_after_the_cool_down_exactly_one_trial_is_let_through() -> None:
    clock = Clock()
    breaker = opened(clock)
    clock.now += 59.9
    assert breaker.admit() is None
    clock.now += 0.2
    trial = breaker.admit()
    assert trial is not None and trial.trial
    assert breaker.admit() is None and breaker.open


def test_a_trial_closes_it_or_opens_it_anew_or_leaves_it_to_the_next() -> None:
    clock = Clock()
    breaker = opened(clock)
    clock.now += 61
    trial = breaker.admit()
    assert trial is not None and breaker.settle(trial, False) is True
    clock.now += 59
    assert breaker.admit() is None
    clock.now += 2
    cancelled = breaker.admit()
    assert cancelled is not None and breaker.settle(cancelled, None) is False
    last = breaker.admit()
    assert last is not None and last.trial
    breaker.settle(last, True)
    assert not breaker.open
    after = breaker.admit()
    assert after is not None and not after.trial and breaker.settle(after, False) is False


def test_late_ends_of_earlier_calls_do_not_decide_a_trial_but_a_late_success_closes_it() -> None:
    clock = Clock()
    breaker = Breaker(1, 60.0, clock)
    tickets = [breaker.admit() for _ in range(4)]
    first, late, lost, good = tickets
    assert first and late and lost and good
    breaker.settle(first, False)
    clock.now += 50
    assert breaker.settle(late, False) is False
    clock.now += 11
    trial = breaker.admit()
    assert trial is not None
    breaker.settle(lost, False)
    assert breaker.admit() is None
    breaker.settle(trial, False)
    assert breaker.open
    breaker.settle(good, True)
    assert not breaker.open
