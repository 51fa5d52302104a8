"""Addresses take turns, and what is dropped is the last of the one with most."""

from __future__ import annotations

from collections import OrderedDict

from hypothesis import given
from hypothesis import strategies as st

from threadfold.gateway.address_queue import AddressQueue

STEPS = st.lists(st.tuples(st.sampled_from(["add", "next", "remove", "last"]), st.integers(0, 11)))


@given(STEPS)
def test_it_is_a_queue_for_each_address_whose_heads_go_round(steps: list[tuple[str, int]]) -> None:
    queue, plain = AddressQueue[int](), OrderedDict[str, list[int]]()
    changed: list[str] = []

    def took(address: str, one: int) -> None:
        changed.append(address)
        plain[address].remove(one)
        if not plain[address]:
            del plain[address]

    for step, number in steps:
        address = "abc"[number % 3]
        if step == "add":
            queue.add(address, number)
            if number not in plain.setdefault(address, []):
                plain[address].append(number)
                changed.append(address)
        elif step == "remove":
            there = number in plain.get(address, [])
            assert queue.remove(address, number) is there
            if there:
                took(address, number)
        elif step == "next" and plain:
            first = next(iter(plain))
            plain.move_to_end(first)
            one = queue.next()
            assert one == plain[first][0]
            took(first, one)
        elif step == "last" and plain:
            named = next(iter(plain)) if number % 2 else None
            one = queue.last(named)
            (whose,) = [each for each in plain if one in plain[each]]
            assert one == plain[whose][-1] and named in (None, whose)
            if named is None:
                most = max(map(len, plain.values()))
                with_most = [each for each in plain if len(plain[each]) == most]
                backwards = changed[::-1]
                assert whose == max(with_most, key=backwards.index), "so many for longest"
            took(whose, one)
        assert len(queue) == sum(map(len, plain.values()))
        assert queue.of(address) == len(plain.get(address, []))
