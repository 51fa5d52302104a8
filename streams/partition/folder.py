"""What the partition runtime asks of those who fold: the live projector and custom projections."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Generic, NamedTuple, TypeVar

from projections.errors import ThreadfoldError
from streams.log.log import Row
from streams.partition.owned import OwnedPartition

P = TypeVar("P", bound=OwnedPartition)


class Prepared(NamedTuple, Generic[P]):
    """A partition that can be read from after its checkpoint, and the log's first offset."""

    partition: P
    begin: int


class Folder(ABC, Generic[P]):
    """What a runtime folds, and where it is written."""

    name: str
    """Names it in log lines."""
    fatal: tuple[type[ThreadfoldError], ...]
    """What ends the runtime: anything written after such an error would not be right."""

    @abstractmethod
    async def prepare(self, number: int, committed: int) -> Prepared[P] | None:
        """Find where a partition goes on, and fence a former owner; None: do it once more.

        Args:
            committed: the offset from which on the group has committed nothing.
        """

    @abstractmethod
    async def process(self, partition: P, rows: Sequence[Row]) -> None:
        """Fold one batch and write it with its checkpoint."""

    @abstractmethod
    async def drop(self, partition: P) -> None:
        """Delete what is stored of a partition: it cannot be read, and is folded anew."""

    @abstractmethod
    async def look_after(self, partition: P) -> None:
        """What a partition needs twice a second, whether records come or not."""

    def halted_after(self, number: int) -> int | None:
        """The offset after which a partition is not folded for now; None: it is not halted."""
        return None

    def goes_on(self) -> bool:
        """Called before each fetch, to follow what the control topic holds; False ends the run."""
        return True

    def taken_over(self, partition: P) -> None:
        """A prepared partition is about to be read."""

    def let_go(self, number: int) -> None:
        """A partition is not folded any more, or is about to be prepared anew."""

    async def tick(self) -> None:
        """Called twice a second, after the partitions."""

    async def finish(self) -> None:
        """Called at the end, before the group is left."""
