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
        self._holders: dict[int, tuple[Holder, int]] = {}
        """By identity, with the bytes of their folds; who got his last comes last."""

    def keep(self, holder: Holder, fold: PartedFold) -> None:
        """Give the fold to its holder; of one that is too large alone a part, or nothing."""
        fold.shrink(MOST)
        holder.fold, size = fold, fold.size
        self._holders.pop(id(holder), None)
        left = MOST - size
        for place, (other, bytes_) in reversed(list(self._holders.items())):
            left -= bytes_ if other.fold is not None else 0
            if other.fold is None or left < 0:
                other.fold = None
                del self._holders[place]
        self._holders[id(holder)] = holder, size


KEPT_FOLDS = KeptFolds()
"""Those of this process: the limit is the process'."""
