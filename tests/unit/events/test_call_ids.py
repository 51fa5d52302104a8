"""The ids of one message's calls as they are sent."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from projections.events.provider_limits import LONGEST_ID, call_ids

NAMES = st.sampled_from(["a", "b", "a-2", "a-3", "a-2-2", "b-2", "x" * (LONGEST_ID + 1)])


@given(st.lists(NAMES, max_size=12))
def test_sent_ids_are_unique_and_the_first_of_each_stays_as_it_is(ids: list[str]) -> None:
    sent = call_ids(ids)
    assert len(set(sent)) == len(sent) == len(ids)
    for name in {one for one in ids if len(one) <= LONGEST_ID}:
        assert sent[ids.index(name)] == name


def test_repeated_ids_are_numbered_past_those_that_are_in_use() -> None:
    assert call_ids(["a", "a", "a-2", "a", "a-2"]) == ["a", "a-3", "a-2", "a-4", "a-2-2"]


def test_many_calls_of_one_id_are_numbered_in_proportion_to_their_number() -> None:
    """The third power of 20,000 would take hours."""
    assert call_ids(["a"] * 20_000)[-1] == "a-20000"
