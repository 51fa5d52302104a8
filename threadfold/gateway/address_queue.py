"""A queue of clients in which addresses take turns: whoever comes from one address with many waits
for himself alone.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, TypeVar

from threadfold.gateway.who_has_most import WhoHasMost

Waiting = TypeVar("Waiting")


class AddressQueue(Generic[Waiting]):
    """What waits, each once. Those of one address keep their order.

    Args:
        rare_first: an address that comes, and has not had a turn for as many turns as others wait,
            is next: it would have had one. Who wants little does not wait for a round of those that
            want much. Those wait for a round at most.
    """

    def __init__(self, *, rare_first: bool = False) -> None:
        self._rare_first = rare_first
        self._rare = OrderedDict[str, None]()
        """The addresses that are next, in the order in which they came."""
        self._had = OrderedDict[str, int]()
        """When addresses had their last turn, as a number of turns; not those long ago."""
        self._since: dict[str, int] = {}
        """Since when those that wait do, or had their last turn, as a number of turns."""
        self._turns = 0
        self._of: OrderedDict[str, OrderedDict[Waiting, None]] = OrderedDict()
        self._counts = WhoHasMost()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def of(self, address: str) -> int:
        """How many wait of an address."""
        return len(self._of.get(address, ()))

    def add(self, address: str, one: Waiting) -> None:
        """Put one at the end; one that is there keeps its place."""
        mine = self._of.get(address)
        if mine is None:
            mine = self._of[address] = OrderedDict()
            self._since[address] = self._turns
            ago = self._turns - self._had.get(address, -len(self._of))
            if self._rare_first and ago >= len(self._of):
                self._rare[address] = None
        if one not in mine:
            mine[one] = None
            self._count += 1
            self._counts.count(address, len(mine) - 1, len(mine))

    def remove(self, address: str, one: Waiting) -> bool:
        """Take one out; False: it was not there."""
        mine = self._of.get(address, OrderedDict())
        if one not in mine:
            return False
        del mine[one]
        self._taken(address, mine)
        return True

    def next(self) -> Waiting:
        """Take out the one whose turn it is; there has to be one."""
        address = next(iter(self._of))
        if self._rare and self._turns - self._since[address] < len(self._of):
            address = next(iter(self._rare))
        mine = self._of[address]
        one, _ = mine.popitem(last=False)
        self._of.move_to_end(address)
        if self._rare_first:
            self._note_turn(address)
        self._taken(address, mine)
        return one

    def last(self, address: str | None = None) -> Waiting:
        """Take out the last one of an address; None: of the one with most, and of several the one
        that has had so many for longest.
        """
        if address is None:
            address = self._counts.first()
        mine = self._of[address]
        one, _ = mine.popitem()
        self._taken(address, mine)
        return one

    def _taken(self, address: str, mine: OrderedDict[Waiting, None]) -> None:
        self._count -= 1
        self._counts.count(address, len(mine) + 1, len(mine))
        if not mine:
            del self._of[address], self._since[address]
            self._rare.pop(address, None)

    def _note_turn(self, address: str) -> None:
        self._rare.pop(address, None)
        self._turns += 1
        self._had[address] = self._since[address] = self._turns
        self._had.move_to_end(address)
        while self._turns - next(iter(self._had.values())) > len(self._of):
            self._had.popitem(last=False)
