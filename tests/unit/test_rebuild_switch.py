"""What a switch takes over, and how far a rebuild folds."""

from __future__ import annotations

from projections.persistence import Checkpoint
from streams.control import Generation, State
from streams.rebuild import _spoken, _switched
from streams.tenants import Tenant
from threadfold.testing import MemoryStore


def test_a_policy_that_came_after_the_rebuild_began_waits_for_the_next_one() -> None:
    state, ready = State(), Generation(2, 2, {}, {"built": {"working_budget": 900}})
    state.generations, state.live = {1: Generation(1, 2), 2: ready}, 1
    state.tenants = {
        "built": Tenant("built", {}, {"working_budget": 900}),
        "late": Tenant("late", {}, {"working_budget": 700}),
    }
    records = _switched(state, ready)
    assert records["tenant/built"] == Tenant("built", {"working_budget": 900}, version=1)
    assert "tenant/late" not in records


async def test_a_rebuild_folds_no_further_than_the_live_generation_has_spoken_of() -> None:
    store = MemoryStore()
    await store.apply(1, 0, Checkpoint("", 4, 0, "d"), [])
    await store.apply(1, 1, Checkpoint("", 2, 0, "d", 8), [])
    assert await _spoken(store, 1, {0: 10, 1: 10, 2: 10}) == {0: 5, 1: 9, 2: 0}
