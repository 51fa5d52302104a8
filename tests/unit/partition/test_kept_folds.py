"""What rollbacks read is kept within one bound for all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from streams.partition import kept_folds
from streams.partition.kept_folds import KeptFolds


@dataclass(eq=False)
class Holder:
    fold: Any = None


class Fold:
    def __init__(self, size: int) -> None:
        self.size = size

    def shrink(self, most: int) -> None:
        self.size = min(self.size, most)


def test_who_got_a_fold_first_loses_it_where_all_are_too_large(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kept_folds, "MOST", 10)
    kept, holders = KeptFolds(), [Holder() for _ in range(4)]

    def keep(number: int, size: int) -> list[int]:
        fold: Any = Fold(size)
        kept.keep(holders[number], fold)
        return [0 if one.fold is None else one.fold.size for one in holders]

    assert keep(0, 4) == [4, 0, 0, 0]
    assert keep(1, 4) == [4, 4, 0, 0]
    assert keep(0, 5) == [5, 4, 0, 0]
    assert keep(2, 5) == [5, 0, 5, 0]
    holders[0].fold = None
    assert keep(3, 5) == [0, 0, 5, 5]
    assert keep(1, 99) == [0, 10, 0, 0]
