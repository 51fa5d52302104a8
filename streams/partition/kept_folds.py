"""What the last rollbacks into old history read and folded, kept for the next ones of the same
conversations: those that are asked for together, or one over the other, read it once.
"""

from __future__ import annotations

from typing import Protocol

from streams.log.parted_fold import PartedFold

MOST = 64 << 20
"""Bytes at most, about, of all partitions of a process."""


class Holder(Protocol):
    """The conversation's slot, which forgets its fold where something is taken out."""

    fold: PartedFold | None


class KeptFolds:
    """Who has a fold; those who got theirs first lose it where all together are too large."""

    def __init__(self) -> None:
        self._holders: list[Holder] = []

    def keep(self, holder: Holder, fold: PartedFold) -> None:
        """Give the fold to its holder; of one that is too large alone a part, or nothing."""
        fold.shrink(MOST)
        holder.fold = fold
        others = [one for one in self._holders if one is not holder and one.fold is not None]
        self._holders = [*others, holder]
        left = MOST - fold.size
        for one in reversed(others):
            left -= one.fold.size if one.fold is not None else 0
            if left < 0:
                one.fold = None


KEPT_FOLDS = KeptFolds()
"""Those of this process: the limit is the process'."""
