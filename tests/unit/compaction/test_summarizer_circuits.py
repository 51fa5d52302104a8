"""An endpoint's circuit, for all and for one tenant, by a clock of the test's own."""

from __future__ import annotations

import pytest

from streams.compaction.summarizers.circuit import Circuit
from streams.compaction.summarizers.failures import (
    AttemptFailed,
    CallNotAllowed,
    EndpointTimedOut,
    EndpointUnreachable,
    InputRefused,
)

LATE, REFUSED, AWAY = EndpointTimedOut("late"), InputRefused("400"), EndpointUnreachable("away")


class World:
    """A circuit that three failures in a row open for a minute."""

    def __init__(self) -> None:
        self.now = 100.0
        self.circuit = Circuit(3, 60.0, lambda: self.now)

    def call(self, tenant: str, failure: AttemptFailed | None = None) -> bool:
        """Whether a call of the tenant that ends so was let through."""
        call = self.circuit.admit(tenant)
        if call is not None:
            self.circuit.settle(call, failure, answered=failure is None)
        return call is not None

    def goes(self, *tenants: str) -> list[bool]:
        return [self.circuit.refusal(tenant) is None for tenant in tenants]


def test_time_outs_of_one_tenant_keep_it_alone_away() -> None:
    world = World()
    assert [world.call("acme", LATE) for _ in range(5)] == [True, True, True, False, False]
    assert world.goes("acme", "other") == [False, True]
    reason = world.circuit.refusal("acme")
    assert reason == "is open for tenant acme after time-outs in a row"
    assert world.call("other", AWAY) and world.goes("other") == [True], "one counted before"
    assert world.call("other", AWAY) and world.goes("other") == [False]


def test_answers_to_others_do_not_bring_a_tenant_back_but_its_own_trial_does() -> None:
    world = World()
    for _ in range(3):
        world.call("acme", LATE)
    assert world.call("other") and not world.call("acme")
    world.now += 61
    assert world.call("acme", LATE) and not world.call("acme")
    world.now += 61
    trial = world.circuit.admit("acme")
    assert trial is not None and world.circuit.admit("acme") is None and world.call("other")
    world.circuit.settle(trial, None, answered=True)
    assert world.call("acme", LATE) and world.call("acme", LATE) and world.goes("acme") == [True]


def test_an_answer_between_them_begins_a_tenants_time_outs_anew() -> None:
    world = World()
    for failure in (LATE, LATE, None, LATE, LATE):
        assert world.call("acme", failure)
    assert world.goes("acme") == [True]


@pytest.mark.parametrize("failure", [LATE, REFUSED])
def test_what_fails_for_several_tenants_and_for_none_succeeds_opens_it_for_all(
    failure: AttemptFailed,
) -> None:
    world = World()
    for tenant in ("a", "a", "b", "b"):
        world.call(tenant, failure)
    world.call("well")
    for tenant in ("a", "b"):
        world.call(tenant, failure)
    assert world.goes("c") == [True]
    assert world.call("c", failure)
    assert world.goes("a", "b", "c", "d") == [False] * 4
    assert world.circuit.refusal("d") == "is open after failures in a row"


def test_failures_of_the_endpoint_open_it_for_all_whoever_calls() -> None:
    world = World()
    for _ in range(3):
        assert world.call("acme", AWAY)
    assert world.goes("acme", "other") == [False, False]


def test_refusals_keep_nobody_away_and_calls_that_were_not_made_say_nothing() -> None:
    world = World()
    for failure in (REFUSED, CallNotAllowed("limits")) * 5:
        assert world.call("acme", failure)
    assert world.goes("acme", "other") == [True, True]


def test_a_trial_that_one_tenants_input_spoils_is_left_to_the_next_caller() -> None:
    world = World()
    world.call("acme", LATE)
    for _ in range(2):
        world.call("other", AWAY)
    world.now += 61
    assert world.call("acme", LATE) and world.call("other") and world.goes("third") == [True]


def test_it_shows_as_open_while_nobody_is_answered() -> None:
    world = World()
    for _ in range(3):
        world.call("acme", LATE)
    assert world.circuit.open, "maybe it hangs for all: nobody else has called"
    world.call("other")
    assert not world.circuit.open and world.goes("acme") == [False]
    for _ in range(3):
        world.call("other", AWAY)
    assert world.circuit.open
