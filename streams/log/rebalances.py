"""What the projector's consumer tells of its assignment, handed on."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from aiokafka import ConsumerRebalanceListener, TopicPartition


class Owner(Protocol):
    """Whoever owns the partitions that a group assigns."""

    async def commit(self) -> None:
        """Commit what is done."""

    def revoked(self, numbers: Iterable[int]) -> None:
        """Give partitions up."""

    def assigned(self, numbers: Iterable[int]) -> None:
        """Take partitions over."""


class Rebalances(ConsumerRebalanceListener):  # type: ignore[misc]
    """A listener of aiokafka's that tells an owner."""

    def __init__(self, owner: Owner) -> None:
        self._owner = owner

    async def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        """Commit what is done, then let go."""
        await self._owner.commit()
        self._owner.revoked(tp.partition for tp in revoked)

    async def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        """Take over; reading starts when the partition is prepared."""
        self._owner.assigned(tp.partition for tp in assigned)
