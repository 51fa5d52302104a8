"""Which events of a log stand after its rollbacks, whatever order they are heard of in."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from projections.memory.branches import Branches

END = 30
logs = st.dictionaries(st.integers(1, END), st.integers(0, END), max_size=7).map(
    lambda found: {by: to % by for by, to in found.items()}
)


@given(logs, st.randoms())
def test_what_stands_are_the_ancestors_of_the_logs_end(
    rollbacks: dict[int, int], rng: object
) -> None:
    standing, at = set(), END
    while at >= 0:
        standing.add(at)
        at = rollbacks.get(at, at - 1)
    pairs = list(rollbacks.items())
    rng.shuffle(pairs)  # type: ignore[attr-defined]
    branches = Branches(pairs + pairs[:2])
    assert {at for at in range(END + 1) if branches.stands(at)} == standing


def test_a_rollback_of_a_rollback_brings_back_what_it_took() -> None:
    assert not Branches([(5, 2)]).stands(4)
    assert Branches([(5, 2), (8, 4)]).stands(4)
    assert not Branches([(5, 2), (8, 4)]).stands(6)
