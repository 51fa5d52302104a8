"""What is folded from one partition of the log and written by one owner: its checkpoint, and how
another owner is noticed.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod

from projections.errors import ThreadfoldError
from projections.storage.records import Checkpoint


class Fenced(ThreadfoldError):
    """Somebody else wrote this partition's results, or the store lost them: drop what is cached,
    load the checkpoint, go on.
    """


class OwnedPartition(ABC):
    """One partition of the log and what is folded from it, written by this process alone; others
    are fenced.
    """

    def __init__(self, number: int, label: str) -> None:
        """Args: ``label`` names it in errors."""
        self.number = number
        self.label = label
        self.checkpoint = Checkpoint()
        """How far it is folded, as it was written last."""
        self.turn = asyncio.Lock()
        """Whoever folds it, reads what is due in it or looks at its store holds it: each of these
        awaits something in the middle.
        """

    def close(self) -> None:  # noqa: B027 (most do nothing beside)
        """It is not folded any more: end what it does beside."""

    @abstractmethod
    async def stored_checkpoint(self) -> Checkpoint | None:
        """The checkpoint in the store."""

    async def check(self) -> Checkpoint:
        """The checkpoint in the store; raises :class:`Fenced` when it is not the one written last
        (Redis was wiped, say).
        """
        return self.check_revision(await self.stored_checkpoint())

    def check_revision(self, stored: Checkpoint | None) -> Checkpoint:
        """The checkpoint that was read, if it is the one written last; raises :class:`Fenced`."""
        if stored is None or stored.revision != self.checkpoint.revision:
            raise Fenced(f"{self.label} is not as this process left it")
        return stored

    def check_loaded(self, stored: Checkpoint | None) -> None:
        """Raise :class:`Fenced` if what was loaded with this checkpoint is not what was written
        last. A fold of windows that the store lost would tell subscribers what is not so.
        """
        if stored is not None or self.checkpoint.revision:
            self.check_revision(stored)

    def written_by_another(self) -> Fenced:
        """The error of a write that was refused."""
        return Fenced(f"{self.label} was written by another process")
