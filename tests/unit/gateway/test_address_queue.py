"""Addresses take turns, and what is dropped is the last of the one with most."""

from __future__ import annotations

from collections import OrderedDict, deque

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


def test_who_wants_little_is_next_and_does_not_wait_for_a_round_of_those_that_want_much() -> None:
    queue = AddressQueue[str](rare_first=True)
    for i in range(3):
        for number in range(20):
            queue.add(f"much{number}", f"much{number} {i}")
    for _ in range(25):
        queue.next()
    queue.add("little", "little 0")
    queue.add("less", "less 0")
    assert [queue.next(), queue.next()] == ["little 0", "less 0"]
    queue.add("little", "little 1")
    round_ = [queue.next() for _ in range(21)]
    assert "little 1" not in round_[:19], "it had its turn of this round"
    assert "little 1" in round_
    for _ in range(2):
        queue.next()
    queue.add("little", "little 2")
    assert queue.next() != "little 2"


@given(st.lists(st.integers(0, 4), min_size=50, max_size=200))
def test_who_always_comes_anew_has_no_more_turns_than_those_that_wait(comes: list[int]) -> None:
    queue = AddressQueue[str](rare_first=True)
    for number in range(4):
        for i in range(300):
            queue.add(f"waits{number}", f"waits{number} {i}")
    turns = dict.fromkeys(["anew", *(f"waits{number}" for number in range(4))], 0)
    for step, pause in enumerate(comes):
        if not queue.of("anew") and not pause:
            queue.add("anew", f"anew {step}")
        turns[queue.next().split()[0]] += 1
    assert turns["anew"] <= len(comes) // 5 + 1
    waited = [count for name, count in turns.items() if name != "anew"]
    assert max(waited) - min(waited) <= 1


def test_who_wants_much_has_a_turn_in_each_round_however_many_want_little() -> None:
    queue, turns = AddressQueue[str](rare_first=True), 0
    queue.add("much", "much 0")
    queue.add("much", "much 1")
    for number in range(60):
        queue.add(f"little{number}", f"little{number}")
    away = deque[str]()
    for step in range(1, 6_001):
        one = queue.next()
        if one.startswith("much"):
            turns += 1
            queue.add("much", f"much {step}")
        else:
            away.append(one)
        if len(away) > 10:  # each comes back some turns after its last
            back = away.popleft()
            queue.add(back, back)
    assert turns >= 6_000 // 62
