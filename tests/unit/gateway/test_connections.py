"""Which connection makes way for a new one, and when none does."""

from __future__ import annotations

import resource

from threadfold.gateway.connections import (
    DESCRIPTORS,
    LEAST,
    RESERVED,
    Connections,
    descriptors,
    most_connections,
    raise_descriptors,
)


class Open:
    def __init__(self, address: str) -> None:
        self.address = address
        self.made_way = False

    def make_way(self) -> None:
        self.made_way = True


def opened(connections: Connections, *addresses: str) -> list[Open]:
    made = [Open(address) for address in addresses]
    assert all(connections.add(one) for one in made)
    return made


def test_the_connection_that_waits_longest_makes_way_for_a_new_one() -> None:
    connections = Connections(3, 3)
    first, second, third = opened(connections, "a", "b", "c")
    connections.is_answered(first)
    connections.waits(first)
    opened(connections, "d")
    assert [first.made_way, second.made_way, third.made_way] == [False, True, False]
    assert len(connections) == 3


def test_a_connection_whose_request_is_being_answered_never_makes_way() -> None:
    connections = Connections(2, 2)
    busy = opened(connections, "a", "b")
    for one in busy:
        connections.is_answered(one)
    assert not connections.add(Open("c"))
    assert not any(one.made_way for one in busy)
    connections.remove(busy[0])
    opened(connections, "c")
    assert len(connections) == 2


def test_an_address_with_its_share_makes_way_for_itself() -> None:
    connections = Connections(10)
    own = opened(connections, *"aaaaa")
    other = opened(connections, "b")[0]
    for one in own[1:]:
        connections.is_answered(one)
    opened(connections, "a")
    assert own[0].made_way and not other.made_way
    assert len(connections) == 6


def test_connections_are_bounded_by_the_descriptors_there_are() -> None:
    assert most_connections(1_024) == 1_024 - RESERVED
    assert most_connections(10) == LEAST
    assert most_connections(None) == DESCRIPTORS


def test_the_limit_of_descriptors_is_raised_as_far_as_it_may_be() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 512), hard))
        raised = raise_descriptors()
        assert raised == descriptors() == (DESCRIPTORS if hard < 0 else min(hard, DESCRIPTORS))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
