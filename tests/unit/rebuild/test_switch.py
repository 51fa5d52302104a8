"""What a switch takes over, which generation a rebuild builds, how far it folds, and how its work
is dealt out.
"""

from __future__ import annotations

import msgspec
import pytest

from projections.errors import Healing
from projections.policy.policy import Rules
from projections.storage.records import Checkpoint
from streams.control import generations
from streams.control.generations import candidate, heal_to_live, kept_rules
from streams.control.state import Generation, State
from streams.rebuild.build import Bounds, Unwritten, announced
from streams.rebuild.build_pool import shares
from streams.rebuild.losses import Side, find_losses
from streams.settings.quotas import Tenant
from threadfold.testing import MemoryStore


def state_of(*generations: Generation, live: int = 1, tenants: tuple[Tenant, ...] = ()) -> State:
    state = State()
    state.generations, state.live = {one.number: one for one in generations}, live
    state.tenants = {tenant.name: tenant for tenant in tenants}
    return state


def test_the_old_generation_keeps_the_policies_of_tenants_that_it_was_folded_under() -> None:
    tenants = (
        Tenant("built", {}, {"working_budget": 900}),
        Tenant("other", {"min_messages": 5}),
        Tenant("plain"),
    )
    state = state_of(Generation(1, 2, {}, {"other": {"min_messages": 6}}), tenants=tenants)
    old = kept_rules(state, state.generations[1])
    assert old.tenants == {"built": {}, "other": {"min_messages": 6}}
    # After the switch the tenant's record has the new policy; whoever goes back is to fold under
    # the old one.
    state.generations[1] = old
    state.tenants["built"] = Tenant("built", {"working_budget": 900})
    assert state.rules(old).for_conversation("built", None).working_budget == 30_000


def test_a_policy_that_waits_is_part_of_the_rules_of_the_next_generation() -> None:
    state = state_of(
        Generation(1, 2),
        tenants=(
            Tenant("t", {"min_messages": 5}, {"min_messages": 6}),
            Tenant("u", {"min_messages": 7}),
        ),
    )
    generation, known = candidate(state, None)
    assert (generation.number, known, generation.tenants) == (
        2,
        False,
        {"t": {"min_messages": 6}, "u": {"min_messages": 7}},
    )


def test_after_going_back_the_next_rebuild_is_under_the_policies_that_are_in_force() -> None:
    old, new = (
        Generation(1, 2, {}, {"t": {"min_messages": 5}}),
        Generation(2, 2, {}, {"t": {"min_messages": 6}}),
    )
    state = state_of(old, new, live=1, tenants=(Tenant("t", {"min_messages": 6}),))
    assert candidate(state, None)[0].tenants == {"t": {"min_messages": 5}}


def test_a_rebuild_goes_on_with_the_one_that_was_begun_under_the_same_rules() -> None:
    state = state_of(Generation(1, 2), Generation(2, 2, {"working_budget": 900}, {}, "building"))
    assert candidate(state, {"working_budget": 900}) == (state.generations[2], True)
    assert candidate(state, {"working_budget": 800})[0].number == 3


def test_the_first_claim_of_a_number_counts_and_a_number_is_never_given_again() -> None:
    state = state_of(Generation(1, 2))
    for claimant in (b"aa", b"bb"):
        state.put(b"claim/2/" + claimant, b"2")
    assert state.claims == {2: "aa"}
    state.put(b"generation/2", msgspec.json.encode(Generation(2, 2)))
    state.put(b"generation/2", None)
    assert candidate(state, None)[0].number == 3


async def test_a_rebuild_folds_no_further_than_the_live_generation_has_spoken_of() -> None:
    store = MemoryStore()
    await store.apply(1, 0, Checkpoint("", 4, 0, "d"), [])
    await store.apply(1, 1, Checkpoint("", 2, 0, "d", 8), [])
    assert await announced(store, 1, {0: 10, 1: 10, 2: 10}) == {0: 5, 1: 9, 2: 0}


async def test_a_generation_heals_up_to_where_readers_of_the_live_one_have_been() -> None:
    store = MemoryStore()
    await store.apply(1, 0, Checkpoint("", 9, 0, "d"), [])
    await store.apply(2, 0, Checkpoint("", 4, 0, "d"), [])
    await heal_to_live(store, 1, 2, 0)
    await heal_to_live(store, 1, 2, 1)
    marked = await store.checkpoint(2, 0)
    assert marked is not None
    assert (marked.offset, marked.target, marked.healing) == (4, 9, True)
    assert await store.checkpoint(2, 1) is None


@pytest.mark.parametrize(
    ("live", "reached"),
    [
        (Checkpoint("", -1, -1, "", 9), "offset -1 of 9"),
        (Checkpoint("", 4, 0, "d", 9), "offset 4 of 9"),
        (Checkpoint("", 4, 0, "d", 9, ahead=9, rollbacks=(("acme/c", 5),)), "offset 4 of 9"),
        (Checkpoint("", 9, 0, "d", unverified=True), "not begun yet"),
        (None, ""),
    ],
    ids=["lost", "being folded again", "but for rollbacks", "on another server", "not yet there"],
)
async def test_no_generation_takes_the_place_of_one_that_heals(
    live: Checkpoint | None, reached: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(generations, "SETTLE", 0.0)
    store = MemoryStore()
    if live is not None:
        await store.apply(1, 0, live, [])
    await store.apply(2, 0, Checkpoint("", 9, 0, "d"), [])
    with pytest.raises(Healing):
        await heal_to_live(store, 1, 2, 0)
    if live is not None:
        with pytest.raises(Healing, match=f"partition 0 .*{reached}"):
            await find_losses(store, Side(1, Rules({})), Side(2, Rules({})), {0: 0}, _nothing)


async def _nothing() -> None:
    """Nothing is to be caught up with."""


def test_partitions_are_dealt_out_so_that_each_process_has_about_as_much() -> None:
    left = {0: 100, 1: 10, 2: 60, 3: 50, 4: 0, 5: 0}
    parts = shares(left, 2)
    assert sorted(number for part in parts for number in part) == [0, 1, 2, 3, 4, 5]
    assert sorted(sum(left[n] for n in part) for part in parts) == [110, 110]
    assert shares(left, 99) == [[n] for n in (0, 2, 3, 1, 4, 5)]
    assert shares({0: 5}, 4) == [[0]]


def test_the_bounds_of_what_is_unwritten_are_shared_by_the_processes() -> None:
    assert Bounds(100, 1000, 5.0, 40).of(4) == Bounds(25, 250, 5.0, 10)
    assert Bounds(1, 1, 5.0, 1).of(4) == Bounds(1, 1, 5.0, 1)


def test_many_windows_are_written_before_they_fill_the_memory() -> None:
    assert [Unwritten(Bounds(windows=5)).over(n) for n in (4, 5)] == [False, True]


def test_less_is_unwritten_after_others_wrote_in_between_and_again_more_with_each_write() -> None:
    unwritten = Unwritten(Bounds(events=100_000))
    sizes = [unwritten.most_events]
    for step in (unwritten.lost, unwritten.lost, unwritten.lost, *[unwritten.written] * 9):
        step()
        sizes.append(unwritten.most_events)
    assert sizes[:4] == [100_000, 12_500, 1_562, 195]
    assert sizes[4:] == sorted(sizes[4:]) and sizes[-1] == 100_000
