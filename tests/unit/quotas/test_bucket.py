"""The arithmetic of quotas: however gateways lease and requests come, no more is admitted than the
quota allows.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from hypothesis import example, given, settings
from hypothesis import strategies as st

from projections.redis.shared_buckets import Settled
from tests.support.profiles import examples
from threadfold.quotas.bucket import CALM, Lease, filled, settle, until_filled

rates = st.floats(0.05, 5_000)


class Shared:
    """The bucket as Redis keeps it."""

    def __init__(self, rate: float, capacity: float) -> None:
        self.rate, self.capacity, self.level, self.at = rate, capacity, capacity, 0.0

    def settle(self, now: float, owed: float, wanted: float) -> Settled:
        self.level, self.at = filled(self.level, now - self.at, self.rate, self.capacity), now
        settled = settle(self.level, owed, wanted, self.capacity)
        self.level = settled.left
        return settled


def renew(
    lease: Lease, shared: Shared, now: float, meanwhile: Callable[[], None] = lambda: None
) -> None:
    if lease.wants(now):
        owed, wanted = lease.ask(now)
        meanwhile()
        lease.take(owed, wanted, shared.settle(now, owed, wanted), now)


@given(rates, st.floats(0.1, 30), st.integers(1, 4), st.integers(0, 2**32), st.integers(1, 200))
@example(1.0, 1.0, 2, 0, 1)
@settings(max_examples=examples(300), deadline=None)
def test_gateways_together_admit_no_more_than_rate_time_burst_and_a_portion_each(
    rate: float, burst: float, gateways: int, seed: int, most: int
) -> None:
    rng = random.Random(seed)
    capacity = max(1.0, rate * burst)
    shared, leases = Shared(rate, capacity), [Lease(rate, capacity) for _ in range(gateways)]
    now, admitted, portions, largest = 0.0, 0.0, [0.0] * gateways, 0.0
    given: list[tuple[Lease, int]] = []

    def give_back() -> None:
        if given and rng.random() < 0.5:
            lease, units = given.pop()
            lease.give_back(units)

    for _ in range(300):
        now += rng.choice((0.0, 0.001, 0.03, 0.2, 3.0))
        i = rng.randrange(gateways)
        for _ in range(rng.randint(1, 20)):
            if leases[i].open(now):
                units = rng.randint(1, most)
                leases[i].charge(units, now)
                if rng.random() < 0.3:
                    # A guess that is taken back later, perhaps after it was settled.
                    given.append((leases[i], units))
                else:
                    admitted += units
                largest = max(largest, units)
        renew(leases[i], shared, now, give_back)
        give_back()
        portions[i] = max(portions[i], leases[i].portion)
        # What went below zero is owed and not yet paid: at most the last list of each gateway.
        assert admitted <= (capacity + rate * now + sum(portions) + gateways * largest) * (1 + 1e-9)


@given(rates, st.integers(0, 2**32))
@settings(max_examples=examples(100), deadline=None)
def test_one_that_always_asks_gets_the_whole_of_its_quota(rate: float, seed: int) -> None:
    rng = random.Random(seed)
    capacity = max(1.0, 2 * rate)
    shared, lease = Shared(rate, capacity), Lease(rate, capacity)
    now, admitted, end = 0.0, 0, 20 + 20 / rate
    step = min(0.02, 0.2 / rate)
    for _ in range(int(min(end / step, 20_000))):
        now += step * rng.uniform(0.5, 1.5)
        while lease.open(now):
            lease.charge(1, now)
            admitted += 1
            renew(lease, shared, now)
        renew(lease, shared, now)
    # Half of it at the least: steps are as long as what is granted in one, and a dry bucket is not
    # asked at every step.
    assert admitted >= 0.5 * rate * now


def test_a_dry_bucket_is_not_asked_before_it_has_something_again() -> None:
    shared, lease = Shared(10, 10), Lease(10, 10)
    asked, now, step = 0, 0.0, 0.001
    for _ in range(2_000):
        now += step
        if lease.open(now):
            lease.charge(1, now)
        asked += lease.wants(now)
        renew(lease, shared, now)
    assert lease.dry
    assert asked <= 2_000 * step / CALM + 30, "once in that time, and while it was not dry"


def test_a_debt_is_waited_for_to_its_end() -> None:
    shared, lease = Shared(10, 100), Lease(10, 100)
    lease.charge(600, 0.0)
    renew(lease, shared, 0.0)
    assert not lease.open(0.0)
    assert 50 <= lease.wait(0.0) <= 51, "600 of 100: 500 at 10 a second, and one more unit"
    assert not lease.wants(10.0)
    assert lease.wants(51.0)
    renew(lease, shared, 51.0)
    assert lease.open(51.0)


@given(rates, st.floats(0.1, 10), st.integers(0, 2**32))
@settings(max_examples=examples(100), deadline=None)
def test_alone_a_gateway_is_a_bucket_of_its_own(rate: float, burst: float, seed: int) -> None:
    rng = random.Random(seed)
    capacity = max(1.0, rate * burst)
    lease = Lease(rate, capacity)
    lease.leave(0.0)
    now, admitted, least, most = 0.0, 0, float("inf"), 0.0
    for _ in range(200):
        now += rng.choice((0.0, 0.01, 0.5))
        for _ in range(50):
            if lease.open(now):
                lease.charge(1, now)
                admitted += 1
        least, most = min(least, lease.balance), max(most, lease.balance)
        assert admitted <= lease.portion + capacity + rate * now + 1
    assert least >= -1, "a unit at the most beyond what it had, which may be next to nothing"
    assert most <= capacity
    assert lease.wants(now), "it goes on asking for the shared one"


def test_what_is_given_back_pays_the_buckets_debt_before_anything_is_let_in() -> None:
    shared, lease = Shared(10, 100), Lease(10, 100)
    lease.charge(400, 0.0)
    renew(lease, shared, 0.0)
    lease.charge(200, 0.1)
    lease.give_back(300)
    assert not lease.open(0.1)
    renew(lease, shared, 0.2)
    assert not lease.open(0.2)
    assert 18 <= lease.wait(0.2) <= 22, "300 of 100 are left to pay: 200 at 10 a second"


def test_the_wait_after_a_guess_that_the_bucket_took_is_of_what_was_accepted_alone() -> None:
    lease, shared = Lease(10.0, 10.0), Shared(10.0, 10.0)
    renew(lease, shared, 0.0)
    lease.charge(350, 0.0)
    renew(lease, shared, 0.1)
    lease.charge(500, 0.1)
    lease.give_back(350)
    renew(lease, shared, 0.1 + CALM / 2)  # asked just now: too early to ask again
    assert 48 <= lease.wait(0.1 + CALM / 2) <= 52, (
        "500 of 10 a second, not the 350 that were guessed beside them"
    )
    lease, shared = Lease(10.0, 10.0), Shared(10.0, 10.0)
    renew(lease, shared, 0.0)
    lease.charge(850, 0.0)
    renew(lease, shared, 0.1)
    lease.give_back(350)
    assert 48 <= lease.wait(0.1) <= 52, "as well where the bucket took both"


def test_what_was_charged_while_the_answer_was_under_way_stays_charged() -> None:
    lease = Lease(100, 100)
    owed, wanted = lease.ask(0.0)
    before = lease.balance
    lease.charge(7, 0.0)
    lease.take(owed, wanted, Settled(wanted, 50.0), 0.1)
    assert lease.balance == before + wanted - 7
    assert lease.debt == 0


def test_a_smaller_quota_takes_leased_units_back() -> None:
    lease = Lease(1_000, 1_000)
    renew(lease, Shared(1_000, 1_000), 0.0)
    lease.change(2, 2)
    assert lease.balance <= lease.portion == 1.0


def test_until_filled_is_honest() -> None:
    assert until_filled(-9.0, 10.0) == 1.0
    assert until_filled(5.0, 10.0) == 0.0
    assert until_filled(0.0, 0.1) == 1.0


def test_what_is_given_back_while_an_answer_is_under_way_admits_nothing_while_the_bucket_is_dry() -> (
    None
):
    shared, lease = Shared(10, 10), Lease(10, 10)
    lease.charge(160, 0)  # a guess
    lease.charge(500, 0)
    owed, wanted = lease.ask(0)
    lease.give_back(160)
    lease.take(owed, wanted, shared.settle(0, owed, wanted), 0.1)
    assert not lease.open(0.1)
    renew(lease, shared, 0.2)
    assert not lease.open(0.2)
    assert abs(lease.wait(0.2) - (500 - 10) / 10) < 1


def test_a_gateway_that_is_left_alone_waits_as_long_as_the_dry_bucket_did() -> None:
    shared, lease = Shared(10, 10), Lease(10, 10)
    lease.charge(500, 0)
    renew(lease, shared, 0)
    lease.fail(1)
    assert not lease.open(2)
    assert 45 < lease.wait(2) < 50
    assert not lease.open(45)
    assert lease.open(50)
    lease.charge(20, 50)
    assert not lease.open(50)
    assert lease.open(53)
